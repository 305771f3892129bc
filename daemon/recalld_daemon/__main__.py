"""`recalld`: run the daemon, show it at work, replay a recorded session. Each command imports only what it needs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recalld_daemon import __version__
from recalld_daemon.config import Config, ConfigError, load_config, to_toml
from recalld_daemon.paths import Home, default_home, home_under

EXIT_CODES = """exit codes:
  0  done          1  failed (the message says why)          2  wrong usage or configuration
  3  another daemon is running                               130  interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.command(arguments))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except ConfigError as error:
        return _fail(str(error), 2)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except ModuleNotFoundError as error:
        return _fail(f"the daemon's parts are not installed (no {error.name}): pip install 'recalld[daemon]'", 1)


def _fail(text: str, code: int) -> int:
    print(f"recalld: {text}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recalld",
        description="Spontaneous recall for AI agents: a daemon that watches what an agent does and, at a tool-call "
        "boundary, slips in the few words that were written down somewhere and matter now.",
        epilog="Look inside a running daemon with `recallctl`.\n\n" + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"recalld {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (
        _add_run,
        _add_demo,
        _add_replay,
        _add_eval,
        _add_sleep,
        _add_import,
        _add_hooks,
        _add_config,
        _add_keys,
    ):
        add(commands)
    return parser


def _command(commands: Any, name: str, says: str, more: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=says, description=says, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.set_defaults(command=run)
    return parser


# ---------------------------------------------------------------- run


def _add_run(commands: Any) -> None:
    parser = _command(
        commands,
        "run",
        "Run the daemon in the foreground.",
        "It serves as soon as its sockets answer, loads its model beside that, and follows what it watches.\n"
        "SIGTERM or Ctrl-C: it takes no more work, finishes what is under way, and stops within two seconds.\n\n"
        "example:\n  recalld run --watch ~/notes --watch ~/work/project/docs\n\n" + EXIT_CODES,
        _run,
    )
    _add_config_flag(parser)
    parser.add_argument(
        "--watch", metavar="DIR", action="append", default=[], help="index and follow DIR too (repeatable)"
    )
    parser.add_argument(
        "--no-transcripts", action="store_true", help="leave the sessions of agents on this machine alone"
    )
    parser.add_argument("--encoder", metavar="MODEL", help="sentence-transformers model, by path or name")
    parser.add_argument("--no-late-interaction", action="store_true", help="see [recall] late_interaction")
    parser.add_argument("--no-withholding", action="store_true", help="as with [learning] withheld_share = 0")
    parser.add_argument("--undated", choices=("changed", "always"), help="see [sources] undated; default: changed")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="default: info")
    parser.add_argument(
        "--home",
        metavar="DIR",
        type=Path,
        help="keep data, models and configuration under DIR; the sockets stay in RECALLD_RUNTIME_DIR",
    )
    parser.add_argument("--model-cache", metavar="DIR", type=Path, help="where prepared models are kept")


def _add_config_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="default: $XDG_CONFIG_HOME/recalld/config.toml, if it exists"
    )


def _run(arguments: argparse.Namespace) -> int:
    _ask_for_huge_pages()
    _bound_threads()
    home = _home(arguments)
    config = _config(arguments, home)
    from recalld_daemon.service import run_daemon  # after the bounds: numpy reads them when it is imported

    return run_daemon(config, home, os.environ)


def _ask_for_huge_pages() -> None:
    """Start again, once, with glibc asked to put its heap on huge pages; the kernel decides, and may say no.

    A daemon is cold most of the time: its index and its model are touched a few times a minute. On a virtual machine
    with 4 KB pages the first query after a second of quiet took 70 ms, on huge pages 29 (docs/measurements.md). The
    variable is read when a process starts, hence the new start; workers inherit it.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if "glibc.malloc.hugetlb" in tunables or not sys.platform.startswith("linux"):
        return
    os.environ["GLIBC_TUNABLES"] = ":".join(filter(None, [tunables, "glibc.malloc.hugetlb=1"]))
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _bound_threads() -> None:
    """One BLAS thread: many-threaded numpy beside the loop gave a p99 of 8-9 ms, and gains nothing on small arrays."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"


def _home(arguments: argparse.Namespace) -> Home:
    home = home_under(arguments.home.absolute()) if arguments.home else default_home()
    cache = getattr(arguments, "model_cache", None)
    return replace(home, models=cache.absolute()) if cache else home


