"""`recalld import`: a file or a directory that exists already becomes memory.

Results go to standard output, progress and complaints to standard error. What is noted stays noted, whatever happens
after: an interrupted import is gone on with by the daemon, or by the same command again.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from recalld_daemon.config import Config
from recalld_daemon.paths import Home

DOES = "Read what you have already: exports of chats, agents' memories, notes. Tells by itself what each path is."
MORE = (
    "A path is read now, and again whenever it changes, also after a restart, until `recallctl forget PATH`. A second\n"
    "import of the same path reads what is new, and nothing twice. The running daemon does it; without one it is done\n"
    "here. The file must stay where it is, since every quote is checked against it, unless --copy keeps a copy.\n"
    "Ctrl-C: what is noted stays noted; the daemon, or the same command again, goes on.\n\n"
    "exit codes:\n"
    "  0  done          1  a path can't be imported (the message says why)          2  wrong usage or configuration\n"
    "  130  interrupted\n\n"
    "examples:\n  recalld import ~/Downloads/conversations.json --copy\n"
    "  recalld import ~/vault ~/.openclaw --dry-run\n  recalld import --list"
)
OK, FAILED, USAGE, STOPPED = 0, 1, 2, 130
FAILURES_KEPT = 5


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Beside --config, --home and --model-cache."""
    parser.add_argument("paths", metavar="PATH", nargs="*", help="a file or a directory")
    parser.add_argument("--list", action="store_true", help="what has been imported, and how it is")
    parser.add_argument("--dry-run", action="store_true", help="say what would be read, and write nothing")
    parser.add_argument("--copy", action="store_true", help="keep a copy of a file with recalld's data; unpacks a .zip")
    parser.add_argument("--kind", metavar="KIND", default="", help="read it as this kind, whatever it looks like")
    parser.add_argument("--no-wait", action="store_true", help="return as soon as it is noted")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")


def run_import(arguments: argparse.Namespace, home: Home, config: Config) -> int:
    """Returns an exit code; what can't be done is said on standard error."""
    from recalld_daemon.ingest.parse import all_kinds
    from recalld_daemon.store.errors import StoreError

    if arguments.kind and arguments.kind not in all_kinds():
        return _fail(f"--kind {arguments.kind}: known are {', '.join(all_kinds())}", USAGE)
    if not arguments.paths and not arguments.list:
        return _fail("name a PATH, or --list", USAGE)
    logging.basicConfig(stream=sys.stderr, level="ERROR", format="%(levelname)s %(name)s: %(message)s")
    try:
        if arguments.list:
            return _list(home, arguments.json)
        return _Import(arguments, home, config, os.environ).run()
    except StoreError as error:
        return _fail(str(error))


