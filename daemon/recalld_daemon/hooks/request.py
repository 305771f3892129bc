"""One hook's request, as it stands on the wire, sans-IO: `recalld-hook/1 HOST EVENT LENGTH`, a newline, the payload.

Everything about a request that can be wrong is a `Refused` with a short code, which is told once per host and code: a
hook that is broken is broken at every tool call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PAYLOAD_LIMIT = 8 * 1024 * 1024  # bytes; a batch of tool results is seldom over a megabyte
LINE_LIMIT = 256  # bytes, its newline included
_LINE = re.compile(rb"recalld-hook/1 ([A-Za-z0-9_-]{1,32}) ([A-Za-z0-9_.-]{1,64}) ([0-9]{1,12})\n")


class Refused(Exception):
    """This request gets no answer. `code`: what kind of fault, in a word; the text says it whole."""

    def __init__(self, code: str, text: str, host: str = "") -> None:
        super().__init__(text)
        self.code, self.host = code, host


@dataclass(frozen=True, slots=True)
class Request:
    """`event` is "" where the payload names it; `length` is the payload's, in bytes."""

    host: str
    event: str
    length: int


def request_in(received: bytes | bytearray) -> Request | None:
    """The request that `received` begins with; None: its line is not whole yet. Raises Refused.

    >>> request_in(b"recalld-hook/1 codex - 2\\n{}")
    Request(host='codex', event='', length=2)
    """
    end = received.find(b"\n", 0, LINE_LIMIT)
    if end < 0:
        if len(received) >= LINE_LIMIT:
            raise Refused("malformed", f"no line within {LINE_LIMIT} bytes: this is not a recalld hook")
        return None
    found = _LINE.fullmatch(bytes(received[: end + 1]))
    if found is None:
        raise Refused("malformed", "the line is not `recalld-hook/1 HOST EVENT LENGTH`: is its client of this version?")
    host, event, length = found[1].decode(), found[2].decode(), int(found[3])
    if length > PAYLOAD_LIMIT:
        raise Refused("too_large", f"a payload of {length} bytes; the limit is {PAYLOAD_LIMIT}", host)
    return Request(host, "" if event == "-" else event, length)
