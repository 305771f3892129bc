"""`recallctl mcp`: the same questions for a model, over the Model Context Protocol on standard input and output."""

from __future__ import annotations

import argparse

from .asking import Daemon
from .command import Command, Fault, package_version
from .screen import Screen
from .search import directory

INSTALL = "pip install 'recalld[mcp]'"


def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    """Standard output belongs to the protocol: nothing else is printed there, whatever the options say."""
    try:
        from recalld_client.mcp_server import serve
    except ImportError as error:
        raise Fault(f"the mcp SDK cannot be imported ({error}): {INSTALL}") from None
    serve(daemon, directory(options.cwd) if options.cwd else None, package_version())
    return 0


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cwd", metavar="DIR", help="the project of this directory (default: the host's root, else the present one)"
    )


COMMAND = Command(
    name="mcp",
    usage="mcp [options]",
    summary="serve recall, remember, forget and feedback to a host without hooks",
    teaches="Speaks the Model Context Protocol on standard input and output, for a host that starts it as a server, "
    f"until its input ends. Needs the mcp SDK: {INSTALL}. docs/hosts.md tells how hosts are told of it.",
    example="claude mcp add recalld -- recallctl mcp",
    arguments=_arguments,
    run=run,
)
