"""Fits the ranker that ships, on permissively licensed data and made-up conversations alone.

    python -m training.ranker --data DATA --work WORK [--chats 32] [--meetings 16] [--out FILE] [--report]

Every pool is remembered in a house of its own and every question searched by the product's own lanes; what the ranker
would see of the candidates becomes a lesson. Families of pools count by SHARES, however many questions they have, since
a memory in use is mostly talk with people and agents. `--report` first leaves each family out in turn and judges the
ranker fitted on the others on it: what it is worth on a kind of memory that it never saw.

DATA is the directory that holds `ir` and `real`; encodings are kept in WORK, so a second run takes minutes.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import recalld_daemon.ranking
from recalld_daemon.ranking.fit import Lesson, Settings, fit, fitted
from recalld_daemon.ranking.forest import Forest
from recalld_daemon.ranking.ranker import SHIPPED
from training import permissive
from training.chats import chat_pools
from training.chats.agents import agent_pools
from training.lessons import encoders_in, lessons_of, open_house
from training.pools import Pool

SEED = 11
MOST = 400  # questions of one pool
ROWS = 3_000  # of a pool of separate notes: more would only make it slow
SHARES = {"chat": 0.5, "agent": 0.1, "qmsum": 0.1, "til": 0.1, "wiki": 0.07, "tldr": 0.05, "entire": 0.08}
SETTINGS = Settings(rounds=120)  # fewer than for talk of one kind: what is learned must carry over
OUT = Path(recalld_daemon.ranking.__file__).parent / SHIPPED

Families = dict[str, list[Lesson]]


def main() -> None:
    options = _options()
    began = time.monotonic()
    families: Families = {}
    encoders = encoders_in(options.work, options.models, options.model)
    for pool in pools(options.data, options.chats, options.meetings):
        with open_house(permissive.unrepeated(pool), encoders) as house:
            found = lessons_of(house, MOST, SEED)
        families.setdefault(family_of(pool), []).extend(found)
        tell(f"{pool.name}: {sum(lesson.teaches for lesson in found)} of {len(found)} questions teach an order")
    if options.report:
        report(families)
    provenance = {
        "made_by": f"python -m training.ranker --data DATA --work WORK --chats {options.chats}"
        f" --meetings {options.meetings}",
        "made_on": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seed": SEED,
        "encoder": encoders.live.fingerprint,
        "data": {**permissive.LICENCES, "chat, agent": "made up by training/chats (MIT, as this repository)"},
        "shares": SHARES,
        "questions": {family: len(lessons) for family, lessons in families.items()},
    }
    options.out.write_text(fit(weighed(families), SETTINGS, provenance) + "\n", encoding="utf-8")
    tell(f"{options.out}: {options.out.stat().st_size / 1000:.0f} kB after {time.monotonic() - began:.0f} s")


def pools(data: Path, chats: int, meetings: int) -> Iterator[Pool]:
    """What is learned from, one pool after the other."""
    yield from chat_pools(chats, SEED)
    yield from agent_pools(max(1, chats // 4), SEED)
    yield permissive.til_pool(data)
    yield apart(cut(permissive.wiki_pool(data)))
    yield cut(permissive.tldr_pool(data, SEED))
    yield permissive.entire_pool(data)
    yield from random.Random(SEED).sample(permissive.qmsum_pools(data), meetings)


def cut(pool: Pool) -> Pool:
    """The first ROWS rows, and the questions that they answer."""
    asks = [ask for ask in pool.asks if ask.gold and max(ask.gold) < ROWS]
    return Pool(
        pool.name, pool.rows[:ROWS], [replace(a, hidden=frozenset(r for r in a.hidden if r < ROWS)) for a in asks]
    )


def apart(pool: Pool) -> Pool:
    """Each row a source of its own: passages of one article do not stand together here."""
    return Pool(pool.name, [replace(row, source=f"{row.source} {at}") for at, row in enumerate(pool.rows)], pool.asks)


def family_of(pool: Pool) -> str:
    return pool.name.replace("-", " ").split()[0]


def weighed(families: Families) -> list[Lesson]:
    """All lessons, weighted so that each family counts by its share, the mean weight being 1."""
    count = sum(map(len, families.values()))
    total = sum(SHARES[family] for family in families)
    return [
        replace(lesson, weight=SHARES[family] / total * count / len(lessons))
        for family, lessons in families.items()
        for lesson in lessons
    ]


def report(families: Families) -> None:
    """Each family by a ranker that was fitted on the others, beside the hand-weighted order."""
    print(f"{'family':8} {'n':>5}  {'hand: r10  hit1  mrr':24}  ranked: r10  hit1  mrr")
    for family, own in families.items():
        others = {name: lessons for name, lessons in families.items() if name != family}
        if not others:
            continue
        forest = fitted(weighed(others), SETTINGS)
        hand = np.mean([judged(lesson, None) for lesson in own], axis=0)
        ranked = np.mean([judged(lesson, forest) for lesson in own], axis=0)
        print(f"{family:8} {len(own):5}  {_three(hand):24}  {_three(ranked)}", flush=True)


def judged(lesson: Lesson, forest: Forest | None) -> tuple[float, float, float]:
    """(share of the found answers in the first ten, whether the first is one, reciprocal rank of the first one)."""
    right = lesson.right
    if forest is not None:
        right = right[np.argsort(-forest.scores(lesson.features), kind="stable")]
    ranks = np.flatnonzero(right) + 1
    if not len(ranks):
        return 0.0, 0.0, 0.0
    return float((ranks <= 10).sum() / min(10, len(ranks))), float(ranks[0] == 1), float(1 / ranks[0])


def _three(values: Sequence[float]) -> str:
    return "  ".join(f"{value:.3f}" for value in values)


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory that holds `ir` and `real`")
    parser.add_argument("--work", type=Path, required=True, help="directory for encodings; kept for next time")
    parser.add_argument("--models", type=Path, help="directory for prepared models (default: below WORK)")
    parser.add_argument(
        "--model", default="default", help="the encoder, as in the configuration (default: %(default)s)"
    )
    parser.add_argument("--chats", type=int, default=32, help="made-up conversations (default: %(default)s)")
    parser.add_argument("--meetings", type=int, default=16, help="meetings of QMSum (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, help="where the ranker goes (default: into the package)")
    parser.add_argument("--report", action="store_true", help="first leave each family out in turn")
    return parser.parse_args()


if __name__ == "__main__":
    main()
