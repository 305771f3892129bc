"""The daemon's handles on its workers, against real processes whose encoder is scripted."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import psutil
import pytest
import trio
import trio.testing

import scripted_worker
from recalld_daemon.recall.types import EncoderUnavailable
from recalld_daemon.workers import BulkWorker, LiveWorker, ModelChoice, ModelWorker, RequestFailed, WorkerState

SCRIPT = scripted_worker.__file__
Handle = TypeVar("Handle", bound=ModelWorker)


def check(
    handle: Callable[..., Handle],
    conversation: Callable[[Handle], Awaitable[None]],
    model: str = "scripted",
    **options: object,
) -> Handle:
    """Run a conversation with a worker; afterwards its process must be gone and reaped."""
    role = "live" if handle is LiveWorker else "bulk"
    options.setdefault("command", [sys.executable, "-P", SCRIPT, role])
    options.setdefault("first_backoff_seconds", 0.01)
    worker = handle(ModelChoice(cache_dir=Path("/nonexistent"), model=model), **options)
    pids: list[int] = []

    async def run() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                await nursery.start(worker.run)
                pids.append(worker.state.pid)
                await conversation(worker)
                pids.append(worker.state.pid)
                nursery.cancel_scope.cancel()

    trio.run(run)
    assert worker.state.phase == "stopped"
    for pid in pids:
        if pid:
            with pytest.raises(ProcessLookupError):  # a zombie would still take a signal
                os.kill(pid, 0)
    return worker


async def length_of(worker: LiveWorker, text: str) -> int:
    """What the scripted encoder says about the text, checked against the tokens' number."""
    encoding = await worker.encode_query(text)
    assert encoding.tokens.shape == (int(encoding.vector[0]), 2)
    return int(encoding.vector[0])


def test_answers_go_to_those_who_asked() -> None:
    async def conversation(worker: LiveWorker) -> None:
        await worker.wait_ready()
        found: dict[int, int] = {}

        async def ask(length: int) -> None:
            found[length] = await length_of(worker, "x" * length)

        async with trio.open_nursery() as nursery:
            for length in range(1, 51):
                nursery.start_soon(ask, length)
        assert found == {length: length for length in range(1, 51)}

    check(LiveWorker, conversation)


def test_a_cancelled_request_leaves_the_pipe_in_sync(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    async def conversation(worker: LiveWorker) -> None:
        await worker.wait_ready()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.encode_query, f"wait:{tmp_path / 'fifo'}")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        with trio.move_on_after(0):
            await worker.encode_query("never read")
        (tmp_path / "fifo").write_bytes(b"")
        assert await length_of(worker, "abc") == 3
        assert worker.state.restarts == 0

    check(LiveWorker, conversation)


def test_a_request_larger_than_the_pipe_is_written_while_others_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    async def conversation(worker: BulkWorker) -> None:
        await worker.wait_ready()
        long = "y" * 3_000_123
        lengths: list[list[float]] = []

        async def encode(*texts: str) -> None:
            encoded = await worker.encode_passages(texts)
            vectors = np.frombuffer(encoded.vectors, np.float16).reshape(len(texts), 4)
            lengths.append(vectors[:, 0].tolist())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(encode, f"wait:{tmp_path / 'fifo'}")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(encode, long, "ab")
            await trio.testing.wait_all_tasks_blocked()
            (tmp_path / "fifo").write_bytes(b"")
        assert lengths[1] == [123.0, 2.0]

    check(BulkWorker, conversation)


def test_killed_in_mid_request_costs_silence_and_heals() -> None:
    async def conversation(worker: LiveWorker) -> None:
        await worker.wait_ready()
        before = worker.state.pid
        with pytest.raises(EncoderUnavailable):
            await worker.encode_query("die")
        with pytest.raises(EncoderUnavailable, match="live worker"):
            await worker.encode_query("at once, not when it is back")
        await worker.wait_ready()
        assert await length_of(worker, "back") == 4
        assert worker.state.restarts == 1
        assert worker.state.pid != before

    check(LiveWorker, conversation)


