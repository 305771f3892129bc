"""What an import found and did, in words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from recalld_daemon.importing.finds import Find
from recalld_daemon.importing.outcome import Outcome

PROBLEMS_TOLD = 3


def found_line(found: Find) -> str:
    """
    >>> from collections import Counter
    >>> found_line(Find("/v", False, label="Obsidian vault", size=2_400_000, files=Counter({"note": 214})))
    '/v: Obsidian vault, 214 notes (2.4 MB)'
    """
    parts = [found.label]
    parts += [_many(count, _file_of(label)) for label, count in found.files.most_common()]
    tally = found.tally
    if tally.conversations:
        parts.append(_many(tally.conversations, "conversation"))
    if tally.messages:
        parts.append(_many(tally.messages, "message"))
    elif found.is_file:
        parts.append(_many(found.passages, "passage"))
    if tally.first is not None and tally.last is not None:
        first, last = _day(tally.first), _day(tally.last)
        parts.append(first if first == last else f"{first} to {last}")
    return f"{found.path}: {', '.join(parts)} ({_size(found.size)})"


def problem_lines(found: Find) -> Iterator[str]:
    for problem in found.problems[:PROBLEMS_TOLD]:
        yield f"  {problem}"
    if found.problem_count > PROBLEMS_TOLD:
        yield f"  and {found.problem_count - PROBLEMS_TOLD:,} more problems; what can be read is read"


def outcome_lines(outcome: Outcome) -> Iterator[str]:
    """What became of one path."""
    if outcome.inside:
        yield f"  is read already, as part of {outcome.inside}"
    elif outcome.known:
        yield "  already known, and followed"
    else:
        yield f"  from now on followed: what changes there is read again (`recallctl forget {outcome.path}` ends it)"
    if outcome.kept is not None:
        kept = outcome.kept
        new = f"{kept.newer:,} of them new" if kept.newer else "nothing new"
        files = "" if outcome.found.is_file else f" in {_many(kept.files, 'file')}"
        yield f"  {_many(kept.passages, 'passage')} can be recalled{files}, {new}"
        if kept.failed:
            yield f"  {_many(kept.failed, 'file')} could not be read:"
        yield from (f"    {failure}" for failure in outcome.failures)
    if outcome.copy:
        yield f"  a copy is kept as {outcome.copy}: the original may be deleted"
    elif not outcome.inside and outcome.found.is_file and not outcome.known:
        yield "  it must stay where it is, since quotes are checked against it (--copy keeps a copy)"
    if outcome.others:
        yield (
            f"  there is another {outcome.found.label}, {outcome.others[0]}: what is in both is kept twice; "
            f"`recallctl forget {outcome.others[0]}` drops the older one"
        )


def _file_of(label: str) -> str:
    return f"{label} file" if label in ("Markdown", "plain text") else label


def _many(count: int, what: str) -> str:
    if count != 1:
        what = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{count:,} {what}"


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment).strftime("%Y-%m-%d")


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} KB"
