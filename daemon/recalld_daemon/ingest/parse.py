"""One file in, batches of passages out: the only door of the parsers, called inside the bulk worker.

Memory is bounded by a batch, a section and the longest record that is looked at, whatever the file's size. Faults
inside a file are reported with their line and never stop the rest; OSError says that the file can't be read at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from msgspec.structs import replace

from recalld_daemon.extract.passages import extracted
from recalld_daemon.ingest import layouts
from recalld_daemon.ingest.documents import Dates, parse_document
from recalld_daemon.ingest.encoding import HEAD_BYTES, tell_encoding
from recalld_daemon.ingest.formats import kinds
from recalld_daemon.ingest.formats.claude_code import Progress
from recalld_daemon.ingest.formats.opencode_sessions import parse_session
from recalld_daemon.ingest.frontmatter import moment_of_name
from recalld_daemon.ingest.ports import Root
from recalld_daemon.store import opencode
from recalld_daemon.worker_wire import FileProblem, Parsed, ParsedPassage

BATCH_PASSAGES = 256
BATCH_CHARS = 1_000_000
MOST_PROBLEMS = 50  # told one by one; the rest of a file's are counted

DOCUMENTS = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".mdx": "markdown",
    ".txt": "text",
    ".text": "text",
    ".rst": "text",
    ".org": "text",
    ".adoc": "text",
}  # logs (.log) are for machines: endless, and nobody wrote them down to remember


def kind_of(path: str) -> str | None:
    """How a file is to be parsed: by its name, and where several kinds share a suffix by its head; None: not at all.

    Raises OSError.
    """
    suffix = PurePath(path).suffix.lower()
    if suffix == ".db" and opencode.is_opencode(path):
        return opencode.KIND
    if suffix in kinds.SUFFIXES:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES).lstrip()
        if told := kinds.told_by_head(suffix, head):
            return told
    return DOCUMENTS.get(suffix)


def kind_below(root: Root, path: str) -> str | None:
    """How a file below a root is to be parsed: as the root says, where that can be, else as `kind_of` tells; None: it
    is not read there. A database is a root of its own, and its sessions are what is parsed. Raises OSError.
    """
    if opencode.place_of(path):
        return opencode.KIND
    if root.kind and (root.is_file or PurePath(path).suffix.lower() in suffixes_of(root.kind)):
        return root.kind
    kind = kind_of(path)
    if kind == opencode.KIND:
        return None
    if kind and root.layout:
        kind = layouts.kind_in(root.layout, os.path.abspath(root.path), path, kind)
    return kind if kind and root.reads(path, kind, kind in kinds.DOCUMENTS) else None


def all_kinds() -> list[str]:
    """Every name that `parse_file` takes."""
    return sorted({*kinds.DOCUMENTS, *kinds.KINDS})


def suffixes_of(kind: str) -> tuple[str, ...]:
    """With which names a kind's files are found in a directory."""
    if kind in kinds.KINDS:
        return kinds.KINDS[kind].suffixes
    kind = "markdown" if kind == layouts.OBSIDIAN else kind
    return tuple(suffix for suffix, name in DOCUMENTS.items() if name == kind)


def goes_on(path: str, cursor: int, kind: str = "") -> bool:
    """Whether a transcript may be read on from `cursor`: a record still ends there, and nothing after it takes back
    what stands before. Raises OSError."""
    if cursor == 0:
        return True
    withdrawn = kinds.KINDS[kind].withdrawn if kind in kinds.KINDS else None
    with open(path, "rb") as file:
        file.seek(cursor - 1)
        if file.read(1) not in (b"\n", b"}"):
            return False
        return withdrawn is None or withdrawn(file, cursor).reach is None


def parse_file(path: str, source_kind: str, cursor: int) -> Iterator[Parsed]:
    """Batches of a file's passages in order, the last with done=True, all with id=0 for the caller to replace.

    `source_kind`: markdown, text or a name of `kinds.KINDS` (ValueError else). `cursor`: for a kind that grows, the
    byte to go on from. Raises OSError.
    """
    if source_kind == opencode.KIND:
        return _parse_session(path)
    if kind := kinds.KINDS.get(source_kind):
        return _parse_records(path, kind, cursor if kind.grows else 0)
    if source_kind in kinds.DOCUMENTS:
        return _parse_document(path, source_kind)
    raise ValueError(f"no parser for a source of kind {source_kind!r}")


def _parse_document(path: str, kind: str) -> Iterator[Parsed]:
    with open(path, "rb") as file:
        encoding = tell_encoding(file.read(HEAD_BYTES))
        told = [FileProblem(line=0, text=encoding.problem)] if encoding.problem else []
        status = os.fstat(file.fileno())
        if not encoding.codec:
            yield Parsed(id=0, passages=[], problems=told, done=True, cursor=status.st_size)
            return
        dates = Dates(moment_of_name(path), status.st_mtime)
        note = PurePath(path).stem if kind == layouts.OBSIDIAN else ""
        document = parse_document(file, encoding.codec, encoding.bom, dates, markdown=kind != "text", note=note)
        found = extracted(document, path)
        batch = _Batches(told)
        yield from batch.fill(found)
        yield batch.last(cursor=status.st_size)


def _parse_records(path: str, kind: kinds.Kind, cursor: int) -> Iterator[Parsed]:
    progress = Progress(cursor)
    with open(path, "rb") as file:
        batch = _Batches([])
        for full in batch.fill(extracted(kind.parse(file, progress), path)):
            yield replace(full, project=progress.project, append_only=kind.grows)
        size = os.fstat(file.fileno()).st_size
        last = batch.last(cursor=progress.cursor if kind.grows else size)
        yield replace(last, project=progress.project, append_only=kind.grows)


def _parse_session(path: str) -> Iterator[Parsed]:
    project, found = parse_session(path)
    batch = _Batches([])
    for full in batch.fill(extracted(found, path)):
        yield replace(full, project=project)
    yield replace(batch.last(cursor=0), project=project)


class _Batches:
    """Passages and problems on their way out, counted so that neither a batch nor the problems grow without bound."""

    def __init__(self, problems: list[FileProblem]) -> None:
        self._passages: list[ParsedPassage] = []
        self._problems = problems
        self._told = len(problems)
        self._untold = 0
        self._chars = 0

    def fill(self, found: Iterable[ParsedPassage | FileProblem]) -> Iterator[Parsed]:
        """Full batches, as soon as they are."""
        for item in found:
            if isinstance(item, FileProblem):
                self._tell(item)
                continue
            self._passages.append(item)
            self._chars += len(item.text)
            if len(self._passages) >= BATCH_PASSAGES or self._chars >= BATCH_CHARS:
                yield Parsed(id=0, passages=self._passages, problems=self._problems)
                self._passages, self._problems, self._chars = [], [], 0

    def last(self, cursor: int) -> Parsed:
        if self._untold:
            self._problems.append(FileProblem(line=0, text=f"and {self._untold} more problems"))
        return Parsed(id=0, passages=self._passages, problems=self._problems, done=True, cursor=cursor)

    def _tell(self, problem: FileProblem) -> None:
        if self._told < MOST_PROBLEMS:
            self._problems.append(problem)
            self._told += 1
        else:
            self._untold += 1
