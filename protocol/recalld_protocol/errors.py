"""What can be wrong with a frame or an endpoint. Each error names the side, what was seen, and the remedy.

    ProtocolError
    ├── WireError                what came over the wire (or would go) is not acceptable
    │   ├── LimitExceeded        a stated limit: nesting, number of values, a string's or a list's length
    │   │   └── FrameTooLarge    the frame as a whole; seen before anything is read
    │   ├── Malformed            no msgpack, no map, a missing field, a value of another type
    │   ├── UnknownKind          well formed, but of a kind this side does not know
    │   └── VersionMismatch      the two sides share no protocol version
    └── EndpointError            where the sockets lie
        ├── EndpointTooLong      longer than the OS takes for a Unix socket's path
        ├── RuntimeDirMissing    no daemon has been here yet
        └── UnsafeRuntimeDir     not ours, a symlink, or open to others

A `WireError` carries what could still be read of the message it refuses (`kind`, `id`, `session`), so that the
answer can be correlated. Its text is safe to print: short, and free of control characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Side = Literal["daemon", "client"]

TEXT_LIMIT = 1024  # characters of an error's text, as in messages.LineText: it travels in a `problem`


class ProtocolError(Exception):
    """The root of all errors of this package."""


class WireError(ProtocolError):
    """A message that can't be taken or sent. `kind`, `id`, `session`: of that message, "" and 0 where unreadable."""

    def __init__(self, text: str, *, kind: str = "", id: int = 0, session: str = "") -> None:
        super().__init__(printable(text, TEXT_LIMIT))
        self.kind = kind
        self.id = id
        self.session = session


class LimitExceeded(WireError):
    """One of the limits of `protocol/README.md` is passed."""


class FrameTooLarge(LimitExceeded):
    """`size` bytes where at most `limit` are taken."""

    def __init__(self, size: int, limit: int, *, kind: str = "", id: int = 0, session: str = "") -> None:
        text = f"the frame has {size} bytes, at most {limit} are taken: send shorter texts or fewer rows"
        super().__init__(text, kind=kind, id=id, session=session)
        self.size = size
        self.limit = limit


class Malformed(WireError):
    """Not one msgpack map of a known shape."""


class UnknownKind(WireError):
    """A kind this side does not know: a newer peer's, or one that travels the other way."""

    def __init__(self, kind: str, *, id: int = 0, session: str = "") -> None:
        name = printable(kind, 64)
        text = f"kind {name!r} is not known to the side that received it: upgrade recalld there, or do without"
        super().__init__(text, kind=kind, id=id, session=session)


class VersionMismatch(WireError):
    """No protocol version in common. `theirs` and `ours` are what the sides speak, `here` the side that found out."""

    def __init__(self, theirs: Sequence[int], ours: Sequence[int], here: Side = "daemon") -> None:
        there: Side = "client" if here == "daemon" else "daemon"
        behind = here if max(theirs, default=0) > max(ours) else there
        super().__init__(
            f"the {there} speaks protocol version {_listed(theirs)}, the {here} {_listed(ours)}: "
            f"upgrade recalld where the {behind} runs, and restart it",
            kind="hello",
        )
        self.theirs = tuple(theirs)
        self.ours = tuple(ours)


class EndpointError(ProtocolError):
    """A runtime directory or socket path that can't be used."""


class EndpointTooLong(EndpointError):
    """A socket's path has `length` bytes, the OS takes `limit`."""

    def __init__(self, path: str, length: int, limit: int) -> None:
        super().__init__(
            f"{path} has {length} bytes, a Unix socket's path may have {limit}: "
            "set RECALLD_RUNTIME_DIR to a shorter private directory, for the daemon and its clients alike"
        )
        self.path = path
        self.length = length
        self.limit = limit


class RuntimeDirMissing(EndpointError):
    """There is no runtime directory: the daemon has not been started."""


class UnsafeRuntimeDir(EndpointError):
    """The runtime directory could be another user's trap; nothing in it is touched."""


def printable(text: str, limit: int) -> str:
    """At most `limit` characters of `text`, with all that could steer a terminal shown as U+FFFD."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text[:limit])


def _listed(versions: Sequence[int]) -> str:
    return ", ".join(str(version) for version in versions) or "none"
