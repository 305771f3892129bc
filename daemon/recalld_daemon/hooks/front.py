"""HTTP hooks: a small process of the daemon's that takes POSTs on 127.0.0.1 and hands them to the hook socket.

Why a process of its own: a daemon that is stopped, loading or busy must cost a host DEADLINE_SECONDS and not the host's
own timeout, so who holds the port must be somebody else. It knows the standard library alone, and little of that; each
connection is a thread. It lives as long as its standard input is open, which ends with the daemon even where that was
killed. How it is run: `front_keeper`.

Who may speak: whoever bears the token and is no web page (`http_request`), and, where the kernel tells, a process of
this user's (`peer_uid`).

Standard input: one line `PORT TOKEN SOCKET-PATH`, then nothing until its end. Argument: the file with port and token,
for one that stands by itself: it ends when that names others, or is gone, and its service starts it anew. Standard
output: `listening`, or `busy WHY`; then `refused CODE WHY` and `late WHY`, each once until all is well again.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

from recalld_daemon.hooks.http_request import IDLE_SECONDS, Head, Place, Refused, head_of, response
from recalld_daemon.hooks.peer_uid import uid_of_peer

DEADLINE_SECONDS = 0.150  # of the host's time, for all
RESERVE_SECONDS = 0.030  # of it, for HTTP and for what the machine makes of a timer; the rest is the daemon's
HEAD_LIMIT = 16 * 1024  # bytes of request line and headers
ANSWER_LIMIT = 64 * 1024  # bytes; three lines have under 4 KB
MAX_CONNECTIONS = 256  # each is a thread, which sleeps; a host keeps a few open
BODY_SECONDS = 2.0  # for a request that has begun
CHUNK = 65_536
LOOK_SECONDS = 2.0  # between two looks at the file with port and token


class TooLate(OSError):
    """The daemon has not answered in time, or not at all."""


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
            if not _is_ours(peer):  # before it takes one of the places: another user could hold them all
                self._once("refused 403", "a process of another user")
                _turn_away(peer, 403)
            elif self._slots.acquire(blocking=False):
                threading.Thread(target=self._converse, args=(peer,), daemon=True).start()
            else:
                self._once("crowded", f"{MAX_CONNECTIONS} connections are open")
                _turn_away(peer, 200)  # says nothing: any other status would show in the host's terminal

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


def _is_ours(peer: socket.socket) -> bool:
    try:
        return uid_of_peer(peer) in (None, os.getuid())
    except OSError:  # it has gone already
        return False


def _turn_away(peer: socket.socket, status: int) -> None:
    """Without waiting for it."""
    with peer:
        peer.setblocking(False)
        try:
            peer.send(response(status))
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


def _end_with_the_file(file: str, port: str, token: str) -> None:
    while _words_in(file) == [port, token]:
        time.sleep(LOOK_SECONDS)
    tell(1, f"ends: {file} names another port or token, or is gone")
    os._exit(0)


def _words_in(file: str) -> list[str]:
    try:
        with open(file, encoding="utf-8", errors="replace") as text:
            return text.read(CHUNK).split()
    except OSError:
        return []


def main() -> None:
    """Exit code 3: the port is taken."""
    port, token, path = sys.stdin.buffer.readline().decode().rstrip("\n").split(" ", 2)
    threading.Thread(target=_end_with_the_daemon, daemon=True).start()
    for file in sys.argv[1:]:
        threading.Thread(target=_end_with_the_file, args=(file, port, token), daemon=True).start()
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
