"""What came to mind, as the agent sees it: one short factual line that quotes a place in a file.

The line is byte-stable (no clock, no counter), so that a context which holds it stays cacheable, and it is a
quotation: nothing inside the quoted words may end it, start a new line, or hide from the reader.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from recalld_protocol.messages import Inject, Snippet, Stage

DOUBLE_QUOTES = str.maketrans(dict.fromkeys('"“”„‟«»＂', "'"))  # what would look like the quotation's end
CLOSING_TAG = re.compile(r"<(?=\s*/\s*[A-Za-z])")  # a host's wrapper can only be broken out of by closing it


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A snippet taken at a boundary. `start` and `end` are bytes of the file at `path`, half open.

    `probability` is the gate's: that this is useful now. `recall` and `stage` tell which recall brought it and how
    deep it went; both are unknown ("" and "none") where the snippet came through the outbox.
    """

    id: str
    text: str
    path: str
    start: int
    end: int
    date: str = ""  # YYYY-MM-DD when it was written; "": unknown
    probability: float = 0.0
    recall: str = ""
    stage: Stage = "none"
    calls: tuple[str, ...] = ()  # ids of the tool calls that the recall answers
    asked_turn: int = 0  # the turn it answers; 0: tool calls only
    ms: float = 0.0  # from the event's arrival in the daemon to this answer

    def render(self) -> str:
        """One line.

        >>> print(Injection(id="i7", text="never tag before CI is green", path="notes/deploy.md", start=15, end=43))
        recalled: "… never tag before CI is green …" — notes/deploy.md:15-43
        """
        words = one_line(self.text).strip(" …").translate(DOUBLE_QUOTES)
        date = f" ({one_line(self.date)})" if self.date else ""
        return f'recalled: "… {words} …" — {one_line(self.path)}:{self.start}-{self.end}{date}'

    def __str__(self) -> str:
        return self.render()


def from_snippet(snippet: Snippet, held: Inject | None = None) -> Injection:
    """The injection that a snippet of the wire becomes when it is taken; `held`: the message that brought it."""
    return Injection(
        id=snippet.id,
        text=snippet.text,
        path=snippet.path,
        start=snippet.start,
        end=snippet.end,
        date=snippet.date,
        probability=snippet.probability,
        recall=held.recall if held else "",
        stage=held.stage if held else "none",
        calls=tuple(held.calls) if held else (),
        asked_turn=held.asked_turn if held else 0,
        ms=held.ms if held else 0.0,
    )


def one_line(text: str) -> str:
    """`text` on one line: whitespace folded, control, bidi and invisible characters gone, closing tags defused."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(map(_visible, text))
    return CLOSING_TAG.sub("‹", " ".join(text.split()))


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Cf", "Cs", "Co", "Cn"):  # bidi, zero width and tag characters, surrogates, unassigned
        return ""
    return " " if category in ("Cc", "Zl", "Zp") else character
