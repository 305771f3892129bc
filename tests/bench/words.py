"""The word index and the cards beside SQLite's FTS5: how long a search, a score and a look-up take, and how big it is.

    python tests/bench/words.py [--passages 10000,100000] [--data DIR] [--home DIR] [--json FILE]

Each size is a store of real passages (repeated and varied to reach the size; `--home` keeps it), in sources of 500,
with two speakers. `search` is the lexical lane's, names and all (`long`: of three queries in one); `score` of 500 ids
at random, first without, then right after the search of the same query, as a recall asks. `build_s` reads the store's
texts; `load_s` takes what was saved and agrees with the store. All times are of this thread's processor, since others
may be using the machine. `same_top10` says how much of FTS5's first ten is among the index's: information, no aim.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from bench_corpus import corpus, default_data, queries, varied
from bench_tools import keep, spread, table

from recalld_daemon.index import Catalogue, open_catalogue
from recalld_daemon.recall.lanes.lexical import LexicalLane
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.types import Focus, Query, View
from recalld_daemon.store import Reader, Writer, open_reader, open_writer
from recalld_daemon.store.lane import LexicalLane as FullText
from recalld_daemon.worker_wire import ParsedPassage

PER_SOURCE = 500
ASKED = 300
SCORED = 500  # ids at a time
LIMIT = 100  # hits asked for, as fusion does
REPEATS = 3  # of each query; the quickest counts: caches are what a busy machine takes away

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data(), help="where real text is (%(default)s)")
    parser.add_argument("--passages", default="10000,100000")
    parser.add_argument("--home", type=Path, help="keep the stores below this directory")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    texts = corpus(arguments.data)
    with tempfile.TemporaryDirectory() as scratch:
        base = arguments.home or Path(scratch)
        sizes = [int(size) for size in arguments.passages.split(",")]
        results = {str(size): measure(size, texts, base) for size in sizes}
    names = list(next(iter(results.values())))
    table([["", *results]] + [[name, *(row[name] for row in results.values())] for name in names])
    keep(results, arguments.json)


def measure(size: int, texts: list[str], base: Path) -> dict[str, Any]:
    database = base / f"words-{size}.db"
    if not database.exists():
        base.mkdir(parents=True, exist_ok=True)
        with open_writer(database) as writer:
            fill(writer, varied(texts, size))
    with open_reader(database) as reader:
        directory = base / f"catalogue-{size}"
        shutil.rmtree(directory, ignore_errors=True)
        build_s, catalogue = timed(lambda: open_catalogue(directory, reader))
        save_s, _ = timed(catalogue.save)
        load_s, catalogue = timed(lambda: open_catalogue(directory, reader))
        asked = [query for text in queries(texts, ASKED) if (query := query_of(Focus(user_text=text))).text]
        return {
            **times_of(catalogue, reader, asked, size),
            "build_s": round(build_s, 2),
            "save_s": round(save_s, 2),
            "load_s": round(load_s, 2),
            "words_mb": round(catalogue.words.memory_bytes / 1e6, 1),
            "cards_mb": round(catalogue.cards.memory_bytes / 1e6, 1),
            "disk_mb": round(sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()) / 1e6, 1),
            "add_64_ms": adding(catalogue, reader),
        }


def times_of(catalogue: Catalogue, reader: Reader, asked: Sequence[Query], size: int) -> dict[str, Any]:
    """Milliseconds of each thing a recall asks for."""
    full_text = FullText(reader)
    lane = LexicalLane(catalogue.words, full_text)
    everything, own, then = View(None), View((1, 2)), View(None, as_of=1e9 + size / 2)
    ids = np.random.default_rng(0).choice(size, min(size, SCORED), replace=False) + 1

    def cold(work: Callable[[Query], object], asked: Sequence[Query] = asked) -> dict[str, float]:
        """With nothing remembered of the query."""

        def once(query: Query) -> object:
            catalogue.words._recent = ()
            return work(query)

        return each(once, asked)

    def after_search(query: Query) -> float:
        lane.search(query, None, everything, LIMIT)
        return timed(lambda: lane.score(query, None, ids))[0] * 1e3

    texts = [" ".join(query.text for query in asked[at : at + 3]) for at in range(0, len(asked), 3)]
    long = [query_of(Focus(user_text=text)) for text in texts]

    here = [set(lane.search(query, None, everything, 10).ids.tolist()) for query in asked]
    there = [set(full_text.search(query, None, everything, 10).ids.tolist()) for query in asked]
    return {
        "search_ms": cold(lambda query: lane.search(query, None, everything, LIMIT)),
        "search_long_ms": cold(lambda query: lane.search(query, None, everything, LIMIT), long),
        "search_scopes_ms": cold(lambda query: lane.search(query, None, own, LIMIT)),
        "search_as_of_ms": cold(lambda query: lane.search(query, None, then, LIMIT)),
        "fts5_ms": each(lambda query: full_text.search(query, None, everything, LIMIT), asked),
        "score_500_ms": cold(lambda query: lane.score(query, None, ids)),
        "score_500_after_search_ms": spread([min(after_search(q) for _ in range(REPEATS)) for q in asked], 50, 95),
        "cards_500_ms": each(lambda query: catalogue.cards.cards(ids), asked),
        "terms": round(float(np.mean([len(query.terms) for query in asked])), 1),
        "terms_long": round(float(np.mean([len(query.terms) for query in long])), 1),
        "same_top10": round(float(np.mean([len(a & b) / max(1, len(b)) for a, b in zip(here, there, strict=True)])), 3),
    }


def each(work: Callable[[Query], object], asked: Sequence[Query]) -> dict[str, float]:
    """p50 and p95 over the queries, each at its quickest of REPEATS."""
    return spread([min(timed(lambda: work(q))[0] for _ in range(REPEATS)) * 1e3 for q in asked], 50, 95)  # noqa: B023


def adding(catalogue: Catalogue, reader: Reader) -> dict[str, float]:
    """Learning 64 passages anew, store's read and all, over and over: merges are in it."""
    ids = catalogue.cards.rows()["id"]
    batches = [ids[at : at + 64].tolist() for at in np.random.default_rng(1).integers(0, len(ids) - 64, 60)]
    return spread([timed(lambda: catalogue.learn(batch))[0] * 1e3 for batch in batches], 50, 95)  # noqa: B023


def fill(writer: Writer, texts: Iterator[str]) -> None:
    """Sources of PER_SOURCE passages, as if two people had written them in turn."""
    passages: list[ParsedPassage] = []
    for number, text in enumerate(texts):
        start = passages[-1].end + 1 if passages else 0
        passages.append(
            ParsedPassage(
                start=start, end=start + len(text.encode()), text=text, codec="utf-8",
                heading=" ".join(text.split()[:4]), speaker=("Ada", "Grace")[number % 2], written_at=1e9 + number,
            )
        )  # fmt: skip
        if len(passages) == PER_SOURCE:
            put(writer, number, passages)
            passages = []
    put(writer, 0, passages)


def put(writer: Writer, number: int, passages: Sequence[ParsedPassage]) -> None:
    with writer.transaction():
        path = f"/talks/talk-{number}.jsonl"
        source = writer.begin_source(path, shown_path=path[1:], kind="claude-code")
        writer.add_passages(source, passages)
        writer.finish_source(source, cursor=passages[-1].end if passages else 0)


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds of this thread's processor time, and what it gave."""
    began = time.thread_time()
    result = work()
    return time.thread_time() - began, result


if __name__ == "__main__":
    main()
