"""What each lane and stage of a recall takes by itself, over a home that a daemon has indexed.

In this process and one thread, without socket, worker and gate: the parts of the sum that a race is. The query's
encoding is counted as a stage, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_tools import spread

from recalld_daemon.assembly import Wishes, parts_of
from recalld_daemon.index import open_catalogue, open_index
from recalld_daemon.index.extracts import Extracts
from recalld_daemon.models.encoder import EncoderSettings, load_encoder
from recalld_daemon.paths import default_home, home_under
from recalld_daemon.recall.budget import Budget
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.stages import recall_now
from recalld_daemon.recall.types import Focus, QueryEncoding, View
from recalld_daemon.store import open_reader

WARM_UP = 10


@dataclass(frozen=True, slots=True)
class Stopwatch(Budget):
    """A budget that affords everything and keeps what was spent."""

    times: dict[str, list[float]] = field(default_factory=dict)

    def spent(self, stage: str, ms: float) -> None:
        self.times.setdefault(stage, []).append(ms)


def stage_times(base: Path, model: str, asked: list[str]) -> tuple[dict[str, dict[str, float]], int]:
    """stage -> {"p50": ms, "p95": ms}, "whole" among them; and how many facts had vectors.

    `base`: what `private_daemon` was given as its home.
    """
    home = home_under(base)
    live = load_encoder(EncoderSettings(_models(base), model=model), "live", _quietly)
    reader = open_reader(home.database)
    try:
        number = reader.encoder_named(live.fingerprint)
        assert number is not None, f"{base} holds no vectors of {live.fingerprint}"
        index = open_index(home.index / f"encoder-{number}", reader, number)
        catalogue = open_catalogue(home.index / "catalogue", reader)
        extracts = Extracts(reader)
        extracts.fill()
        extracts.attach(number, 0)
        parts = parts_of(reader, catalogue, extracts, index, Wishes())
        watch = Stopwatch(float("inf"))
        for text in asked:
            began = time.perf_counter()
            query = query_of(Focus(tool_name="Bash", tool_args=text))
            encoding = QueryEncoding(*live.encode_query(query.text or "."))
            watch.spent("encode", (time.perf_counter() - began) * 1000)
            recall_now(parts, query, encoding, View(), budget=watch)
            watch.spent("whole", (time.perf_counter() - began) * 1000)
        facts = extracts.state().fact_vectors
        index.close()
    finally:
        reader.close()
    return {stage: spread(values[WARM_UP:], 50, 95) for stage, values in sorted(watch.times.items())}, facts


def _models(base: Path) -> Path:
    users = default_home().models
    return users if users.is_dir() and any(users.iterdir()) else base / "models"


def _quietly(*_: Any) -> None:
    """Preparation was made by the daemon before."""
