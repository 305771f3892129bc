"""One host's settings, start to end: read, changed as text, put back as a whole, and noted so that it can be undone.

Installing is taking out what is ours and putting it in anew, so that twice is once and an older version's entries are
replaced; where ours stand there just as they should, nothing is written. The note is on disk before the settings are:
whenever this is interrupted, what is on disk can be undone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from recalld_protocol.hook_http import HttpHook, http_hook_file, make_http_hook, read_http_hook

from . import files
from .entries import FORMS, SINCE_HTTP, Form, Version, Way
from .files import Changed, FileFault, Found
from .marks import PLUGIN_MARK, command_of
from .notebook import Note, Notebook, alone, digest_of
from .places import Place
from .settings import Installed, NotSettings, is_bare, is_current, put_in, taken_out, undone
from .settings import found as ours_in

BOM = b"\xef\xbb\xbf"
PLUGIN = Path(__file__).resolve().parents[1] / "plugin" / "recalld.js"
PRIVATE = 0o600
TRIES = 3  # a file that changes while it is being written is read anew
KEPT = ".kept"  # beside a plugin of ours that somebody has changed
NEW_HTTP = HttpHook(20_000, "chosen-when-installed")  # stands in for what a dry run must not make
Action = Literal["installed", "updated", "unchanged", "removed", "absent"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`before` and `after`: the texts, None where there is no file. `notes`: what the user should know."""

    place: Place
    action: Action
    before: str | None
    after: str | None
    notes: tuple[str, ...] = ()


def http_hook(env: Mapping[str, str], *, dry_run: bool) -> HttpHook:
    """Port and token, made if need be. Raises EndpointError."""
    return (read_http_hook(env) or NEW_HTTP) if dry_run else make_http_hook(env)


def at_version(way: Way, version: Version | None) -> Way:
    """The way for a Claude Code of that version: old ones know no HTTP hooks."""
    old = version is not None and version < SINCE_HTTP
    return replace(way, version=version, http=None if old else way.http)


def same_python(way: Way, ours: Iterable[tuple[str, object]]) -> Way:
    """Where ours runs by this interpreter under another name, the name stays: Codex trusts a line, not a hook."""
    for _, handler in ours:
        python = next(iter(command_of(handler)), "")
        if python and os.path.realpath(python) == os.path.realpath(way.python):
            return replace(way, python=python)
    return way


def install(place: Place, way: Way, env: Mapping[str, str], *, dry_run: bool = False) -> Outcome:
    """Raises FileFault, EndpointError."""
    if place.scope == "user":
        _check_owner(place.path)
    notebook = Notebook(env)
    with alone(env, make=not dry_run):
        if place.host == "opencode":
            return _again(lambda: _install_plugin(place, notebook, dry_run))
        return _again(lambda: _install_entries(place, FORMS[place.host], way, notebook, dry_run))


def uninstall(place: Place, env: Mapping[str, str], *, dry_run: bool = False) -> Outcome:
    """Raises FileFault, EndpointError."""
    notebook = Notebook(env)
    with alone(env, make=False):
        if place.host == "opencode":
            return _again(lambda: _uninstall_plugin(place, notebook, dry_run))
        known = place.host in notebook.hosts()
        outcome = _again(lambda: _uninstall_entries(place, FORMS[place.host], notebook, dry_run))
        if place.host == "claude-code" and known and not dry_run and place.host not in notebook.hosts():
            port = http_hook_file(env)
            port.unlink(missing_ok=True)  # nobody asks by HTTP any more: the daemon closes the port
            files.remove_directories([port.parent])
        return outcome


# ---------------------------------------------------------------- entries in a settings file


def _install_entries(place: Place, form: Form, way: Way, notebook: Notebook, dry_run: bool) -> Outcome:
    found = files.look(place.path)
    text, note = text_of(found), notebook.of(found.path)
    mode = _narrower(found, note, way.http is not None)
    with _naming(found.path):
        entries = form.entries(same_python(way, ours_in(text, form)))
        current = found.data is not None and is_current(text, form, entries)
        if current and mode in (None, found.mode):
            return Outcome(place, "unchanged", text, text)
        if current and note is not None and _is_as_left(found, note):
            bare, installed = text, Installed(text, note.steps, note.made)  # only its mode is not as it should be
        else:
            bare = _bare(text, form, note, found)
            installed = put_in(bare, form, entries)
    action: Action = "installed" if bare == text and not current else "updated"
    told = Outcome(place, action, _shown(found), installed.text, _narrowed(found, mode))
    if dry_run:
        return told
    data = _encoded(found, installed.text)
    made = files.make_directories(found.path.parent)
    notebook.write(
        found.path,
        Note(
            host=place.host,
            digest=digest_of(data),
            steps=installed.steps,
            made=installed.made,
            mode=_mode_before(found, note, mode),
            created=found.data is None or (note is not None and note.created),
            directories=tuple(map(str, made)) or (note.directories if note else ()),
        ),
    )
    files.replace(found, data, mode)
    return told


