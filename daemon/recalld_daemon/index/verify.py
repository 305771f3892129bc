"""Whether an index may be searched: it holds what the store holds, and finds what an exact search of the store finds.

Asked before an index takes another's place. Nearest passages are compared by their cosines, not by their ids: copies of
one text, which are many in transcripts, are as near as each other, and either is right.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.index.faiss_index import FaissIndex
from recalld_daemon.index.opening import held_rows
from recalld_daemon.recall.types import Float32, Int64, View
from recalld_daemon.store.reader import Reader

SAMPLE = 50  # stored vectors that are searched for
NEAREST = 10
LEAST_RECALL = 0.95  # recall@10 against exact search; SQ8 has .99 (see `scope_index`), a wrong space next to none
_EQUAL = 1e-3  # cosines that differ by less are equal: float16 rows of one text summed in another order
_READ = 4_096  # passages whose vectors are read at a time


def holds_all(index: FaissIndex, reader: Reader) -> str:
    """What is wrong with what an index holds, in words; "" when it is what the store holds. Raises StoreError.

    Neither may change meanwhile. Some 0.4 s at 100,000 passages.
    """
    wanted, held = reader.encoded(index.encoder.id, index.snapshot), held_rows(index)
    if len(held) != len(wanted.ids):
        return f"its index holds {len(held)} passages where the store has {len(wanted.ids)}"
    if checksum_of(held["id"], held["mark"]) != checksum_of(wanted.ids, wanted.marks):
        return "its index holds other passages than the store has"
    return ""


def finds_nearest(index: FaissIndex, reader: Reader, seed: int = 0) -> str:
    """What is wrong with what an index finds, in words; "" when all is well. Passages may come and go meanwhile.

    Raises StoreError. Seconds at 100,000 passages, whose vectors it reads.
    """
    recall = sampled_recall(index, reader, seed)
    if recall >= LEAST_RECALL:
        return ""
    return f"of the nearest {NEAREST} passages its index finds {recall:.2f}, at least {LEAST_RECALL} are wanted"


def checksum_of(ids: Int64, marks: Int64) -> str:
    """Of ids in rising order with the marks of what each says."""
    return blake2b(np.stack([ids, marks]).astype("<i8").tobytes(), digest_size=16).hexdigest()


def sampled_recall(index: FaissIndex, reader: Reader, seed: int = 0) -> float:
    """Recall@10 of the index against exact search over the store's vectors, for a sample of these; 1 of none."""
    held = held_rows(index)["id"]
    chosen = np.random.default_rng(seed).choice(held, min(SAMPLE, len(held)), replace=False) if len(held) else held
    ids, queries = reader.plain_vectors(chosen.tolist(), index.encoder.id, index.snapshot)
    if not len(ids):
        return 1.0
    found = np.full((len(ids), NEAREST), -1, np.int64)
    for row, query in enumerate(queries):
        hits = index.search(query, View(scopes=None), NEAREST).ids
        found[row, : len(hits)] = hits
    best, scores = _exact(reader, index, held, queries, found)
    k = min(NEAREST, len(held))
    right = scores[:, :k] >= best[:, k - 1 : k] - _EQUAL
    gone = np.isneginf(scores[:, :k]) & (found[:, :k] >= 0)  # found, and removed from the store meanwhile
    return float(right.sum() / max(1, (~gone).sum()))


def _exact(
    reader: Reader, index: FaissIndex, ids: Int64, queries: Float32, found: NDArray[np.int64]
) -> tuple[Float32, Float32]:
    """(q, NEAREST) the best cosines there are, best first, and those of what was found; -inf where there is none."""
    best = np.full((len(queries), NEAREST), -np.inf, np.float32)
    scores = np.full(found.shape, -np.inf, np.float32)
    for at in range(0, len(ids), _READ):
        batch, vectors = reader.plain_vectors(ids[at : at + _READ].tolist(), index.encoder.id, index.snapshot)
        if not len(batch):
            continue
        cosines = queries @ vectors.T  # (q, d) @ (d, n)
        best = -np.sort(-np.concatenate([best, cosines], axis=1), axis=1)[:, :NEAREST]
        order = np.argsort(batch)
        place = np.minimum(np.searchsorted(batch, found, sorter=order), len(batch) - 1)
        columns = order[place]  # (q, NEAREST)
        here = batch[columns] == found
        scores[here] = np.take_along_axis(cosines, columns, axis=1)[here]
    return best, scores
