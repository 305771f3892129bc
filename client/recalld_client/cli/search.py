"""`recallctl search`: plain search over all that was written down, ungated."""

from __future__ import annotations

import argparse
import os
from datetime import datetime

from recalld_protocol.messages import Hit, Hits, Search, Status, StatusAsk

from .asking import Daemon
from .command import Command, Fault, checked_text
from .document import document
from .screen import Screen
from .show import Topics, cut, safe, span

QUERY_LIMIT = 32_768  # characters, as messages.Text
AFTER_READING = ("waiting for the model", "embedding")  # states of an index in which all words can be found
EXCERPT = 240  # characters of a hit that has no snippet


def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    query = checked_text(" ".join(options.query), "query", QUERY_LIMIT)
    message = Search(
        query=query,
        limit=options.limit,
        cwd=directory(options.cwd),
        all_scopes=options.all_projects,
        as_of=options.as_of,
    )
    hits = daemon.ask(message, Hits)
    if options.json:
        screen.document(document(hits))
        return 0
    for number, hit in enumerate(hits.hits, start=1):
        _show(number, hit, screen)
    found = f"{len(hits.hits)} hit{'' if len(hits.hits) == 1 else 's'}" if hits.hits else nothing(daemon)
    screen.line(screen.paint(f"{found} ({hits.stage}, {span(hits.ms / 1e3)})", "dim"))
    if not hits.hits and options.as_of is not None:
        screen.line(screen.paint("what is remembered may all have been written after --as-of", "dim"))
    return 0


def nothing(daemon: Daemon) -> str:
    """What it means that nothing was found, which depends on what has been read so far."""
    try:
        return nothing_found(daemon.ask(StatusAsk(), Status).topics)
    except Fault:  # the search was answered: that is what was asked for
        return "nothing found"


def nothing_found(topics: Topics) -> str:
    """`topics` as of a status; those it lacks are taken to be ready.

    >>> nothing_found({"index": {"state": "indexing", "files_done": 0, "files_total": 3}})
    'nothing found yet: indexing, files 0/3'
    >>> nothing_found({"models": {"state": "failed", "phase": "no such directory"}})
    'nothing found by words; the model is not there: no such directory'
    """
    index, models = topics.get("index", {}), topics.get("models", {})
    state = safe(str(index.get("state", "ready")))
    model = safe(str(models.get("state", "ready")))
    absent = "" if model == "ready" else f"the model is not there: {safe(str(models.get('phase') or model))}"
    if state == "ready" or (absent and state in AFTER_READING):
        return f"nothing found by words; {absent}" if absent else "nothing found"
    files = f", files {index['files_done']}/{index['files_total']}" if index.get("files_total") else ""
    return f"nothing found yet: {state}{files}" + (f"; {absent}" if absent else "")


def directory(given: str | None) -> str:
    """The directory whose project is meant, absolute; "" where the present one has been removed."""
    try:
        return os.path.abspath(given) if given else os.getcwd()
    except FileNotFoundError:
        return ""


def _show(number: int, hit: Hit, screen: Screen) -> None:
    lead = f"{number:>2}  "
    where = safe(f"{hit.path}:{hit.start}-{hit.end}")
    facts = [safe(hit.date)] if hit.date else []
    facts.append(f"p {hit.probability:.2f}")
    facts += [f"{safe(lane)} {score:.3g}" for lane, score in hit.lanes.items()]
    tail = "  " + "  ".join(facts)
    room = None if screen.width is None else max(screen.width - len(lead) - len(tail), 8)
    screen.line(lead + screen.paint(cut(where, room, keep_end=True), "cyan") + screen.paint(tail, "dim"))
    text = safe(hit.snippet) or safe(hit.text)[:EXCERPT]
    screen.line("    " + cut(text, None if screen.width is None else max(screen.width - 4, 8)))


def _limit(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= 100:
        raise argparse.ArgumentTypeError(f"a number from 1 to 100, not {text!r}")
    return number


def moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        moment = -1.0
    if moment < 0:  # the wire knows nothing before 1970
        raise argparse.ArgumentTypeError(f"a date such as 2026-03-01 or 2026-03-01T14:30:00Z, not {text!r}")
    return moment


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", nargs="+", help="what to look for; several words need no quotes")
    parser.add_argument("--limit", metavar="N", type=_limit, default=10, help="at most N hits, 1 to 100 (default 10)")
    parser.add_argument("--cwd", metavar="DIR", help="search the project of this directory (default: the present one)")
    parser.add_argument("--all-projects", action="store_true", help="search every project's memory")
    parser.add_argument(
        "--as-of", metavar="ISO", type=moment, help="only what was written before; local time unless it says otherwise"
    )


COMMAND = Command(
    name="search",
    usage="search [options] QUERY...",
    summary="search the memory",
    teaches="Searches this directory's project and what is global. Nothing is held back: each hit "
    "comes with its place (path and bytes), its date, the probability p that it is useful, and "
    "each lane's own score.",
    example="recallctl search --as-of 2026-06-01 lock timeout in migrations",
    arguments=_arguments,
    run=run,
)
