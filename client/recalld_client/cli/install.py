"""`recallctl install` and `uninstall`: our entries in a host's settings, and out again. No daemon is needed.

What is done to files is `hosts.installing`'s; here it is said what is wanted, and told what was done and what else the
user has to do.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recalld_client.hosts.checking.machine import linger
from recalld_client.hosts.installing.entries import Version, Way
from recalld_client.hosts.installing.files import FileFault
from recalld_client.hosts.installing.install import NEW_HTTP, Outcome, at_version, http_hook, install, uninstall
from recalld_client.hosts.installing.places import HOSTS, PROGRAMS, NoHome, place_of, program_of
from recalld_client.hosts.installing.probes import claude_version, git_would_commit
from recalld_client.hosts.installing.standing import standing
from recalld_protocol.errors import ProtocolError
from recalld_protocol.messages import Ping, Pong

from .asking import Daemon
from .command import Fault, NoDaemon
from .screen import Screen
from .show import safe

ACTIONS = {
    "installed": "installed in",
    "updated": "brought up to date in",
    "unchanged": "is in place in",
    "removed": "removed from",
    "absent": "nothing of ours is in",
}
DRY_ACTIONS = {
    "installed": "would be installed in",
    "updated": "would be changed in",
    "removed": "would be taken out of",
}
STATES = {"absent": "", "current": "installed", "stale": "another version's", "unreadable": "can't be read"}
_TOKEN = re.compile(r'("Authorization": "Bearer )[^"]*')


def run_install(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    env, project = environment(options), project_of(options)
    if options.host is None:
        return _list(options, screen, env, project)
    if options.scope == "project" and not project.is_dir():
        raise Fault(f"{project}: there is no such directory: name the project's with --cwd")
    try:
        place = place_of(options.host, options.scope, env, project)
        way = _way(options, env)
        outcome = install(place, way, env, dry_run=options.dry_run)
    except (FileFault, NoHome, ProtocolError) as error:
        raise Fault(str(error)) from None
    notes = [*outcome.notes]
    if way.http == NEW_HTTP:
        notes.append("port and token are chosen when it is installed")
    if outcome.action != "unchanged":
        notes += _to_do(outcome, way, env)
    if not options.dry_run:
        notes += _daemon_missing(daemon)
        notes += [f"{found.text}: {found.remedy}" for found in [linger(env)] if found and found.state != "ok"]
    _tell(options, screen, outcome, notes)
    return 0


def run_uninstall(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    try:
        env = environment(options)
        place = place_of(options.host, options.scope, env, project_of(options))
        outcome = uninstall(place, env, dry_run=options.dry_run)
    except (FileFault, NoHome, ProtocolError) as error:
        raise Fault(str(error)) from None
    _tell(options, screen, outcome, list(outcome.notes))
    return 0


def _way(options: argparse.Namespace, env: Mapping[str, str]) -> Way:
    if options.host != "claude-code":
        if options.transport == "http":
            raise Fault(f"{options.host} knows no HTTP hooks: leave --transport out")
        return Way()
    http = None if options.transport == "command" else http_hook(env, dry_run=options.dry_run)
    return at_version(Way(http=http), _version(env))


def _version(env: Mapping[str, str]) -> Version | None:
    program = program_of("claude-code", env)
    return claude_version(program, env) if program else None


def _to_do(outcome: Outcome, way: Way, env: Mapping[str, str]) -> Iterator[str]:
    """What is left to the user."""
    place = outcome.place
    if place.host == "codex":
        yield "Codex runs no hook that you have not reviewed: start `codex`, type /hooks, and trust these"
    if place.host == "claude-code" and way.http:
        yield (
            "while nobody listens at that port, Claude Code's terminal shows a refused hook at each event: let "
            "`recalld hooks` run as a service (systemd/recalld-hooks.service), or install with --transport command"
        )
    if place.scope == "project" and place.host != "opencode" and git_would_commit(place.path, env):
        what = "a token and paths" if way.http else "paths"
        yield f"it names {what} of this machine, and git does not ignore it: add it to .git/info/exclude"
    if place.scope == "project" and place.host in ("codex", "copilot", "gemini"):
        yield f"a project's hooks are run only where {PROGRAMS[place.host]} trusts the folder"


def _daemon_missing(daemon: Daemon) -> Iterator[str]:
    try:
        daemon.ask(Ping(), Pong)
    except NoDaemon as missing:
        yield str(missing)
    except Fault:
        return


def _tell(options: argparse.Namespace, screen: Screen, outcome: Outcome, notes: list[str]) -> None:
    place, difference = outcome.place, list(diff_of(outcome)) if options.dry_run else []
    if options.json:
        document: dict[str, Any] = {
            "kind": "host_changed", "host": place.host, "scope": place.scope, "path": str(place.path),
            "action": outcome.action, "dry_run": options.dry_run, "notes": notes, "diff": "\n".join(difference),
        }  # fmt: skip
        screen.document(document)
        return
    for line in difference:
        screen.line(safe_line(line))
    words = (DRY_ACTIONS if options.dry_run else {}).get(outcome.action, ACTIONS[outcome.action])
    (screen.note if difference else screen.line)(f"{place.host}: {words} {safe(str(place.path))}")
    for note in notes:
        screen.note(f"  {safe(note)}")


def diff_of(outcome: Outcome) -> Iterator[str]:
    """A unified diff, the token in it masked."""
    before, after = outcome.before, outcome.after
    name = str(outcome.place.path)
    for line in difflib.unified_diff(
        (before or "").splitlines(),
        (after or "").splitlines(),
        "/dev/null" if before is None else name,
        "/dev/null" if after is None else name,
        lineterm="",
    ):
        yield _TOKEN.sub(r"\1***", line)


def safe_line(line: str) -> str:
    """As `show.safe`, but indentation stays."""
    return "".join(char if char.isprintable() or char == "\t" else "\ufffd" for char in line)


def _list(options: argparse.Namespace, screen: Screen, env: Mapping[str, str], project: Path) -> int:
    rows = [_row(host, env, project) for host in HOSTS]
    if options.json:
        screen.document({"kind": "hosts", "hosts": rows})
        return 0
    screen.pairs((row["host"], _shown(row), "") for row in rows)
    screen.note("`recallctl install HOST` installs one; `recallctl doctor` tries what is installed")
    return 0


def _row(host: str, env: Mapping[str, str], project: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"host": host, "program": program_of(host, env)}
    version = _version(env) if host == "claude-code" else None
    for scope in ("user", "project"):
        try:
            found = standing(place_of(host, scope, env, project), env, version)
        except (NoHome, ProtocolError) as error:
            raise Fault(str(error)) from None
        row[scope] = {"path": str(found.place.path), "state": found.state, "problem": found.problem}
    return row


def _shown(row: Mapping[str, Any]) -> str:
    scopes = [row[scope] for scope in ("user", "project") if STATES[row[scope]["state"]]]
    said = [f"{STATES[scope['state']]} in {safe(scope['path'])}" for scope in scopes]
    return "; ".join([safe(row["program"]) or "not on PATH", *(said or ["not installed"])])


def environment(options: argparse.Namespace) -> dict[str, str]:
    """Where our own files are looked for: beside the daemon that --runtime-dir names, if it names one."""
    chosen = {"RECALLD_RUNTIME_DIR": os.path.abspath(options.runtime_dir)} if options.runtime_dir else {}
    return {**os.environ, **chosen}


def project_of(options: argparse.Namespace) -> Path:
    return Path(options.cwd or os.curdir).absolute()
