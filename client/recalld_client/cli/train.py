"""`recallctl train`: a person says which of a query's candidates help; each answer is sent as it is given.

On a terminal single keys answer, without it one line of standard input answers one question, in the same letters. What
is said is sent before the next question is asked, so stopping at any time loses nothing: the marks of a question that
was left open are sent too, its unmarked candidates are not judged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from recalld_protocol.messages import Acked, Feedback, Snippet, TrainAsk, Training, Verdict

from .asking import Daemon
from .command import Command, checked_text
from .document import document
from .keyboard import Keyboard, Lines, open_keyboard
from .screen import Screen
from .search import QUERY_LIMIT, directory
from .show import cut, safe

KEYS = "1-9 helped, enter: on, n: none helped, s: skip, q: stop"
MOST_SKIPPED = 1000  # as TrainAsk.skip


@dataclass(slots=True)
class Tally:
    """What was said so far."""

    answered: int = 0
    skipped: int = 0
    good: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    def line(self) -> str:
        """
        >>> Tally(2, 1, ["a"], ["b", "c"]).line()
        '2 answered (1 helped, 2 did not), 1 skipped'
        """
        return f"{self.answered} answered ({len(self.good)} helped, {len(self.bad)} did not), {self.skipped} skipped"


def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    query = checked_text(" ".join(options.query), "query", QUERY_LIMIT) if options.query else ""
    count, tally, asked = 1 if query else options.count, Tally(), list[str]()
    going = True
    with open_keyboard(sys.stdin, screen.out) as keyboard:
        try:
            while going and len(asked) < count:
                training = daemon.ask(_question(options, query, asked), Training)
                if not training.candidates:
                    break
                asked.append(training.recall)
                _show(training, len(asked), count, screen, options.json)
                going = _answered(training, keyboard, daemon, screen, tally, options.json)
        except BaseException:  # a Ctrl-C, too, is told what was kept
            if asked:
                _end(query, asked, tally, screen, options.json)
            raise
    _end(query, asked, tally, screen, options.json)
    return 0


def _question(options: argparse.Namespace, query: str, asked: list[str]) -> TrainAsk:
    return TrainAsk(
        query=query, cwd=directory(options.cwd), all_scopes=options.all_projects, limit=options.limit,
        skip=asked[-MOST_SKIPPED:],
    )  # fmt: skip


def _answered(
    training: Training, keyboard: Keyboard | Lines, daemon: Daemon, screen: Screen, tally: Tally, json: bool
) -> bool:
    """Take the answer to one question and send it. False: the person stops."""
    marked: list[bool] = [False] * len(training.candidates)
    confirmed, key = False, "q"
    try:
        for key in keyboard.answer():
            if key.isdecimal() and 0 < int(key) <= len(marked):
                marked[int(key) - 1] ^= True
                if keyboard.echoes and not json:
                    screen.line(_marks(marked))
                    screen.flush()
            elif key in ("n", "s"):
                marked = [False] * len(marked)
            confirmed = (key == "\n" and any(marked)) or key == "n"
            if key in ("\n", "n", "s", "q"):
                break
        else:
            key = "q"
    finally:
        good, bad = _send(training.candidates, marked, confirmed, daemon, tally)
    tally.skipped += not (good or bad or key == "q")
    if json:
        screen.document({"kind": "answer", "recall": training.recall, "good": good, "bad": bad})
        screen.flush()
    return key != "q"


def _send(
    candidates: list[Snippet], marked: list[bool], confirmed: bool, daemon: Daemon, tally: Tally
) -> tuple[list[str], list[str]]:
    """Good what is marked, bad the others where the question was answered. The key makes it count once."""
    good = [snippet.id for snippet, mark in zip(candidates, marked, strict=True) if mark]
    bad = [snippet.id for snippet, mark in zip(candidates, marked, strict=True) if confirmed and not mark]
    told: list[tuple[Verdict, str]] = [*(("good", id) for id in good), *(("bad", id) for id in bad)]
    for number, (verdict, id) in enumerate(told):
        daemon.ask(Feedback(impression=id, verdict=verdict, key=f"{id}/train"), Acked)
        (tally.good if verdict == "good" else tally.bad).append(id)
        tally.answered += not number  # once any of it is kept
    return good, bad


def _show(training: Training, number: int, count: int, screen: Screen, json: bool) -> None:
    if json:
        screen.document(document(training) | {"number": number, "of": count})
    else:
        screen.line(screen.heading(f"{number} of {count}") + "  " + _fit(safe(training.query), screen, 12))
        if cause := training.cause.removesuffix(training.query).rstrip(": "):  # the query stands above it
            screen.line("    " + screen.paint(_fit(safe(cause), screen, 4), "dim"))
        for place, snippet in enumerate(training.candidates, start=1):
            screen.line(f"{place:>3}  " + _fit(safe(snippet.text), screen, 5))
            where = safe(f"{snippet.path}:{snippet.start}-{snippet.end}") + f"  {safe(snippet.date)}".rstrip()
            screen.line("     " + screen.paint(_fit(where, screen, 5), "dim"))
        screen.line(screen.paint(KEYS, "dim"))
    screen.flush()


def _end(query: str, asked: list[str], tally: Tally, screen: Screen, json: bool) -> None:
    if json:
        counts = {"asked": len(asked), "answered": tally.answered, "skipped": tally.skipped}
        screen.document({"kind": "trained", **counts, "good": len(tally.good), "bad": len(tally.bad)})
    elif not asked:
        screen.line("nothing is found for it" if query else "there is nothing to ask: no past query is left unjudged")
    else:
        screen.line(tally.line())


def _marks(marked: list[bool]) -> str:
    """
    >>> _marks([True, False, True]), _marks([False])
    ('helped: 1 3', 'helped: -')
    """
    return "helped: " + (" ".join(str(place) for place, mark in enumerate(marked, start=1) if mark) or "-")


def _fit(text: str, screen: Screen, indent: int) -> str:
    return cut(text, None if screen.width is None else max(screen.width - indent, 8))


def _number(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isdecimal() and 1 <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"a number from 1 to {most}, not {text!r}")
        return int(text)

    return read


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--query", metavar="WORD", nargs="+", help="ask about this query (default: past ones that nobody has judged)"
    )
    parser.add_argument("--count", metavar="N", type=_number(100), default=10, help="at most N questions (default 10)")
    parser.add_argument(
        "--limit", metavar="N", type=_number(9), default=5, help="N candidates each, 1 to 9 (default 5)"
    )
    parser.add_argument("--cwd", metavar="DIR", help="the project of this directory (default: the present one)")
    parser.add_argument("--all-projects", action="store_true", help="every project's memory and past queries")


COMMAND = Command(
    name="train",
    usage="train [options]",
    summary="say which snippets help, so that it learns",
    teaches="Shows a query and what is found for it, in random order, and asks which of it helps. Past "
    "queries come first about which the gate was least certain. Recall learns from the answers. "
    "Each is kept as it is given: stop at any time, with q or Ctrl-C.\n\n"
    "Keys: 1 to 9 mark a candidate that helps, or take the mark back; enter goes on (what is not "
    "marked then counts as no help; without any mark nothing is said); n: none of them helps; "
    "s: skip; q: stop.\n\n"
    "Without a terminal each line of standard input answers one question, in the same letters: "
    '"1 3", "n", "s", "q"; its end stops. With --json each question is a line of JSON '
    "(kind training), each answer is confirmed by one (kind answer), and a last one sums up "
    "(kind trained).",
    example="recallctl train --count 5",
    arguments=_arguments,
    run=run,
)
