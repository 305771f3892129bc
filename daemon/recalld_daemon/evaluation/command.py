"""`recalld eval`: how good recall is on the user's own log, and whether anything that could be learned would help.

Reads the store and writes nothing to it, so it may run beside the daemon; it steps back for it, as bulk work does. The
figures go to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from recalld_daemon.config import Config
from recalld_daemon.paths import Home

NICE = 10
EVERY_SECONDS = 0.2  # between two lines of progress
DOES = "Judge recall on your own log: plain search, what was learned, and what could be."
MORE = (
    "Questions are what agents asked; their answers what was used, acted on or found good. What is trained on the\n"
    "older part of the log is judged on the newest, and on random parts, each with its 95 % interval. Writes nothing\n"
    "to the store, and works with a daemon running and without.\n\n"
    "examples:\n  recalld eval\n  recalld eval --json eval.json --plot pictures --format svg"
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Beside --config and --home."""
    parser.add_argument("--json", metavar="FILE", nargs="?", const="-", help="as JSON, to FILE or instead of the text")
    parser.add_argument(
        "--plot", metavar="DIR", type=Path, help="also draw learning curve, reliability and drift there"
    )
    parser.add_argument("--format", choices=("png", "svg"), default="png", help="of the pictures (default: png)")
    parser.add_argument(
        "--min", metavar="N", type=int, help="train from N questions on (default: [learning] least_queries)"
    )
    parser.add_argument("--folds", metavar="N", type=int, default=3, help="parts of the random split (default: 3)")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of the random split (default: 0)")


def run_eval(arguments: argparse.Namespace, home: Home, config: Config) -> int:
    """Returns an exit code; what can't be done is said on standard error. Raises OSError: the figures can't be kept."""
    from recalld_daemon.evaluation import plots
    from recalld_daemon.evaluation.ground import NoGround, open_ground
    from recalld_daemon.evaluation.survey import Wish, survey
    from recalld_daemon.evaluation.told import told
    from recalld_daemon.models.files import ModelError
    from recalld_daemon.store.errors import StoreError

    if arguments.plot and not plots.can_draw():
        return _fail(plots.MISSING)
    if arguments.folds < 2:
        return _fail("--folds must be 2 or more", 2)
    _try_places(arguments)
    os.nice(max(0, NICE - os.nice(0)))
    least = config.least_queries if arguments.min is None else max(2, arguments.min)
    wish = Wish(least, arguments.folds, bool(arguments.plot), arguments.seed)
    progress = ProgressLine(sys.stderr)
    try:
        with open_ground(home, config, progress) as ground:
            document = survey(ground, wish, progress)
    except (NoGround, StoreError, ModelError) as error:
        return _fail(str(error))
    finally:
        progress.end()
    if arguments.json and arguments.json != "-":
        Path(arguments.json).write_text(_as_json(document), "utf-8")
    sys.stdout.write(_as_json(document) if arguments.json == "-" else told(document))
    if arguments.plot:
        drawn = plots.draw(document, arguments.plot, arguments.format)
        lines = [*(map(str, drawn) if drawn else ["nothing to draw yet"]), *plots.left_out(document)]
        print(*lines, sep="\n", file=sys.stderr)
    return 0


def _try_places(arguments: argparse.Namespace) -> None:
    """Raises OSError where what is found out could not be kept: better now than after an hour."""
    if arguments.plot:
        arguments.plot.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=arguments.plot).close()
    if arguments.json and arguments.json != "-":
        Path(arguments.json).open("a").close()


@dataclass(slots=True)
class ProgressLine:
    """One line that is written over on a terminal; elsewhere a line per phase."""

    to: TextIO
    clock: Callable[[], float] = time.monotonic
    _phase: str = ""
    _last: float = field(default=-1e9)
    _open: bool = False

    def __call__(self, phase: str, done: int, total: int) -> None:
        now, new = self.clock(), phase != self._phase
        if not new and (not self.to.isatty() or (now - self._last < EVERY_SECONDS and done < total)):
            return
        self._phase, self._last = phase, now
        if self.to.isatty():
            text = f"{phase} {done}/{total}" if total else phase
            self.to.write(f"\r\x1b[K{text[:100]}")
            self._open = True
        else:
            self.to.write(f"{phase}\n")
        self.to.flush()

    def end(self) -> None:
        """Leave the terminal clean."""
        if self._open:
            self.to.write("\r\x1b[K")
            self.to.flush()


def _as_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _fail(text: str, code: int = 1) -> int:
    print(f"recalld: {text}", file=sys.stderr)
    return code
