"""The neighbours lane: what is said just before or after what was found, in the same conversation.

"When did you go?" holds the words that are asked for, the turn after it holds the answer. So a turn inherits a share of
the fused score of the turn before it, and a smaller one of the turn after it, which a prototype measured to be worth
more than any change to the texts that are embedded (context belongs in the score). Only passages of messages, which
have a speaker, pass on and inherit: with BM25 alone these shares take LoCoMo dev from R@10 .653 to .688 (MRR .516,
.531) and coding sessions from MRR .519 to .542, but notes from .795 to .786 (til, 2,266 questions).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recalld_daemon.recall.types import Candidate, CardReader, Int64, LaneHits, Query, View

FROM_BEFORE = 0.3  # of the score of the turn before; both from the prototype (LoCoMo, ten conversations)
FROM_AFTER = 0.1
GIVERS = 100  # candidates that pass on, best first


class NeighbourLane:
    """A `SpreadingLane`; scores are what a passage inherits, to be added to what it has. Thread-safe."""

    name = "neighbours"

    def __init__(self, cards: CardReader) -> None:
        self._cards = cards

    def spread(self, query: Query, found: Sequence[Candidate], view: View, limit: int) -> LaneHits:
        """At most `limit` passages that inherit something, best first; they may be among those found.

        found: the fused candidates, best first, all within the view. A passage's neighbours are of its own source and
        so of its scope; where the view ends at a moment, those written later inherit nothing.
        """
        ids = np.array([candidate.passage for candidate in found[:GIVERS]], np.int64)
        fused = np.array([candidate.fused for candidate in found[:GIVERS]], np.float64)
        cards = self._cards.cards(ids)
        gives = (cards.speakers > 0) & (fused > 0)
        before, after = cards.around[gives, 1], cards.around[gives, 2]  # (k,) ids, 0: none
        heirs = np.concatenate([after, before])
        shares = np.concatenate([FROM_BEFORE * fused[gives], FROM_AFTER * fused[gives]])
        return self._best(heirs, shares, view, limit)

    def _best(
        self, heirs: Int64, shares: np.ndarray[tuple[int], np.dtype[np.float64]], view: View, limit: int
    ) -> LaneHits:
        """Each heir once, with the sum of its shares."""
        distinct, place = np.unique(heirs, return_inverse=True)
        sums = np.bincount(place, shares, len(distinct)) if len(distinct) else np.empty(0)
        cards = self._cards.cards(distinct)
        may = cards.speakers > 0  # 0, which stands for none, has no speaker either
        if view.as_of is not None:
            may &= cards.written_at < view.as_of
        ids, sums = distinct[may], sums[may]
        order = np.lexsort((ids, -sums))[:limit]
        return LaneHits(ids[order], sums[order].astype(np.float32))
