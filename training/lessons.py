"""Lessons for the ranker from pools: each question searched in a house of its own, by the product's own lanes.

What the ranker will see in the daemon is what it sees here: the same candidates, the same features. A question without
an answer teaches no order; one whose answer no lane finds teaches none either, and is counted.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

__all__ = ["encoders_in", "lesson_of", "lessons_of", "open_house", "unranked"]

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "bench"))

from house import SEEN, House, open_house
from house_encoders import Encoders
from pool_types import Ask

from recalld_daemon.assembly import gatherer_of
from recalld_daemon.ranking.features import features_of
from recalld_daemon.ranking.fit import Lesson
from recalld_daemon.ranking.ranker import RANK_LIMIT
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.stages import Parts, Stages
from recalld_daemon.recall.types import View


def unranked(parts: Parts) -> Parts:
    """What stands before the ranker: lanes, spreading lanes and late interaction."""
    return parts.without("ranked").without("cross")


def encoders_in(work: Path, models: Path | None = None, model: str = "default") -> Encoders:
    """The daemon's encoders; encodings are kept in `work`, prepared models in `models` (below `work` by default)."""
    return Encoders(models or work / "models", work, model)


def lesson_of(house: House, ask: Ask, parts: Parts | None = None) -> Lesson | None:
    """What the ranker would see of a question's candidates; None for one that is silent by itself, or finds none.

    parts: what to search with, the house's own where it is None; a ranker among them is left out.
    """
    query = query_of(ask.focus)
    if not query.text or house.memory.catalogue is None:
        return None
    view = SEEN if ask.at is None else View(scopes=None, as_of=ask.at)
    hidden = frozenset(house.ids[row] for row in ask.hidden)
    parts = unranked(house.parts if parts is None else parts)
    stages = Stages(parts, query, view, hidden, encoding=house.encoders.query(query.text))
    stages.hint()
    stages.ask(False)
    stages.ask(True)
    answer = stages.answer("fused", stages.fused())
    for deepener in stages.deepeners():
        answer = stages.deeper(deepener, answer)
    head = answer.candidates[:RANK_LIMIT]
    if not head:
        return None
    gatherer = gatherer_of(parts.lanes, house.memory.catalogue)
    features = features_of(gatherer.sheet(stages.query, stages.encoding, head))
    rows = [house.row_of[candidate.passage] for candidate in head]
    right = np.array([row in ask.gold for row in rows])
    return Lesson(features, right, kind=ask.kind)


def lessons_of(house: House, most: int, seed: int) -> list[Lesson]:
    """Those of at most `most` questions of a house's pool that have an answer, drawn with a seed."""
    asks: Sequence[Ask] = [ask for ask in house.pool.asks if ask.gold]
    drawn = random.Random(f"{seed}/{house.pool.name}").sample(asks, min(most, len(asks)))
    found = (lesson_of(house, ask) for ask in drawn)
    return [lesson for lesson in found if lesson is not None]
