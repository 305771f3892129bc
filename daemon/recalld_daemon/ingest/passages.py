"""From a stretch of a file to its passages: holes left out, cut where it reads well, secrets masked, offsets exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from recalld_daemon.ingest.chunks import cut
from recalld_daemon.ingest.holes import holes, says_something, solids
from recalld_daemon.ingest.offsets import char_starts, decode_span, plain_text
from recalld_daemon.ingest.redact import MASK, redact, secrets
from recalld_daemon.worker_wire import ParsedPassage

HEADING_CHARS = 300  # a heading path longer than that keeps its end, which tells most


@dataclass(frozen=True, slots=True)
class Stretch:
    """Contiguous bytes of a file under one heading, or one message. start: byte of the file where `raw` begins."""

    start: int
    raw: bytes
    codec: str
    heading: str = ""
    speaker: str = ""
    written_at: float | None = None
    skip: int = 0  # characters at the beginning that are the tail of a blob
    comments: bool = False  # HTML comments are holes
    host: bool = False  # hosts' wrappers are holes
    least_words: int = 1  # a passage with fewer says nothing

    def within(self, start: int, end: int) -> Stretch:
        """The part of it between two of its bytes."""
        return replace(self, start=self.start + start, raw=self.raw[start:end], skip=0)


def passages(stretch: Stretch) -> Iterator[ParsedPassage]:
    """The passages of a stretch, in order. Each one's text is `decode_span` of its bytes, for ever."""
    text = plain_text(stretch.raw, stretch.codec)
    gaps = holes(text, comments=stretch.comments, host=stretch.host)
    if stretch.skip:
        gaps = [(0, stretch.skip), *gaps]
    starts = char_starts(stretch.raw, stretch.codec)
    heading = redact(stretch.heading)[-HEADING_CHARS:]
    for solid_start, solid_end in solids(text, gaps):
        solid = text[solid_start:solid_end]
        masked = redact(solid)
        for first, last in cut(solid, [context for context, _ in secrets(solid)]):
            start, end = int(starts[solid_start + first]), int(starts[solid_start + last])
            stored = decode_span(stretch.raw[start:end], stretch.codec)
            if not says_something(stored, stretch.least_words) or not _hides(stored, masked[first:last]):
                continue
            yield ParsedPassage(
                start=stretch.start + start,
                end=stretch.start + end,
                text=stored,
                codec=stretch.codec,
                heading=heading,
                speaker=stretch.speaker,
                written_at=stretch.written_at,
            )


def _hides(stored: str, masked: str) -> bool:
    """Whether what is masked in view of the whole is masked in view of the passage alone, as at answer time.

    The cut keeps a secret and what betrays it together, so this holds; where it should not, the passage is left out.
    """
    return stored == masked or all(c == MASK for c, m in zip(stored, masked, strict=True) if m == MASK)
