"""What was extracted, in memory, kept equal to the store: facts, subjects, times.

Like the catalogue it reads for itself what it must learn, and makes up later for what could not be read. Words, names
and times need no encoder; `attach` says whose vectors are searched, `embedded` that some are new. Another snapshot's
vectors are read beside those (`prepare`) and take their place at one moment (`swap`). Nothing of it is saved: it is
read from the store again at each start.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from recalld_daemon.index.fact_table import FactTable
from recalld_daemon.index.subject_table import SubjectTable
from recalld_daemon.index.when_table import WhenTable
from recalld_daemon.store.errors import StoreError
from recalld_daemon.store.extraction_reads import LineVectors
from recalld_daemon.store.reader import Reader

BATCH = 1_000  # passages read from the store at a time, while whoever writes may wait
LINES = 8_192  # facts or names whose vectors are read at a time: more at once are fewer merges of what is searched

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExtractsState:
    """For `status`."""

    facts: int
    fact_vectors: int
    subjects: int
    times: int
    memory_bytes: int


@dataclass(slots=True)
class _Held:
    """Facts and subjects by the vectors of one space. space: (encoder, snapshot); None: without vectors."""

    facts: FactTable
    subjects: SubjectTable
    space: tuple[int, int] | None = None


class Extracts:
    """Empty until `fill`, which may run beside announcements: whatever comes last was read last.

    The tables may be read by any thread; changes take turns.
    """

    def __init__(self, reader: Reader) -> None:
        self.whens = WhenTable()
        self._held = _Held(FactTable(), SubjectTable())
        self._beside: _Held | None = None
        self._reader = reader
        self._behind: dict[int, None] = {}
        self._changing = threading.RLock()

    @property
    def facts(self) -> FactTable:
        """In the space that is searched now; after a `swap` it is another one."""
        return self._held.facts

    @property
    def subjects(self) -> SubjectTable:
        """Likewise."""
        return self._held.subjects

    def learn(self, ids: Sequence[int]) -> None:
        """Read what was extracted from these passages, and know it; what was known of them is replaced."""
        with self._changing:
            self._behind.update(dict.fromkeys(map(int, ids)))
            self.catch_up()

    def forget(self, ids: Sequence[int]) -> None:
        """Forget what these passages had; unknown ids are no error."""
        if not len(ids):
            return
        with self._changing:
            for id in ids:
                self._behind.pop(int(id), None)
            self._remove(ids)

    def passed(self, sources: Sequence[int]) -> None:
        """Where passages stand says nothing here."""

    def embedded(self, hashes: Sequence[bytes]) -> None:
        """There are vectors of these texts now, some of facts or of names perhaps."""
        spaces = self._spaces()
        if not spaces or not hashes:
            return
        with self._changing:
            try:
                facts, subjects = self._reader.lines_of(hashes)
                vectors = [self._reader.line_vectors(hashes, *space) for _, space in spaces]
            except StoreError as error:
                log.error("vectors of facts were not learnt: %s", error)
                return
            for (held, _), found in zip(spaces, vectors, strict=True):
                held.facts.add_vectors(facts, found)
                held.subjects.add_vectors([(row.id, found[row.hash]) for row in subjects if row.hash in found])

    def attach(self, encoder: int, snapshot: int) -> None:
        """From now on search the vectors of this space; reads those there are. Raises StoreError."""
        held = self._held
        with self._changing:
            held.space = (encoder, snapshot)
            held.facts.drop_vectors()
            held.subjects.drop_vectors()
        self._read(held, (encoder, snapshot))

    def prepare(self, encoder: int, snapshot: int) -> None:
        """Read another space's vectors beside those that are searched, and keep both, until `swap` or `abandon`.

        Raises StoreError.
        """
        self.abandon()
        beside = _Held(self.facts.beside(), self.subjects.beside(), (encoder, snapshot))
        self._beside = beside
        self._read(beside, (encoder, snapshot))

    def swap(self) -> None:
        """What was prepared is what is searched. Takes no time, and waits for no change under way."""
        if self._beside is not None:
            old, self._held, self._beside = self._held, self._beside, None
            old.facts.retire()
            old.subjects.retire()

    def abandon(self) -> None:
        """What was prepared is not needed."""
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.facts.retire()
            beside.subjects.retire()

    def fill(self) -> None:
        """Learn all that the store holds; seconds at 100,000 passages. Raises StoreError."""
        for batch in self._reader.walk_passages():
            with self._changing:
                self._learn(batch)

    def catch_up(self) -> None:
        """Learn what was announced and could not be read then, if there is anything."""
        with self._changing:
            try:
                while behind := [id for id, _ in zip(self._behind, range(BATCH), strict=False)]:
                    self._learn(behind)
                    for id in behind:
                        del self._behind[id]
            except StoreError as error:
                log.error("what was extracted from %d passages is not known yet: %s", len(self._behind), error)

    def state(self) -> ExtractsState:
        return ExtractsState(
            facts=len(self.facts),
            fact_vectors=self.facts.vectors,
            subjects=len(self.subjects),
            times=len(self.whens.times.passages),
            memory_bytes=self.facts.memory_bytes + self.subjects.memory_bytes + self.whens.memory_bytes,
        )

    def _learn(self, ids: Sequence[int]) -> None:
        reader = self._reader
        facts, moments, whens, links = (
            reader.facts_of(ids), reader.moments_of(ids), reader.whens_of(ids), reader.links_of(ids),
        )  # fmt: skip
        self._remove(ids)
        new = self.subjects.unknown(links.subjects.tolist())
        subjects, more = reader.subjects_of(new), reader.links_to(new)
        self.facts.add(facts)
        self.whens.add(moments, whens)
        self.subjects.add(subjects, [links, more])
        for held, space in self._spaces():
            self._add_vectors(held, space, ids)

    def _spaces(self) -> list[tuple[_Held, tuple[int, int]]]:
        """Those whose vectors are kept."""
        return [(held, held.space) for held in (self._held, self._beside) if held is not None and held.space]

    def _read(self, held: _Held, space: tuple[int, int]) -> None:
        """All vectors of a space. What is announced meanwhile waits for a batch at most (0.1 s)."""
        facts = self._reader.walk_fact_vectors(*space, LINES)
        while self._one_batch(facts, held.facts.add_lines):
            pass
        names = self._reader.walk_name_vectors(*space, LINES)
        while self._one_batch(names, lambda lines: held.subjects.add_lines(lines.ids.tolist(), lines.vectors)):
            pass

    def _one_batch(self, walk: Iterator[LineVectors], add: Callable[[LineVectors], None]) -> bool:
        with self._changing:  # read and added in one: what is forgotten meanwhile must not come back
            lines = next(walk, None)
            if lines is not None:
                add(lines)
        return lines is not None

    def _add_vectors(self, held: _Held, space: tuple[int, int], ids: Sequence[int]) -> None:
        """Of the facts of these passages, and of their subjects that are here."""
        facts = self._reader.facts_of(ids)
        held.facts.add_vectors(facts, self._reader.line_vectors(facts.hashes, *space))
        subjects = self._reader.subjects_of(sorted(set(self._reader.links_of(ids).subjects.tolist())))
        vectors = self._reader.line_vectors([row.hash for row in subjects], *space)
        held.subjects.add_vectors([(row.id, vectors[row.hash]) for row in subjects if row.hash in vectors])

    def _remove(self, ids: Sequence[int]) -> None:
        self.facts.remove(ids)
        self.whens.remove(ids)
        self.subjects.remove(ids)
