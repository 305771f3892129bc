"""`recallctl doctor`: is the daemon there, are the hooks in place, and does a memory truly arrive?

Looks, and tries: the hook that stands in a host's settings is run as the host would run it (`hosts.checking`). What is
found is told as it is found, one line each, with what to do about it.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from recalld_client.hosts.checking import machine
from recalld_client.hosts.checking.codex import trust_of
from recalld_client.hosts.checking.delivery import deliver, deliver_by_plugin
from recalld_client.hosts.checking.finding import Finding, note, ok, split, wrong
from recalld_client.hosts.checking.proof import MEMORIES, Proof, prove
from recalld_client.hosts.checking.samples import Step
from recalld_client.hosts.installing.entries import Version
from recalld_client.hosts.installing.places import HOSTS, NoHome, Scope, place_of, program_of
from recalld_client.hosts.installing.probes import claude_version
from recalld_client.hosts.installing.standing import Standing, claude_plugins, standing, switched_off
from recalld_client.link import Subscription
from recalld_protocol.errors import ProtocolError
from recalld_protocol.messages import Forget, FromAgent, Message, Ping, Pong, Status, StatusAsk

from .asking import RESTART, Daemon
from .command import Fault, NoDaemon, package_version
from .install import environment, project_of
from .screen import Screen
from .show import safe

SCOPES: tuple[Scope, ...] = ("user", "project")
FORGET_SECONDS = 30.0  # what is planted must go again, also where the store is large
LOADING_TRIES, LOADING_PAUSE_SECONDS = 120, 0.5  # a model that is loading is waited for
HTTP_TRIES = 12  # of LOADING_PAUSE_SECONDS: three times as long as the daemon takes to look
EVENTS_READ = 2_000  # of what the daemon told meanwhile; a trial brings some dozens
STYLES = {"ok": "green", "note": "yellow", "wrong": "red"}


def run(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> int:
    found: list[Finding] = []
    try:
        for finding in _findings(options, daemon, screen):
            found.append(finding)
            if not options.json:
                screen.line(_line(finding, screen))
                screen.flush()
    except (NoHome, ProtocolError) as error:
        raise Fault(str(error)) from None
    faults = [finding for finding in found if finding.state == "wrong"]
    if options.json:
        rows = [{"about": f.about, "state": f.state, "text": f.text, "remedy": f.remedy} for f in found]
        screen.document({"kind": "doctor", "ok": not faults, "findings": rows})
    if any(fault.about == "daemon" for fault in faults):
        return NoDaemon.exit_code
    return Fault.exit_code if faults else 0


def _findings(options: argparse.Namespace, daemon: Daemon, screen: Screen) -> Iterator[Finding]:
    env, project = environment(options), project_of(options)
    up = _daemon(daemon)
    yield up
    yield from machine.findings(env)
    if env.pop("RECALLD_OFF", "") == "1":
        yield note(
            "machine", "RECALLD_OFF=1 is set here: what is started from here recalls nothing", "unset RECALLD_OFF"
        )
    ready = up.state != "wrong" and _model_ready(daemon, screen)
    if up.state != "wrong" and not ready:
        yield note("daemon", "its model is not ready, so nothing can be tried yet", "run this again in a minute")
    named, any_installed = bool(options.hosts), False
    for host in options.hosts or HOSTS:
        version = _version(host, env)
        stands = [standing(place_of(host, scope, env, project), env, version) for scope in SCOPES]
        there = [stand for stand in stands if stand.state != "absent"]
        plugins = list(claude_plugins(env, project)) if host == "claude-code" else []
        yield from _plugins(plugins, bool(there))
        any_installed = any_installed or bool(there or plugins)
        if named and not there and not plugins:
            yield wrong(host, "nothing of ours is in its settings", f"recallctl install {host}")
        for stand in there:
            yield from _host(stand, env, project, daemon if ready else None, screen)
    if not named and not any_installed:
        yield wrong("hosts", "no agent's program has recalld's hooks", "`recallctl install` lists those that could")


def _plugins(names: Sequence[str], entries_too: bool) -> Iterator[Finding]:
    for name in names:
        if entries_too:
            remedy = f"`claude plugin uninstall {name}`, or `recallctl uninstall claude-code`"
            yield wrong("claude-code", f"the plugin {name} and entries in its settings both run hooks", remedy)
        else:
            yield note("claude-code", f"our hooks are there as the plugin {name}, which is not tried from here")


def _daemon(daemon: Daemon) -> Finding:
    began = time.monotonic()
    try:
        pong = daemon.ask(Ping(), Pong)
    except Fault as fault:
        return wrong("daemon", *split(str(fault)))
    ms = (time.monotonic() - began) * 1e3
    if pong.daemon and pong.daemon != package_version():
        return wrong("daemon", f"it is recalld {pong.daemon}, this recallctl {package_version()}", RESTART)
    return ok("daemon", f"recalld {pong.daemon} answers ({ms:.0f} ms)")


def _model_ready(daemon: Daemon, screen: Screen) -> bool:
    for tried in range(LOADING_TRIES):
        state = daemon.ask(StatusAsk(), Status).topics.get("models", {}).get("state", "ready")
        if state in ("ready", "failed"):
            return state == "ready"
        if tried == 0:
            screen.note("the daemon is loading its model ...")
        time.sleep(LOADING_PAUSE_SECONDS)
    return False


def _host(
    stand: Standing, env: Mapping[str, str], project: Path, daemon: Daemon | None, screen: Screen
) -> Iterator[Finding]:
    """Of one settings file. daemon: None where nothing can be tried."""
    host, path = stand.place.host, stand.place.path
    again = f"recallctl install {host}{' --scope project' if stand.place.scope == 'project' else ''}"
    if stand.state == "unreadable":
        yield wrong(host, f"{path}: {stand.problem}", "mend that file: the host can't read it either")
        return
    if stand.state == "stale":
        yield wrong(host, f"{path}: {stand.problem}", again)
    else:
        yield ok(host, f"our hooks are in place in {path}")
    if stand.by_http and stand.mode is not None and stand.mode & 0o077:
        yield wrong(host, f"{path} holds a token and can be read by others", f"chmod 600 '{path}'")
    for why in switched_off(stand.place, env, project):
        yield wrong(host, *split(why))
    if host == "codex":
        yield from _trust(stand, env, project)
    if daemon is None:
        return
    if stand.by_http and (fault := _http_fault(stand, daemon)):
        yield fault
    else:
        yield _told(host, _prove(stand, env, daemon, screen))


def _http_fault(stand: Standing, daemon: Daemon) -> Finding | None:
    """Why the daemon does not serve these hooks. It looks every two seconds which port and token are wanted."""
    port = next(urlsplit(str(handler.get("url", ""))).port for _, handler in stand.hooks)
    for _ in range(HTTP_TRIES):
        hooks = daemon.ask(StatusAsk(), Status).topics.get("hooks", {})
        match hooks.get("http"):
            case "off":
                remedy = "set it to true, or `recallctl install claude-code --transport command`"
                return wrong("claude-code", "HTTP hooks are switched off by [hooks] http in config.toml", remedy)
            case "port busy":
                return wrong("claude-code", *split(str(hooks.get("last_problem"))))
            case "serving" if hooks.get("http_port") in (port, None):
                return None
        time.sleep(LOADING_PAUSE_SECONDS)
    remedy = "see the daemon's log, and whether it runs with another RECALLD_RUNTIME_DIR or XDG_STATE_HOME"
    return wrong("claude-code", f"the daemon does not serve HTTP hooks at port {port}", remedy)


def _trust(stand: Standing, env: Mapping[str, str], project: Path) -> Iterator[Finding]:
    program = program_of("codex", env)
    trust = trust_of(program, stand.place.path, project, env) if program else "unknown"
    review = "start `codex`, type /hooks, and trust these"
    match trust:
        case "untrusted":
            yield wrong("codex", "Codex does not run our hooks: you have not reviewed them", review)
        case "disabled":
            yield wrong(
                "codex", "our hooks are switched off in Codex", "start `codex`, type /hooks, and switch them on"
            )
        case "trusted":
            yield ok("codex", "Codex trusts our hooks")
        case _:
            yield note("codex", "whether Codex trusts our hooks could not be asked", review)


def _prove(stand: Standing, env: Mapping[str, str], daemon: Daemon, screen: Screen) -> Proof:
    screen.note(f"{stand.place.host}: planting a memory, and asking for it through the hook ...")
    handlers = dict(stand.hooks)

    def run_hook(step: Step, cwd: Path) -> bytes:
        if stand.place.host == "opencode":
            return deliver_by_plugin(stand.place.path, step, cwd, env)
        handler = handlers.get(step.event)
        return deliver(stand.place.host, handler, step, cwd, env) if handler else b""

    def ask(message: FromAgent, answer: type[Message]) -> Message:
        return daemon.ask(message, answer, FORGET_SECONDS if isinstance(message, Forget) else 0.0)

    with daemon.events() as events:
        proof = prove(stand.place.host, handlers, run_hook, ask, time.sleep, random.Random())
        if proof.arrived or proof.memories < MEMORIES:
            return proof
        return replace(proof, why=f"{proof.why}{_said(events)}")


def _said(events: Subscription) -> str:
    """What the daemon itself said of the last recall, "" if nothing."""
    last = ""
    for _ in range(EVENTS_READ):
        event = events.receive(0.0)
        if event is None:
            break
        if event.what != "recall.settled" or event.data.get("outcome") in ("repeat", "merged"):
            continue
        if reason := event.data.get("reason"):
            last = f"; the daemon says: {reason}"
    return last


def _told(host: str, proof: Proof) -> Finding:
    if not proof.arrived:
        return wrong(host, f"a memory did not arrive: {proof.why}", proof.remedy)
    at = "at once" if proof.boundary == 1 else f"at boundary {proof.boundary}"
    tries = "" if proof.memories == 1 else f", the {proof.memories}. that was tried"
    return ok(host, f"a memory arrived through the hook, {at}{tries}")


def _version(host: str, env: Mapping[str, str]) -> Version | None:
    program = program_of(host, env) if host == "claude-code" else ""
    return claude_version(program, env) if program else None


def _line(finding: Finding, screen: Screen) -> str:
    mark = screen.paint(f"{finding.state:5}", STYLES[finding.state])
    remedy = f": {safe(finding.remedy)}" if finding.remedy else ""
    return f"{mark} {safe(finding.about)}  {safe(finding.text)}{remedy}"
