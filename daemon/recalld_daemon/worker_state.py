"""What is configured of the workers, and what is known of them: for the service to set and for `status` to tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from recalld_daemon.config import Config
from recalld_daemon.worker_wire import Loaded

Phase = Literal["starting", "loading", "ready", "restarting", "failed", "resting", "stopped"]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which encoder, and how: the [models] part of the configuration."""

    cache_dir: Path  # measured runtimes, exported graphs, token projection
    model: str = "default"  # "default", a sentence-transformers name, or a path
    query_prompt: str | None = None  # None: the model's own
    passage_prompt: str | None = None
    token_dims: int = 64
    allow_download: bool = False
    cross_encoder: str = "none"  # "none", "default", a sentence-transformers CrossEncoder's name, or a path
    live_threads: int = 1  # more than one gains nothing for a short query, and loses much under contention
    bulk_threads: int = 1


def choice_of(config: Config, models: Path) -> ModelChoice:
    """As configured. models: the directory of what is prepared once."""
    return ModelChoice(
        cache_dir=models, model=config.encoder, query_prompt=config.query_prompt,
        passage_prompt=config.passage_prompt, token_dims=config.token_dims,
        allow_download=config.allow_download, cross_encoder=config.cross_encoder,
        bulk_threads=config.bulk_threads,
    )  # fmt: skip


@dataclass(slots=True)
class WorkerState:
    """For status; changed in place. `detail` is the progress, or why there is no worker or model."""

    phase: Phase = "starting"
    detail: str = ""
    pid: int = 0
    restarts: int = 0
    loaded: Loaded | None = None  # of this life, or of the last one that was ready

    @property
    def fingerprint(self) -> str:
        """Names the space of the vectors; "" until a model was loaded."""
        return self.loaded.fingerprint if self.loaded else ""

    def row(self) -> dict[str, str | int | float | bool | None]:
        """What `status` tells, rss included (megabytes, 0 when there is no process)."""
        loaded = self.loaded
        return {
            "state": self.phase,
            "detail": self.detail,
            "pid": self.pid,
            "rss_mb": _rss_mb(self.pid),
            "restarts": self.restarts,
            "model": loaded.model if loaded else None,
            "runtime": loaded.runtime if loaded else None,
            "fingerprint": self.fingerprint or None,
            "dims": loaded.dims if loaded else None,
            "cross_encoder": (loaded.cross_encoder or loaded.cross_encoder_problem or None) if loaded else None,
        }


def _rss_mb(pid: int) -> float:
    try:
        return round(psutil.Process(pid).memory_info().rss / 1e6, 1) if pid else 0.0
    except psutil.Error:
        return 0.0
