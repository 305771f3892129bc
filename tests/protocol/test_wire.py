"""Round trips, refusals that can be answered, versions, and texts cut to size."""

from __future__ import annotations

import doctest
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from recalld_protocol import endpoints, wire
from recalld_protocol.errors import LimitExceeded, UnknownKind, VersionMismatch, WireError
from recalld_protocol.messages import Event, FromAgent, FromDaemon, Hello, Ping, Problem, Turn
from recalld_protocol.wire import (
    clip,
    decode_event,
    decode_from_agent,
    decode_from_daemon,
    encode,
    negotiate,
    problem_for,
)

pack = msgspec.msgpack.encode
some, many = settings(deadline=None), settings(deadline=None, max_examples=300)  # a loaded machine is no error
DECODERS = (decode_from_agent, decode_from_daemon, decode_event)


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Any value that a field's type and limits allow, though never so many that the frame gets too large."""
    match kind:
        case inspect.StrType():
            return st.text(min_size=kind.min_length or 0, max_size=min(kind.max_length or 60, 60))
        case inspect.IntType():
            return st.integers(kind.ge if kind.ge is not None else -(2**63), kind.le or 2**64 - 1)
        case inspect.FloatType():
            return st.floats(kind.ge, kind.le, allow_nan=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.LiteralType():
            return st.sampled_from(sorted(kind.values))
        case inspect.ListType():
            return st.lists(
                values(kind.item_type), min_size=kind.min_length or 0, max_size=min(kind.max_length or 4, 4)
            )
        case inspect.DictType():
            return st.dictionaries(values(kind.key_type), values(kind.value_type), max_size=4)
        case inspect.TupleType():
            return st.tuples(*map(values, kind.item_types))
        case inspect.UnionType():
            return st.one_of(*map(values, kind.types))
        case inspect.StructType():
            return st.builds(kind.cls, **{field.name: values(field.type) for field in kind.fields})
    raise AssertionError(kind)


def messages(types: object) -> st.SearchStrategy[Any]:
    return st.one_of(*(values(inspect.type_info(cls)) for cls in get_args(types) or (types,)))


@some
@given(messages(FromAgent))
def test_what_an_agent_may_send_arrives_as_it_was(message):
    assert decode_from_agent(encode(message)) == message
    assert decode_from_agent(memoryview(encode(message))) == message


@some
@given(messages(FromDaemon))
def test_what_the_daemon_may_send_arrives_as_it_was(message):
    assert decode_from_daemon(encode(message)) == message


@some
@given(messages(Event))
def test_an_event_arrives_as_it_was(message):
    assert decode_event(encode(message)) == message


def only_wire_errors(frame: bytes) -> None:
    for decode in DECODERS:
        try:
            decode(frame)
        except WireError as error:
            problem = problem_for(error)
            assert decode_from_daemon(encode(problem)) == problem


@many
@given(st.binary(max_size=300))
def test_random_bytes_raise_nothing_else(frame):
    only_wire_errors(frame)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from([str(cls.__struct_config__.tag) for cls in get_args(FromAgent | FromDaemon | Event)])


@many
@given(st.dictionaries(st.sampled_from(["session", "id", "re", "turn", "text", "call", "snippets", "x"]), anything),
       kinds | anything)  # fmt: skip
def test_random_fields_raise_nothing_else(fields, kind):
    only_wire_errors(pack({"kind": kind, **fields}))


@some
@given(messages(FromAgent), st.data())
def test_a_damaged_message_raises_nothing_else(message, data):
    frame = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    only_wire_errors(bytes(frame[: data.draw(st.integers(0, len(frame)))]))
    only_wire_errors(bytes(frame))


def test_unknown_fields_are_ignored():
    assert decode_from_agent(pack({"later": {"a": [1]}, "kind": "turn", "turn": 2, "text": "hi"})) == Turn(
        turn=2, text="hi"
    )


def test_an_unknown_kind_is_answered_with_its_name():
    with pytest.raises(UnknownKind) as caught:
        decode_from_agent(pack({"mood": 1, "id": 7, "kind": "dream", "session": "s"}))
    problem = problem_for(caught.value)
    assert problem == Problem(session="s", re=7, code="unknown_kind", text=problem.text, of="dream")
    assert "'dream' is not known" in problem.text


def test_a_refused_field_is_answered_with_its_place():
    with pytest.raises(LimitExceeded) as caught:
        decode_from_agent(pack({"kind": "said", "id": 3, "session": "s", "text": "x" * 40_000}))
    problem = problem_for(caught.value)
    assert (problem.code, problem.re, problem.of, problem.session) == ("limit", 3, "said", "s")
    assert "<= 32768" in problem.text
    assert "$.text" in problem.text


def test_a_problems_text_holds_nothing_that_steers_a_terminal():
    with pytest.raises(WireError) as caught:
        decode_from_agent(pack({"kind": "dream\x1b[2J\u202e\n", "id": 1}))
    problem = problem_for(caught.value)
    assert problem.text.isprintable()
    assert problem.of == "dream\ufffd[2J\ufffd\ufffd"


def test_a_refused_message_may_be_at_hand():
    problem = problem_for(VersionMismatch([9], [1]), Hello(session="s", id=4, versions=[9]))
    assert (problem.code, problem.re, problem.of, problem.session) == ("version", 4, "hello", "s")


@pytest.mark.parametrize(("theirs", "ours", "spoken"), [([1], [1], 1), ([1, 2, 3], [1, 2], 2), ([3, 1], [2, 1, 3], 3)])
def test_the_highest_common_version_is_spoken(theirs, ours, spoken):
    assert negotiate(theirs, ours) == spoken


@pytest.mark.parametrize(
    ("theirs", "here", "text"),
    [
        ([3, 4], "daemon", "the client speaks protocol version 3, 4, the daemon 2: upgrade recalld where the daemon"),
        ([1], "daemon", "the client speaks protocol version 1, the daemon 2: upgrade recalld where the client runs"),
        ([1], "client", "the daemon speaks protocol version 1, the client 2: upgrade recalld where the daemon runs"),
        ([], "daemon", "the client speaks protocol version none"),
    ],
)  # fmt: skip
def test_without_a_common_version_both_sides_and_the_remedy_are_named(theirs, here, text):
    with pytest.raises(VersionMismatch, match=text):
        negotiate(theirs, [2], here)


@some
@given(st.text(st.characters(codec=None)), st.integers(1, 50))
def test_clipped_text_can_be_sent(text, limit):
    clipped = clip(text, limit)
    assert len(clipped) <= limit
    assert decode_from_agent(encode(Turn(turn=1, text=clipped))) == Turn(turn=1, text=clipped)
    if len(text) <= limit and text.isprintable():
        assert clipped == text


def test_a_cut_is_shown():
    assert clip("abcdef", 6) == "abcdef"
    assert clip("abcdefg", 6) == "abcde…"
    assert clip("caf\udce9", 6) == "caf\ufffd"


def test_messages_are_small_on_the_wire():
    assert encode(Ping()) == b"\x81\xa4kind\xa4ping"


@pytest.mark.parametrize("module", [wire, endpoints], ids=lambda module: module.__name__)
def test_the_examples_in_the_code_are_true(module):
    failed, tried = doctest.testmod(module)
    assert (failed, tried > 0) == (0, True)
