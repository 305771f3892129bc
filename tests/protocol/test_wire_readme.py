"""`protocol/README.md` is the specification: each kind, field, limit and golden byte in it is what the code does."""

from __future__ import annotations

import importlib
import re
from typing import get_args

import msgspec
import pytest

from recalld_protocol import messages, wire
from wire_spec import (
    COMMON,
    DIRECTIONS,
    GOLDEN,
    MESSAGES,
    PARTS,
    README,
    Golden,
    documented_rows,
    field_rows,
    goldens,
    own_rows,
    sections,
)

DECODERS = {"agent": wire.decode_from_agent, "daemon": wire.decode_from_daemon, "events": wire.decode_event}
ALL_GOLDENS = list(goldens())


def decoder_of(kind: str):
    return next(DECODERS[way] for way, classes in DIRECTIONS.items() if MESSAGES[kind] in classes)


def test_every_kind_and_every_part_is_documented_and_nothing_else():
    assert set(sections()) == set(MESSAGES) | set(PARTS)


@pytest.mark.parametrize("kind", MESSAGES)
def test_the_fields_of_a_kind_are_documented_with_their_limits(kind):
    assert documented_rows(sections()[kind]) == own_rows(kind)


@pytest.mark.parametrize("part", PARTS)
def test_the_fields_of_a_part_are_documented_with_their_limits(part):
    assert documented_rows(sections()[part]) == field_rows(PARTS[part])


def test_the_common_fields_are_documented():
    framing = README.read_text(encoding="utf-8").split("\n## Framing\n")[1].split("\n## ")[0]
    documented = documented_rows(framing)
    assert [name for name, *_ in documented] == list(COMMON)
    assert documented == field_rows(messages.Ping)


def test_the_limits_table_holds_the_codes_numbers():
    rows = re.findall(r"^\| .+ \| ([\d,]+) \| `(\w+)\.(\w+)` \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 14
    for number, module, name in rows:
        package = "recalld_daemon" if module == "sockets" else "recalld_protocol"
        assert getattr(importlib.import_module(f"{package}.{module}"), name) == int(number.replace(",", "")), name


def test_the_problems_table_holds_all_codes():
    problems = README.read_text(encoding="utf-8").split("\n## Problems\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", problems, re.MULTILINE) == list(get_args(messages.ProblemCode))


def test_the_protocol_version_is_told():
    assert f"Protocol version {max(messages.PROTOCOL_VERSIONS)}." in README.read_text(encoding="utf-8")


def test_every_kind_has_a_golden_message():
    assert [golden.kind for golden in ALL_GOLDENS] == list(MESSAGES)
    assert {path.stem for path in GOLDEN.glob("*.bin")} >= set(MESSAGES)


@pytest.mark.parametrize("golden", ALL_GOLDENS, ids=lambda golden: golden.kind)
def test_a_golden_message_reads_as_written_and_is_written_the_same_again(golden: Golden):
    message = decoder_of(golden.kind)(golden.frame)
    assert type(message) is MESSAGES[golden.kind]
    assert wire.encode(message) == golden.frame
    assert msgspec.msgpack.decode(golden.frame) == golden.reading
    assert msgspec.convert(golden.reading, MESSAGES[golden.kind]) == message


@pytest.mark.parametrize("golden", ALL_GOLDENS, ids=lambda golden: golden.kind)
def test_the_fixture_holds_the_same_bytes(golden: Golden):
    assert (GOLDEN / f"{golden.kind}.bin").read_bytes() == golden.frame


@pytest.mark.parametrize("golden", ALL_GOLDENS, ids=lambda golden: golden.kind)
def test_a_golden_message_sets_every_field_its_kind_makes_useful(golden: Golden):
    required = {name for name, _, default in own_rows(golden.kind) if default == "required"}
    assert required <= set(golden.reading)
    assert golden.reading["kind"] == golden.kind


def test_old_fixtures_stay_readable():
    for path in GOLDEN.glob("*.bin"):
        frame = path.read_bytes()
        kind = msgspec.msgpack.decode(frame)["kind"]
        decoder_of(kind)(frame)
