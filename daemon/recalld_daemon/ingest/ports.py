"""What the pipeline needs of the rest of the house, so that tests can put an in-process parser in a worker's place."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.store.rows import FROZEN, VectorBatch
from recalld_daemon.worker_wire import Loaded, Parsed, PassagesEncoded

Gate = Callable[[], Awaitable[None]]  # returns when no live recall is under way


class Bulk(Protocol):
    """The bulk worker (see `workers.BulkWorker`). Its calls wait while it starts or loads.

    They raise EncoderUnavailable when it dies meanwhile, RequestFailed when it lives but can't do this one thing.
    """

    def parse(
        self, path: str | Path, kind: str, cursor: int = 0
    ) -> AbstractAsyncContextManager[AsyncIterator[Parsed]]: ...

    async def encode_passages(self, texts: Sequence[str]) -> PassagesEncoded: ...

    async def wait_ready(self) -> Loaded: ...


class PassageIndex(Protocol):
    """What answers queries. Called in the writer's thread, never by two at a time."""

    def add(self, batch: VectorBatch) -> None:
        """Learn these passages, or learn them anew where the id is known."""
        ...

    def remove(self, ids: Sequence[int]) -> None:
        """Forget these passages; unknown ids are no error."""
        ...


class PassageCatalogue(Protocol):
    """Words and cards of all passages: `index.Catalogue`. Called in the writer's thread, never by two at a time."""

    def learn(self, ids: Sequence[int]) -> None:
        """Read these passages from the store, and know them."""
        ...

    def forget(self, ids: Sequence[int]) -> None: ...

    def passed(self, sources: Sequence[int]) -> None:
        """A pass over these sources has ended: their passages may stand elsewhere in them."""
        ...

    def catch_up(self) -> None:
        """Learn what could not be read when it was announced."""
        ...


class PassageExtracts(PassageCatalogue, Protocol):
    """Facts, subjects and times of all passages (see `index.Extracts`)."""

    def embedded(self, hashes: Sequence[bytes]) -> None:
        """There are vectors of these texts in the space that is searched."""
        ...


class Report(Protocol):
    def __call__(self, what: str, **data: str | int | float | bool | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Space:
    """Where vectors are kept: an encoder of the store, and a snapshot of it. key: f_K, which makes that snapshot's
    vectors from the frozen ones; the frozen snapshot has none. Raises ValueError where one is without the other.
    """

    encoder: int
    snapshot: int
    key: Adapter | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if (self.snapshot == FROZEN) != (self.key is None):
            raise ValueError(
                f"snapshot {self.snapshot} of encoder {self.encoder} {'has' if self.key else 'lacks'} a key"
            )


@dataclass(frozen=True, slots=True)
class Root:
    """A directory (or one file) to index and follow.

    `transcripts`: a host's session directory: what is in it belongs to the project that each transcript names, never
    to all. Else `project_scope` says whether files in a git work tree belong to that project, or to everybody.
    `kind`: how its file is read, or those of its files whose suffix that kind has; "": told by looking at each.
    `is_file`: it is one file, also while it is away; None: what is there tells.
    `only`: of its files those of these kinds are read; (): of all. `notes`: documents too, in a directory of this name
    that lies in one right below the root. `layout`: of a directory that a program keeps (`layouts.LAYOUTS`), else "".
    """

    path: Path
    transcripts: bool = False
    project_scope: bool = False
    kind: str = ""
    is_file: bool | None = None
    only: tuple[str, ...] = ()
    notes: str = ""
    layout: str = ""

    def reads(self, path: str, kind: str, is_document: bool) -> bool:
        """Whether a file below it is read, if it is of that kind."""
        if not self.only or kind in self.only:
            return True
        if not self.notes or not is_document:
            return False
        below = os.path.relpath(path, os.path.abspath(os.path.expanduser(self.path))).split(os.sep)
        return len(below) > 2 and below[1] == self.notes
