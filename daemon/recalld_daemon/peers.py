"""Who may speak to the daemon: the decision that libzmq asks for at each handshake (ZAP, ZeroMQ RFC 27), without I/O.

Over a Unix socket it is this user's processes, by the uid that the kernel vouches for; over TCP it is whoever proves
to hold a known CURVE key. Asking at all has a second use: with a ZAP domain set, libzmq refuses peers that speak its
pre-handshake protocol, whose first bytes it would otherwise deliver as a message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

ZAP_DOMAIN = b"recalld"
UID_PREFIX = "uid:"  # of the user id that we attach to messages from a Unix socket
_PEER = re.compile(rb"(?:localhost)?:(\d+):(\d+):(\d+)")  # how libzmq writes SO_PEERCRED: name:uid:gid:pid


@dataclass(frozen=True, slots=True)
class Admission:
    """The rule. `uid`: whose processes may connect over Unix sockets; `keys`: CURVE keys (32 bytes) let in over TCP."""

    uid: int
    keys: frozenset[bytes] = frozenset()

    def answer(self, request: Sequence[bytes]) -> list[bytes]:
        """The ZAP reply: [version, request id, status, text, user id, metadata]. Status 200 lets in, 400 refuses.

        A request that is no ZAP request is refused as well: what can't be understood is not let in.
        """
        number = request[1] if len(request) > 1 else b""
        user = self._user(request)
        if user is None:
            return [b"1.0", number, b"400", b"not admitted", b"", b""]
        return [b"1.0", number, b"200", b"OK", user.encode(), b""]

    def _user(self, request: Sequence[bytes]) -> str | None:
        match list(request):
            case [b"1.0", _, domain, address, _, b"NULL"] if domain == ZAP_DOMAIN:
                uid = uid_in(address)
                return f"{UID_PREFIX}{uid}" if uid == self.uid else None
            case [b"1.0", _, domain, _, _, b"CURVE", key] if domain == ZAP_DOMAIN and key in self.keys:
                return f"curve:{key.hex()}"
            case _:
                return None


def uid_in(address: bytes) -> int | None:
    """The uid in what libzmq calls a Unix peer's address; None for any other address (TCP: an IP address).

    >>> uid_in(b"localhost:1000:1000:4242"), uid_in(b"127.0.0.1")
    (1000, None)
    """
    found = _PEER.fullmatch(address)
    return int(found[1]) if found else None


def uid_of(user: str) -> int | None:
    """The uid in a user id that `Admission` attached; None for a TCP peer's.

    >>> uid_of("uid:1000"), uid_of("curve:00ff")
    (1000, None)
    """
    return int(user.removeprefix(UID_PREFIX)) if user.startswith(UID_PREFIX) else None
