"""The README's worked example says what our encoder writes, and our decoder reads what its bytes are said to be."""

from __future__ import annotations

import json

from recalld_daemon.hooks.request import Request, request_in
from recalld_protocol import messages as m
from recalld_protocol import wire
from wire_example import BEGIN, END, STEPS, annotated, block_of, frames, section
from wire_spec import README


def test_the_readme_holds_what_is_made() -> None:
    inside = README.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert inside.strip() == section().strip(), "run: python tests/support/wire_example.py --write"


def test_its_bytes_are_the_messages() -> None:
    read = frames()
    assert [who for who, _ in read] == [step.who for step in STEPS]
    for (who, frame), step in zip(read, STEPS, strict=True):
        decode = wire.decode_from_agent if who == "client" else wire.decode_from_daemon
        assert decode(frame) == step.message
        assert wire.encode(step.message) == frame
        assert b"".join(piece for piece, _ in annotated(frame)) == frame


def test_it_is_a_whole_session() -> None:
    kinds = [type(step.message) for step in STEPS]
    wanted = (m.Hello, m.Welcome, m.Turn, m.ToolStarted, m.Inject, m.Settled, m.ToolEnded, m.Boundary, m.Bye)
    assert set(kinds) == set(wanted)


def test_the_zmtp_bytes_are_a_greeting_and_a_command_as_long_as_they_say() -> None:
    sent = block_of("zmtp-client")
    greeting, command = sent[:64], sent[64:]
    assert (greeting[0], greeting[9], greeting[12:16], greeting[32]) == (0xFF, 0x7F, b"NULL", 0)
    assert (command[0], command[1]) == (0x04, len(command) - 2)


def test_the_hooks_request_is_one() -> None:
    sent = block_of("hook")
    line, _, payload = sent.partition(b"\n")
    assert request_in(sent) == Request("codex", "", len(payload))
    assert json.loads(payload)["hook_event_name"] == "UserPromptSubmit"
    assert line.startswith(b"recalld-hook/1 ")
