"""What this user is after, as the running daemon knows it: what was used, the current focus, the long-term interests.

All of it changes off the hot path. Uses are read from the log now and then, as habits are; a query moves the focus
after its recall has ended, so that no recall counts itself, and what was used moves it as well: a question often leaves
out what it is about, the answer says it. The long-term interests are what the nightly cycle stored (`SLOW`).
What is handed out is a value that nobody changes. The focus alone is lost with the process, so it is kept in the store
now and then and on the way down, under a key of all that shaped it: a restart goes on from there.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import safetensors
import safetensors.numpy
import trio

from recalld_daemon.adapters.pairs import inverse_propensity
from recalld_daemon.adapters.settings import key_of
from recalld_daemon.journal import Note
from recalld_daemon.lessons import Ground
from recalld_daemon.recall.adapter import unit
from recalld_daemon.recall.types import Float32, QueryEncoder, QueryEncoding
from recalld_daemon.recall.usefulness import (
    DAY_SECONDS,
    FAST_SHARE,
    SLOW_SHARE,
    Counts,
    Interests,
    UsefulnessUnreadable,
    Weights,
)
from recalld_daemon.store.errors import StoreError
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import StateRecord, Use

FOCUS, SLOW = "interests", "interests slow"  # names in learning_states
READ_SECONDS = 60.0  # between two readings of what was used: a use may count a minute later
KEEP_SECONDS = 300.0  # between two savings of a focus that moved: what a crash costs of something that fades anyway
REMEMBERED = 10.0  # half-lives after which a use is not read any more: it would count a thousandth
MOST_USES = 64  # that move the focus at once: of more the last outweigh the rest a thousandfold
HEARD = 64  # queries whose vectors are kept until their recalls end; more are not under way at once

log = logging.getLogger(__name__)


class InterestWatch:
    """`now` is what they are; None before the encoder is known. All but `read` is called in the loop's thread."""

    def __init__(self, reader: Reader, clock: Callable[[], float] = time.time) -> None:
        self._reader, self._clock = reader, clock
        self._ground: Ground | None = None
        self._heard: dict[str, Float32] = {}  # text -> (d,), of recalls under way
        self._weights = Weights()  # whose half-lives are used
        self._moved = False
        self._used_at: float | None = None  # of the last use that moved the focus, epoch s
        self._changed = trio.Event()  # the encoder
        self.now: Interests | None = None

    def current(self) -> Interests | None:
        return self.now

    def stand_on(self, ground: Ground) -> None:
        """This version is live from now on. Another encoder's vectors say nothing in this one's space."""
        before, self._ground = self._ground, ground
        self._weights = weights_of(ground)
        if before is None or before.fingerprint != ground.fingerprint:
            self.now, self._heard, self._moved, self._used_at = None, {}, False, None
            self._changed.set()

    def hears(self, encoder: QueryEncoder) -> QueryEncoder:
        """The same encoder, of whose vectors this is told."""
        return _Heard(encoder, self._hear)

    def ended(self, text: str) -> None:
        """The recall for this query has ended."""
        vector = self._heard.pop(text, None)
        if vector is not None and self.now is not None and len(vector) == len(self.now.fast):
            self.now = self.now.asked(vector, self._clock(), self._weights.fast_days)
            self._moved = True

    async def serve(self, note: Callable[[Note], None], every_seconds: float = READ_SECONDS) -> None:
        """Read and keep now and then, until cancelled. note: of the journal."""
        kept = trio.current_time()
        while True:
            self._changed = trio.Event()
            await self.refresh()
            if trio.current_time() - kept >= KEEP_SECONDS:
                kept = trio.current_time()
                self.keep(note)
            with trio.move_on_after(every_seconds):
                await self._changed.wait()

    async def refresh(self) -> None:
        """What was used until now, and the long-term interests as the last night left them."""
        ground, weights = self._ground, self._weights
        if ground is None:
            return
        try:
            read, used = await trio.to_thread.run_sync(self.read, ground, weights, self._used_at)
        except StoreError as error:
            log.warning("interests can't be read: %s", error)
            return
        if self._ground is not None and self._ground.fingerprint == ground.fingerprint:
            now = self.now  # recalls may have moved it meanwhile
            self.now = read if now is None else replace(read, fast=now.fast, fast_at=now.fast_at)
            for at, vector in used:
                self.now = self.now.asked(vector, at, weights.fast_days)
                self._used_at, self._moved = at, True
            self._used_at = max(self._used_at or 0.0, self.now.fast_at if now is None else 0.0)

    def read(
        self, ground: Ground, weights: Weights, used_at: float | None = None
    ) -> tuple[Interests, list[tuple[float, Float32]]]:
        """As the store knows them, and what was used after `used_at` (None: after the focus was kept): when, and its
        vector, oldest first. Raises StoreError."""
        at = self._clock()
        uses = self._reader.uses(at - REMEMBERED * weights.often_days * DAY_SECONDS)
        counts = counts_of(uses, at, weights.often_days)
        fast, fast_at = self._vector(FOCUS, ground, focus_key(ground, weights))
        slow, _ = self._vector(SLOW, ground, slow_key(ground))
        since = fast_at if used_at is None else used_at
        latest = sorted((use for use in uses if use.at > since), key=lambda use: use.at)[-MOST_USES:]
        ids, rows = self._reader.plain_vectors([use.passage for use in latest], ground.encoder)
        vectors = dict(zip(ids.tolist(), unit(rows), strict=True)) if len(ids) else {}
        used = [(use.at, vectors[use.passage]) for use in latest if use.passage in vectors]
        return Interests(slow, fast, fast_at, counts), used

    def keep(self, note: Callable[[Note], None]) -> None:
        """Have the focus written soon, if it moved. Never waits."""
        ground, now = self._ground, self.now
        if ground is None or now is None or not self._moved:
            return
        key = focus_key(ground, self._weights)
        state = StateRecord(FOCUS, ground.encoder, key, bytes_of(now.fast), now.fast_at)
        note(lambda writer: writer.put_state(state))
        self._moved = False

    def _vector(self, name: str, ground: Ground, key: str) -> tuple[Float32, float]:
        """((d,), as of when, epoch s); zeros where there is none, or it was shaped otherwise."""
        state = self._reader.learning_state(name, ground.encoder)
        nothing = np.zeros(ground.dims, np.float32)
        if state is None or state.key != key:
            return nothing, 0.0
        vector = vector_of(state.data)
        if vector is None or vector.shape != (ground.dims,):
            log.error("%s can't be read, it begins anew", name)
            return nothing, 0.0
        return vector, state.at

    def _hear(self, text: str, vector: Float32) -> None:
        self._heard[text] = vector
        if len(self._heard) > HEARD:
            del self._heard[next(iter(self._heard))]


