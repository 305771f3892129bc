"""From a verdict to a lesson: the query's vector, the passage that helped, and others that did not.

What a verdict means is said in one place for the step after each query and for the nightly cycle
(`evaluation.questions`): the last word of a person counts, else any use that was seen; ignored and unknown make no
lesson. What did not help is, in this order: what was ignored or found bad for the same question, what has a subject in
common with what helped, and what stands nearest to the query. A negative as near to the query as what helped is
probably right as well and is left out (`kept_negatives`); of the others the nearest are taken, as they teach most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from recalld_daemon.adapters.pairs import Pair, inverse_propensity, kept_negatives
from recalld_daemon.evaluation.questions import is_lesson, label_of, labels_of, name_of
from recalld_daemon.learned import PLAIN, Learned
from recalld_daemon.recall.adapter import unit
from recalld_daemon.recall.types import GLOBAL_SCOPE, Float32, Int64, View
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import JudgedRecord

RECIPE = "lessons-1"  # grows when the same verdict makes another lesson
NEGATIVES = 6  # of a lesson, as many as the buffer keeps; the loss has the other lessons' passages beside them
BESIDE = 64  # with a subject in common, newest first: a person's name may have thousands
NEAREST = 64  # to the query: the 0.95 rule takes those at the very top

Nearest = Callable[[Float32, View, int], Int64]  # ids of passages nearest to a unit vector, best first


@dataclass(frozen=True, slots=True)
class Ground:
    """What is learned on: an encoder's vectors as the live version searches them."""

    encoder: int  # its number in the store
    fingerprint: str
    dims: int
    learned: Learned = PLAIN


@dataclass(frozen=True, slots=True)
class Asked:
    """A verdict that makes a lesson. key: equal for the same question and passage; at: of the verdict, epoch seconds;
    refused: what did not help; helped: what did, this passage among it."""

    key: str
    query: str  # as the encoder gets it
    passage: int
    view: View
    weight: float
    at: float
    refused: tuple[int, ...] = ()
    helped: frozenset[int] = frozenset()


def read_asked(reader: Reader, impression: str) -> Asked | None:
    """The lesson in an impression's verdicts, as all that was said of its question stands now; None: there is none.

    Raises StoreError.
    """
    shown = reader.impression(impression)
    of_recall = [] if shown is None else reader.judged_of(shown.recall)
    own = next((record for record in of_recall if record.impression == impression), None)
    if own is None or not (label_of(own) and is_lesson(own)):
        return None
    records = [record for record in reader.judged_asking(own.query) if record.scope == own.scope]
    labels = labels_of([record for record in records if is_lesson(record)])
    if not labels.get(own.passage):
        return None
    return Asked(
        key=key_of_lesson(own), query=own.query, passage=own.passage,
        view=View(tuple(dict.fromkeys((own.scope, GLOBAL_SCOPE))), as_of=own.asked_at),
        weight=1.0 if own.outcome == "asked" else inverse_propensity(own.rank, own.propensity), at=own.judged_at,
        refused=tuple(passage for passage, useful in labels.items() if not useful),
        helped=frozenset(passage for passage, useful in labels.items() if useful),
    )  # fmt: skip


def key_of_lesson(record: JudgedRecord) -> str:
    """32 hex digits."""
    text = f"{record.scope}\0{name_of(record.query)}\0{record.passage}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def pair_of(
    reader: Reader, asked: Asked, query: Float32, near: Float32, ground: Ground, nearest: Nearest
) -> Pair | None:
    """query: (d,) the encoder's own vector; near: (d,) the same with f_Q as it is now, by which `nearest` is asked.

    None: the passage is gone, or has no vector in this version. Raises StoreError.
    """
    scopes = asked.view.scopes or ()
    beside = reader.passages_beside(asked.passage, scopes, BESIDE)
    others = dict.fromkeys([*asked.refused, *beside, *nearest(near, asked.view, NEAREST).tolist()])
    others = dict.fromkeys(id for id in others if id not in asked.helped)
    ids, rows = reader.plain_vectors([asked.passage, *others], ground.encoder, ground.learned.vectors)
    vectors = dict(zip(ids.tolist(), unit(rows), strict=True))
    gold = vectors.pop(asked.passage, None)
    if gold is None:
        return None
    negatives = _negatives(query, gold, vectors, asked.refused)
    subject = _subject(reader, asked.passage, query, ground)
    return Pair(asked.key, query, gold, negatives, subject, asked.weight, asked.at)


def _negatives(query: Float32, gold: Float32, vectors: dict[int, Float32], refused: tuple[int, ...]) -> Float32:
    """(k, d) at most NEGATIVES of the vectors: what was refused first, then what is nearest to the query."""
    if not vectors:
        return np.empty((0, len(query)), np.float32)
    rows = np.stack(list(vectors.values()))
    said = np.isin(np.fromiter(vectors, np.int64), np.array(refused, np.int64))
    order = np.lexsort((-(rows @ query), ~said))  # (n,) refused first, each part by falling cosine
    kept = order[kept_negatives(query, gold, rows[order])]
    return rows[kept[:NEGATIVES]]


def _subject(reader: Reader, passage: int, query: Float32, ground: Ground) -> Float32 | None:
    """(d,) the name nearest to the query among the passage's subjects; None where no name has a vector."""
    links = reader.links_of([passage])
    hashes = [row.hash for row in reader.subjects_of(links.subjects.tolist())]
    vectors = list(reader.line_vectors(hashes, ground.encoder, ground.learned.vectors).values())
    if not vectors:
        return None
    rows = unit(np.stack(vectors))
    best: Float32 = rows[int(np.argmax(rows @ query))]
    return best
