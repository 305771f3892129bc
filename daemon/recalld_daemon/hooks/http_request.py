"""HTTP as far as hooks need it, sans-IO: which request is let in, and what is answered. The standard library alone.

The port is on loopback, but so are all users and all browsers of the machine. A request must bear the token (compared
in constant time, before a byte of its body is read), name us in `Host` (a page that rebound its name does not), and
come from no page (`Origin`).

Written here, and not left to `http.server`, because that one takes folded and repeated headers, on which two readers
can disagree, and because its import alone adds half to the memory of a process that always runs (18 MB for 12).
"""

from __future__ import annotations

from _operator import _compare_digest
from dataclasses import dataclass, field

PAYLOAD_LIMIT = 8 * 1024 * 1024  # bytes; the hook socket's own
IDLE_SECONDS = 120.0  # a connection without a request for so long is closed
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
           405: "Method Not Allowed", 408: "Request Timeout", 411: "Length Required", 413: "Content Too Large",
           431: "Request Header Fields Too Large"}  # fmt: skip


class Refused(Exception):
    """This request is answered by an HTTP status, and its connection closed."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class Place:
    """What is served: on which port, for whom, and where the daemon listens."""

    port: int
    token: bytes = field(repr=False)
    path: str


@dataclass(frozen=True, slots=True)
class Head:
    """An HTTP request without its body."""

    host: str  # the agent's host, as the path names it
    length: int
    keep: bool  # the connection stays open after it
    waits: bool  # for a "100 Continue"
    off: bool = False  # a child run of ours, or a user who wants quiet: RECALLD_OFF=1 in the host's environment


def head_of(raw: bytes, place: Place) -> Head:
    """A request that may be served, from its bytes up to the empty line. Raises Refused."""
    first, *rest = raw.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Refused(400, "the request line is no HTTP/1.1")
    fields = _fields(rest)
    if fields.get("host", "").lower() not in (f"127.0.0.1:{place.port}", f"localhost:{place.port}"):
        raise Refused(403, f"Host is {fields.get('host', '')!r}: a page that rebound its name, or a proxy")
    if "origin" in fields:
        raise Refused(403, f"it has an Origin ({fields['origin']!r}): a web page sent it")
    kind, _, given = fields.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not _compare_digest(given.strip().encode("latin-1"), place.token):
        raise Refused(401, "the token is missing or wrong: `recallctl install` writes the right one")
    if words[0] != "POST":
        raise Refused(405, f"method {words[0][:16]!r}: hooks are posted")
    room, _, host = words[1].removeprefix("/").partition("/")
    if room != "hooks" or not _is_name(host):
        raise Refused(404, f"path {words[1][:64]!r}: hooks go to /hooks/HOST")
    keep = "close" not in fields.get("connection", "").lower() and words[2] != "HTTP/1.0"
    waits, off = fields.get("expect", "").lower() == "100-continue", fields.get("x-recalld-off") == "1"
    return Head(host, _length(fields), keep, waits, off)


def _is_name(host: str) -> bool:
    return host.isascii() and host.replace("-", "").replace("_", "").isalnum() and len(host) <= 32


def _fields(lines: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise Refused(400, "a header line has no name")
        if name.lower() in fields and name.lower() in ("host", "authorization", "content-length"):
            raise Refused(400, f"{name} stands there twice")
        fields[name.lower()] = value.strip()
    return fields


def _length(fields: dict[str, str]) -> int:
    given = fields.get("content-length", "")
    if "transfer-encoding" in fields or not (given.isascii() and given.isdigit()):
        raise Refused(411, "a body of unknown length")
    if len(given) > 12 or int(given) > PAYLOAD_LIMIT:
        raise Refused(413, f"a body over {PAYLOAD_LIMIT} bytes")
    return int(given)


def response(status: int, body: bytes = b"", keep: bool = False) -> bytes:
    """An HTTP response; a body is a host's JSON."""
    staying = f"keep-alive\r\nKeep-Alive: timeout={IDLE_SECONDS - 5:.0f}" if keep else "close"
    kind = "Content-Type: application/json\r\n" if body else ""
    first = f"HTTP/1.1 {status} {_REASONS[status]}\r\nServer: recalld\r\n"  # by which a daemon knows a front
    head = f"{first}{kind}Content-Length: {len(body)}\r\nConnection: {staying}\r\n\r\n"
    return head.encode("ascii") + body
