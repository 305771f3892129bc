"""The commands for hosts: `install`, `uninstall`, `doctor`. What they do is loaded when one of them is run.

It brings HTTP, subprocesses and JSON with offsets, which all other commands would wait for in vain.
"""

from __future__ import annotations

import argparse

from .asking import Daemon
from .command import HOST_EXIT_CODES, Command
from .screen import Screen

HOSTS = ("claude-code", "codex", "copilot", "gemini", "opencode")  # as `recalld_client.hosts`, which is not loaded here


def _install(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    from .install import run_install

    return run_install(options, daemon, screen)


def _uninstall(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    from .install import run_uninstall

    return run_uninstall(options, daemon, screen)


def _doctor(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    from .doctor import run

    return run(options, daemon, screen)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scope", choices=("user", "project"), default="user",
        help="user: for all you do (the default); project: in one project's directory alone",
    )  # fmt: skip
    parser.add_argument("--cwd", metavar="DIR", help="the project's directory (default: the present one)")
    parser.add_argument("--dry-run", action="store_true", help="show as a diff what would be changed; change nothing")


def _install_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("host", metavar="HOST", nargs="?", choices=HOSTS, help=f"one of {', '.join(HOSTS)}; none: list")
    _arguments(parser)
    parser.add_argument(
        "--transport", choices=("http", "command"),
        help="Claude Code: by HTTP, which costs it no process (the default), or by a command",
    )  # fmt: skip


def _uninstall_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("host", metavar="HOST", choices=HOSTS, help=f"one of {', '.join(HOSTS)}")
    _arguments(parser)


def _doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "hosts", metavar="HOST", nargs="*", help=f"only these of {', '.join(HOSTS)} (default: all that are installed)"
    )
    parser.add_argument(
        "--cwd", metavar="DIR", help="look at this project's hooks as well (default: the present one's)"
    )


INSTALL = Command(
    name="install",
    usage="install [options] [HOST]",
    summary="let an agent's program recall: writes our hooks into its settings",
    teaches="Writes recalld's hooks into the settings of Claude Code, Codex, Copilot CLI, Gemini CLI or OpenCode. Only "
    "our entries change: yours, their order, comments and a symlink stay. Doing it twice is doing it once, and a newer "
    "recalld replaces what an older one wrote. Without HOST it lists the hosts of this machine and how they stand. "
    "Needs no running daemon.",
    example="recallctl install claude-code --dry-run",
    arguments=_install_arguments,
    run=_install,
    exit_codes=HOST_EXIT_CODES,
)
UNINSTALL = Command(
    name="uninstall",
    usage="uninstall [options] HOST",
    summary="take our hooks out of an agent's program again",
    teaches="Takes recalld's hooks out of the host's settings. Where nobody else changed the file since, it is byte "
    "for byte what it was before, and gone if recalld made it; else only our entries go. Needs no running daemon.",
    example="recallctl uninstall codex",
    arguments=_uninstall_arguments,
    run=_uninstall,
    exit_codes=HOST_EXIT_CODES,
)
DOCTOR = Command(
    name="doctor",
    usage="doctor [options] [HOST...]",
    summary="is all well? tries whether a memory truly reaches the agents",
    teaches="Looks at the daemon, its directories, who can read them, and each host's settings; then plants a memory "
    "in a project of its own, asks for it through the very hook that stands in the host's settings, checks the answer "
    'against what the host takes, and removes the memory. One line per finding; a line that begins with "wrong" ends '
    "with what to do.",
    example="recallctl doctor claude-code",
    arguments=_doctor_arguments,
    run=_doctor,
    exit_codes=HOST_EXIT_CODES,
)
