"""The long-term interests, moved once a night by what was used since the night before; no version resets them.

Whatever else a night finds, a night without enough to train on among it. Kept with the moment of the last use that
counted, so a use counts once, also when the night is killed here and goes on.
"""

from __future__ import annotations

import numpy as np

from recalld_daemon.interests import SLOW, bytes_of, slow_key, vector_of
from recalld_daemon.lessons import Ground
from recalld_daemon.recall.types import Float32
from recalld_daemon.recall.usefulness import moved_slow
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import FROZEN, StateRecord
from recalld_daemon.store.writer import Writer


def move_interests(writer: Writer, reader: Reader, encoder: int) -> int:
    """Returns how many uses moved them. Raises StoreError."""
    record = reader.encoder(encoder)
    if record is None:
        return 0
    key, state = slow_key(Ground(encoder, record.fingerprint, record.dims)), reader.learning_state(SLOW, encoder)
    before = vector_of(state.data) if state is not None and state.key == key else None
    known = state is not None and before is not None and before.shape == (record.dims,)
    since = state.at if known and state is not None else 0.0
    uses = sorted(reader.uses(since), key=lambda use: use.at)
    used = _vectors(reader, encoder, [use.passage for use in uses])
    if not uses or not len(used):
        return 0
    slow = before if known and before is not None else np.zeros(record.dims, np.float32)
    writer.put_state(StateRecord(SLOW, encoder, key, bytes_of(moved_slow(slow, used)), uses[-1].at))
    return len(used)


def _vectors(reader: Reader, encoder: int, passages: list[int]) -> Float32:
    """(n, d) frozen vectors of those that have one, in this order, repeats repeated."""
    ids, vectors = reader.plain_vectors(passages, encoder, FROZEN)
    row_of = {id: row for row, id in enumerate(ids.tolist())}
    chosen: Float32 = vectors[[row_of[passage] for passage in passages if passage in row_of]]
    return chosen
