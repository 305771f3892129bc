"""Values as a person reads them: durations, sizes, dates, and text from memories that is not to be trusted.

All pure: the width of the terminal and the present moment are arguments. Invariant: what came over the wire passes
through `safe` before it is printed, so that no memory can steer a terminal, hide a word, or add a line.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime

REPLACEMENT = "\ufffd"
ELLIPSIS = "…"
Scalar = str | int | float | bool | None
Topics = dict[str, dict[str, Scalar]]  # as of a status


def safe(text: str) -> str:
    r"""On one line: runs of white space folded to a space, control, escape and bidi characters replaced.

    >>> safe("red:\x1b[31m  two\n lines\u202e")
    'red:\ufffd[31m two lines\ufffd'
    """
    return "".join(char if char.isprintable() else REPLACEMENT for char in " ".join(text.split()))


def cells(text: str) -> int:
    """How many columns of a terminal `text` takes; `text` is safe.

    >>> cells("Måke"), cells("港")
    (4, 2)
    """
    return sum(_cell(char) for char in text)


def cut(text: str, width: int | None, *, keep_end: bool = False) -> str:
    """`text` in at most `width` columns, an ellipsis standing for what was cut: the end, or with `keep_end` the start.

    >>> cut("notes/runbooks/deploy.md", 12), cut("notes/runbooks/deploy.md", 12, keep_end=True)
    ('notes/runbo…', '…s/deploy.md')
    """
    if width is None or cells(text) <= width:
        return text
    room = max(width - 1, 0)
    kept: list[str] = []
    for char in reversed(text) if keep_end else text:
        room -= _cell(char)
        if room < 0:
            break
        kept.append(char)
    return ELLIPSIS + "".join(reversed(kept)) if keep_end else "".join(kept) + ELLIPSIS


def span(seconds: float) -> str:
    """A duration with its two largest units.

    >>> span(0.0000042), span(0.0123), span(7.25), span(4000), span(200_000)
    ('4 us', '12.3 ms', '7.2 s', '1 h 6 min', '2 d 7 h')
    """
    if not math.isfinite(seconds):
        return str(seconds)
    if seconds < 0:
        return "-" + span(-seconds)
    if seconds < 0.000_999_5:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 0.999_95:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for above, below, large, small in ((86_400, 3_600, "d", "h"), (3_600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= above:
            return f"{whole // above} {large} {whole % above // below} {small}"
    return f"{whole} s"


def size(count: float) -> str:
    """Bytes with a binary unit.

    >>> size(512), size(20_000), size(3 * 2**30)
    ('512 B', '19.5 KiB', '3.0 GiB')
    """
    if abs(count) < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if abs(count) < 1023.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def moment(at: float) -> str:
    """Epoch seconds as local date and time; "-" for 0 (unknown) and for what no calendar holds."""
    return _local(at, "%Y-%m-%d %H:%M:%S") if at else "-"


def clock(at: float) -> str:
    """Epoch seconds as local time of day with milliseconds."""
    return _local(at, "%H:%M:%S.%f")[:12]


def ago(at: float, now: float) -> str:
    """How long before `now`; "-" for 0 (never). Clocks that disagree give "now", not a future."""
    if not at:
        return "-"
    return "now" if now - at < 1 else f"{span(now - at)} ago"


def value(key: str, of: Scalar) -> str:
    """One value of a status or an event, its unit read off the end of its key (`_seconds`, `_bytes`, ...)."""
    if of is None:
        return "-"
    if isinstance(of, bool):
        return "yes" if of else "no"
    if isinstance(of, str):
        return safe(of) or "-"
    for ending, shown in _BY_ENDING.items():
        if key.endswith(ending):
            return shown(of)
    if isinstance(of, int):
        return str(of) if key.endswith(_NO_COUNTS) else f"{of:,}"
    return f"{of:.4g}"


def name(key: str) -> str:
    """A key without its unit, which `value` shows.

    >>> name("wal_bytes"), name("won"), name("ms")
    ('wal', 'won', 'ms')
    """
    return next((key.removesuffix(ending) for ending in _BY_ENDING if key.endswith(ending)), key)


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int | None,
    *,
    flexible: int,
    numbers: Iterable[int] = (),
) -> list[str]:
    """Aligned lines. Column `flexible` is cut (its start) where `width` columns would not do; `numbers` align right.

    >>> table(("id", "n"), [("a", "1"), ("bcd", "20")], None, flexible=0, numbers=[1])
    ['id    n', 'a     1', 'bcd  20']
    """
    lines = [list(heads), *([*row] for row in rows)]
    widths = [max(cells(line[column]) for line in lines) for column in range(len(heads))]
    if width is not None:
        over = sum(widths) + 2 * (len(widths) - 1) - width
        widths[flexible] = max(widths[flexible] - max(over, 0), min(widths[flexible], 8))
    right = frozenset(numbers)
    return [
        "  ".join(_fit(text, widths[column], column in right) for column, text in enumerate(line)).rstrip()
        for line in lines
    ]


def _cell(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _fit(text: str, width: int, right: bool) -> str:
    shown = cut(text, width, keep_end=True)
    padding = " " * (width - cells(shown))
    return padding + shown if right else shown + padding


def _local(at: float, pattern: str) -> str:
    try:
        return datetime.fromtimestamp(at).astimezone().strftime(pattern)
    except (OverflowError, ValueError, OSError):
        return "-"


_NO_COUNTS = ("pid", "version", "start", "end", "port", "line")  # keys of numbers that name a place, not an amount
_BY_ENDING = {
    "_seconds": span,
    "_ms": lambda ms: span(ms / 1e3),
    "_us": lambda us: span(us / 1e6),
    "_mb": lambda mb: size(mb * 1e6),
    "_bytes": size,
    "_at": moment,
}
