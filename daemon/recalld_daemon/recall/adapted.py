"""f_Q on the way of every recall: the encoder's vector, shifted by what was learned of this user's questions.

The adapter is asked for anew each time, so the next recall uses what the last step learned. It costs 0.03 ms. Should it
fail, or have another width, the plain vector goes on: plain search answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import QueryEncoder, QueryEncoding

OFF = 1e-3  # by which the square of a unit vector's length is off at most; rounding is a thousand times less

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdaptedEncoder:
    """A `QueryEncoder` over another. f_q: the adapter as it is now; None: nothing is learned."""

    encoder: QueryEncoder
    f_q: Callable[[], Adapter | None]

    async def encode_query(self, text: str) -> QueryEncoding:
        """Raises EncoderUnavailable, as the encoder does."""
        return adapted(await self.encoder.encode_query(text), self.f_q())


def adapted(encoding: QueryEncoding, f_q: Adapter | None) -> QueryEncoding:
    """The encoding with f_Q applied to its vector; as it was where that can't be."""
    if f_q is None or f_q.is_identity:
        return encoding
    try:
        vector = f_q.apply(encoding.frozen)
        if not abs(float(vector @ vector) - 1.0) < OFF:  # not a number, either; nought where its weights overflow
            raise ValueError("its result is not of unit length")
    except ValueError as error:
        log.error("f_Q can't be applied, plain search goes on: %s", error)
        return encoding
    return replace(encoding, vector=vector, plain=encoding.frozen)
