"""Fourth phase: the winner becomes a version, and where its keys are new, everything stored is projected by them.

Where keys did not change the version searches the vectors that are there, which costs nothing. Where they did, every
text with a frozen vector, facts and names too, gets f_K of it, by rising hash, in short transactions between which
the daemon writes. What is projected needs no bookkeeping: what has no vector in this version yet is what is left, so a
night that was killed goes on there, and what ingest added behind the walk is found by one more.
"""

from __future__ import annotations

import time
from typing import Any

from recalld_daemon.adapters.settings import key_of
from recalld_daemon.learned import Learned
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.sleep.judge import chosen_of, metrics_of
from recalld_daemon.sleep.kept import ranker_name
from recalld_daemon.sleep.night import Failed, Night
from recalld_daemon.sleep.ports import Projection, Tell
from recalld_daemon.sleep.recipes import Recipe
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import FROZEN, Artefact
from recalld_daemon.store.writer import Writer


def reproject(night: Night) -> None:
    """Raises Failed, Interrupted, StoreError."""
    recipe, learned = _winner(night)
    new = learned.key is not None and learned.vectors == FROZEN
    begun = None if night.version is None else night.reader.version(night.encoder, night.version)
    if begun is None:
        night.version = night.writer.begin_version(
            night.encoder, at=time.time(), vectors=None if new else learned.vectors, why=recipe.name
        )
        night.note("reproject")
    _keep_parts(night, recipe, learned, new)
    night.report["reprojected"] = {"needed": new, "least_drift": night.settings.least_drift}
    if new:
        assert learned.key is not None
        assert night.version is not None
        projection = night.works.projection(learned.key)
        night.report["reprojected"] |= project_all(
            night.writer,
            night.reader,
            night.encoder,
            night.version,
            projection,
            night.tell,
            night.settings.batch,
        )
    night.report["metrics"] = metrics_of(night)
    night.report["drift"] = night.report.get("drifts", {}).get(recipe.parts, 0.0)


def project_all(
    writer: Writer, reader: Reader, encoder: int, version: int, projection: Projection, tell: Tell, batch: int
) -> dict[str, Any]:
    """Every frozen vector that has none in this version yet; what about it. Raises Interrupted, StoreError.

    Memory: one batch of rows, whatever the store holds.
    """
    began, done = time.monotonic(), 0
    total = reader.count_unprojected(encoder, version)
    while reader.count_unprojected(encoder, version):
        after = b""
        while True:
            tell("projecting vectors", done, max(done, total))
            hashes, frozen = reader.unprojected(encoder, version, batch, after)
            if not hashes:
                break
            writer.put_projected(encoder, version, hashes, projection(frozen))
            done, after = done + len(hashes), hashes[-1]
    seconds = time.monotonic() - began
    return {"vectors": done, "seconds": round(seconds, 2), "precision": projection.how if done else ""}


def parts_of_version(learned: Learned, new: bool) -> dict[Artefact, bytes]:
    """What is kept with a version. new: whether it brings its own f_K; another's stands with the vectors it made."""
    adapters: dict[Artefact, Adapter | None] = {
        "query": learned.query, "key": learned.key if new else None, "value": learned.value
    }  # fmt: skip
    return {name: adapter.to_bytes() for name, adapter in adapters.items() if adapter is not None}


def _keep_parts(night: Night, recipe: Recipe, learned: Learned, new: bool) -> None:
    assert night.version is not None
    parts = parts_of_version(learned, new)
    if learned.ranker is not None:
        text = night.kept.get(ranker_name(recipe.below.name))
        if text is None:
            raise Failed("the winner's ranker is gone: the night begins anew")
        parts["ranker"] = text
    if learned.usefulness is not None:
        parts["usefulness"] = learned.usefulness
    key = key_of(night.settings.fit, rounds=night.settings.rounds)
    for name, data in parts.items():
        night.writer.put_artefact(night.encoder, night.version, name, key, data)


def _winner(night: Night) -> tuple[Recipe, Learned]:
    found = chosen_of(night)
    if found is None:
        raise Failed(f"what won, {night.report.get('chosen')!r}, is gone: the night begins anew")
    return found
