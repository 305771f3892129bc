"""The speaker lane: who is named in the question speaks in the answer.

First-person passages do not name their speaker ("I adopted a puppy"), questions do ("when did Ana adopt a dog?"). In
LoCoMo 91 % of the questions name exactly one speaker, and 96 % of their evidence is that speaker's: of all single
signals the one that moves most. So what a named speaker said gets a share on top of what its words earned.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recalld_daemon.recall.types import Candidate, CardReader, LaneHits, Query, View

NOTHING = LaneHits(np.empty(0, np.int64), np.empty(0, np.float32))


class SpeakerLane:
    """A `SpreadingLane` over what was found: 1 for each passage by a speaker whom the query names. Thread-safe."""

    name = "speaker"

    def __init__(self, cards: CardReader) -> None:
        self._cards = cards

    def spread(self, query: Query, found: Sequence[Candidate], view: View, limit: int) -> LaneHits:
        """Of the candidates, those by a speaker named in `query.hints`; none where nobody is named."""
        if not query.hints.speakers:
            return NOTHING
        known = self._cards.speakers()
        named = [known[name] for name in query.hints.speakers if name in known]
        ids = np.array([candidate.passage for candidate in found], np.int64)
        theirs = ids[np.isin(self._cards.cards(ids).speakers, named)]
        return LaneHits(theirs[:limit], np.ones(len(theirs[:limit]), np.float32))