def _config(arguments: argparse.Namespace, home: Home) -> Config:
    path = arguments.config or (home.config_file if home.config_file.exists() else None)
    flags: dict[str, Any] = {}
    if arguments.no_transcripts:
        flags["transcripts"] = False
    if arguments.encoder:
        flags["encoder"] = arguments.encoder
    if arguments.no_late_interaction:
        flags["late_interaction"] = False
    if arguments.no_withholding:
        flags["withheld_share"] = 0.0
    if arguments.undated:
        flags["undated"] = arguments.undated
    if arguments.log_level:
        flags["log_level"] = arguments.log_level
    config = load_config(path, flags)
    more = tuple(str(Path(directory).expanduser().absolute()) for directory in arguments.watch)
    told = tuple(str(Path(directory).expanduser().absolute()) for directory in config.watch)
    for directory in (*told, *more):
        if "\0" in directory or not _is_utf8(directory):
            raise ConfigError(f"{directory!a} can't be watched: its name is not valid UTF-8, or holds a zero byte")
    for directory in arguments.watch:
        if not Path(directory).expanduser().exists():
            print(f"recalld: --watch {directory}: no such directory; waiting for it to appear", file=sys.stderr)
    return replace(config, watch=tuple(dict.fromkeys(told + more)))


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


# ---------------------------------------------------------------- demo and replay


def _add_demo(commands: Any) -> None:
    parser = _command(
        commands,
        "demo",
        "Watch a scripted agent race against recall, live, over a sample memory.",
        "A real daemon in a temporary home, the real client, the real socket. Takes about a minute, most of it the\n"
        "agent's own work; nothing is left behind.",
        _demo,
    )
    parser.add_argument("--fast", action="store_true", help="shorten the agent's thinking and long tool calls")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write what happened as JSON too")


def _demo(arguments: argparse.Namespace) -> int:
    from recalld_daemon.demo.runner import run_demo

    return run_demo(fast=arguments.fast, json_file=arguments.json)


