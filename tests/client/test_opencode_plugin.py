"""OpenCode's plugin in Node, against a scripted daemon: what it tells, what it adds, and that it never hinders.

With the real OpenCode: `tests/system/test_hosts.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import recalld_client.hosts

PLUGIN = Path(recalld_client.hosts.__file__).parent / "plugin" / "recalld.js"
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not on PATH")
LINE = 'recalled: "… restart the worker …" — notes/deploy.md:15-87'
PLAY = """
const { Recalld } = await import(process.argv[1])
const hooks = await Recalld({ directory: "/w" })
const parts = [{ type: "text", text: "deploy it" }, { type: "text", text: "a file", synthetic: true }]
const message = { message: { id: "msg_1" }, parts }
const plain = { output: "ok" }, mcp = { content: [{ type: "text", text: "ok" }] }
const call = { tool: "bash", sessionID: "ses_1", callID: "c1" }
const state = { status: "error", input: {}, error: "no" }
const failed = { type: "tool", sessionID: "ses_1", callID: "c2", tool: "read", state }
const began = Date.now()
await hooks["chat.message"]?.({ sessionID: "ses_1" }, message)
await hooks["tool.execute.before"]?.(call, { args: { command: "ls" } })
await hooks["tool.execute.after"]?.({ ...call, args: { command: "ls" } }, plain)
await hooks["tool.execute.after"]?.({ ...call, callID: "c3", args: {} }, mcp)
await hooks["tool.execute.after"]?.(undefined, undefined)
await hooks["experimental.text.complete"]?.({ sessionID: "ses_1" }, { text: "done" })
await hooks.event?.({ event: { type: "message.part.updated", properties: { part: failed } } })
await hooks.event?.({ event: { type: "session.compacted", properties: { sessionID: "ses_1" } } })
await hooks.event?.({ event: { type: "session.deleted", properties: { info: { id: "ses_1" } } } })
console.log(JSON.stringify({ parts, plain, mcp, ms: Date.now() - began }))
"""


@dataclass(slots=True)
class Daemon:
    """Answers every request with `answer`, or never where it is None."""

    directory: Path
    answer: bytes | None
    heard: list[dict[str, Any]] = field(default_factory=list)
    waiting: list[socket.socket] = field(default_factory=list)

    def serve(self, listening: socket.socket) -> None:
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:
                return
            with peer.makefile("rb") as stream:
                line = stream.readline().split()
                self.heard.append({"event": line[2].decode(), **json.loads(stream.read(int(line[3])))})
            if self.answer is None:
                self.waiting.append(peer)
                continue
            with peer:
                peer.sendall(self.answer)


@pytest.fixture
def runtime() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="recalld-") as directory:  # 0700, and short
        yield Path(directory)


def played(runtime: Path, daemon: Daemon | None = None, **environ: str) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as listening:
        if daemon is not None:
            listening.bind(str(runtime / "hook.sock"))
            listening.listen()
            threading.Thread(target=daemon.serve, args=(listening,), daemon=True).start()
        done = subprocess.run(
            [str(NODE), "--input-type=module", "-e", PLAY, "--", str(PLUGIN)],
            env={"PATH": os.environ["PATH"], "HOME": str(runtime), "RECALLD_RUNTIME_DIR": str(runtime), **environ},
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        if daemon is not None:
            listening.shutdown(socket.SHUT_RDWR)
    for peer in daemon.waiting if daemon else ():
        peer.close()
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def untouched(result: dict[str, Any]) -> bool:
    return (len(result["parts"]), result["plain"], len(result["mcp"]["content"])) == (2, {"output": "ok"}, 1)


def test_what_happens_is_told_and_what_comes_back_is_added(runtime: Path) -> None:
    daemon = Daemon(runtime, LINE.encode())
    result = played(runtime, daemon)
    assert {"turn", "tool_started", "tool_ended", "said", "tool_failed", "compacted", "ended"} == {
        one["event"] for one in daemon.heard
    }
    (turn,) = (one for one in daemon.heard if one["event"] == "turn")
    assert (turn["session"], turn["cwd"], turn["text"]) == ("ses_1", "/w", "deploy it")
    ended = {one["call"]: one for one in daemon.heard if one["event"] == "tool_ended"}
    assert (ended["c1"]["result"], ended["c3"]["result"], ended["c1"]["args"]) == ("ok", "ok", {"command": "ls"})
    added = result["parts"][2]
    assert added | {"id": ""} == {
        "id": "", "sessionID": "ses_1", "messageID": "msg_1", "type": "text", "text": LINE, "synthetic": True
    }  # fmt: skip
    assert added["id"].startswith("prt_")
    assert result["plain"]["output"] == f"ok\n\n{LINE}"
    assert result["mcp"]["content"][1] == {"type": "text", "text": LINE}
    assert not (runtime / "hook.log").exists()


@pytest.mark.parametrize("answer", [b"", b"x" * 100_000])
def test_nothing_and_nonsense_add_nothing(runtime: Path, answer: bytes) -> None:
    assert untouched(played(runtime, Daemon(runtime, answer)))


def test_p002_a_daemon_that_hangs_adds_nothing_and_is_told_once(runtime: Path) -> None:
    result = played(runtime, Daemon(runtime, None))
    assert untouched(result)
    assert (runtime / "hook.log").read_text().count("nothing within 150 ms") == 1


def test_p003_without_a_daemon_nothing_is_added_and_the_cause_is_told_once(runtime: Path) -> None:
    for _ in range(2):
        assert untouched(played(runtime))
    assert (runtime / "hook.log").read_text().count("no daemon listens") == 1
    assert played(runtime, Daemon(runtime, LINE.encode()))["plain"]["output"] != "ok"
    assert not (runtime / "hook.trouble").exists()  # healed


def test_a_directory_that_others_may_write_is_not_spoken_to(runtime: Path) -> None:
    daemon = Daemon(runtime, LINE.encode())
    runtime.chmod(0o777)
    assert untouched(played(runtime, daemon))
    assert daemon.heard == []


def test_p013_switched_off_it_has_no_hooks(runtime: Path) -> None:
    daemon = Daemon(runtime, LINE.encode())
    assert untouched(played(runtime, daemon, RECALLD_OFF="1"))
    assert daemon.heard == []
