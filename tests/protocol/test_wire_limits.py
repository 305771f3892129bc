"""Hostile and broken frames: each ends in a WireError that says why, in little memory."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from recalld_protocol import wire
from recalld_protocol.errors import FrameTooLarge, LimitExceeded, Malformed, UnknownKind, WireError
from recalld_protocol.messages import (
    Hit,
    Hits,
    Ping,
    Remember,
    SessionRow,
    Sessions,
    Status,
    Turn,
    Why,
    WhyCandidate,
)
from recalld_protocol.shape import DEPTH_LIMIT
from recalld_protocol.wire import (
    AGENT_FRAME_LIMIT,
    AGENT_VALUE_LIMIT,
    DAEMON_FRAME_LIMIT,
    DAEMON_VALUE_LIMIT,
    MEMORY_FACTOR,
    MEMORY_FLOOR,
    decode_event,
    decode_from_agent,
    decode_from_daemon,
    encode,
)

pack = msgspec.msgpack.encode
KIB = 1024


def raw(*pairs: tuple[bytes, bytes], kind: str = "ping") -> bytes:
    """A map of `kind` and of pairs that are msgpack already, before it and so in its way."""
    body = b"".join(key + value for key, value in pairs)
    return b"\xde" + (len(pairs) + 1).to_bytes(2, "big") + body + pack("kind") + pack(kind)


def unknown(value: bytes) -> bytes:
    return raw((pack("x"), value))


def nested(levels: int) -> bytes:
    """A frame of that many levels, the map being the first."""
    return unknown(b"\x91" * (levels - 2) + b"\x90")


def peak(frame: bytes, decode=decode_from_agent) -> tuple[object, int]:
    """What decoding gave, message or error, and the most bytes it held at once."""
    tracemalloc.start()
    try:
        outcome: object = decode(frame)
    except WireError as error:
        outcome = error
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return outcome, most


HOSTILE = {
    "empty": (b"", Malformed),
    "no map": (pack([1, 2]), Malformed),
    "an integer": (b"\x01", Malformed),
    "reserved byte": (b"\xc1", Malformed),
    "no kind": (pack({"id": 1}), Malformed),
    "kind is no string": (pack({"kind": 5}), Malformed),
    "truncated": (pack({"kind": "ping", "id": 70_000})[:-1], Malformed),
    "trailing bytes": (pack({"kind": "ping"}) + b"\x00", Malformed),
    "endless map": (b"\xdf\xff\xff\xff\xff" + pack("kind") + pack("ping"), Malformed),
    "endless array in an unknown field": (unknown(b"\xdd\xff\xff\xff\xff"), Malformed),
    "endless string": (unknown(b"\xdb\xff\xff\xff\xff"), Malformed),
    "endless bytes": (unknown(b"\xc6\xff\xff\xff\xff"), Malformed),
    "endless extension": (unknown(b"\xc9\xff\xff\xff\xff\x01"), Malformed),
    "endless known list": (raw((pack("versions"), b"\xdd\xff\xff\xff\xff"), kind="hello"), Malformed),
    "extension for a string": (raw((pack("session"), b"\xd4\x01\x01")), Malformed),
    "timestamp for a string": (raw((pack("session"), b"\xd6\xff" + bytes(4))), Malformed),
    "bytes for a string": (raw((pack("session"), pack(b"abc"))), Malformed),
    "invalid UTF-8": (raw((pack("session"), b"\xa2\xff\xfe")), Malformed),
    "a surrogate in UTF-8": (raw((pack("session"), b"\xa3\xed\xa0\x80")), Malformed),
    "a key that is no string": (raw((b"\x01", b"\x01")), Malformed),
    "a key that is a list": (raw((b"\x91\x01", b"\x01")), Malformed),
    "an integer past 2^53": (raw((pack("id"), pack(2**53 + 1))), Malformed),
    "an integer of 64 bits": (raw((pack("id"), b"\xcf" + b"\xff" * 8)), Malformed),
    "a negative count": (raw((pack("id"), pack(-1))), Malformed),
    "a float for a count": (raw((pack("id"), pack(1.0))), Malformed),
    "two kinds": (raw((pack("kind"), pack("bye"))), Malformed),
    "a moment that is none": (pack({"kind": "turn", "turn": 1, "text": "", "as_of": float("nan")}), Malformed),
    "a moment past all calendars": (pack({"kind": "turn", "turn": 1, "text": "", "as_of": 1e300}), Malformed),
    "nested 100,000 deep": (nested(100_000), LimitExceeded),
    "nested and cut off": (unknown(b"\x91" * 100_000), LimitExceeded),
    "nested in maps": (unknown((b"\x81" + pack("x")) * 50_000 + b"\x01"), LimitExceeded),
    "many empty maps": (unknown(b"\xdc\xff\xff" + b"\x80" * 65_535), LimitExceeded),
    "many numbers": (unknown(b"\xdc\xff\xff" + b"\xcc\x01" * 65_535), LimitExceeded),
    "many fields": (b"\xde\xff\xff" + (pack("x") + b"\xc0") * 65_535, LimitExceeded),
    "a long session": (raw((pack("session"), pack("s" * 200_000))), LimitExceeded),
    "a long text": (pack({"kind": "said", "text": "s" * 200_000}), LimitExceeded),
    "a long list": (pack({"kind": "hello", "versions": [1] * 17}), LimitExceeded),
    "a long kind": (pack({"kind": "k" * 200_000}), Malformed),
    "a long verdict": (pack({"kind": "feedback", "impression": "i", "verdict": "v" * 200_000}), Malformed),
    "an unknown kind": (pack({"kind": "dream"}), UnknownKind),
    "the daemon's own kind": (pack({"kind": "welcome", "version": 1, "epoch": "e"}), UnknownKind),
    "too large": (bytes(AGENT_FRAME_LIMIT + 1), FrameTooLarge),
}  # fmt: skip


@pytest.mark.parametrize(("frame", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_frame_is_refused_in_little_memory(frame, expected):
    error, most = peak(frame)
    assert type(error) is expected
    assert most <= MEMORY_FACTOR * len(frame) + 8 * KIB
    assert 0 < len(str(error)) <= 1024
    assert str(error).isprintable()


HARMLESS = {
    "ext": b"\xd4\x01\x01",
    "big integer": b"\xcf" + b"\xff" * 8,
    "negative integer": b"\xd3\x80" + bytes(7),
    "invalid UTF-8": b"\xa2\xff\xfe",
    "bytes": pack(b"\x91" * 200),
    "continuation bytes": pack("é" * 500 + "“”" * 500),
    "all numbers": pack([1, -1, 200, 70_000, 2**40, -200, -70_000, -(2**40), 1.5, None, True]),
    "all lengths": pack(["s" * 20, "s" * 40, "s" * 300, "s" * 70_000, b"b" * 40, b"b" * 300, b"b" * 70_000]),
    "fixed extensions": b"\x92\xd4\x01" + bytes(1) + b"\xd8\x01" + bytes(16),
    "sized extensions": b"\x93\xc7\x03\x01abc" + b"\xc8\x00\x03\x01abc" + b"\xc9\x00\x00\x00\x03\x01abc",
}  # fmt: skip


@pytest.mark.parametrize("padding", [0, 2 * AGENT_VALUE_LIMIT], ids=["short", "walked"])
@pytest.mark.parametrize("value", HARMLESS.values(), ids=HARMLESS)
def test_unknown_fields_are_skipped_whatever_they_hold(value, padding):
    assert decode_from_agent(raw((pack("x"), value), (pack("y"), pack("p" * padding)))) == Ping()


def test_nesting_is_refused_past_the_stated_depth_and_not_before():
    assert decode_from_agent(nested(DEPTH_LIMIT)) == Ping()
    with pytest.raises(LimitExceeded, match=f"deeper than {DEPTH_LIMIT} levels"):
        decode_from_agent(nested(DEPTH_LIMIT + 1))


@pytest.mark.parametrize(
    ("decode", "kind", "limit"),
    [(decode_from_agent, "ping", AGENT_VALUE_LIMIT), (decode_from_daemon, "acked", DAEMON_VALUE_LIMIT)],
)
@pytest.mark.parametrize("padding", [0, DAEMON_VALUE_LIMIT])
def test_values_are_refused_past_the_stated_number_and_not_before(decode, kind, limit, padding):
    def frame(values: int) -> bytes:
        """The map, two keys and their values, a key, the list: seven, and what is in the list."""
        numbers = b"\xdd" + (values - 7).to_bytes(4, "big") + b"\x01" * (values - 7)
        return raw((pack("p"), pack("p" * padding)), (pack("x"), numbers), kind=kind)

    assert decode(frame(limit)).id == 0
    with pytest.raises(LimitExceeded, match=f"more than {limit} values"):
        decode(frame(limit + 1))


@pytest.mark.parametrize(
    ("decode", "limit"),
    [
        (decode_from_agent, AGENT_FRAME_LIMIT),
        (decode_from_daemon, DAEMON_FRAME_LIMIT),
        (decode_event, DAEMON_FRAME_LIMIT),
    ],
)
def test_the_size_is_looked_at_first(decode, limit):
    with pytest.raises(FrameTooLarge) as caught:
        decode(memoryview(bytes(limit + 1)))
    assert (caught.value.size, caught.value.limit) == (limit + 1, limit)
    with pytest.raises(Malformed):
        decode(bytes(limit))


def test_the_largest_honest_messages_fit():
    longest = Remember(session="😀" * 128, text="😀" * 32_768, cwd="😀" * 4096, title="😀" * 256, key="😀" * 256)
    assert decode_from_agent(encode(longest)) == longest
    row = SessionRow(session="s" * 36, host="claude-code", client="recalld 0.1.0", cwd="/home/ada/" + "d" * 80,
                     scope="/home/ada/" + "d" * 80, connected=True, opened_at=1.7e9, last_seen_at=1.7e9,
                     turns=10**6, calls=10**6, won=10**6, slipped=10**6, silent=10**6)  # fmt: skip
    rows = Sessions(sessions=[row] * 1000)
    assert decode_from_daemon(encode(rows)) == rows
    hit = Hit(path="p" * 200, start=1, end=2, text="t" * 4000, lanes={f"lane {n}": 0.5 for n in range(32)})
    hits = Hits(hits=[hit] * 100)
    assert decode_from_daemon(encode(hits)) == hits


def tiny_values() -> list[bytes]:
    """The messages of the daemon that hold most Python objects per byte."""
    tables = {str(topic): {f"{fact}é": "éé" for fact in range(256)} for topic in range(64)}
    lanes = {str(lane): 0.0 for lane in range(32)}
    ranks = dict.fromkeys(lanes, (0, 0.0))
    candidate = WhyCandidate(path="", lanes=ranks, gates=dict.fromkeys(lanes, ""))
    return [
        encode(Status(topics=tables)),
        encode(Sessions(sessions=[SessionRow(session="s")] * 1000)),
        encode(Hits(hits=[Hit(path="", start=0, end=0, text="", lanes=lanes)] * 100)),
        encode(Why(recall="", candidates=[candidate] * 20)),
    ]


@pytest.mark.parametrize("frame", tiny_values(), ids=["status", "sessions", "hits", "why"])
def test_many_tiny_values_take_no_more_memory_than_stated(frame):
    message, most = peak(frame, decode_from_daemon)
    assert not isinstance(message, WireError)
    assert most <= MEMORY_FACTOR * len(frame) + MEMORY_FLOOR


def test_what_cannot_be_sent_is_told_to_the_sender():
    with pytest.raises(FrameTooLarge) as caught:
        encode(Turn(session="s", id=3, turn=1, text="t" * AGENT_FRAME_LIMIT))
    assert (caught.value.kind, caught.value.id, caught.value.session) == ("turn", 3, "s")
    with pytest.raises(FrameTooLarge):
        encode(Hits(hits=[Hit(path="p", start=0, end=1, text="t" * 32_768)] * 100))
    for unsendable in (Turn(turn=1, text="\ud800"), Turn(turn=2**70, text="")):
        with pytest.raises(Malformed, match="can't be sent"):
            encode(unsendable)


def test_a_deep_stack_makes_no_difference():
    """The decoder's own recursion limit, which counts from the caller's depth, is never what refuses a frame."""

    def dig(levels: int) -> object:
        return dig(levels - 1) if levels else wire.decode_from_agent(nested(DEPTH_LIMIT))

    assert dig(700) == Ping()
