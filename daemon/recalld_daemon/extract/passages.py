"""Extraction as the parsers see it: passages in, the same ones out with what was extracted from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from recalld_daemon.extract.interface import Piece, Recipe
from recalld_daemon.extract.rules import RULES
from recalld_daemon.worker_wire import FileProblem, ParsedPassage, ParsedSubject, ParsedWhen


def extracted(
    found: Iterable[ParsedPassage | FileProblem], path: str = "", recipe: Recipe = RULES
) -> Iterator[ParsedPassage | FileProblem]:
    """A source's passages in order, each extracted from in view of the one before it."""
    before: Piece | None = None
    for item in found:
        if isinstance(item, FileProblem):
            yield item
            continue
        before = piece_of(item, path, before)
        yield with_extracted(item, before, recipe)


def piece_of(passage: ParsedPassage, path: str = "", before: Piece | None = None) -> Piece:
    """What extractors see of a passage: its own text, in which secrets are masked already, and one step back."""
    if before is not None:
        before = Piece(before.text, before.speaker, before.written_at, before.heading, before.path)
    return Piece(passage.text, passage.speaker, passage.written_at or None, passage.heading, path, before)


def with_extracted(passage: ParsedPassage, piece: Piece, recipe: Recipe = RULES) -> ParsedPassage:
    found = recipe.extract(piece)
    return replace(
        passage,
        facts=list(found.facts),
        subjects=[ParsedSubject(s.kind, s.name, s.aliases) for s in found.subjects],
        whens=[ParsedWhen(w.start, w.end, w.grain, w.said) for w in found.whens],
        recipe=found.recipe,
    )
