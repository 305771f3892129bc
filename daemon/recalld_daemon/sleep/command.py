"""`recalld sleep`: the nightly cycle as a command. A process of its own that steps back for everything else.

Figures go to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recalld_daemon.config import Config
from recalld_daemon.paths import Home

DOES = "Learn from the day: train challengers, promote the simplest that wins on held-out questions."
MORE = (
    "Trains on what helped agents so far, judges on the newest questions, and sets live what is better for sure; else\n"
    "what is live stays. Tells the running daemon, and works without one. Meanwhile the old version is searched.\n"
    "Ctrl-C or SIGTERM: stops at the next safe place; the next run goes on from there.\n\n"
    "exit codes:\n"
    "  0    done, whether something was promoted, nothing was better, or there was too little to learn from\n"
    "  1    failed (the message says why)      2    wrong usage or configuration\n"
    "  3    another sleep cycle is running     130  interrupted; run it again to go on\n\n"
    "examples:\n  recalld sleep --dry-run\n  recalld sleep --json"
)
OK, FAILED, BUSY, STOPPED = 0, 1, 3, 130


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Beside --config, --home and --model-cache."""
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and write nothing")
    parser.add_argument("--json", action="store_true", help="print the night's report as JSON")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of the fits (default: 0)")


def run_sleep(arguments: argparse.Namespace, home: Home, config: Config) -> int:
    """Returns an exit code; what can't be done is said on standard error."""
    from recalld_daemon.evaluation.ground import NoGround
    from recalld_daemon.models.files import ModelError
    from recalld_daemon.sleep.ports import usual_works
    from recalld_daemon.store.errors import StoreError

    settings = settings_of(config, arguments.seed)
    try:
        if arguments.dry_run:
            from recalld_daemon.sleep.plan import planned

            _print(planned(home, config, settings), arguments.json)
            return OK
        from recalld_daemon.worker import yield_to_others

        logging.basicConfig(stream=sys.stderr, level="WARNING", format="%(levelname)s %(name)s: %(message)s")
        yield_to_others()
        return run_night(home, config, settings, usual_works(), arguments.json)
    except (NoGround, StoreError, ModelError) as error:
        return _fail(str(error))


def run_night(home: Home, config: Config, settings: Any, works: Any, as_json: bool) -> int:
    """Raises NoGround, StoreError, OSError, ModelError."""
    from recalld_daemon.lock import AlreadyRunning
    from recalld_daemon.sleep.cycle import NotYet, sleep
    from recalld_daemon.sleep.ports import Interrupted
    from recalld_daemon.sleep.progress import Told, stopped_by_signals

    progress = Told(sys.stderr)
    try:
        with stopped_by_signals(progress):
            ended = sleep(home, config, settings, works, progress, progress.phase)
    except AlreadyRunning as held:
        who = f"pid {held.pid}" if held.pid else "a process that is just starting"
        return _fail(f"another sleep cycle is running ({who}): one at a time", BUSY)
    except Interrupted:
        progress.end()
        return _fail("stopped; nothing is lost: `recalld sleep` goes on from there", STOPPED)
    except NotYet as error:
        progress.end()
        return _fail(f"{error}; `recalld sleep` asks again")
    finally:
        progress.end()
    _print(ended.report, as_json)
    return _fail(str(ended.report["result"])) if ended.failed else OK


def settings_of(config: Config, seed: int = 0) -> Any:
    """As configured."""
    from recalld_daemon.sleep.ports import Settings

    usual = Settings(least_queries=config.least_queries)
    return replace(usual, fit=replace(usual.fit, seed=seed, shape=replace(usual.fit.shape, seed=seed)))


def _print(report: Mapping[str, Any], as_json: bool) -> None:
    from recalld_daemon.sleep.told import told

    sys.stdout.write(json.dumps(report, indent=1, ensure_ascii=False) + "\n" if as_json else told(report))


def _fail(text: str, code: int = FAILED) -> int:
    print(f"recalld sleep: {text}", file=sys.stderr)
    return code
