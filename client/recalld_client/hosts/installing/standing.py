"""How a host stands: whether our entries are in its settings, are the ones we would install now, and are let run.

Read only. What switches hooks off stands in other files of the host's, each in its own way; the ones looked at are
named in `_switches`.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from . import files
from .entries import FORMS, Version, Way
from .files import FileFault
from .install import PLUGIN, at_version, http_hook, same_python, text_of
from .jsonc import Unparsable, parse
from .marks import PLUGIN_MARK, command_of, hook_directory
from .places import Place, place_of
from .settings import NotSettings, found, is_current

PLUGIN_NAME = "recalld"  # as in plugins/claude-code
MANAGED_CLAUDE = Path("/etc/claude-code/managed-settings.json")
State = Literal["absent", "current", "stale", "unreadable"]


@dataclass(frozen=True, slots=True)
class Standing:
    """`hooks`: ours, as they stand there, with their events. `problem`: why it is "unreadable", or what is "stale".

    `mode`: of the settings file, None where there is none.
    """

    place: Place
    state: State
    hooks: tuple[tuple[str, dict[str, Any]], ...] = ()
    problem: str = ""
    mode: int | None = None

    @property
    def by_http(self) -> bool:
        return any(handler.get("type") == "http" for _, handler in self.hooks)


def standing(place: Place, env: Mapping[str, str], version: Version | None = None) -> Standing:
    """`version`: the host's, where it matters and is known. Raises nothing but EndpointError."""
    try:
        there = files.look(place.path)
        if there.data is None:
            return Standing(place, "absent")
        if place.host == "opencode":
            return _plugin(place, there.data, there.mode)
        return _entries(place, text_of(there), there.mode, env, version)
    except (FileFault, NotSettings) as error:
        return Standing(place, "unreadable", problem=str(error))


def switched_off(place: Place, env: Mapping[str, str], project: Path) -> Iterator[str]:
    """What keeps our hooks from running, each with its file and the remedy."""
    for path, check in _switches(place, env, project):
        try:
            there = files.look(path)
            root = parse(text_of(there), comments=True).value if there.data else {}
        except (FileFault, Unparsable):
            continue  # what the host can't read does not switch anything off
        if isinstance(root, dict) and (why := check(root)):
            yield f"{path}: {why}"


def claude_plugins(env: Mapping[str, str], project: Path) -> Iterator[str]:
    """The names under which our plugin directory is enabled in Claude Code, as "recalld@MARKETPLACE"."""
    for scope in (place_of("claude-code", "user", env, project).path, project / ".claude/settings.json"):
        try:
            root = parse(text_of(files.look(scope))).value
        except (FileFault, Unparsable):
            continue
        enabled = root.get("enabledPlugins") if isinstance(root, dict) else None
        if isinstance(enabled, dict):
            yield from (name for name, on in enabled.items() if name.partition("@")[0] == PLUGIN_NAME and on is True)


def _plugin(place: Place, data: bytes, mode: int | None) -> Standing:
    if not data.startswith(PLUGIN_MARK.encode()):
        return Standing(place, "absent", problem="a plugin of that name is there, which is not recalld's", mode=mode)
    if data != PLUGIN.read_bytes():
        return Standing(place, "stale", problem="it is another version's plugin", mode=mode)
    return Standing(place, "current", mode=mode)


def _entries(place: Place, text: str, mode: int | None, env: Mapping[str, str], version: Version | None) -> Standing:
    form, ours = FORMS[place.host], tuple(found(text, FORMS[place.host]))
    if not ours:
        return Standing(place, "absent", mode=mode)
    by_http = any(handler.get("type") == "http" for _, handler in ours)
    way = same_python(Way(http=http_hook(env, dry_run=True) if by_http else None), ours)
    if is_current(text, form, form.entries(at_version(way, version))):
        return Standing(place, "current", ours, mode=mode)
    return Standing(place, "stale", ours, problem=_why_stale(ours, by_http), mode=mode)


def _why_stale(ours: tuple[tuple[str, dict[str, Any]], ...], by_http: bool) -> str:
    if by_http:
        return "its events, port or token are not what this recalld would install"
    command = command_of(ours[0][1])
    if not os.access(command[0], os.X_OK):
        return f"its interpreter {command[0]} is not there any more"
    if not os.access(Path(hook_directory(command)) / "hook.py", os.R_OK):
        return f"its hook in {hook_directory(command)} is not there any more"
    return "its events or its command line are not what this recalld would install"


def _switches(place: Place, env: Mapping[str, str], project: Path) -> Iterator[tuple[Path, Any]]:
    user = place_of(place.host, "user", env, project).path
    match place.host:
        case "claude-code":
            url = http_hook(env, dry_run=True).url(place.host)
            for path in (user, project / ".claude/settings.json", project / ".claude/settings.local.json"):
                yield path, partial(_claude_off, url)
            yield MANAGED_CLAUDE, partial(_managed_off, url)
        case "copilot":
            for name in ("settings.json", "config.json"):
                yield user.parent.parent / name, _copilot_off
        case "gemini":
            for path in (user, project / ".gemini/settings.json"):
                yield path, _gemini_off


def _claude_off(url: str, root: dict[str, Any]) -> str:
    if root.get("disableAllHooks") is True:
        return '"disableAllHooks" is true, so no hook runs: take it out'
    urls = root.get("allowedHttpHookUrls")
    if isinstance(urls, list) and not any(fnmatch.fnmatchcase(url, str(allowed)) for allowed in urls):
        return f'"allowedHttpHookUrls" leaves out {url}: add it, or install with --transport command'
    return ""


def _managed_off(url: str, root: dict[str, Any]) -> str:
    if root.get("allowManagedHooksOnly") is True:
        return '"allowManagedHooksOnly" is true: whoever runs this machine lets no hook of yours run'
    return _claude_off(url, root)


def _copilot_off(root: dict[str, Any]) -> str:
    return '"disableAllHooks" is true, so no hook runs: take it out' if root.get("disableAllHooks") is True else ""


def _gemini_off(root: dict[str, Any]) -> str:
    hooks = root.get("hooksConfig")
    if not isinstance(hooks, dict):
        return ""
    if hooks.get("enabled") is False:
        return '"hooksConfig.enabled" is false, so no hook runs: take it out'
    if "recalld" in (hooks.get("disabled") or []):
        return '"hooksConfig.disabled" names recalld: `/hooks enable recalld`'
    return ""
