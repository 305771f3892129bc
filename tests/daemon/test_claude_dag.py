"""Claude Code's session as a tree: what was rewound is taken back, what only forks is not, and copies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_fakes import House, open_house
from ingest_parsing import parse
from recalld_daemon.ingest.parse import goes_on, kind_of
from recalld_daemon.ingest.ports import Root
from recalld_daemon.recall.gate import Context, decide
from recalld_daemon.recall.query import query_of
from recalld_daemon.recall.types import Answer, Candidate, Focus, Passage
from transcripts import CLAUDE_CODE, PROJECT, RECORDED, Record, claude_record

ROOT = CLAUDE_CODE.opening[0]


def user(id: str, parent: str | None = None, **more: Any) -> Record:
    return claude_record("user", f"this is asked by {id}", id, parent, **more)


def assistant(id: str, parent: str) -> Record:
    return claude_record("assistant", f"this is answered by {id}", id, parent)


def call(id: str, parent: str) -> Record:
    record = claude_record("assistant", "", id, parent)
    record["message"]["content"] = [{"type": "tool_use", "id": id, "name": "Bash", "input": {}}]
    return record


def result(id: str, parent: str) -> Record:
    content = [{"tool_use_id": parent, "type": "tool_result", "content": "this is no speech at all"}]
    return user(id, parent) | {"message": {"role": "user", "content": content}}


def other(kind: str, id: str, parent: str, **more: Any) -> Record:
    return {"type": kind, "uuid": id, "parentUuid": parent, "isSidechain": False} | more


def write(directory: Path, *records: Record) -> Path:
    return CLAUDE_CODE.write(directory, *(json.dumps(record) for record in (ROOT, *records)))


def said(directory: Path, *records: Record) -> str:
    """Who spoke, in order, as last words of what they said."""
    outcome = parse(write(directory, *records))
    assert outcome.problems == []
    return " ".join(text.split()[-1] for text in outcome.texts)


BEGINNING = (user("u1"), assistant("a1", "u1"))


def test_a_straight_conversation(tmp_path: Path) -> None:
    assert said(tmp_path, *BEGINNING, user("u2", "a1"), assistant("a2", "u2")) == "u1 a1 u2 a2"


def test_an_edited_prompt_takes_back_the_first_and_its_answer(tmp_path: Path) -> None:
    rewound = (user("u2", "a1"), assistant("a2", "u2"), user("u3", "a1"), assistant("a3", "u3"))
    assert said(tmp_path, *BEGINNING, *rewound) == "u1 a1 u3 a3"


def test_what_the_real_program_wrote_on_going_back() -> None:
    text = parse(RECORDED / "claude-code-2.1.332-rewound.jsonl").all_text
    assert "What does the parser read then" not in text
    assert "Second answer" not in text
    assert "Another question instead" in text
    assert "Third answer" in text


def test_going_back_twice_and_to_different_places(tmp_path: Path) -> None:
    turns = (user("u2", "a1"), assistant("a2", "u2"), user("u3", "a2"), assistant("a3", "u3"))
    assert said(tmp_path, *BEGINNING, *turns, user("u4", "a2"), assistant("a4", "u4")) == "u1 a1 u2 a2 u4 a4"
    again = (user("u4", "a2"), assistant("a4", "u4"), user("u5", "a1"), assistant("a5", "u5"))
    assert said(tmp_path, *BEGINNING, *turns, *again) == "u1 a1 u5 a5"


def test_going_back_to_what_was_taken_back_restores_it(tmp_path: Path) -> None:
    turns = (user("u2", "a1"), assistant("a2", "u2"), user("u3", "a1"), assistant("a3", "u3"))
    assert said(tmp_path, *BEGINNING, *turns, user("u4", "a2"), assistant("a4", "u4")) == "u1 a1 u2 a2 u4 a4"


def test_through_a_command_or_a_caveat_too(tmp_path: Path) -> None:
    caveat = user("c1", "a1", isMeta=True)
    turns = (user("u2", "a1"), assistant("a2", "u2"), caveat, user("u3", "c1"), assistant("a3", "u3"))
    assert said(tmp_path, *BEGINNING, *turns) == "u1 a1 u3 a3"


def test_tools_side_by_side_fork_the_tree_and_nothing_is_taken_back(tmp_path: Path) -> None:
    tools = (call("t1", "a1"), call("t2", "t1"), result("r2", "t2"), result("r1", "t1"))
    streamed = (call("t1", "a1"), result("r1", "t1"), assistant("s1", "t1"), call("t2", "s1"), result("r2", "t2"))
    for forked in (tools, streamed):
        after = (assistant("a2", "r1"), user("u2", "a2"), assistant("a3", "u2"))
        assert said(tmp_path, *BEGINNING, *forked, *after).split()[-3:] == ["a2", "u2", "a3"]
    assert "s1" in said(tmp_path, *BEGINNING, *streamed, assistant("a2", "r1"), user("u2", "a2"))


def test_records_that_come_late_take_nothing_back(tmp_path: Path) -> None:
    late = other("system", "d1", "a1", subtype="turn_duration")
    attached = other("attachment", "x1", "a1", attachment={"type": "date"})
    assert said(tmp_path, *BEGINNING, user("u2", "a1"), late, attached, assistant("a2", "u2")) == "u1 a1 u2 a2"


@pytest.mark.parametrize("parent", [None, "stands-in-another-file"])
def test_a_prompt_without_a_known_parent_takes_nothing_back(tmp_path: Path, parent: str | None) -> None:
    """So it is after a compaction, and in copies of a part."""
    boundary = other("system", "b1", "a1", subtype="compact_boundary") | {"parentUuid": None}
    turns = (boundary, user("u2", parent), assistant("a2", "u2"))
    assert said(tmp_path, *BEGINNING, *turns) == "u1 a1 u2 a2"


def test_a_sidechain_in_the_same_file_takes_nothing_back(tmp_path: Path) -> None:
    side = (user("s1", None, isSidechain=True), assistant("s2", "s1") | {"isSidechain": True})
    more = (user("s3", "u1", isSidechain=True), user("u2", "a1"))
    assert said(tmp_path, *BEGINNING, *side, *more) == "u1 a1 s1 s2 s3 u2"


# ------------------------------------------------------------ while the file grows


def test_a_rewind_that_reaches_behind_has_the_file_read_anew(tmp_path: Path) -> None:
    outcome = parse(write(tmp_path, *BEGINNING, user("u2", "a1"), assistant("a2", "u2")))
    file = write(tmp_path, *BEGINNING, user("u2", "a1"), assistant("a2", "u2"), user("u3", "a1"), assistant("a3", "u3"))
    late = parse(file, outcome.cursor)
    assert (late.texts, late.cursor) == ([], outcome.cursor)
    assert not goes_on(str(file), outcome.cursor, "claude-code")


def test_other_appended_records_are_read_on(tmp_path: Path) -> None:
    outcome = parse(write(tmp_path, *BEGINNING, result("r1", "a1")))
    more = (other("system", "d1", "a1"), user("u2", "a1"), user("u3", "a1"), assistant("a3", "u3"))
    file = write(tmp_path, *BEGINNING, result("r1", "a1"), *more)
    assert goes_on(str(file), outcome.cursor, "claude-code")
    assert [text[-2:] for text in parse(file, outcome.cursor).texts] == ["u3", "a3"]  # u2 came and went in between


names = st.sampled_from(["u", "a"])


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(st.tuples(names, st.integers(0, 5)), max_size=14), cut=st.integers(0, 14))
def test_read_in_two_parts_is_read_at_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], cut: int
) -> None:
    """Whatever the tree: what is read in two parts, anew where it must be, is what is read at once."""
    records: list[Record] = [user("u0")]
    for n, (name, back) in enumerate(steps, 1):
        parent = records[max(0, len(records) - 1 - (back if name == "u" else 0))]["uuid"]
        records.append(user(f"u{n}", parent) if name == "u" else assistant(f"a{n}", parent))
    directory = tmp_path_factory.mktemp("dag")
    first = parse(write(directory, *records[: cut + 1]))
    file = write(directory, *records)
    whole = parse(file).texts
    if goes_on(str(file), first.cursor, "claude-code"):
        assert first.texts + parse(file, first.cursor).texts == whole
    else:
        assert first.texts != whole


def test_p017_what_was_rewound_leaves_the_store(tmp_path: Path) -> None:
    root = tmp_path / "projects"
    kept = (user("u1"), assistant("a1", "u1"))
    gone = claude_record("user", "The port is avocet for now.", "u2", "a1")
    file = write(root / "-p", *kept, gone)

    async def test(house: House) -> None:
        assert house.paths_with("avocet") == [str(file)]
        with file.open("a") as out:
            out.write(json.dumps(claude_record("user", "The port is bittern for now.", "u3", "a1")) + "\n")
        await house.until_found("bittern", file)
        await house.ingest.settled()
        assert house.paths_with("avocet") == []
        assert house.bulk.parsed[-1] == (str(file), 0)
        assert house.consistent()

    async def main() -> None:
        async with open_house(tmp_path / "db", Root(root, transcripts=True)) as house:
            await test(house)

    trio.run(main)


# ------------------------------------------------------------ copies and subagents


def test_a_fork_repeats_its_parents_records_and_one_of_two_speaks() -> None:
    """Both files are kept, since either may be deleted first; the gate lets one of the same words pass."""
    rewound = parse(RECORDED / "claude-code-2.1.332-rewound.jsonl")
    forked = parse(RECORDED / "claude-code-2.1.332-forked.jsonl")
    assert set(rewound.texts) < set(forked.texts)
    same = "The harbour pump needs two keys, which the lockkeeper holds."
    passages = [
        Passage(
            id=n, path=f"/h/{n}.jsonl", shown_path=f"{n}.jsonl", start=0, end=9, text=same, codec="json", written_at=1.0
        )
        for n in (1, 2)
    ]
    candidates = [Candidate(n, lanes={"lexical": (n, 9.0)}, fused=1.0 / n) for n in (1, 2)]
    decide(
        Answer("fused", candidates, 1.0),
        passages,
        Context(query_of(Focus(user_text="who holds the keys of the harbour pump"))),
    )
    assert [candidate.gates.get("same", "")[:7] for candidate in candidates] == ["", "stopped"]


def test_a_subagents_file_lies_in_a_directory_of_its_session(tmp_path: Path) -> None:
    side = claude_record("user", "look into the harbour code", "s1", isSidechain=True, agentId="a7", sessionId="0a1b")
    file = tmp_path / "0a1b" / "subagents" / "agent-a7.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(side) + "\n")
    assert kind_of(str(file)) == "claude-code"
    outcome = parse(file)
    assert [(p.speaker, p.text) for p in outcome.passages] == [("assistant", "look into the harbour code")]
    assert outcome.project == PROJECT


def test_a_session_whose_first_turn_is_far_off_is_told(tmp_path: Path) -> None:
    long = {"type": "queue-operation", "operation": "enqueue", "sessionId": "0a1b", "content": "x " * 200_000}
    file = CLAUDE_CODE.write(tmp_path, json.dumps(long), json.dumps(user("u1")))
    assert kind_of(str(file)) == "claude-code"
    assert parse(file).texts == ["this is asked by u1"]
