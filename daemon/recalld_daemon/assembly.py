"""What a recall is made of, from what is open now: the one place that knows all lanes and stages by name.

The daemon, the benches and the fitting scripts take their parts from here, so what is measured is what runs. Before the
index is open there are words alone; before the catalogue is, the store's full-text search in its place.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from recalld_daemon.index import Catalogue, DenseLane, FaissIndex
from recalld_daemon.ranking.forest import Forest, ForestError
from recalld_daemon.ranking.ranker import Ranking, shipped
from recalld_daemon.ranking.sheet import Gatherer
from recalld_daemon.recall.hints import HintReader
from recalld_daemon.recall.lanes.lexical import LexicalLane
from recalld_daemon.recall.lanes.neighbours import NeighbourLane
from recalld_daemon.recall.lanes.speakers import SpeakerLane
from recalld_daemon.recall.stages import Deepener, LateInteraction, Parts
from recalld_daemon.recall.types import Lane, Scorer, SpreadingLane
from recalld_daemon.store import Reader
from recalld_daemon.store import lane as full_text

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the configuration says about stages. cross: the cross-encoder's stage, where there is one."""

    late_interaction: bool = True
    ranker: bool = True
    cross: Deepener | None = None
    user_names: tuple[str, ...] = ()
    agent_names: tuple[str, ...] = ()


def parts_of(reader: Reader, catalogue: Catalogue | None, index: FaissIndex | None, wishes: Wishes) -> Parts:
    """The lanes and stages over what is open. Never raises: a ranker that can't be read is logged and left out."""
    words = None if catalogue is None else catalogue.words
    lanes: list[Lane] = [LexicalLane(words, full_text.LexicalLane(reader))]
    deepeners: list[Deepener] = []
    if index is not None:
        lanes.append(DenseLane(index))
        deepeners += [LateInteraction(index)] if wishes.late_interaction else []
    spreading: list[SpreadingLane] = []
    hints = None
    if catalogue is not None:
        hints = HintReader(catalogue.cards, user_names=wishes.user_names, agent_names=wishes.agent_names)
        spreading = [SpeakerLane(catalogue.cards), NeighbourLane(catalogue.cards)]
        forest = _forest() if wishes.ranker and index is not None else None
        if forest is not None:
            deepeners.append(Ranking(gatherer_of(lanes, catalogue), forest))
    if wishes.cross is not None:
        deepeners.append(wishes.cross)
    return Parts(lanes, deepeners, spreading, hints)


def gatherer_of(lanes: Sequence[Lane], catalogue: Catalogue) -> Gatherer:
    """What the ranker looks at: every lane that can score any passage, and the cards."""
    scorers: list[Scorer] = [lane for lane in lanes if hasattr(lane, "score")]  # type: ignore[misc]
    return Gatherer(scorers, catalogue.cards)


def _forest() -> Forest | None:
    try:
        return shipped()
    except (ForestError, OSError) as error:
        log.error("no learned ranker, the hand-weighted order stands: %s", error)
        return None
