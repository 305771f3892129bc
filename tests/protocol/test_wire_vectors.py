"""`protocol/vectors/` holds for our own encoder and decoder, in both directions, and covers every kind."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from recalld_protocol import wire
from recalld_protocol.errors import WireError
from recalld_protocol.wire import problem_for
from wire_spec import DIRECTIONS, MESSAGES, own_rows
from wire_vectors import VECTORS, files, frame_of, plain

DECODERS = {"agent": wire.decode_from_agent, "daemon": wire.decode_from_daemon, "events": wire.decode_event}
READ = {way: json.loads((VECTORS / f"{way}.json").read_text(encoding="utf-8")) for way in DIRECTIONS}


def groups(sort: str) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """(direction, kind or "", its vectors): one test each, since there are two thousand."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for way, vectors in READ.items():
        for row in vectors[sort]:
            found.setdefault((way, row["name"].partition(":")[0] if ":" in row["name"] else ""), []).append(row)
    return [(way, kind, rows) for (way, kind), rows in found.items()]


def test_the_files_are_up_to_date() -> None:
    assert {path.name for path in VECTORS.iterdir()} == files().keys()
    for name, text in files().items():
        assert (VECTORS / name).read_text(encoding="utf-8") == text, "run: python tests/support/wire_vectors.py --write"


@pytest.mark.parametrize(("way", "kind", "rows"), groups("valid"))
def test_a_valid_frame_says_what_it_is_said_to_say(way: str, kind: str, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        reading = plain(row["message"])
        message = DECODERS[way](frame_of(row["frame"]))
        assert message == msgspec.convert(reading, MESSAGES[reading["kind"]]), row["name"]
        if row["encodes"]:
            assert wire.encode(message) == frame_of(row["frame"]), row["name"]


@pytest.mark.parametrize(("way", "kind", "rows"), groups("invalid"))
def test_an_invalid_frame_is_refused_with_the_problem_that_is_told(
    way: str, kind: str, rows: list[dict[str, Any]]
) -> None:
    for row in rows:
        with pytest.raises(WireError) as refused:
            DECODERS[way](frame_of(row["frame"]))
        problem = problem_for(refused.value)
        told = {"code": problem.code, "of": problem.of, "session": problem.session, "re": problem.re}
        assert told == row["problem"], row["name"]


def test_every_kind_has_its_vectors() -> None:
    for way, classes in DIRECTIONS.items():
        kinds = {kind for kind, cls in MESSAGES.items() if cls in classes}
        assert {row["message"]["kind"] for row in READ[way]["valid"]} == kinds
        refused = {row["name"].partition(":")[0] for row in READ[way]["invalid"] if ":" in row["name"]}
        assert refused == kinds


def test_every_field_is_set_somewhere_and_refused_somewhere() -> None:
    for way, classes in DIRECTIONS.items():
        for kind in (kind for kind, cls in MESSAGES.items() if cls in classes):
            names = {name for name, *_ in own_rows(kind)}
            said = {key for row in READ[way]["valid"] if row["message"]["kind"] == kind for key in row["message"]}
            refused = {row["name"].split()[1] for row in READ[way]["invalid"] if row["name"].startswith(f"{kind}: ")}
            assert names <= said
            assert names <= refused


def test_every_code_that_a_frame_can_earn_is_earned() -> None:
    for vectors in READ.values():
        assert {row["problem"]["code"] for row in vectors["invalid"]} == {"malformed", "limit", "unknown_kind"}