def test_all_who_wait_are_told_when_it_dies(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    async def conversation(worker: LiveWorker) -> None:
        await worker.wait_ready()
        refused: list[str] = []

        async def ask(text: str) -> None:
            with pytest.raises(EncoderUnavailable):
                await worker.encode_query(text)
            refused.append(text)

        async with trio.open_nursery() as nursery:
            for text in (f"wait:{tmp_path / 'fifo'}", "a", "b"):  # trio starts tasks in any order: one by one
                nursery.start_soon(ask, text)
                await trio.testing.wait_all_tasks_blocked()
            os.kill(worker.state.pid, signal.SIGKILL)
        assert len(refused) == 3

    check(LiveWorker, conversation)


@pytest.mark.parametrize("how", ["hang", "stopped"])
def test_a_worker_that_hangs_is_replaced(how: str) -> None:
    async def conversation(worker: LiveWorker) -> None:
        await worker.wait_ready()
        if how == "stopped":
            os.kill(worker.state.pid, signal.SIGSTOP)
        with pytest.raises(EncoderUnavailable, match="no answer"):
            await worker.encode_query("hang")
        await worker.wait_ready()
        assert await length_of(worker, "back") == 4

    check(LiveWorker, conversation, hang_seconds=1.0)


def test_a_worker_that_owes_too_much_is_asked_no_more(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    async def conversation(worker: LiveWorker) -> None:
        await worker.wait_ready()
        for _ in range(256):
            with trio.CancelScope() as scope:
                scope.cancel()
                await worker.encode_query(f"wait:{tmp_path / 'fifo'}")
        with pytest.raises(EncoderUnavailable, match="owes 256 answers"):
            await worker.encode_query("one more")

    check(LiveWorker, conversation)


def test_stray_prints_do_not_reach_the_pipe() -> None:
    async def conversation(worker: LiveWorker) -> None:
        await worker.wait_ready()
        assert await length_of(worker, "print:hello") == 11
        assert await length_of(worker, "abc") == 3
        assert worker.state.restarts == 0

    check(LiveWorker, conversation)


def test_what_cannot_be_encoded_fails_alone() -> None:
    async def conversation(worker: LiveWorker) -> None:
        await worker.wait_ready()
        with pytest.raises(EncoderUnavailable, match="not in this house"):
            await worker.encode_query("raise:not in this house")
        assert await length_of(worker, "abc") == 3

    check(LiveWorker, conversation)


def test_p031_lone_surrogates_are_replaced_one_for_one() -> None:
    async def conversation(worker: LiveWorker) -> None:
        await worker.wait_ready()
        assert await length_of(worker, "a\ud83db\0") == 4

    check(LiveWorker, conversation)


def test_ctrl_c_and_sigterm_leave_it_to_the_daemon() -> None:
    async def conversation(worker: LiveWorker) -> None:
        await worker.wait_ready()
        os.kill(worker.state.pid, signal.SIGINT)
        os.kill(worker.state.pid, signal.SIGTERM)
        assert await length_of(worker, "abc") == 3
        assert os.getpgid(worker.state.pid) != os.getpgid(0)

    check(LiveWorker, conversation)


def test_a_model_that_cannot_be_loaded_leaves_the_parser(tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    note.write_text("# Deploy\n\nThe deploy needs the staging key first.\n")

    async def conversation(worker: BulkWorker) -> None:
        while worker.state.phase != "failed":
            await trio.lowlevel.checkpoint()
        with pytest.raises(EncoderUnavailable, match="model 'missing': there is none"):
            await worker.encode_passages(["x"])
        async with worker.parse(note, "markdown") as stream:
            texts = [passage.text async for parsed in stream for passage in parsed.passages]
        assert any("staging key" in text for text in texts)

    check(BulkWorker, conversation, model="missing")


def long_note(path: Path) -> Path:
    """Enough for several frames."""
    path.write_text("".join(f"# Part {at}\n\nWe wrote {at} lines of it.\n\n" for at in range(3000)))
    return path


def test_a_long_file_streams_while_its_passages_are_encoded(tmp_path: Path) -> None:
    note = long_note(tmp_path / "note.md")

    async def conversation(worker: BulkWorker) -> None:
        frames = passages = 0
        async with worker.parse(note, "markdown", 0) as stream:
            async for parsed in stream:
                frames += 1
                passages += len(parsed.passages)
                if parsed.passages:
                    encoded = await worker.encode_passages([passage.text for passage in parsed.passages])
                    assert len(encoded.tokens) == len(parsed.passages)
        assert parsed.done
        assert frames > 2
        assert passages >= 1000

    check(BulkWorker, conversation)


def test_a_parse_that_nobody_reads_on_is_given_up(tmp_path: Path) -> None:
    note = long_note(tmp_path / "note.md")

    async def conversation(worker: BulkWorker) -> None:
        async with worker.parse(note, "markdown", 0) as stream:
            first = await stream.__anext__()
            assert not first.done
        await worker.wait_ready()
        encoded = await worker.encode_passages(["abc"])
        assert np.frombuffer(encoded.ends[0], np.uint16).tolist() == [3]
        assert worker.state.restarts == 0

    check(BulkWorker, conversation)


def test_p025_an_unreadable_file_fails_alone_and_is_named(tmp_path: Path) -> None:
    async def conversation(worker: BulkWorker) -> None:
        async with worker.parse(tmp_path / "absent.md", "markdown", 0) as stream:
            with pytest.raises(RequestFailed, match=r"absent\.md"):
                await stream.__anext__()
        await worker.wait_ready()
        await worker.encode_passages(["abc"])
        with pytest.raises(RequestFailed, match="no such thing"):
            await worker.encode_passages(["raise:no such thing"])

    check(BulkWorker, conversation)


def test_a_slow_reader_is_no_hang(tmp_path: Path) -> None:
    note = long_note(tmp_path / "note.md")

    async def conversation(worker: BulkWorker) -> None:
        await worker.wait_ready()
        async with worker.parse(note, "markdown", 0) as stream:
            await stream.__anext__()
            with trio.move_on_after(1.0):  # the reader's own work, longer than hang_seconds
                await trio.sleep_forever()
            await stream.__anext__()
        assert worker.state.restarts == 0

    check(BulkWorker, conversation, hang_seconds=0.5)


def test_p040_the_bulk_worker_yields_and_both_are_bounded() -> None:
    async def bulk(worker: BulkWorker) -> None:
        await worker.wait_ready()
        assert os.getpriority(os.PRIO_PROCESS, worker.state.pid) == 15
        assert os.sched_getscheduler(worker.state.pid) == os.SCHED_IDLE
        assert b"OMP_NUM_THREADS=1\0" in Path(f"/proc/{worker.state.pid}/environ").read_bytes()

    async def live(worker: LiveWorker) -> None:
        await worker.wait_ready()
        assert os.getpriority(os.PRIO_PROCESS, worker.state.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        assert psutil.Process(worker.state.pid).num_threads() <= 3  # work, the end of the pipe, and one for luck

    check(BulkWorker, bulk)
    check(LiveWorker, live)


def test_progress_and_state_are_told() -> None:
    seen: list[tuple[str, str]] = []

    def changed(state: WorkerState) -> None:
        seen.append((state.phase, state.detail))

    async def conversation(worker: LiveWorker) -> None:
        loaded = await worker.wait_ready()
        assert loaded.fingerprint == worker.state.fingerprint == "scripted 1"
        row = worker.state.row()
        assert row["state"] == "ready"
        assert row["runtime"] == "script"
        assert float(row["rss_mb"] or 0) > 5

    check(LiveWorker, conversation, on_change=changed)
    assert seen == [
        ("starting", ""),
        ("loading", ""),
        ("loading", "reading the script 1/2"),
        ("ready", ""),
        ("stopped", ""),
    ]


@pytest.mark.parametrize("command", [[sys.executable, "-c", "pass"], ["/nonexistent/python"]])
def test_a_worker_that_never_starts_is_tried_again(command: list[str]) -> None:
    async def conversation(worker: LiveWorker) -> None:
        while worker.state.restarts < 2:
            await trio.lowlevel.checkpoint()
        with pytest.raises(EncoderUnavailable):
            await worker.encode_query("x")

    check(LiveWorker, conversation, command=command)


def test_p047_the_worker_ends_when_the_daemon_is_killed() -> None:
    daemon = f"""
import sys, trio
from pathlib import Path
from recalld_daemon.workers import LiveWorker, ModelChoice
worker = LiveWorker(ModelChoice(Path("/nonexistent")), command=[sys.executable, "-P", {SCRIPT!r}, "live"])
async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(worker.run)
        await worker.wait_ready()
        nursery.start_soon(worker.encode_query, "hang")
        await trio.testing.wait_all_tasks_blocked()
        print(worker.state.pid, flush=True)
trio.run(main)
"""
    with subprocess.Popen([sys.executable, "-c", "import trio.testing\n" + daemon], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        worker = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
    try:
        assert select.select([worker], [], [], 30)[0], "the worker outlived the daemon by 30 s"
    finally:
        os.close(worker)


def test_the_daemon_side_imports_no_model_library() -> None:
    heavy = ("torch", "transformers", "sentence_transformers", "onnxruntime", "onnx", "tokenizers", "faiss")
    script = f"import recalld_daemon.workers, sys; print([name for name in {heavy!r} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"
