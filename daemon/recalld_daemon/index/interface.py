"""What the house asks of an index of vectors: the door through which an existing engine could come in later.

An index holds one snapshot of one encoder, and only what the store can give back: losing it loses time, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from recalld_daemon.recall.types import Float32, Int64, LaneHits, TokenBlock, View
from recalld_daemon.store.rows import VectorBatch


@dataclass(frozen=True, slots=True)
class IndexState:
    """For `status`. scopes: scope id -> passages; kinds: scope id -> how they are held."""

    passages: int
    scopes: dict[int, int]
    kinds: dict[int, str]  # "exact" | "sq8"
    memory_bytes: int
    token_bytes: int
    unsaved: int  # changes since the last save


class VectorIndex(Protocol):
    """Searches may run in any number of threads, and while another thread adds or removes."""

    def search(self, vector: Float32, view: View, limit: int) -> LaneHits:
        """The passages within the view nearest to a unit vector (d,), best first; scores are cosines."""
        ...

    def score(self, vector: Float32, ids: Int64) -> Float32:
        """(n,) cosine of each passage with a unit vector (d,); nan for those without a vector."""
        ...

    def vectors_of(self, ids: Int64) -> Float32:
        """(n, d) the passages' vectors; nan for those without one."""
        ...

    def tokens(self, passages: Sequence[int]) -> TokenBlock:
        """Their token vectors, in the order asked for; unknown passages have none."""
        ...

    def add(self, batch: VectorBatch) -> None:
        """Learn passages; those already known are replaced."""
        ...

    def remove(self, ids: Sequence[int]) -> None:
        """Forget passages; unknown ids are no error."""
        ...

    def save(self) -> None:
        """Make the next start quick. Raises OSError; what was saved before then stays valid."""
        ...

    def state(self) -> IndexState: ...

    def close(self) -> None: ...
