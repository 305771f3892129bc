"""Letta's agent files: blocks and what was said, without prompts, tools and events."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_parsing import Outcome, parse
from recalld_daemon.ingest.formats import letta
from recalld_daemon.ingest.parse import kind_of
from recalld_daemon.ingest.survey import survey


def block(label: Any, value: Any, **more: Any) -> dict[str, Any]:
    return {"value": value, "limit": 20000, "label": label, "description": "what this block is for", **more}


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": content, "signature": None}] if isinstance(content, str) else content
    whole = {"type": "message", "role": role, "content": blocks, "tool_calls": None, "tool_returns": []}
    return whole | {"created_at": "2025-10-31T22:56:56.459100+00:00"} | more


def agent_file(*messages: dict[str, Any], blocks: Any = (), **more: Any) -> dict[str, Any]:
    agent = {
        "name": "Harbour master",
        "memory_blocks": [],
        "system": "You watch the harbour.",
        "messages": list(messages),
    }
    return {"agents": [agent], "groups": [], "blocks": list(blocks), "tools": [{"description": "finds things"}]} | more


def write(tmp_path: Path, told: Any, **dump: Any) -> Path:
    file = tmp_path / "master.af"
    file.write_text(json.dumps(told, **dump), encoding="utf-8")
    return file


def parsed(tmp_path: Path, told: Any) -> Outcome:
    return parse(write(tmp_path, told, indent=2))


def test_blocks_under_their_labels_and_messages_under_their_agent(tmp_path: Path) -> None:
    told = agent_file(
        message("system", "You watch the harbour of old.\n<memory_blocks>..."),
        message("user", 'What of the "inner" harbour?\nTell me.'),
        message("assistant", "It is four metres deep."),
        message("tool", "secret heron words here"),
        message("user", [{"type": "image", "source": {}}, {"type": "text", "text": "and the outer one too"}]),
        message("assistant", "as a plain string of words"),
        blocks=[block("human", "Ada\nkeeps bees."), block("persona", ""), block("x", None)],
    )
    told["agents"][0]["messages"][5]["content"] = "as a plain string of words"
    outcome = parsed(tmp_path, told)
    assert [(p.heading, p.speaker, p.text) for p in outcome.passages] == [
        ("Harbour master", "user", 'What of the "inner" harbour?\nTell me.'),
        ("Harbour master", "assistant", "It is four metres deep."),
        ("Harbour master", "user", "and the outer one too"),
        ("Harbour master", "assistant", "as a plain string of words"),
        ("human", "", "Ada\nkeeps bees."),
    ]
    assert outcome.problems == []
    assert outcome.passages[0].written_at == datetime(2025, 10, 31, 22, 56, 56, 459100, UTC).timestamp()


def test_the_older_shape_is_one_agent(tmp_path: Path) -> None:
    told = {
        "agent_type": "memgpt_agent",
        "core_memory": [block("human", "Ada keeps bees", updated_at="2025-04-01T03:47:27Z")],
        "messages": [message("user", "what of the harbour")],
        "name": "Sam",
        "system": "You are Sam.",
    }
    outcome = parsed(tmp_path, told)
    assert [(p.heading, p.text) for p in outcome.passages] == [
        ("human", "Ada keeps bees"),
        ("Sam", "what of the harbour"),
    ]
    assert outcome.passages[0].written_at == datetime(2025, 4, 1, 3, 47, 27, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("kind", ["heartbeat", "login", "system_alert", "system_message"])
def test_events_in_the_users_name_are_left_out(tmp_path: Path, kind: str) -> None:
    event = json.dumps({"type": kind, "reason": "secret heron words", "message": "secret heron words"}, indent=2)
    assert parsed(tmp_path, agent_file(message("user", event), message("user", "the only words of all"))).texts == [
        "the only words of all"
    ]


def test_a_wrapped_message_is_unwrapped(tmp_path: Path) -> None:
    wrapped = json.dumps(
        {"type": "user_message", "message": "what of the caf\u00e9 at the harbour", "time": "now"}, indent=2
    )
    assert parsed(tmp_path, agent_file(message("user", wrapped))).texts == ["what of the caf\\u00e9 at the harbour"]
    plain = '{"bees": "are kept in a hive"}'
    assert parsed(tmp_path, agent_file(message("user", plain))).texts == [plain]


def test_what_was_sent_is_read_and_the_monologue_beside_it_is_not(tmp_path: Path) -> None:
    def call(name: str, arguments: str) -> dict[str, Any]:
        return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}

    sent = call(
        "send_message", json.dumps({"message": "It is four metres deep.", "request_heartbeat": False}, indent=1)
    )
    other = call("conversation_search", '{"query": "secret heron words"}')
    told = agent_file(
        message("assistant", "secret heron words here", tool_calls=[other, sent]),
        message("assistant", "I shall look it up", tool_calls=[other]),
        message("assistant", None, tool_calls=[call("send_message", "{torn")]),
    )
    outcome = parsed(tmp_path, told)
    assert outcome.texts == ["It is four metres deep.", "I shall look it up"]


def test_hosts_wrappers_are_left_out(tmp_path: Path) -> None:
    text = "before the reminder <system-reminder>secret heron</system-reminder> and after it"
    assert parsed(tmp_path, agent_file(message("user", text))).texts == ["before the reminder", "and after it"]


@pytest.mark.parametrize("keys", [sorted, lambda keys: sorted(keys, reverse=True)])
def test_told_in_any_order_of_keys(tmp_path: Path, keys: Any) -> None:
    told = agent_file(message("user", "the only words of all"))
    file = write(tmp_path, {key: told[key] for key in keys(told)})
    assert kind_of(str(file)) == "letta"
    assert parse(file).texts == ["the only words of all"]


@pytest.mark.parametrize("other", ["", "x", "[]", "{}", '"{\\"agents\\": []}"', '{"a": {"agents": []}}'])
def test_another_af_is_not_read(tmp_path: Path, other: str) -> None:
    file = tmp_path / "x.af"
    file.write_text(other)
    assert kind_of(str(file)) is None


@pytest.mark.parametrize("odd", [None, 7, "x", {}, [None], [7], [[]]])
def test_odd_shapes_cost_themselves(tmp_path: Path, odd: Any) -> None:
    told = agent_file(message("user", "the only words of all"), blocks=[block("human", "Ada keeps bees")])
    told["agents"] = [*told["agents"], {"name": odd, "messages": odd, "memory_blocks": odd}]
    told["tools"] = odd
    outcome = parsed(tmp_path, told)
    assert (outcome.texts, outcome.problems) == (["the only words of all", "Ada keeps bees"], [])
    told["blocks"] = odd
    assert parsed(tmp_path, told).texts == ["the only words of all"]


def test_a_garbled_message_is_counted(tmp_path: Path) -> None:
    told = agent_file(message("user", "x", tool_calls=7), message("assistant", "y", tool_calls=[{"function": 7}]))
    assert [p.text for p in parsed(tmp_path, told).problems] == ["1 messages are garbled: left out"]


def test_a_torn_file_is_told(tmp_path: Path) -> None:
    file = write(tmp_path, agent_file(message("user", "the only words of all")))
    file.write_bytes(file.read_bytes()[:-20])
    outcome = parse(file)
    assert outcome.passages == []
    assert "nothing of it is read; export the agent again" in outcome.problems[0].text


def test_a_file_above_the_bound_is_told_and_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letta, "MOST", 1000)
    outcome = parsed(tmp_path, agent_file(message("user", "words " * 300)))
    assert (outcome.texts, len(outcome.problems)) == ([], 1)


def test_p016_p025_p031(tmp_path: Path) -> None:
    key = "ghp_" + "a1B2c3D4e5" * 3
    file = write(
        tmp_path, agent_file(message("user", "an odd byte \ud83d and \0"), blocks=[block("keys", f"mine is {key} so")])
    )
    file.write_bytes(file.read_bytes().replace(b"odd byte", b"odd \xff byte"))
    outcome = parse(file)
    assert outcome.texts == ["an odd \ufffd byte \ufffd and \ufffd", f"mine is {'█' * len(key)} so"]


@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "system", "tool"]), st.text(st.characters(codec="utf-8"))))
)
def test_any_words_are_read_where_they_stand(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[str, str]]
) -> None:
    """`parse` checks that each passage's bytes decode to its text."""
    messages = [message(role, f"words of number {n} {text}") for n, (role, text) in enumerate(told)]
    outcome = parse(write(tmp_path_factory.mktemp("af"), agent_file(*messages), ensure_ascii=False))
    begun = [p.text.split()[3] for p in outcome.passages if p.text.startswith("words of number ")]
    assert begun == [str(n) for n, (role, _) in enumerate(told) if role in ("user", "assistant")]


def test_survey_counts(tmp_path: Path) -> None:
    file = write(tmp_path, agent_file(message("user", "hm"), message("assistant", "four metres at low tide")))
    surveyed = survey(file, lambda done, total: None)
    assert (surveyed.label, surveyed.passages, surveyed.tally.conversations) == ("Letta agent file", 1, 1)
    assert dict(surveyed.tally.by) == {"user": 1, "assistant": 1}