@dataclass(slots=True)
class _Import:
    """One run of the command."""

    arguments: argparse.Namespace
    home: Home
    config: Config
    environ: Mapping[str, str]
    failed: bool = False
    line: Any = None
    last_passage: int = 0
    outcomes: list[Any] = field(default_factory=list)

    def run(self) -> int:
        from recalld_daemon.importing.progress import ProgressLine
        from recalld_daemon.ingest.layouts import places

        self.line = ProgressLine(sys.stderr)
        try:
            for path in dict.fromkeys(self.arguments.paths):
                for place in places(os.path.abspath(os.path.expanduser(path))):
                    self._look(place)
            if not self.arguments.dry_run and self.outcomes:
                self._take_in()
        except KeyboardInterrupt:
            self.line.end()
            return _fail("stopped; what was noted is read on by the daemon, or by the same command again", STOPPED)
        self.line.end()
        if self.arguments.json:
            rows = [outcome.row() for outcome in self.outcomes]
            print(json.dumps({"dry_run": self.arguments.dry_run, "paths": rows}, indent=1, ensure_ascii=False))
        return FAILED if self.failed else OK

    # ------------------------------------------------------------ what is there

    def _look(self, absolute: str) -> None:
        """One path: what it is, said, and copied where that is wished."""
        from recalld_daemon.followed_paths import Refused
        from recalld_daemon.importing.finds import find
        from recalld_daemon.importing.outcome import Outcome
        from recalld_daemon.importing.told import found_line, problem_lines

        try:
            self._check(absolute)
            unpacked, drop = self._unpacked(absolute)
            try:
                found = find(unpacked or absolute, self.arguments.kind, self.line.say)
            except Refused:
                drop()
                raise
            outcome = Outcome(found, copy=unpacked)
            if self.arguments.copy and not self.arguments.dry_run and not unpacked:
                outcome.copy = self._copied(absolute)
        except Refused as error:
            self._complain(str(error))
            return
        except OSError as error:
            self._complain(f"{error.filename or absolute}: {error.strerror or error}")
            return
        self.outcomes.append(outcome)
        self._say(found_line(found), *problem_lines(found))

    def _check(self, path: str) -> None:
        """Raises Refused: what needs another flag."""
        from recalld_daemon.followed_paths import Refused
        from recalld_daemon.importing.finds import is_archive

        archive = is_archive(path)
        if archive and (not self.arguments.copy or self.arguments.dry_run):
            raise Refused("failed", f"{path}: an archive must be unpacked first: do that, or import it with --copy")
        if self.arguments.copy and os.path.isdir(path):
            raise Refused("failed", f"{path}: a directory is followed where it is: leave out --copy")

    def _unpacked(self, path: str) -> tuple[str, Callable[[], None]]:
        """Where to ("" for what is no archive), and what undoes it where nothing of an older one lies there."""
        from recalld_daemon.importing.copies import drop, place_of, unpack
        from recalld_daemon.importing.finds import is_archive

        if not is_archive(path):
            return "", lambda: None
        self.home.make()
        new, say = not place_of(self.home.imported, path).exists(), self.line.say
        place = unpack(self.home.imported, path, lambda done, of: say("unpacking", done >> 20, of >> 20, "MB"))
        return place, partial(drop, place) if new else lambda: None

    def _copied(self, path: str) -> str:
        from recalld_daemon.importing.copies import copy_file

        self.home.make()
        say = self.line.say
        return copy_file(self.home.imported, path, lambda done, of: say("copying", done >> 20, of >> 20, "MB"))

    # ------------------------------------------------------------ noted and read

    def _take_in(self) -> None:
        """By the daemon that holds the lock, else here."""
        from recalld_daemon.lock import AlreadyRunning, held_lock

        self.home.make()
        try:
            with held_lock(self.home.data / "lock"):
                self._here()
        except AlreadyRunning as held:
            self._there(held.pid)

    def _here(self) -> None:
        from recalld_daemon.followed_paths import Refused
        from recalld_daemon.importing import here
        from recalld_daemon.store.writer import open_writer
        from recalld_daemon.worker import yield_to_others

        open_writer(self.home.database).close()  # made, or brought up to date
        self._remember_before()
        noted = []
        for outcome in list(self.outcomes):
            try:
                noted.append(here.note(self.home, self.config, self.environ, outcome.path, self.arguments.kind))
                self._set(outcome, noted[-1])
            except Refused as error:
                self._drop(outcome, str(error))
        problem = ""
        if noted and not self.arguments.no_wait:
            yield_to_others()
            keys = [one.inside or one.path for one in noted]
            problem = here.read(self.home, self.config, self.environ, keys, self.line.say)
        self._tell_all(problem)

    def _there(self, pid: int) -> None:
        from recalld_daemon.importing import there

        problem = ""
        try:
            daemon = there.running(pid, self.environ)
            with daemon.link:
                daemon.greet()
                self._remember_before()
                for outcome in list(self.outcomes):
                    try:
                        self._set(outcome, daemon.note(outcome.path, self.arguments.kind))
                    except there.NotTaken as error:
                        self._drop(outcome, str(error))
                if self.outcomes and not self.arguments.no_wait:
                    problem = daemon.wait(self.line.say)
        except there.NoAnswer as error:
            self._complain(str(error))
            return
        self._tell_all(problem)

    def _remember_before(self) -> None:
        from recalld_daemon.store.reader import open_reader

        with open_reader(self.home.database) as reader:
            self.last_passage = reader.last_passage()

    def _set(self, outcome: Any, noted: Any) -> None:
        outcome.known, outcome.inside = noted.known, noted.inside

    def _drop(self, outcome: Any, why: str) -> None:
        self.outcomes.remove(outcome)
        self._complain(why)

    def _tell_all(self, problem: str) -> None:
        from recalld_daemon.importing.told import outcome_lines
        from recalld_daemon.store.reader import open_reader

        with open_reader(self.home.database) as reader:
            for outcome in self.outcomes:
                if not self.arguments.no_wait:
                    self._count(outcome, reader)
                self._say(outcome.found.path + ":", *outcome_lines(outcome))
        if problem:
            self._complain(f"read, and found by its words; its meaning can't be embedded yet: {problem}")
        if self.arguments.no_wait:
            self._say("noted; it is read by the daemon, now or when it starts")

    def _count(self, outcome: Any, reader: Any) -> None:
        from recalld_daemon.importing.finds import takes_the_place

        outcome.kept = reader.kept_below(outcome.path, self.last_passage)
        sources = [reader.source(outcome.path), *reader.sources(under=outcome.path, state="failed")]
        failed = [source for source in sources if source is not None and source.state == "failed"]
        outcome.failures = [f"{source.shown_path}: {source.error}" for source in failed[:FAILURES_KEPT]]
        if outcome.found.is_file and takes_the_place(outcome.found.kind):
            others = reader.sources(kind=outcome.found.kind, state="ok")
            outcome.others = [source.path for source in others if source.path != outcome.path][:FAILURES_KEPT]

    # ------------------------------------------------------------ said

    def _say(self, *lines: str) -> None:
        self.line.end()
        if not self.arguments.json:
            print(*lines, sep="\n", flush=True)

    def _complain(self, text: str) -> None:
        self.failed = True
        self.line.end()
        _fail(text)


def _list(home: Home, as_json: bool) -> int:
    """Writes nothing."""
    from recalld_daemon.store.reader import open_reader

    if not home.database.exists():
        print("[]" if as_json else "nothing was imported yet")
        return OK
    with open_reader(home.database) as reader:
        rows = [(one, reader.kept_below(one.path)) for one in reader.followed()]
    if as_json:
        found = [
            {
                "path": one.path, "kind": one.kind, "is_file": one.is_file, "at": one.at, "files": kept.files,
                "failed": kept.failed, "passages": kept.passages, "there": os.path.exists(one.path),
            }
            for one, kept in rows
        ]  # fmt: skip
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return OK
    for one, kept in rows:
        day = time.strftime("%Y-%m-%d", time.localtime(one.at))
        missing = "" if os.path.exists(one.path) else ", not there: what was read of it is not shown until it is back"
        failed = f", {kept.failed} files could not be read" if kept.failed else ""
        print(f"{day}  {one.path}: {kept.passages:,} passages in {kept.files:,} files{failed}{missing}")
    if not rows:
        print("nothing was imported yet")
    return OK


def _fail(text: str, code: int = FAILED) -> int:
    print(f"recalld import: {text}", file=sys.stderr)
    return code
