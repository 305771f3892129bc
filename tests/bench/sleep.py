"""The nightly cycle: how fast stored vectors are projected again, how near that is to the limit, and who waits for it.

    python tests/bench/sleep.py [--vectors N] [--model-cache DIR] [--json FILE] [--parts pass,store,latency]

`pass`: f_K over rows in memory, at both precisions, beside the limit of this machine: the slower of its memory and its
matrix products at that precision, for the bytes the pass must read and write (float32 in, float16 out) and its flops.
All in time on the processor and in turns, which neighbours change least. `store`: the same with SQLite's reads and
writes, in a process of its own, whose peak memory is told. `latency`: a real daemon over a made memory of that size is
asked all the while a night works (the real night on a made log; then, whoever won, a re-projection, its index and its
checks), against the same daemon before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are there: the cycle has one thread as well
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
from bench_tools import keep, quantile, spread

from recalld_daemon.demo.private import PrivateDaemon, private_daemon, wait_until_indexed
from recalld_daemon.models.encoder import EncoderSettings, load_encoder
from recalld_daemon.paths import Home, home_under
from recalld_daemon.recall.adapter import Adapter, unit
from recalld_daemon.recall.types import Float32
from recalld_daemon.sleep.building import build_index, far_from
from recalld_daemon.sleep.ports import Settings, projection_of
from recalld_daemon.sleep.reproject import project_all
from recalld_daemon.store import (
    ImpressionRecord,
    RecallRecord,
    SessionRecord,
    Writer,
    open_reader,
    open_writer,
)
from recalld_daemon.worker import yield_to_others
from recalld_daemon.worker_wire import ParsedPassage
from recalld_protocol.messages import Hits, Search

DIMS, TOKENS = 384, 12
TARGET_SHARE, TARGET_RATIO = 0.5, 1.5
QUESTIONS = 60  # in the made log
PER_MEMORY = 500  # passages
ROUNDS = 9
BATCH = Settings().batch  # rows at a time, as the cycle takes them
IDLE_ASKED = 200
Row = dict[str, Any]


def main() -> None:
    options = _options()
    if options.night:
        _night(options.night, options.only_projecting, options.model_cache)
        return
    parts, result = options.parts.split(","), dict[str, Any]({"vectors": options.vectors})
    if "pass" in parts:
        result |= the_pass(options.vectors)
    if "store" in parts or "latency" in parts:
        with tempfile.TemporaryDirectory(prefix="recalld-bench-") as directory:
            base = Path(directory)
            made_home(base, options.vectors, options.model_cache)
            if "store" in parts:
                result["end_to_end"] = end_to_end(base, options)
            if "latency" in parts:
                result |= latency(base, options)
    for name, value in result.items():
        print(f"{name}: {json.dumps(value)}")
    keep(result, options.json)


# ---------------------------------------------------------------- the pass alone


def the_pass(count: int) -> Row:
    import torch

    from recalld_daemon.adapters.project import Projector

    torch.set_num_threads(1)
    rows, square = made_rows(count), torch.randn(2048, 2048)
    chooser = Projector(made_key())
    chooser(rows[:BATCH])
    squares = {"float32": square, "bfloat16": square.bfloat16()}
    found = {name: _beside_its_limit(Projector(made_key(), name), rows, own) for name, own in squares.items()}  # type: ignore[arg-type]
    return {"share_of_limit": found[chooser.how]["share_of_limit"], "precision": chooser.how, "pass": found}


def _beside_its_limit(projector: Any, rows: Float32, square: Any) -> Row:
    """square: at the same precision; its product with itself tells what matrix products the processor can do."""
    count, into = len(rows), np.empty_like(rows)

    def whole() -> None:
        for at in range(0, count, BATCH):
            projector(rows[at : at + BATCH])

    whole()
    limits, seconds = [], []
    for _ in range(ROUNDS):
        flops_per_second = 2 * 2048**3 / _busy(lambda: square @ square)
        bytes_per_second = 2 * rows.nbytes / _busy(lambda: np.copyto(into, rows))
        limits.append(max(4.0 * DIMS * 128 * count / flops_per_second, 6.0 * DIMS * count / bytes_per_second))
        seconds.append(_busy(whole))
    return {
        "vectors_per_second": round(count / float(np.median(seconds))),
        "limit_per_second": round(count / float(np.median(limits))),
        "share_of_limit": round(float(np.median(np.array(limits) / np.array(seconds))), 3),
    }


def _busy(work: Callable[[], object]) -> float:
    """Seconds on the processor."""
    began = time.process_time()
    work()
    return time.process_time() - began


# ---------------------------------------------------------------- a made memory


def made_rows(count: int, seed: int = 0) -> Float32:
    return unit(np.random.default_rng(seed).standard_normal((count, DIMS), np.float32))


def made_key() -> Adapter:
    born = Adapter.born(DIMS)
    return replace(born, w2=(0.05 * np.random.default_rng(1).normal(size=born.w2.shape)).astype(np.float32))


def made_texts(count: int) -> Iterator[str]:
    words = [f"{a}{b}{c}" for a in ("ba", "do", "ki", "lu", "mer") for b in ("ta", "no", "ri") for c in ("k", "s", "m")]
    rng = np.random.default_rng(3)
    for n in range(count):
        yield " ".join([*(words[k] for k in rng.integers(0, len(words), TOKENS - 1)), f"number{n}"])


def made_home(base: Path, count: int, cache: Path) -> Home:
    """A memory of `count` passages with vectors as the real encoder's would lie there, and a log of questions."""
    home = home_under(base / "home")
    home.make()
    encoder = load_encoder(EncoderSettings(cache_dir=cache, threads=1), "live", lambda *_: None)
    with open_writer(home.database) as writer, open_reader(home.database) as reader:
        at, batch = 1_700_000_000.0, list[ParsedPassage]()
        for n, text in enumerate(made_texts(count), 1):
            start = 0 if not batch else batch[-1].end + 1
            batch.append(ParsedPassage(start=start, end=start + len(text), text=text, codec="utf-8", written_at=at + n))
            if len(batch) == PER_MEMORY or n == count:
                writer.remember("\n".join(p.text for p in batch), at=at + n, passages=batch)
                batch = []
        number = writer.encoder_id(
            encoder.fingerprint, dims=encoder.dims, token_dims=encoder.token_dims, model=encoder.model
        )
        writer.set_live(number, 0)
        _encode(writer, reader, number, encoder.token_dims)
        ids = reader.encoded(number, 0).ids.tolist()
        _ask(writer, ids)
    return home


