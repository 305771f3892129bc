"""Passages per second through the whole way in, as a ratio to the bare encoder on the same text in the same run.

    python tests/bench/ingest.py [--data DIR] [--passages 3000] [--json FILE]

The bare encoder is the bulk worker alone, given the same embedded texts in batches of the same size; the whole way is
a daemon that parses, writes, embeds and indexes the same notes, timed from the first file read to the last vector.
`ratio` of the two; the encoder runs twice and is averaged, since machines get slower and faster.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parent))

from bench_corpus import corpus, default_data, varied, write_notes
from bench_tools import keep, table

from recalld_daemon.demo.private import is_settled, private_daemon
from recalld_daemon.ingest.embedding import BATCH
from recalld_daemon.paths import default_home
from recalld_daemon.store.texts import embedded_text
from recalld_daemon.workers import BulkWorker, ModelChoice


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data(), help="where real text is (%(default)s)")
    parser.add_argument("--passages", type=int, default=3_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        write_notes(varied(corpus(arguments.data), arguments.passages), base / "notes")
        models = default_home().models if any(default_home().models.glob("*")) else base / "home" / "models"
        whole, texts = through_the_daemon(base)
        bare = (trio.run(bare_encoder, models, texts) + trio.run(bare_encoder, models, texts)) / 2
    result = {"ratio": round(whole / bare, 3), "daemon_per_s": round(whole, 1), "encoder_per_s": round(bare, 1)}
    table([list(result), list(result.values())])
    keep(result, arguments.json)


def through_the_daemon(base: Path) -> tuple[float, list[str]]:
    """Passages per second from the first file read to the last vector, and the texts as they were embedded."""
    with private_daemon([base / "notes"], base / "home") as daemon:
        began = 0.0
        while True:
            status = daemon.status()
            assert status is not None
            if not began and status.topics["index"]["files_done"]:
                began = time.monotonic()
            if began and is_settled(status):
                rate = int(status.topics["index"]["embedded"] or 0) / (time.monotonic() - began)
                break
            time.sleep(0.05)
    with sqlite3.connect(base / "home" / "data" / "recalld.db") as db:
        rows = db.execute("SELECT heading, speaker, text, iif(dated, written_at, NULL) FROM passages").fetchall()
    return rate, [embedded_text(*fields) for fields in rows]


async def bare_encoder(models: Path, texts: list[str]) -> float:
    worker = BulkWorker(ModelChoice(cache_dir=models))
    async with trio.open_nursery() as nursery:
        await nursery.start(worker.run)
        await worker.wait_ready()
        await worker.encode_passages(texts[:BATCH])
        began = time.monotonic()
        for at in range(0, len(texts), BATCH):
            await worker.encode_passages(texts[at : at + BATCH])
        rate = len(texts) / (time.monotonic() - began)
        nursery.cancel_scope.cancel()
    return rate


if __name__ == "__main__":
    main()
