"""`recalld sleep --dry-run`: what a night would do, found out by reading alone.

Whether a re-projection will be needed is known only once f_K is trained and has won; said is what it would write then.
"""

from __future__ import annotations

import time
from typing import Any

from recalld_daemon.config import Config
from recalld_daemon.evaluation.ground import NoGround
from recalld_daemon.lock import holder_of
from recalld_daemon.paths import Home
from recalld_daemon.ranking.refit import LEAST_LESSONS
from recalld_daemon.recall.usefulness_fit import LEAST_QUESTIONS
from recalld_daemon.sleep.collect import collected, too_few
from recalld_daemon.sleep.cycle import last_of, night_key, what_is_live
from recalld_daemon.sleep.phases import start_of
from recalld_daemon.sleep.ports import Settings
from recalld_daemon.sleep.recipes import RECIPES
from recalld_daemon.store.reader import Reader, open_reader
from recalld_daemon.store.rows import FROZEN

BYTES_PER_NUMBER = 2  # float16


def planned(home: Home, config: Config, settings: Settings) -> dict[str, Any]:
    """Writes nothing. running: the process id of a night that is under way (0: not known yet), else None.

    Raises NoGround, StoreError, OSError.
    """
    if not home.database.exists():
        raise NoGround(f"{home.database}: there is no memory yet: start recalld first")
    with open_reader(home.database) as reader:
        encoder, live = what_is_live(reader)
        start = start_of(last_of(reader), night_key(reader, encoder, live, config, settings), live, time.time())
        found = collected(reader, settings.held_share)
        reason = too_few(found, settings.least_queries)
        return {
            "dry_run": True, "champion": live, "encoder": encoder, "way": start.way, "from_phase": start.phase,
            "running": holder_of(home.data / "sleep.lock"),
            "collected": found.to_json(), "needed": settings.least_queries, "result": reason,
            "would_train": [] if reason else _candidates(config, len(found.train)),
            "left_out": [] if reason else _left_out(config, len(found.train)),
            "reprojection": _reprojection(reader, encoder, settings), "keep_versions": config.keep_versions,
        }  # fmt: skip


def _candidates(config: Config, questions: int) -> list[str]:
    ranked = config.ranker and questions >= LEAST_LESSONS
    useful = questions >= LEAST_QUESTIONS
    able = [recipe for recipe in RECIPES if (ranked or not recipe.ranker) and (useful or not recipe.usefulness)]
    return [recipe.name for recipe in able]


def _left_out(config: Config, questions: int) -> list[str]:
    """What has too little to be learned from, and how much it needs."""
    needs = {"ranker": LEAST_LESSONS if config.ranker else 0, "usefulness": LEAST_QUESTIONS}
    return [f"{name} (needs {least} questions to learn from)" for name, least in needs.items() if questions < least]


def _reprojection(reader: Reader, encoder: int, settings: Settings) -> dict[str, Any]:
    record = reader.encoder(encoder)
    vectors, dims = reader.count_vectors(encoder, FROZEN), record.dims if record else 0
    return {
        "only_if": "an f_K wins", "least_drift": settings.least_drift, "vectors": vectors,
        "bytes": vectors * dims * BYTES_PER_NUMBER,
    }  # fmt: skip
