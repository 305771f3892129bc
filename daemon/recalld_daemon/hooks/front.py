"""HTTP hooks: a small process of the daemon's that takes POSTs on 127.0.0.1 and hands them to the hook socket.

Why a process of its own: a daemon that is stopped, loading or busy must cost a host DEADLINE_SECONDS and not the host's
own timeout, so who holds the port must be somebody else. It knows the standard library alone, and little of that: it is
started without site-packages, one thread per connection, and serves one purpose. It lives as long as its standard input
is open, which ends with the daemon even where that was killed.

Who may speak: the port is on loopback, but so are all users and all browsers of the machine. A request must bear the
token (compared in constant time, before a byte of its body is read), name us in `Host` (a page that rebound its name
does not), come from no page (`Origin`), and, where the kernel tells, from a process of this user's.

Standard input: one line `PORT TOKEN SOCKET-PATH`, then nothing until its end. Standard output: `listening`, or `busy
WHY`; then `refused CODE WHY` and `late WHY`, each once until all is well again.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from _operator import _compare_digest
from dataclasses import dataclass, field

DEADLINE_SECONDS = 0.150  # of the host's time, for all
RESERVE_SECONDS = 0.030  # of it, for HTTP and for what the machine makes of a timer; the rest is the daemon's
PAYLOAD_LIMIT = 8 * 1024 * 1024  # bytes; the hook socket's own
HEAD_LIMIT = 16 * 1024  # bytes of request line and headers
ANSWER_LIMIT = 64 * 1024  # bytes; three lines have under 4 KB
MAX_CONNECTIONS = 64  # each is a thread; a host keeps a few open
IDLE_SECONDS = 120.0  # a connection without a request for so long is closed
BODY_SECONDS = 2.0  # for a request that has begun
CHUNK = 65_536
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
           405: "Method Not Allowed", 408: "Request Timeout", 411: "Length Required", 413: "Content Too Large",
           431: "Request Header Fields Too Large", 503: "Service Unavailable"}  # fmt: skip


class Refused(Exception):
    """This request is answered by an HTTP status, and its connection closed."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class TooLate(OSError):
    """The daemon has not answered in time, or not at all."""


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


# ---------------------------------------------------------------- the request, sans-IO


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
    head = f"HTTP/1.1 {status} {REASONS[status]}\r\n{kind}Content-Length: {len(body)}\r\nConnection: {staying}\r\n\r\n"
    return head.encode("ascii") + body


# ---------------------------------------------------------------- the daemon


def ask(path: str, host: str, payload: bytes) -> bytes:
    """The daemon's answer. Raises TooLate: there is none in time."""
    deadline = time.monotonic() + DEADLINE_SECONDS - RESERVE_SECONDS
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
            daemon.settimeout(_left(deadline))
            daemon.connect(path)
            daemon.settimeout(_left(deadline))
            daemon.sendall(b"recalld-hook/1 %s - %d\n%s" % (host.encode(), len(payload), payload))
            answer = b""
            while part := _some(daemon, deadline):
                answer += part
                if len(answer) > ANSWER_LIMIT:
                    raise TooLate(f"the daemon's answer has over {ANSWER_LIMIT} bytes")
            return answer
    except TimeoutError:
        raise TooLate(
            f"{path}: no answer within {DEADLINE_SECONDS * 1000:.0f} ms: is recalld stopped, or busy?"
        ) from None
    except OSError as error:
        raise TooLate(f"{path}: {error.strerror or error}") from None


def _some(peer: socket.socket, deadline: float) -> bytes:
    peer.settimeout(_left(deadline))
    return peer.recv(CHUNK)


