"""Markdown and plain text, line by line: sections under their heading paths, each cut into passages.

Only the section being read is in memory, and never more than SECTION bytes of it. What is not text, in a line's
middle, is replaced and counted; a line longer than a piece is a section of its own, piece by piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO

from recalld_daemon.ingest import frontmatter
from recalld_daemon.ingest.holes import LONG_WORD, blob_tail
from recalld_daemon.ingest.lines import Line, read_lines
from recalld_daemon.ingest.offsets import REPLACEMENT, plain_text
from recalld_daemon.ingest.passages import Stretch, passages
from recalld_daemon.worker_wire import FileProblem, ParsedPassage

SECTION = 32 * 1024  # bytes; from here on a section is closed at its next blank line, at twice this at any line

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\r?\n?\Z")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*\r?\n?\Z")
_FENCE = re.compile(r"[ \t]{0,12}(?:>[ \t]?)*(`{3,}|~{3,})")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|[*`]+")
_NO_PARAGRAPH = re.compile(r"\s*(?:[-*+>|#]|\d+[.)]|$)")


@dataclass(frozen=True, slots=True)
class Dates:
    """When a file was written, in epoch seconds, as its name tells (None: it does not) and as its last change does."""

    named: float | None
    changed: float

    def written_at(self, stated: float | None) -> float | None:
        """As the text states, else the name; never later than the last change. None: neither tells, others decide."""
        moment = self.named if stated is None else stated
        return None if moment is None else min(moment, self.changed)


def parse_document(
    file: BinaryIO, codec: str, start: int, dates: Dates, *, markdown: bool, note: str = ""
) -> Iterator[ParsedPassage | FileProblem]:
    """Passages of the text from byte `start` on. note: of a note that goes by its file's name, this name; then its
    other names and its tags stand with it at the top of every heading path."""
    lines: Iterator[Line] = read_lines(file, codec, start)
    front = frontmatter.Front()
    if markdown:
        front, lines = _take_front(lines, codec)
    title = front.title or note
    shown = frontmatter.with_names(title, front) if note else title
    return _Document(codec, title, shown, dates.written_at(front.written_at), markdown).read(lines)


def _take_front(lines: Iterator[Line], codec: str) -> tuple[frontmatter.Front, Iterator[Line]]:
    """The frontmatter, and the lines after it; all lines if there is none."""
    taken: list[Line] = []
    texts: list[str] = []
    for line in lines:
        taken.append(line)
        texts.append(plain_text(line.raw, codec).rstrip())
        if texts[0] not in frontmatter.FENCES or len(texts) > frontmatter.MOST_LINES:
            break
        if len(texts) > 1 and texts[-1] in (texts[0], "..."):
            return frontmatter.read_front(texts[1:-1]), lines
    return frontmatter.Front(), chain(taken, lines)


class _Document:
    """The section being read, the headings above it, and whether we are inside fenced code or a blob."""

    def __init__(self, codec: str, title: str, shown: str, written_at: float | None, markdown: bool) -> None:
        self._codec = codec
        self._title = title
        self._written_at = written_at
        self._markdown = markdown
        self._headings: list[tuple[int, str]] = [(0, shown)] if shown else []
        self._bare: Line | None = None  # the last heading, as long as nothing stands below it
        self._section: list[Line] = []
        self._bytes = 0
        self._fence = ""
        self._in_blob = False

    def read(self, lines: Iterable[Line]) -> Iterator[ParsedPassage | FileProblem]:
        for line in lines:
            text = plain_text(line.raw, self._codec)
            if REPLACEMENT in text and (bad := self._replaced(line.raw, text)):
                yield FileProblem(line=line.number, text=f"{bad} invalid or NUL characters replaced")
            yield from self._take(line, text)
        yield from self._close()
        yield from self._close_bare(0)

    def _take(self, line: Line, text: str) -> Iterator[ParsedPassage]:
        ended = text.endswith("\n")
        if line.continues or not ended:
            yield from self._take_piece(line, text)
            return
        self._in_blob = False
        if self._markdown and (heading := self._heading(text)):
            yield from self._open_section(line, *heading)
        elif self._markdown and (level := self._underlined(text)):
            title = self._section.pop()
            yield from self._open_section(title, level, plain_text(title.raw, self._codec).strip())
        else:
            self._follow_fence(text)
            yield from self._add(line, text)

    def _take_piece(self, line: Line, text: str) -> Iterator[ParsedPassage]:
        """A part of a line too long to be held, or the last line of the file."""
        if line.continues:
            yield from self._close()
        elif self._markdown and (heading := self._heading(text)):
            yield from self._open_section(line, *heading)
            return
        skip = blob_tail(text) if self._in_blob else 0
        self._in_blob = skip == len(text) or _ends_in_blob(text)
        yield from self._add(line, text, skip)
        if line.continues:
            yield from self._close(skip)

    def _add(self, line: Line, text: str, skip: int = 0) -> Iterator[ParsedPassage]:
        self._section.append(line)
        self._bytes += len(line.raw)
        if not text.isspace():
            self._bare = None
        if self._bytes > 2 * SECTION or (self._bytes > SECTION and text.isspace()):
            yield from self._close(skip)

    def _close(self, skip: int = 0) -> Iterator[ParsedPassage]:
        section, self._section, self._bytes = self._section, [], 0
        if section:
            raw = b"".join(line.raw for line in section)
            yield from passages(self._stretch(section[0].start, raw, self._path(), skip))

    def _stretch(self, start: int, raw: bytes, heading: str, skip: int = 0) -> Stretch:
        return Stretch(
            start, raw, self._codec, heading, written_at=self._written_at, skip=skip, comments=self._markdown
        )

    def _heading(self, text: str) -> tuple[int, str] | None:
        match = None if self._fence else _HEADING.match(text)
        return (len(match[1]), match[2] or "") if match else None

    def _underlined(self, text: str) -> int:
        """The level of a heading that this line makes of the one before; 0 if it doesn't."""
        match = None if self._fence or not self._section else _UNDERLINE.match(text)
        if not match:
            return 0
        above = [plain_text(line.raw, self._codec) for line in self._section[-2:]]
        alone = len(above) == 1 or above[0].isspace()
        if not alone or _NO_PARAGRAPH.match(above[-1]) or self._section[-1].continues:
            return 0
        return 1 if match[1].startswith("=") else 2

    def _open_section(self, line: Line, level: int, title: str) -> Iterator[ParsedPassage]:
        yield from self._close()
        yield from self._close_bare(level)
        title = _LINK.sub(lambda m: m[1] or "", title).strip()
        self._headings = [kept for kept in self._headings if kept[0] < level]
        if title:
            self._headings.append((level, title))
        self._bare = line

    def _close_bare(self, level: int) -> Iterator[ParsedPassage]:
        """A heading with nothing below it is a passage itself; with a deeper one below, it lives on in its path."""
        if self._bare and self._headings and level <= self._headings[-1][0]:
            above = " > ".join(title for _, title in self._headings[:-1])
            yield from passages(self._stretch(self._bare.start, self._bare.raw, above))
        self._bare = None

    def _path(self) -> str:
        titles = [title for _, title in self._headings]
        return " > ".join(
            title
            for n, title in enumerate(titles)
            if n == 0 or (title != titles[n - 1] and (n > 1 or title != self._title))
        )

    def _follow_fence(self, text: str) -> None:
        fence = _FENCE.match(text) if self._markdown else None
        if not fence:
            return
        if not self._fence:
            self._fence = fence[1]
        elif fence[1].startswith(self._fence) and not text[fence.end() :].strip():
            self._fence = ""

    def _replaced(self, raw: bytes, text: str) -> int:
        genuine = 0 if self._codec == "cp1252" else raw.count(REPLACEMENT.encode(self._codec))
        return text.count(REPLACEMENT) - genuine


def _ends_in_blob(text: str) -> bool:
    tail = text[-LONG_WORD:]
    return len(tail) == LONG_WORD and tail.isascii() and not any(c.isspace() for c in tail)
