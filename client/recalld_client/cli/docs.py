"""Writes docs/recallctl.md out of the commands' own --help, so that the two cannot differ (a test sees to it).

Run from the repository's root: `python -m recalld_client.cli.docs --write`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import COMMANDS, build_parser

WIDTH = 88  # columns: fixed, so that the same bytes come out everywhere
DEFAULT_PATH = Path("docs/recallctl.md")
PREFACE = """\
# recallctl

`recallctl` looks into the running daemon and tells it things. It loads no model and answers in milliseconds. Every
command takes `--json`: one document (for `tail` and `train`, one per line) whose keys are those of the message in
`protocol/README.md`, all of them, also at their default; `install`, `uninstall` and `doctor` have keys of their own.

This page is what `--help` prints; `python -m recalld_client.cli.docs --write` writes it.
"""


def page() -> str:
    """The whole page, Markdown."""
    parser = build_parser(WIDTH)
    places = next(action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    sections = [("recallctl", parser), *((f"recallctl {command.name}", places[command.name]) for command in COMMANDS)]
    shown = [f"## {title}\n\n```text\n{place.format_help().rstrip()}\n```\n" for title, place in sections]
    return "\n".join([PREFACE, *shown])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m recalld_client.cli.docs", description=__doc__)
    parser.add_argument("--write", metavar="FILE", nargs="?", type=Path, const=DEFAULT_PATH, help="write, not print")
    target: Path | None = parser.parse_args(argv).write
    if target is None:
        sys.stdout.write(page())
    else:
        target.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