def _left(deadline: float) -> float:
    if (left := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return left


# ---------------------------------------------------------------- who asks


def uid_of_peer(peer: socket.socket, tables: tuple[str, ...] = ("/proc/net/tcp", "/proc/net/tcp6")) -> int | None:
    """Whose socket is at the other end of this loopback connection, by the kernel's table; -1: it is not in there.

    None: this system has no such table.
    """
    theirs, ours = _entry(peer.getpeername()), _entry(peer.getsockname())
    told = False
    for table in tables:
        try:
            with open(table, "rb", buffering=CHUNK) as lines:
                told = True
                for line in lines:
                    if theirs in line and (words := line.split())[1].endswith(theirs) and words[2].endswith(ours):
                        return int(words[7])
        except FileNotFoundError:
            continue
    return -1 if told else None


def _entry(address: tuple[str, int]) -> bytes:
    """An address as the table writes it: the four bytes of IPv4 as a number in the machine's order, then the port."""
    number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return b"%08X:%04X" % (number, address[1])


# ---------------------------------------------------------------- serving


class Front:
    """`tell(line)` reports to the daemon."""

    def __init__(self, place: Place, out: int = 1) -> None:
        self._place, self._out = place, out
        self._told: set[str] = set()
        self._slots = threading.Semaphore(MAX_CONNECTIONS)

    def serve(self, listening: socket.socket) -> None:
        """For ever."""
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:  # it has gone already, or there is no descriptor left
                time.sleep(0.01)
                continue
            if self._slots.acquire(blocking=False):
                threading.Thread(target=self._converse, args=(peer,), daemon=True).start()
            else:
                self._once("refused 503", f"{MAX_CONNECTIONS} connections are open")
                with peer:
                    peer.setblocking(False)
                    _try_send(peer, response(503))

    def _converse(self, peer: socket.socket) -> None:
        try:
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._requests(peer)
        except OSError:
            return
        finally:
            self._slots.release()

    def _requests(self, peer: socket.socket) -> None:
        received = bytearray()
        try:
            if uid_of_peer(peer) not in (None, os.getuid()):
                raise Refused(403, "a process of another user")
            while self._request(peer, received):
                continue
        except Refused as refused:
            self._once(f"refused {refused.status}", str(refused))
            peer.settimeout(BODY_SECONDS)
            peer.sendall(response(refused.status))
            _let_it_read(peer)

    def _request(self, peer: socket.socket, received: bytearray) -> bool:
        """One request and its answer; whether the connection stays open. Raises Refused, OSError."""
        peer.settimeout(IDLE_SECONDS)
        if not received:
            received += peer.recv(CHUNK)
            if not received:
                return False
        deadline = time.monotonic() + BODY_SECONDS
        try:
            head = self._head(peer, received, deadline)
            if head.waits and len(received) < head.length:
                peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            while len(received) < head.length:
                received += _or_gone(_some(peer, deadline))
        except TimeoutError:
            raise Refused(408, f"no whole request within {BODY_SECONDS:g} s") from None
        payload = bytes(received[: head.length])
        del received[: head.length]
        peer.settimeout(BODY_SECONDS)
        peer.sendall(response(200, b"" if head.off else self._answer(head.host, payload), head.keep))
        return head.keep

    def _head(self, peer: socket.socket, received: bytearray, deadline: float) -> Head:
        while (end := received.find(b"\r\n\r\n")) < 0:
            if len(received) > HEAD_LIMIT:
                raise Refused(431, f"headers over {HEAD_LIMIT} bytes")
            received += _or_gone(_some(peer, deadline))
        head = head_of(bytes(received[:end]), self._place)
        del received[: end + 4]
        return head

    def _answer(self, host: str, payload: bytes) -> bytes:
        try:
            answer = ask(self._place.path, host, payload)
        except TooLate as late:
            self._once("late", str(late))
            return b""
        self._told.discard("late")
        return answer

    def _once(self, what: str, why: str) -> None:
        if what not in self._told:
            self._told.add(what)
            tell(self._out, f"{what} {why}")


def tell(out: int, line: str) -> None:
    try:
        os.write(out, line.encode("ascii", "backslashreplace")[:1000].replace(b"\n", b" ") + b"\n")
    except OSError:
        return


def _or_gone(part: bytes) -> bytes:
    if not part:
        raise ConnectionResetError
    return part


def _try_send(peer: socket.socket, data: bytes) -> None:
    try:
        peer.send(data)
    except OSError:
        return


def _let_it_read(peer: socket.socket) -> None:
    """Closing on unread bytes would reset the connection, and with it the refusal: end ours, drop theirs a while."""
    peer.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + BODY_SECONDS
    while _some(peer, deadline):
        continue


def _end_with_the_daemon() -> None:
    while os.read(0, CHUNK):
        continue
    os._exit(0)


def main() -> None:
    """Exit code 3: the port is taken."""
    port, token, path = sys.stdin.buffer.readline().decode().rstrip("\n").split(" ", 2)
    threading.Thread(target=_end_with_the_daemon, daemon=True).start()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", int(port)))
            listening.listen(MAX_CONNECTIONS)
        except OSError as error:
            tell(1, f"busy 127.0.0.1:{port}: {error.strerror}: see who has it (`ss -ltnp`)")
            sys.exit(3)
        tell(1, "listening")
        Front(Place(int(port), token.encode(), path)).serve(listening)


if __name__ == "__main__":
    main()
