"""An index kept equal to the store, as far as it is there: what it could not be told yet is remembered by id.

The store is written first and the index told after, so whatever is remembered here is made up for by reading the store
again. Called in the writer's thread, by one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from recalld_daemon.ingest.ports import PassageIndex, Space
from recalld_daemon.store.reader import Reader

LEARN_AT_ONCE = 1_000  # passages whose vectors are read for the index at a time: about 7 MB

log = logging.getLogger(__name__)


class Following:
    """space: whose vectors the index holds; None, and no index, before it is attached."""

    def __init__(self, reader: Reader, space: Space | None = None) -> None:
        self._reader = reader
        self.space = space
        self.index: PassageIndex | None = None
        self._late: dict[int, bool] = {}  # passage -> is there; what the index has not heard of yet

    def attach(self, space: Space, index: PassageIndex) -> None:
        """Keep `index`, which holds what the store held of `space` at some time since this was made."""
        self.space, self.index = space, index
        late, self._late = self._late, {}
        self.forget([id for id, is_there in late.items() if not is_there])
        self.learn([id for id, is_there in late.items() if is_there])

    def learn(self, ids: Sequence[int]) -> None:
        """Tell the index of these passages, and of those it could not be told of before."""
        self._late.update(dict.fromkeys(ids, True))
        if self.index is None or self.space is None:
            return
        while late := [id for id, _ in zip(self._late, range(LEARN_AT_ONCE), strict=False)]:
            batch = self._reader.vectors_for(late, self.space.encoder, self.space.snapshot)
            try:
                if len(batch.ids):
                    self.index.add(batch)
            except OSError as error:
                log.error("the index is %d passages behind: %s; free some space", len(self._late), error)
                return
            for id in late:
                del self._late[id]

    def forget(self, ids: Sequence[int]) -> None:
        """Tell the index that these passages are gone."""
        if self.index is None:
            self._late.update(dict.fromkeys(ids, False))
        elif ids:
            for id in ids:
                self._late.pop(id, None)
            self.index.remove(ids)
