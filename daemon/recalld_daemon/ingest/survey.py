"""What a file holds, told without indexing it: the very parser runs over it, so what is promised is what will be read.

Memory is as bounded as the parser's, whatever the file's size; nothing is extracted, embedded or written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from recalld_daemon.ingest.documents import Dates, parse_document
from recalld_daemon.ingest.encoding import HEAD_BYTES, tell_encoding
from recalld_daemon.ingest.formats import kinds
from recalld_daemon.ingest.formats.records import Progress
from recalld_daemon.ingest.formats.tally import Tally
from recalld_daemon.ingest.frontmatter import moment_of_name
from recalld_daemon.ingest.parse import MOST_PROBLEMS, kind_of
from recalld_daemon.worker_wire import FileProblem, ParsedPassage

EACH_BYTES = 1024 * 1024  # read between two calls of `progress`
DOCUMENT_LABELS = {"markdown": "Markdown", "text": "plain text", "obsidian": "note"}


@dataclass(slots=True)
class Surveyed:
    """What `survey` found in one file.

    kind: as in the store; "": nothing that recalld reads. label: the kind for people ("ChatGPT export").
    size: bytes. passages: how many would be kept. tally: conversations, messages, by whom, first and last date, as the
    parser counts them; where it does not, its passages are counted. problems: the first MOST_PROBLEMS, each with its
    line, or the byte in its text; problem_count: all.
    """

    path: Path
    kind: str
    label: str
    size: int = 0
    passages: int = 0
    tally: Tally = field(default_factory=Tally)
    problems: list[FileProblem] = field(default_factory=list)
    problem_count: int = 0


def survey(path: Path, progress: Callable[[int, int], None], kind: str = "") -> Surveyed:
    """Run a file's parser over it and count. progress: called with (bytes read, bytes of the file), at last with all.
    kind: how it is read; "": told by looking.

    Raises OSError where the file can't be read.
    """
    kind = kind or kind_of(str(path)) or ""
    if not kind:
        return Surveyed(path, "", "nothing that recalld reads")
    with path.open("rb") as file:
        surveyed = Surveyed(path, kind, label_of(kind), os.fstat(file.fileno()).st_size)
        state = Progress(0)
        told = 0
        for item in _found(path, file, state, surveyed):
            _count(item, surveyed)
            if (at := file.tell()) >= told + EACH_BYTES:
                told = at
                progress(min(at, surveyed.size), surveyed.size)
    if state.tally.messages or state.tally.conversations:
        surveyed.tally = state.tally  # the parser's own count: of messages, not of what became passages
    progress(surveyed.size, surveyed.size)
    return surveyed


def label_of(kind: str) -> str:
    """A kind's name for people; a kind without a label goes by its own name."""
    return DOCUMENT_LABELS.get(kind) or kinds.KINDS[kind].label or kind


def _found(path: Path, file: BinaryIO, state: Progress, surveyed: Surveyed) -> Iterator[ParsedPassage | FileProblem]:
    if surveyed.kind in kinds.KINDS:
        return kinds.KINDS[surveyed.kind].parse(file, state)
    encoding = tell_encoding(file.read(HEAD_BYTES))
    if encoding.problem:
        _count(FileProblem(line=0, text=encoding.problem), surveyed)
    if not encoding.codec:
        return iter(())
    dates = Dates(moment_of_name(str(path)), path.stat().st_mtime)
    return parse_document(file, encoding.codec, encoding.bom, dates, markdown=surveyed.kind != "text")


def _count(item: ParsedPassage | FileProblem, surveyed: Surveyed) -> None:
    if isinstance(item, FileProblem):
        surveyed.problem_count += 1
        if len(surveyed.problems) < MOST_PROBLEMS:
            surveyed.problems.append(item)
        return
    surveyed.passages += 1
    if item.speaker:
        surveyed.tally.message(item.speaker, item.written_at)
    else:
        surveyed.tally.dated(item.written_at)
