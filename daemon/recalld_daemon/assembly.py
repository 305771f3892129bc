"""What a recall is made of, from what is open now: the one place that knows all lanes and stages by name.

The daemon, the benches and the fitting scripts take their parts from here, so what is measured is what runs. Before the
index is open there are words alone; before the catalogue is, the store's full-text search in its place.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recalld_daemon.index import Catalogue, DenseLane, VectorIndex
from recalld_daemon.index.extracts import Extracts
from recalld_daemon.learned import PLAIN, Learned
from recalld_daemon.ranking.forest import Forest, ForestError
from recalld_daemon.ranking.ranker import Ranking, shipped
from recalld_daemon.ranking.sheet import Gatherer
from recalld_daemon.recall.hints import HintReader
from recalld_daemon.recall.lanes.entity import EntityLane
from recalld_daemon.recall.lanes.facts import FactLane, FactWordsLane
from recalld_daemon.recall.lanes.graph import GraphLane
from recalld_daemon.recall.lanes.lexical import LexicalLane
from recalld_daemon.recall.lanes.neighbours import NeighbourLane
from recalld_daemon.recall.lanes.speakers import SpeakerLane
from recalld_daemon.recall.lanes.subjects import SubjectLane
from recalld_daemon.recall.lanes.temporal import TemporalLane
from recalld_daemon.recall.stages import Deepener, LateInteraction, Parts
from recalld_daemon.recall.types import Lane, Scorer, SpreadingLane
from recalld_daemon.recall.usefulness import Interests, Useful, UsefulnessUnreadable, Weights
from recalld_daemon.store import Reader
from recalld_daemon.store import lane as full_text

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the configuration says about stages.

    cross: the cross-encoder's stage, where there is one. more_lanes: of "subjects" and "graph", which are on: they won
    nothing where they were measured (docs/benchmarks.md), and cost 2 ms. learned: the version that is live; its f_Q is
    applied by who encodes (`recall.adapted`). interests: what usefulness is told from, where the version has weights.
    """

    late_interaction: bool = True
    ranker: bool = True
    cross: Deepener | None = None
    more_lanes: tuple[str, ...] = ()
    user_names: tuple[str, ...] = ()
    agent_names: tuple[str, ...] = ()
    learned: Learned = PLAIN
    interests: Callable[[], Interests | None] = lambda: None  # of this user, as they are now
    clock: Callable[[], float] = time.time  # by which interests fade


def parts_of(
    reader: Reader, catalogue: Catalogue | None, extracts: Extracts | None, index: VectorIndex | None, wishes: Wishes
) -> Parts:
    """The lanes and stages over what is open. Never raises: a ranker that can't be read is logged and left out."""
    words = None if catalogue is None else catalogue.words
    lanes: list[Lane] = [LexicalLane(words, full_text.LexicalLane(reader))]
    deepeners: list[Deepener] = []
    if index is not None:
        lanes.append(DenseLane(index))
        deepeners += [LateInteraction(index)] if wishes.late_interaction else []
    if catalogue is not None and extracts is not None:
        lanes += extracted_lanes(reader, catalogue, extracts, lanes, index is not None)
        lanes += [SubjectLane(extracts.subjects)] if index is not None and "subjects" in wishes.more_lanes else []
    spreading: list[SpreadingLane] = []
    hints = None
    if catalogue is not None:
        subjects = None if extracts is None else extracts.subjects
        hints = HintReader(catalogue.cards, subjects, wishes.user_names, wishes.agent_names)
        spreading = [SpeakerLane(catalogue.cards), NeighbourLane(catalogue.cards)]
        if extracts is not None and "graph" in wishes.more_lanes:
            spreading.append(GraphLane(extracts.subjects))
        forest = (wishes.learned.ranker or _forest()) if wishes.ranker and index is not None else None
        if forest is not None:
            deepeners.append(Ranking(gatherer_of(lanes, catalogue), forest))
            deepeners += useful_of(index, wishes)
    if wishes.cross is not None:
        deepeners.append(wishes.cross)
    within = None if extracts is None else TemporalLane(extracts.whens).within
    return Parts(lanes, deepeners, spreading, hints, within)


def extracted_lanes(
    reader: Reader, catalogue: Catalogue, extracts: Extracts, lanes: Sequence[Lane], encoded: bool
) -> list[Lane]:
    """The lanes over what was extracted at ingest; those that compare vectors only where there are some."""
    found: list[Lane] = [FactWordsLane(extracts.facts), TemporalLane(extracts.whens)]
    if encoded:
        found.append(FactLane(extracts.facts))
    entity = EntityLane(extracts.subjects, catalogue.cards, extracts.whens, scorers_of(lanes), reader)
    return [*found, entity]


def scorers_of(lanes: Sequence[Lane]) -> list[Scorer]:
    """Those of the lanes that can score any passage."""
    return [lane for lane in lanes if hasattr(lane, "score")]  # type: ignore[misc]


def gatherer_of(lanes: Sequence[Lane], catalogue: Catalogue) -> Gatherer:
    """What the ranker looks at: every lane that can score any passage, and the cards."""
    return Gatherer(scorers_of(lanes), catalogue.cards)


def useful_of(index: VectorIndex | None, wishes: Wishes) -> list[Deepener]:
    """The stage that adds usefulness to the ranker's score; none where nothing was learned of it."""
    if wishes.learned.usefulness is None or index is None:
        return []
    try:
        weights = Weights.from_bytes(wishes.learned.usefulness)
    except UsefulnessUnreadable as error:
        log.error("version %d: its usefulness is left out: %s", wishes.learned.version, error)
        return []
    return [] if weights.are_off else [Useful(index, weights, wishes.learned.value, wishes.interests, wishes.clock)]


def _forest() -> Forest | None:
    try:
        return shipped()
    except (ForestError, OSError) as error:
        log.error("no learned ranker, the hand-weighted order stands: %s", error)
        return None
