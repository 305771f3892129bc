"""A home in which a night has something to learn: queries speak in riddles that words don't solve, and lie off by a
shift that f_Q can take back. Run as a program it is a night that tells each step and goes on when it is told to.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from log_house import DAY, DIMS, NOON, LogHouse, MadeEncoder, _word
from recalld_daemon.adapters.settings import FitSettings, ShapeSettings
from recalld_daemon.config import Config
from recalld_daemon.evaluation.ground import Ground, open_ground
from recalld_daemon.evaluation.trained import Lessons
from recalld_daemon.paths import Home, home_under
from recalld_daemon.ranking.fit import Lesson
from recalld_daemon.ranking.refit import shipped_text
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import Float32
from recalld_daemon.sleep.cycle import Ended, Said, sleep
from recalld_daemon.sleep.going_live import activate
from recalld_daemon.sleep.ports import Answer, Checkpoint, Fit, Settings, Tell, Works, fit_adapters
from recalld_daemon.sleep.recipes import Parts
from recalld_daemon.store.reader import open_reader
from store_samples import passage

SHIFT = 3.0
NOTES, QUESTIONS = 96, 80
NAMES = ("Marta Berg", "Ole Nissen", "Ines Prado")  # subjects, whose names have vectors of their own
CONFIG = Config(late_interaction=False)
SETTINGS = Settings(
    least_queries=20,
    batch=16,
    fit=FitSettings(shape=ShapeSettings(hidden=16), learning_rate=0.02, epochs=20, batch=16, sampled=48),
)
BESIDE = {"recalld.db", "recalld.db-wal", "recalld.db-shm", "index", "sleep.lock", "lock"}  # all a data directory holds


class Riddles(MadeEncoder):
    """In a query "qbh" means what "p17" means in a passage; only its vector knows."""

    def encode_query(self, text: str) -> tuple[Float32, Float32]:
        tokens = super().encode_query(text)[1]
        meant = re.sub(r"\bq([a-j]+)\b", lambda m: "p" + "".join(str(ord(c) - 97) for c in m[1]), text)
        return super().encode_query(meant)[0], tokens


def filled(directory: Path, questions: int = QUESTIONS) -> LogHouse:
    """A house with notes, and a log in which each question was answered by its note, four questions to a session."""
    house = LogHouse(directory, Riddles(SHIFT))
    texts = [f"{NAMES[n % 9 % 3]} put p{n} s{n % 7} into room p{n + 1000}" for n in range(NOTES)]
    ids = house.remember("/notes.md", [passage(text, 100 * n, at=NOON - DAY) for n, text in enumerate(texts)])
    ask(house, ids, range(questions))
    return house


def reopened(home: Home) -> LogHouse:
    """For more of the same: what is live stays so, and recalls are numbered on."""
    with open_reader(home.database) as reader:
        live = reader.live_version(1)
    house = LogHouse(home.data.parent, Riddles(SHIFT))
    house.writer.set_live(house.encoder, live)
    house._numbers = iter(range(1_000, 1_000_000))
    return house


def riddle(number: int) -> str:
    return "q" + "".join(chr(97 + int(digit)) for digit in str(number))


def ask(house: LogHouse, ids: Sequence[int], numbers: Sequence[int], at: float = NOON) -> None:
    for n in numbers:
        row = (n * 7) % len(ids)
        shown: list[Any] = [(ids[row], "used"), (ids[(row + 5) % len(ids)], "ignored")]
        house.asked(f"{riddle(row)} {riddle(row + 1000)}", shown, at=at + 60 * n, session=f"s{n // 4}")


# ---------------------------------------------------------------- works


def usual_query() -> Adapter:
    """What takes the shift back."""
    born = Adapter.born(DIMS, hidden=4)
    return replace(born, b2=(-SHIFT / np.sqrt(1 + SHIFT**2) / born.alpha * _word("query:", DIMS)).astype(np.float32))


def turned_key(size: float = 0.3, seed: int = 3) -> Adapter:
    """f_K that moves every vector a little, all alike."""
    born = Adapter.born(DIMS, hidden=4)
    toward = np.random.default_rng(seed).normal(size=DIMS)
    return replace(born, b2=(size * toward / np.linalg.norm(toward)).astype(np.float32))


@dataclass
class MadeFits:
    """Gives what it is told to; by default only both sides together help, so that a night re-projects."""

    fits: Mapping[str, Fit]
    given: list[tuple[str, Lessons]]

    @classmethod
    def both_sides(cls, key: Adapter | None = None) -> MadeFits:
        identity = Adapter.born(DIMS, hidden=4)
        both = Fit(usual_query(), key or turned_key())
        return cls({"q": Fit(identity), "qk": both, "qkv": Fit(both.query, both.key, identity)}, [])

    def __call__(
        self, lessons: Lessons, parts: Parts, settings: FitSettings, tell: Tell, checkpoint: Checkpoint
    ) -> Fit:
        tell(f"fitting {parts}", 0, 1)
        self.given.append((parts, lessons))
        tell(f"fitting {parts}", 1, 1)
        return self.fits[parts]


class Plainly:
    """f_K by numpy: torch takes seconds to come."""

    how = "numpy"

    def __init__(self, key: Adapter) -> None:
        self._key = key

    def __call__(self, vectors: Float32) -> Any:
        return self._key.apply(vectors).astype(np.float16)


def ground_of(home: Home, config: Config, tell: Tell) -> AbstractContextManager[Ground]:
    return open_ground(home, config, tell, live=Riddles(SHIFT))


def shipped_again(lessons: Sequence[Lesson]) -> str:
    assert lessons
    return shipped_text()


def works(**changes: Any) -> Works:
    made = Works(ground_of, MadeFits.both_sides(), shipped_again, Plainly, activate)
    return replace(made, **changes)


def real_fits(**changes: Any) -> Works:
    return works(fit=fit_adapters, **changes)


def night(
    home: Home,
    with_works: Works | None = None,
    tell: Tell = lambda what, done, total: None,
    said: Said = lambda phase: None,
    settings: Settings = SETTINGS,
    config: Config = CONFIG,
) -> Ended:
    return sleep(home, config, settings, with_works or works(), tell, said)


# ---------------------------------------------------------------- a night step by step


def _step_by_step(directory: Path) -> None:
    phase = [""]

    def tell(what: str, done: int, total: int) -> None:
        print(f"{phase[0]}|{what}|{done}", flush=True)
        sys.stdin.readline()

    def asked(home: Home, encoder: int, version: int) -> Answer:
        answer = activate(home, encoder, version)
        tell("asked", 1, 1)
        return answer

    def said(now: str) -> None:
        phase[0] = now

    night(home_under(directory), works(activate=asked), tell, said)
    print("ended||0", flush=True)


Steps = Iterator[tuple[str, str, int]]
Go = Callable[[], None]

if __name__ == "__main__":
    _step_by_step(Path(sys.argv[1]))