def _encode(writer: Writer, reader: Any, encoder: int, token_dims: int) -> None:
    rng = np.random.default_rng(4)
    while missing := reader.missing_vectors(encoder, 0, 1_000):
        vectors = unit(rng.standard_normal((len(missing), DIMS), np.float32)).astype(np.float16)
        tokens = rng.integers(-50, 50, (len(missing), TOKENS, token_dims), np.int8)
        spans = np.arange(TOKENS, dtype=np.uint16).tobytes()
        writer.put_vectors(
            encoder, 0, [hash for hash, _ in missing], vectors, [own.tobytes() for own in tokens],
            [spans] * len(missing), [spans] * len(missing),
        )  # fmt: skip


def _ask(writer: Writer, ids: list[int]) -> None:
    texts = list(made_texts(QUESTIONS))
    for n, text in enumerate(texts):
        session, at = f"s{n // 4}", 1_900_000_000.0 + 60 * n
        writer.touch_session(SessionRecord(session, scope=1))
        writer.record_recall(RecallRecord(f"r{n}", session, "turn 1", text[: len(text) // 2] + f" {n}", at, "ready"))
        shown = ImpressionRecord(
            f"i{n}", f"r{n}", session, ids[n], "/x", 0, 1, "x", 1, 1.0, 0.5, "late", "won", 1, at, 1.0
        )
        writer.record_impressions([shown])
        writer.record_feedback(f"i{n}", "used", at=at + 1)


# ---------------------------------------------------------------- in a process of its own


def _night(directory: Path, only_projecting: bool, cache: Path) -> None:
    """Says each phase when it begins; ends with a JSON line."""
    yield_to_others()
    home = replace(home_under(directory), models=cache)
    found: Row = {}
    if not only_projecting:
        from recalld_daemon.config import Config
        from recalld_daemon.sleep.cycle import sleep
        from recalld_daemon.sleep.ports import usual_works

        ended = sleep(home, Config(), Settings(least_queries=20), usual_works(), lambda what, done, total: None, _say)
        found["night"] = {"chosen": ended.report.get("chosen"), "seconds": ended.report["seconds"]}
    with open_writer(home.database) as writer, open_reader(home.database) as reader:
        key, encoder = made_key(), (reader.live_snapshot() or (1, 0))[0]
        projection = projection_of(key)
        projection(made_rows(1_024))
        before = _peak_mb()
        version = writer.begin_version(encoder, at=time.time(), vectors=None, why="f_K")
        writer.put_artefact(encoder, version, "key", "made", key.to_bytes())
        _say("reproject (forced)")
        busy = time.process_time()
        found["projected"] = project_all(writer, reader, encoder, version, projection, lambda *_: None, BATCH)
        found["projected"] |= {
            "busy_seconds": round(time.process_time() - busy, 2), "peak_mb": _peak_mb(),
            "peak_mb_before_it": before, "database_mb": round(home.database.stat().st_size / 1e6),
        }  # fmt: skip
        if not only_projecting:
            _say("index (forced)")
            build_index(home.index, reader, encoder, version, lambda *_: None)
            _say("verify (forced)")
            assert far_from(reader, encoder, version, key) == ""
        writer.drop_unfinished(encoder)
    print(json.dumps(found), flush=True)


def _say(phase: str) -> None:
    print(f"phase {phase}", flush=True)


def _peak_mb() -> int:
    """Of this program alone: what getrusage tells counts the one that started it, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


@contextmanager
def night_beside(
    base: Path, options: argparse.Namespace, *flags: str, **environ: str
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, __file__, "--night", str(base / "home"), "--model-cache", str(options.model_cache)]
    with subprocess.Popen(
        [*command, *flags], stdout=subprocess.PIPE, text=True, env={**os.environ, **environ}
    ) as process:
        yield process


def end_to_end(base: Path, options: argparse.Namespace) -> Row:
    with night_beside(base, options, "--only-projecting") as process:
        assert process.stdout is not None
        found = json.loads(process.stdout.read().splitlines()[-1])["projected"]
    per_second = {"vectors_per_second": round(found["vectors"] / found["seconds"])}
    return {**found, **per_second, "vectors_per_busy_second": round(found["vectors"] / found["busy_seconds"])}


# ---------------------------------------------------------------- who waits for it


def latency(base: Path, options: argparse.Namespace) -> Row:
    with private_daemon([], base / "home", ["--model-cache", str(options.model_cache)]) as daemon:
        wait_until_indexed(daemon, lambda line: print(line, file=sys.stderr), 1.0)
        texts = made_texts(1_000_000)
        for _ in range(50):
            _asked(daemon, next(texts))
        idle = [_asked(daemon, next(texts)) for _ in range(IDLE_ASKED)]
        runtime = str(Path(daemon.endpoints.request.removeprefix("ipc://")).parent)
        with night_beside(base, options, RECALLD_RUNTIME_DIR=runtime) as process:
            by_phase, report = _while_it_works(process, daemon, texts)
        idle += [_asked(daemon, next(texts)) for _ in range(IDLE_ASKED)]
    during = [ms for found in by_phase.values() for ms in found]
    plain = quantile(idle, 0.95)
    return {
        "latency_ratio": round(quantile(during, 0.95) / plain, 3),
        "idle_ms": {**spread(idle), "n": len(idle)}, "during_ms": {**spread(during), "n": len(during)},
        "by_phase": {
            phase: {**spread(found, 50, 95), "n": len(found), "ratio": round(quantile(found, 0.95) / plain, 2)}
            for phase, found in by_phase.items() if found
        },
        "beside": report, "load": os.getloadavg(),
    }  # fmt: skip


def _while_it_works(
    process: subprocess.Popen[str], daemon: PrivateDaemon, texts: Iterator[str]
) -> tuple[dict[str, list[float]], Row]:
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    phase, by_phase, report = "starting", {"starting": list[float]()}, dict[str, Any]()
    while True:
        ended = process.poll() is not None
        for line in iter(process.stdout.readline, ""):
            if line.startswith("phase "):
                phase = line.removeprefix("phase ").strip()
            elif line.startswith("{"):
                report = json.loads(line)
        if ended:
            return by_phase, report
        by_phase.setdefault(phase, []).append(_asked(daemon, next(texts)))


def _asked(daemon: PrivateDaemon, text: str) -> float:
    """Milliseconds that a search took."""
    began = time.perf_counter()
    reply = daemon.link.request(Search(query=text, cwd="/"), 30.0)
    assert isinstance(reply, Hits), reply
    time.sleep(0.02)  # between two recalls an agent does something; the daemon is not kept hot by being asked
    return (time.perf_counter() - began - 0.02) * 1000


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", metavar="N", type=int, default=100_000)
    parser.add_argument("--model-cache", metavar="DIR", type=Path, default=Path.home() / ".cache/recalld/models")
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--parts", default="pass,store,latency")
    parser.add_argument("--night", metavar="HOME", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--only-projecting", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