@dataclass(frozen=True, slots=True)
class _Heard:
    encoder: QueryEncoder
    hear: Callable[[str, Float32], None]

    async def encode_query(self, text: str) -> QueryEncoding:
        """Raises EncoderUnavailable, as the encoder does."""
        encoding = await self.encoder.encode_query(text)
        self.hear(text, encoding.frozen)
        return encoding


def counts_of(uses: Sequence[Use], at: float, days: float) -> Counts:
    """Each use counts by the inverse of the chance that it was looked at and shown: rank is not worth."""
    passages = np.array([use.passage for use in uses], np.int64)
    times = np.array([use.at for use in uses], np.float64)
    said = [1.0 if use.outcome == "asked" else inverse_propensity(use.rank, use.propensity) for use in uses]
    return Counts.of(passages, times, np.array(said, np.float64), at, days)


def weights_of(ground: Ground) -> Weights:
    """The live version's; those of birth where it has none, or none that can be read."""
    try:
        return Weights() if ground.learned.usefulness is None else Weights.from_bytes(ground.learned.usefulness)
    except UsefulnessUnreadable:  # said where the stage is made
        return Weights()


def focus_key(ground: Ground, weights: Weights) -> str:
    """Names what shapes the focus."""
    return key_of(encoder=ground.fingerprint, dims=ground.dims, share=FAST_SHARE, days=weights.fast_days)


def slow_key(ground: Ground) -> str:
    """Names what shapes the long-term interests: no version does, so that none resets them."""
    return key_of(encoder=ground.fingerprint, dims=ground.dims, share=SLOW_SHARE)


def bytes_of(vector: Float32) -> bytes:
    """A learning state's data."""
    return safetensors.numpy.save({"vector": np.ascontiguousarray(vector, np.float32)})


def vector_of(data: bytes) -> Float32 | None:
    """None: it holds no vector, or one that is not finite or longer than 1."""
    try:
        vector = np.asarray(safetensors.numpy.load(data)["vector"], np.float32)
    except (safetensors.SafetensorError, KeyError):
        return None
    length = float(np.linalg.norm(vector))
    return vector if math.isfinite(length) and length <= 1.001 else None
