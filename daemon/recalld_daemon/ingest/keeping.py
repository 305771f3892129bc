"""Store and index kept equal: whatever changes a source or a vector goes to both, here, in the writer's thread.

The index comes later than the store (it needs the model's fingerprint) and may be replaced; what happens before it is
attached, or could not be written to it (its disk is full), is remembered by id and made up for. While another snapshot
is prepared to take its place, that one's vectors are kept too (`prepare`, `swap`). All methods are synchronous and
called by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from recalld_daemon.ingest.compare import INODE_BITS, Difference
from recalld_daemon.ingest.following import Following
from recalld_daemon.ingest.ports import PassageCatalogue, PassageExtracts, PassageIndex, Space
from recalld_daemon.recall.types import GLOBAL_SCOPE
from recalld_daemon.store.reader import Reader
from recalld_daemon.store.rows import FROZEN
from recalld_daemon.store.writer import Writer
from recalld_daemon.watchers.tree import FileStat
from recalld_daemon.worker_wire import Parsed, ParsedPassage, PassagesEncoded

Missing = list[tuple[bytes, str]]  # (hash, embedded text)
PROJECTED_AT_ONCE = 4_096  # texts: 10 ms, in which nobody else writes


@dataclass(slots=True)
class Pass:
    """A file on its way into the store. scope, move_to: keys; to `move_to` the source goes with the next batch."""

    file: FileStat
    shown_path: str
    kind: str
    append: bool
    scope: str = ""
    move_to: str = ""
    placed: bool = False  # the source has named its project
    codec: str = ""
    source: int = 0  # 0: not begun
    new: int = 0
    gone: int = 0
    problems: int = 0


class Keeping:
    """`undated`: when a passage without a date of its own counts as written (epoch seconds); None: as its file was."""

    def __init__(self, writer: Writer, reader: Reader, undated: float | None = None) -> None:
        self._undated = undated
        self._writer = writer
        self._reader = reader
        self._searched = Following(reader)
        self._prepared: Following | None = None  # what will take its place
        self.catalogue: PassageCatalogue | None = None  # kept from when it is set; it then holds what the store holds
        self.extracts: PassageExtracts | None = None  # likewise; it may hold less, if it is being filled

    @property
    def space(self) -> Space | None:
        """What is searched; set without an index where one is opened later."""
        return self._searched.space

    @space.setter
    def space(self, space: Space) -> None:
        self._searched.space = space

    def attach(self, space: Space, index: PassageIndex) -> None:
        """From now on `index`, which holds what the store held of `space` at some time since this was made, is kept."""
        self._searched.attach(space, index)

    def prepare(self, space: Space) -> None:
        """From now on vectors are kept in this space too, and what its index must hear of is remembered."""
        self._prepared = Following(self._reader, space)

    def project(self, space: Space, after: bytes = b"") -> bytes | None:
        """Keep projected vectors of some of the texts that have frozen ones only, those with hashes above `after`.

        Returns the last hash, None when there was nothing to do.
        """
        hashes, frozen = self._reader.unprojected(space.encoder, space.snapshot, PROJECTED_AT_ONCE, after)
        if not hashes or space.key is None:
            return None
        self._writer.put_projected(space.encoder, space.snapshot, hashes, space.key.apply(frozen).astype(np.float16))
        return hashes[-1]

    def catch_up_prepared(self, index: PassageIndex) -> None:
        """Tell `index`, read from the store since `prepare`, what came meanwhile; from now on it is kept as well."""
        if self._prepared is None or self._prepared.space is None:
            raise RuntimeError("nothing is prepared: call prepare first")
        self._prepared.attach(self._prepared.space, index)

    def swap(self) -> None:
        """What was prepared is what is searched, and the index of before is not kept any more."""
        if self._prepared is None or self._prepared.index is None:
            raise RuntimeError("nothing is prepared: call prepare and catch_up_prepared first")
        self._searched, self._prepared = self._prepared, None

    def abandon(self) -> None:
        """What was prepared is not needed."""
        self._prepared = None

    @property
    def _followings(self) -> list[Following]:
        return [one for one in (self._searched, self._prepared) if one is not None]

    def scope_id(self, key: str) -> int:
        return self._writer.scope_id(key) if key else GLOBAL_SCOPE

    def take(self, under_way: Pass, parsed: Parsed) -> None:
        """Write one batch of a file: its pass is begun with the first and ended with the last, all or nothing.

        What was embedded before can be found by meaning at once.
        """
        batch: Sequence[ParsedPassage] = parsed.passages
        if self._undated is not None:
            batch = [replace(p, written_at=self._undated) if p.written_at is None else p for p in batch]
        gone: list[int] = []
        with self._writer.transaction():
            source = under_way.source or self._begin(under_way)
            new = self._writer.add_passages(source, batch)
            if parsed.done:
                problems = under_way.problems + len(parsed.problems)
                gone = self._writer.finish_source(
                    source, cursor=parsed.cursor, problems=problems, codec=under_way.codec
                )
            moved = self._writer.set_scope(source, self.scope_id(under_way.move_to)) if under_way.move_to else []
        under_way.source, under_way.move_to = source, ""
        under_way.new += len(new)
        under_way.gone += len(gone)
        under_way.problems += len(parsed.problems)
        self._forget(gone)
        self._learn([*new, *moved])
        if self.extracts is not None:
            self.extracts.learn([*new, *moved])
        if self.catalogue is not None:
            self.catalogue.learn([*new, *moved])
            if parsed.done:
                self.catalogue.passed([source])

    def _begin(self, under_way: Pass) -> int:
        file = under_way.file
        return self._writer.begin_source(
            file.path,
            shown_path=under_way.shown_path,
            kind=under_way.kind,
            scope=self.scope_id(under_way.scope),
            size=file.size,
            mtime_ns=file.mtime_ns,
            inode=file.inode & INODE_BITS,
            append=under_way.append,
        )

    def fail(self, file: FileStat, error: str, shown_path: str, kind: str) -> None:
        stat = (file.size, file.mtime_ns, file.inode & INODE_BITS)
        self._writer.fail_source(file.path, error, shown_path=shown_path, kind=kind, stat=stat)

    def remove(self, path: str) -> int:
        """Forget a file, or all below a directory; returns how many passages are gone."""
        with self._writer.transaction():
            gone = self._writer.remove_source(path) + self._writer.remove_under(path)
        self._forget(gone)
        return len(gone)

    def forgotten(self, gone: Sequence[int], renamed: Sequence[int] = ()) -> None:
        """The store has forgotten these passages, and extracted anew from those."""
        self._forget(gone)
        if self.extracts is not None and renamed:
            self.extracts.learn(renamed)

    def apply(self, difference: Difference, shown: Sequence[str]) -> None:
        """Carry out moves (`shown`: their new shown paths) and removals, all or nothing."""
        gone: list[int] = []
        with self._writer.transaction():
            for (old, new), shown_path in zip(difference.moved, shown, strict=True):
                gone += self._writer.rename_source(old, new, shown_path=shown_path)
            for path in difference.gone:
                gone += self._writer.remove_source(path)
        self._forget(gone)
        if self.catalogue is not None:  # a passage is found by its path's words too
            self.catalogue.learn([id for _, new in difference.moved for id in self._reader.passage_ids(new)])

    def missing(self, limit: int) -> Missing:
        """What has no frozen vectors: the others are made from those."""
        return self._reader.missing_vectors(self.space.encoder, FROZEN, limit) if self.space else []

    def count_missing(self) -> int:
        return self._reader.count_missing(self.space.encoder, FROZEN) if self.space else 0

    def put(self, space: Space, hashes: Sequence[bytes], encoded: PassagesEncoded) -> int:
        """Keep vectors, and what each space that is kept makes of them, all or nothing.

        Returns how many passages have them now. `space`: the one that was searched when they were asked for.
        """
        vectors = np.frombuffer(encoded.vectors, dtype="<f2").reshape(len(hashes), -1).astype(np.float16, copy=False)
        with self._writer.transaction():
            needed = self._writer.needed(hashes)  # what was forgotten meanwhile must not come back
            kept = [place for place, hash in enumerate(hashes) if hash in needed]
            hashes, vectors = [hashes[place] for place in kept], vectors[kept]
            tokens, starts, ends = (
                [rows[place] for place in kept] for rows in (encoded.tokens, encoded.starts, encoded.ends)
            )
            ids = self._writer.put_vectors(space.encoder, FROZEN, hashes, vectors, tokens, starts, ends)
            for other in self._followings:
                if other.space and other.space.encoder == space.encoder and other.space.key is not None:
                    projected = other.space.key.apply(vectors.astype(np.float32)).astype(np.float16)
                    self._writer.put_projected(space.encoder, other.space.snapshot, hashes, projected)
        if self.space is not None and self.space.encoder == space.encoder:
            self._learn(ids)
            if self.extracts is not None and len(ids) < len(hashes):  # some are of facts, or of names
                self.extracts.embedded(hashes)
        return len(ids)

    def catch_up(self) -> None:
        """Tell the index what could not be told before, if there is anything."""
        self._learn([])
        if self.extracts is not None:
            self.extracts.catch_up()
        if self.catalogue is not None:
            self.catalogue.catch_up()

    def _learn(self, ids: Sequence[int]) -> None:
        for following in self._followings:
            following.learn(ids)

    def _forget(self, ids: Sequence[int]) -> None:
        if self.catalogue is not None:
            self.catalogue.forget(ids)
        if self.extracts is not None:
            self.extracts.forget(ids)
        for following in self._followings:
            following.forget(ids)
