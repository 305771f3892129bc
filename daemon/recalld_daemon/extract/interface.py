"""What an extractor is, one protocol per kind, so that a language model may take over one kind and leave the others.

A recipe names who makes what ("facts=rules-1 subjects=rules-1 whens=rules-1"). The store keeps it with each passage:
where it differs from the one in use, the passage is extracted from anew. Change an extractor's version whenever what it
gives changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from recalld_daemon.recall.types import When

SubjectKind = Literal["person", "project", "path", "symbol", "tool", "topic"]
SUBJECT_KINDS: tuple[SubjectKind, ...] = get_args(SubjectKind)


@dataclass(frozen=True, slots=True)
class Piece:
    """A passage as extractors see it. written_at: epoch seconds, None where it has no date of its own."""

    text: str
    speaker: str = ""
    written_at: float | None = None
    heading: str = ""
    path: str = ""
    before: Piece | None = None  # the passage before it in the same source


@dataclass(frozen=True, slots=True)
class Subject:
    """name: as it was written. aliases: other ways of naming it, folded (see `subjects.fold`)."""

    kind: SubjectKind
    name: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Extracted:
    """What a passage gave, and by which recipe."""

    facts: Sequence[str]
    subjects: Sequence[Subject]
    whens: Sequence[When]
    recipe: str


class FactExtractor(Protocol):
    name: str

    def facts(self, piece: Piece) -> Sequence[str]:
        """Small statements that can be understood alone, at most three, the passage's own order."""
        ...


class SubjectExtractor(Protocol):
    name: str

    def subjects(self, piece: Piece) -> Sequence[Subject]:
        """What the passage is about, each once."""
        ...


class TimeExtractor(Protocol):
    name: str

    def whens(self, piece: Piece) -> Sequence[When]:
        """The times it speaks of, each once."""
        ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """One extractor per kind."""

    facts: FactExtractor
    subjects: SubjectExtractor
    whens: TimeExtractor

    @property
    def name(self) -> str:
        return f"facts={self.facts.name} subjects={self.subjects.name} whens={self.whens.name}"

    def extract(self, piece: Piece) -> Extracted:
        return Extracted(self.facts.facts(piece), self.subjects.subjects(piece), self.whens.whens(piece), self.name)
