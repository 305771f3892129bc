"""Why this, or why nothing: rows that fit the wire and hold each lane's word and each gate's verdict."""

from __future__ import annotations

import msgspec

from recall_made import answer, found, passage
from recalld_daemon.recall.explain import ROW_LIMIT, rows_of
from recalld_daemon.recall.gate import Context, decide
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.types import Focus
from recalld_protocol.messages import Why

ASKED = query_of(Focus(user_text="which port does the ledger service listen on?"))
NOTE = passage(1, "The ledger service\nlistens on \x1b[1mport 8080\x1b[0m.", 1_780_000_000.0)


def test_a_row_names_passage_lanes_and_gates() -> None:
    made = answer(found(1, 0.7, 12.0, late=0.8))
    decide(made, [NOTE], Context(ASKED))
    row = rows_of(made.candidates, [NOTE], {1: "i-7"})[0]
    assert (row.path, row.start, row.end, row.impression) == ("notes/1.md", NOTE.start, NOTE.end, "i-7")
    assert row.text == "The ledger service listens on port 8080."
    assert row.lanes == {"dense": (1, 0.7), "lexical": (1, 12.0), "late": (1, 0.8)}
    assert row.gates["known"] == "passed: new to the conversation"
    assert row.probability == made.candidates[0].probability


def test_a_missing_passage_is_named_by_its_number() -> None:
    assert rows_of([found(77)], [])[0].path == "passage 77"


def test_rows_fit_the_wire() -> None:
    many = answer(*[found(i) for i in range(1, 60)])
    long = [passage(i, "word " * 4000, path="/" + "p" * 300 + f"/{i}.md") for i in range(1, 60)]
    decide(many, long, Context(ASKED))
    why = Why(session="s", recall="r", query=ASKED.text, candidates=rows_of(many.candidates, long))
    assert len(why.candidates) == ROW_LIMIT
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(why), type=Why) == why