def _add_replay(commands: Any) -> None:
    parser = _command(
        commands,
        "replay",
        "Replay a recorded Claude Code session: what would have come to mind, and in time?",
        "The session's events go through the real client to a daemon of its own over --memory. Only what was written\n"
        "before the replayed moment can be recalled, so a session never recalls itself; a note without a date of its\n"
        "own counts as written when its file was last changed (see --undated).\n\n"
        "example:\n  recalld replay ~/.claude/projects/-w-app/0a1b.jsonl --memory ~/notes --pace none",
        _replay,
    )
    parser.add_argument("session", metavar="SESSION.jsonl", type=Path)
    parser.add_argument("--memory", metavar="DIR", type=Path, action="append", required=True, help="repeatable")
    parser.add_argument(
        "--pace",
        choices=("recorded", "none"),
        default="none",
        help="recorded: real time; none (default): back to back, each race decided by the call's recorded length",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every race as JSON")
    parser.add_argument("--home", metavar="DIR", type=Path, help="keep the index in DIR for the next replay")
    parser.add_argument(
        "--undated",
        action="store_true",
        help="also recall what has no date of its own, whenever its file was changed",
    )
    parser.add_argument("--limit", metavar="N", type=int, default=0, help="stop after N tool calls")


def _replay(arguments: argparse.Namespace) -> int:
    from recalld_daemon.replay.runner import run_replay

    return run_replay(
        arguments.session,
        arguments.memory,
        recorded_pace=arguments.pace == "recorded",
        json_file=arguments.json,
        home=arguments.home,
        undated=arguments.undated,
        limit=arguments.limit,
    )


# ---------------------------------------------------------------- eval


def _add_eval(commands: Any) -> None:
    from recalld_daemon.evaluation.command import DOES, MORE, add_flags

    parser = _command(commands, "eval", DOES, MORE, _eval)
    _add_config_flag(parser)
    parser.add_argument("--home", metavar="DIR", type=Path, help="data, models and configuration are under DIR")
    parser.add_argument("--model-cache", metavar="DIR", type=Path, help="where prepared models are kept")
    add_flags(parser)


def _eval(arguments: argparse.Namespace) -> int:
    from recalld_daemon.evaluation.command import run_eval

    _bound_threads()
    home = _home(arguments)
    path = arguments.config or (home.config_file if home.config_file.exists() else None)
    return run_eval(arguments, home, load_config(path))


# ---------------------------------------------------------------- sleep


def _add_sleep(commands: Any) -> None:
    from recalld_daemon.sleep.command import DOES, MORE, add_flags

    parser = _command(commands, "sleep", DOES, MORE, _sleep)
    _add_config_flag(parser)
    parser.add_argument("--home", metavar="DIR", type=Path, help="data, models and configuration are under DIR")
    parser.add_argument("--model-cache", metavar="DIR", type=Path, help="where prepared models are kept")
    add_flags(parser)


def _sleep(arguments: argparse.Namespace) -> int:
    from recalld_daemon.sleep.command import run_sleep

    _bound_threads()
    home = _home(arguments)
    path = arguments.config or (home.config_file if home.config_file.exists() else None)
    return run_sleep(arguments, home, load_config(path))


# ---------------------------------------------------------------- import


def _add_import(commands: Any) -> None:
    from recalld_daemon.importing.command import DOES, MORE, add_flags

    parser = _command(commands, "import", DOES, MORE, _import)
    _add_config_flag(parser)
    parser.add_argument("--home", metavar="DIR", type=Path, help="data, models and configuration are under DIR")
    parser.add_argument("--model-cache", metavar="DIR", type=Path, help="where prepared models are kept")
    add_flags(parser)


def _import(arguments: argparse.Namespace) -> int:
    from recalld_daemon.importing.command import run_import

    _bound_threads()
    home = _home(arguments)
    path = arguments.config or (home.config_file if home.config_file.exists() else None)
    return run_import(arguments, home, load_config(path))


# ---------------------------------------------------------------- hooks


def _add_hooks(commands: Any) -> None:
    _command(
        commands,
        "hooks",
        "Serve HTTP hooks also while no daemon runs, so that no host complains of a refused one.",
        "A daemon serves them itself; this is for a service of its own (systemd/recalld-hooks.service). Where no\n"
        "daemon answers, a hook gets an empty answer within 150 ms. Port and token are those that `recallctl install`\n"
        "chose; it waits for them.",
        _hooks,
    )


def _hooks(arguments: argparse.Namespace) -> int:
    from recalld_daemon.hooks.standing import run_hooks
    from recalld_protocol.errors import EndpointError

    try:
        run_hooks(os.environ)
    except EndpointError as error:
        return _fail(str(error), 1)
    return 0


# ---------------------------------------------------------------- config


def _add_config(commands: Any) -> None:
    parser = _command(
        commands,
        "config",
        "Print the configuration in force as a commented TOML file, every key with its default and unit.",
        "example:\n  recalld config > config.new.toml    (never onto the file in force: the shell empties it first)",
        _print_config,
    )
    _add_config_flag(parser)


def _print_config(arguments: argparse.Namespace) -> int:
    home = default_home()
    path = arguments.config or (home.config_file if home.config_file.exists() else None)
    sys.stdout.write(to_toml(load_config(path)))
    return 0


# ---------------------------------------------------------------- keys


def _add_keys(commands: Any) -> None:
    parser = _command(
        commands,
        "keys",
        "Make the keys with which a client on another machine may speak to this daemon over TCP.",
        "Writes DIR/daemon.secret (made once), DIR/clients (one public key is added) and DIR/NAME.keys, which goes to\n"
        "the client's machine. Nothing that exists is overwritten.\n\n"
        "example:\n  recalld keys ~/.config/recalld --client laptop\n\n"
        'then, in config.toml:\n  [tcp]\n  address = "tcp://0.0.0.0:7411"\n'
        '  secret_file = "~/.config/recalld/daemon.secret"\n  clients_file = "~/.config/recalld/clients"\n'
        "and for the client:\n  RECALLD_TCP=tcp://HOST:7411 RECALLD_TCP_KEYS=laptop.keys",
        _keys,
    )
    parser.add_argument("directory", metavar="DIR", type=Path)
    parser.add_argument("--client", metavar="NAME", default="client", help="whose keys (default: client)")


def _keys(arguments: argparse.Namespace) -> int:
    from recalld_daemon.keys import make_keys

    for path in make_keys(arguments.directory.expanduser(), arguments.client):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