def _uninstall_entries(place: Place, form: Form, notebook: Notebook, dry_run: bool) -> Outcome:
    found = files.look(place.path)
    text, note = text_of(found), notebook.of(found.path)
    with _naming(found.path):
        bare = _bare(text, form, note, found) if found.data is not None else text
        ours = note.created if note is not None else form.fresh is not None
        gone = found.data is not None and bare != text and ours and is_bare(bare, form)
    if bare == text:
        if not dry_run:
            files.sweep(found.path)
            notebook.write(found.path, None)
        return Outcome(place, "absent", _shown(found), _shown(found))
    mode = note.mode if note is not None and note.mode is not None and found.mode == PRIVATE else None
    if not dry_run and gone:
        files.remove(found)
        files.remove_directories([Path(directory) for directory in (note.directories if note else ())])
    elif not dry_run:
        files.replace(found, _encoded(found, bare), mode)
    if not dry_run:
        notebook.write(found.path, None)
    return Outcome(place, "removed", text, None if gone else bare)


def _bare(text: str, form: Form, note: Note | None, found: Found) -> str:
    """The text without what is ours: exactly what it was, if nobody has changed it since."""
    if note is not None and _is_as_left(found, note):
        return undone(text, note.steps)
    return taken_out(text, form, note.made if note is not None else None)


def _is_as_left(found: Found, note: Note) -> bool:
    return found.data is not None and note.digest == digest_of(found.data)


def _narrower(found: Found, note: Note | None, secret: bool) -> int | None:
    """The mode the file is to get; None: the one it has, or for a new one the usual."""
    if secret:
        return PRIVATE if found.mode is None or found.mode & 0o077 else None
    return note.mode if note is not None and note.mode is not None and found.mode == PRIVATE else None


def _mode_before(found: Found, note: Note | None, mode: int | None) -> int | None:
    """What uninstalling gives back: the first mode that was narrowed."""
    if mode == PRIVATE and found.mode is not None:
        return found.mode
    return note.mode if note is not None and mode is None and found.mode == PRIVATE else None


def _narrowed(found: Found, mode: int | None) -> tuple[str, ...]:
    if mode != PRIVATE or found.mode is None:
        return ()
    return (f"it holds a token now, so only you can read it (0600, was {found.mode:04o}; uninstall gives that back)",)


# ---------------------------------------------------------------- a plugin that is a file


def _install_plugin(place: Place, notebook: Notebook, dry_run: bool) -> Outcome:
    found, ours = files.look(place.path), PLUGIN.read_bytes()
    if found.data == ours:
        return Outcome(place, "unchanged", _shown(found), _shown(found))
    if found.data is not None and not found.data.startswith(PLUGIN_MARK.encode()):
        raise FileFault(f"{found.path} is there and is not recalld's: move it away")
    note = notebook.of(found.path)
    told = Outcome(place, "installed" if found.data is None else "updated", _shown(found), ours.decode())
    if not dry_run:
        made = files.make_directories(found.path.parent)
        directories = tuple(map(str, made)) or (note.directories if note else ())
        notebook.write(found.path, Note(place.host, digest_of(ours), created=True, directories=directories))
        files.replace(found, ours)
    return told


def _uninstall_plugin(place: Place, notebook: Notebook, dry_run: bool) -> Outcome:
    found = files.look(place.path)
    note, ours = notebook.of(found.path), found.data is not None and found.data.startswith(PLUGIN_MARK.encode())
    if not ours or found.data is None:
        return Outcome(place, "absent", _shown(found), _shown(found))
    changed = note is not None and note.digest != digest_of(found.data)
    kept = found.path.with_name(found.path.name + KEPT)
    told = (f"it had been changed since it was installed: the changed one is kept as {kept}",) if changed else ()
    if not dry_run:
        if changed:
            os.replace(found.path, kept)
        else:
            files.remove(found)
        files.remove_directories([Path(directory) for directory in (note.directories if note else ())])
        notebook.write(found.path, None)
    return Outcome(place, "removed", _shown(found), None, told)


# ---------------------------------------------------------------- both


def _again(step: Callable[[], Outcome]) -> Outcome:
    for _ in range(TRIES - 1):
        try:
            return step()
        except Changed:
            continue
    return step()


def _check_owner(path: Path) -> None:
    """The settings are this user's: with `sudo`, HOME may still be somebody else's. Raises FileFault."""
    place, uid = files.owner_of(path)
    if uid != os.getuid():
        raise FileFault(
            f"{place} belongs to user {uid}, and this runs as user {os.getuid()}: run it as that user, "
            "or set HOME to this one's (`sudo -H`)"
        )


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Says which file it was that could not be read as settings."""
    try:
        yield
    except NotSettings as error:
        remedy = "mend it (the host can't read it either), then run this again; nothing is changed"
        raise FileFault(f"{path}, {error}: {remedy}") from None


def text_of(found: Found) -> str:
    """Raises FileFault."""
    data = (found.data or b"").removeprefix(BOM)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        remedy = "save it as UTF-8, then run this again; nothing is changed"
        raise FileFault(f"{found.path} is not UTF-8 at byte {error.start}: {remedy}") from error


def _encoded(found: Found, text: str) -> bytes:
    bom = BOM if (found.data or b"").startswith(BOM) else b""
    try:
        return bom + text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FileFault(f"a path of this installation is not UTF-8 ({error}): install recalld elsewhere") from error


def _shown(found: Found) -> str | None:
    return None if found.data is None else found.data.decode("utf-8", "replace")
