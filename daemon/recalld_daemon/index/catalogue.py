"""The catalogue: the word index and the cards, kept equal to the store's passages, whatever is known of vectors.

It needs no encoder, so it is open soon after the start and passages are in it as soon as they are written. It reads for
itself what it must learn: whoever writes says which passages. What could not be read then is remembered and made up for
at the next call. Changes are made by one thread at a time; readers never wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recalld_daemon.index.cards import CardTable
from recalld_daemon.index.catalogue_saved import read_saved, write_saved
from recalld_daemon.index.words import WordIndex
from recalld_daemon.index.words_segment import rows_of
from recalld_daemon.recall.types import Int64
from recalld_daemon.store.errors import StoreError
from recalld_daemon.store.passage_reads import PassageBatch, PassageFacts
from recalld_daemon.store.reader import Reader

BATCH = 1_000  # passages read from the store at a time: about 1 MB of text

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CatalogueState:
    """For `status`. unsaved: changes since the last save."""

    passages: int
    speakers: int
    memory_bytes: int
    unsaved: int


class Catalogue:
    """Made by `open_catalogue`. `words` and `cards` may be read by any thread."""

    def __init__(self, directory: Path, reader: Reader) -> None:
        self.directory = directory
        self.words = WordIndex()
        self.cards = CardTable()
        self._reader = reader
        self._behind: set[int] = set()  # passages still to be learnt
        self._unplaced: set[int] = set()  # sources whose passages may stand elsewhere by now
        self._unsaved = 0
        self._saves = 0
        self._changing = threading.RLock()

    def learn(self, ids: Sequence[int]) -> None:
        """Read these passages from the store and learn them, or learn them anew."""
        with self._changing:
            self._behind.update(map(int, ids))
            self.catch_up()

    def forget(self, ids: Sequence[int]) -> None:
        """Forget passages; unknown ids are no error."""
        if not len(ids):
            return
        with self._changing:
            self._behind.difference_update(map(int, ids))
            self.words.remove(ids)
            self.cards.remove(ids)
            self._unsaved += len(ids)

    def passed(self, sources: Sequence[int]) -> None:
        """A pass over these sources has ended: their passages may stand elsewhere in them."""
        with self._changing:
            self._unplaced.update(sources)
            self.catch_up()

    def catch_up(self) -> None:
        """Learn what was announced and could not be read then, if there is anything."""
        with self._changing:
            try:
                while self._unplaced:
                    self._agree_with(self._reader.passage_facts_of(next(iter(self._unplaced))))
                    self._unplaced.pop()
                while behind := sorted(self._behind)[:BATCH]:
                    self.add(self._reader.passage_batch(behind))
                    self._behind.difference_update(behind)
            except StoreError as error:
                log.error("the catalogue is %d passages behind: %s", len(self._behind), error)

    def add(self, batch: PassageBatch) -> None:
        """Learn passages as they were read."""
        with self._changing:
            self.words.add(batch)
            self.cards.add(batch)
            self._unsaved += len(batch.ids)

    def unlike(self, facts: PassageFacts) -> tuple[Int64, Int64]:
        """Of what the store says: the ids that must be learnt (anew), and of the rest those that stand elsewhere."""
        held = self.cards.rows()
        at = rows_of(np.ascontiguousarray(held["id"]), facts.ids)
        known = at >= 0
        rows = held[at[known]]
        same = (
            (rows["mark"] == facts.marks[known])
            & (rows["scope"] == facts.scopes[known])
            & (rows["written_at"] == facts.written_at[known])
            & (rows["source"] == facts.sources[known])
        )
        moved = same & (rows["ordinal"] != facts.ordinals[known])
        learn = np.ones(len(facts.ids), np.bool_)
        learn[known] = ~same
        return facts.ids[learn], facts.ids[known][moved]

    def place(self, facts: PassageFacts) -> None:
        """Note where passages stand."""
        self.cards.place(facts)

    def save(self) -> None:
        """Make the next start quick. Raises OSError; what was saved before then stays valid."""
        with self._changing:
            self._saves = write_saved(self.directory, self._saves + 1, self.words, self.cards)
            self._unsaved = 0

    def purge(self) -> None:
        """Save, so that what was forgotten is in none of the files any more. Raises OSError, like `save`."""
        with self._changing:
            self.cards.drop_speakers()
            self.save()

    def restore(self) -> str:
        """Take over what was saved; returns why that can't be done, or ""."""
        with self._changing:
            reason, self._saves = read_saved(self.directory, self.words, self.cards)
        return reason

    def state(self) -> CatalogueState:
        return CatalogueState(
            passages=len(self.cards),
            speakers=len(self.cards.speakers()),
            memory_bytes=self.words.memory_bytes + self.cards.memory_bytes,
            unsaved=self._unsaved,
        )

    def _agree_with(self, facts: PassageFacts) -> None:
        """With what the store says of some of its passages."""
        learn, moved = self.unlike(facts)
        self._behind.update(learn.tolist())
        if len(moved):
            self.place(facts)
            self._unsaved += len(moved)
