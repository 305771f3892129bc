"""Asks an evaluation pool's questions in its house, and scores what comes back; the same for plain BM25, the floor."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench_tools import spread
from eval_pools import ADVERSARIAL, Judged
from figures import Scored, score
from house import House, Setting, open_house, search
from house_encoders import Encoders
from house_recall import PLAIN
from plain_bm25 import PlainBM25

WARM_UP = 20  # questions asked before the clock counts
TIMED = 400  # questions timed at most: enough for a p95


@dataclass(slots=True)
class Court:
    """An evaluation pool and the house in which it is remembered."""

    judged: Judged
    house: House

    @property
    def name(self) -> str:
        return self.judged.pool.name


@contextmanager
def convened(pools: Iterable[Judged], encoders: Encoders) -> Iterator[list[Court]]:
    """All houses, open until the end; passages that were never encoded before take time (some 200 a second)."""
    with ExitStack() as open_ones:
        courts = []
        for judged in pools:
            house = open_ones.enter_context(open_house(judged.pool, encoders))
            courts.append(Court(judged, house))
            tell(f"{judged.pool.name}: {len(judged.pool.rows)} passages, {len(judged.pool.asks)} questions")
        yield courts


def judge(courts: Sequence[Court], setting: Setting | Callable[[Court], Setting] = PLAIN) -> list[Scored]:
    """All questions that have an answer, in order. setting: one for all, or one for each pool (a fold's)."""
    began, found = time.monotonic(), []
    for court in courts:
        own = setting if isinstance(setting, Setting) else setting(court)
        found += list(_scored(court, own))
    tell(f"{own.name}: {len(found)} questions in {time.monotonic() - began:.0f} s")
    return found


def floor(pools: Iterable[Judged]) -> list[Scored]:
    """The same questions, answered by plain BM25 over the units' texts."""
    found = []
    for judged in pools:
        units = list(judged.floor)
        bm25 = PlainBM25([judged.floor[unit] for unit in units])
        for place, (ask, gold) in enumerate(zip(judged.pool.asks, judged.golds, strict=True)):
            seen = _allowed(judged, place)
            allowed = None if seen is None else [unit in seen for unit in units]
            ranked = [units[at] for at in bm25.ranking(ask.focus.user_text, allowed, len(units))]
            if gold:
                found.append(score(ranked, gold, ask.group or judged.pool.name, ask.kind, judged.also.get(place, ())))
    return found


def latency(courts: Sequence[Court], setting: Setting = PLAIN) -> dict[str, float]:
    """{"p50": ms, "p95": ms} from a focus to its last answer, each query encoded anew, one after the other."""
    every = [(court, ask) for court in courts for ask in court.judged.pool.asks]
    step = max(1, len(every) // TIMED)
    for court, ask in every[:WARM_UP]:
        search(court.house, ask, setting, fresh=True)
    return spread([search(court.house, ask, setting, fresh=True).ms for court, ask in every[::step]], 50, 95)


def answered(scored: Sequence[Scored]) -> list[Scored]:
    """Without adversarial questions, whose evidence is the turn that misleads."""
    return [row for row in scored if row.kind != ADVERSARIAL]


def tell(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def bench_options(doc: str, data: str) -> argparse.ArgumentParser:
    """What all benches of recall quality take. data: what --data is, for --help."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="PATH", help=data)
    parser.add_argument("--work", type=Path, default=cache(), metavar="DIR", help="keeps encodings (%(default)s)")
    parser.add_argument("--models", type=Path, metavar="DIR", help="keeps prepared models (below --work)")
    parser.add_argument("--model", default="default", help="the encoder, as in the configuration (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    return parser


def encoders_of(options: argparse.Namespace) -> Encoders:
    return Encoders(options.models or options.work / "models", options.work, options.model)


def cache() -> Path:
    """Where a user's caches are."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recalld-bench"


def _scored(court: Court, setting: Setting) -> Iterator[Scored]:
    judged = court.judged
    for place, (ask, gold) in enumerate(zip(judged.pool.asks, judged.golds, strict=True)):
        if gold:
            seen = _allowed(judged, place)
            units = [judged.units[row] for row in search(court.house, ask, setting).rows]
            ranked = units if seen is None else [unit for unit in units if unit in seen]
            yield score(ranked, gold, ask.group or court.name, ask.kind, judged.also.get(place, ()))


def _allowed(judged: Judged, place: int) -> frozenset[object] | None:
    return judged.allowed[place] if judged.allowed else None
