"""What became of one path: a value, for words (`told`) and for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from recalld_daemon.importing.finds import Find
from recalld_daemon.store.followed import Kept


@dataclass(slots=True)
class Outcome:
    """found: what there was. copy: the copy that is followed in its place. known: it was followed before; inside: the
    root that reads it anyway. kept: what the store holds of it now, None before it was read. failures: of its files,
    the first few. others: exports of the same kind that are followed too."""

    found: Find
    copy: str = ""
    known: bool = False
    inside: str = ""
    kept: Kept | None = None
    failures: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        """What is followed."""
        return self.copy or self.found.path

    def row(self) -> dict[str, Any]:
        """For JSON; times are epoch seconds, sizes bytes."""
        found = self.found
        return {
            "path": found.path, "copy": self.copy or None, "kind": found.kind, "label": found.label,
            "is_file": found.is_file, "size": found.size, "files": dict(found.files),
            "conversations": found.tally.conversations, "messages": found.tally.messages,
            "first": found.tally.first, "last": found.tally.last, "problems": found.problems,
            "problem_count": found.problem_count, "known": self.known, "inside": self.inside or None,
            "kept": None if self.kept is None else asdict(self.kept), "failures": self.failures, "others": self.others,
        }  # fmt: skip
