"""The hosts' translations, on what the real programs sent: what is heard, and what each host is handed back."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld_client.hosts import HOSTS, Heard, PayloadError
from recalld_client.hosts.heard import HEAD, ID, call_key, head_of, session_key
from recalld_protocol.messages import Bye, Compacted, Said, ToolEnded, ToolStarted, Turn

PAYLOADS = Path(__file__).parent / "fixtures" / "payloads"
FILES = {
    "claude-code": "claude-code-2.1.332.jsonl",
    "codex": "codex-0.171.0.jsonl",
    "copilot": "copilot-cli-1.0.102.jsonl",
    "gemini": "gemini-cli-0.61.0.jsonl",
}
LINES = [
    'recalled: "… restart the worker after a deploy …" — notes/deploy.md:15-87',
    'recalled: "… ü “x” …" — b.md:1-9',
]


def heard(host: str) -> list[Heard]:
    recorded = [json.loads(line) for line in (PAYLOADS / FILES[host]).read_text().splitlines()]
    return [HOSTS[host].read(one.get("event", ""), json.dumps(one["stdin"]).encode()) for one in recorded]


def of(host: str, event: str) -> list[Heard]:
    return [one for one in heard(host) if one.event == event]


@pytest.mark.parametrize("host", FILES)
def test_every_recorded_payload_names_its_session_and_directory(host):
    told = heard(host)
    assert told
    assert len({one.session for one in told}) == 1
    assert all(one.session and one.cwd == "/home/user/proj" for one in told)


@pytest.mark.parametrize(
    ("host", "turn", "tool"),
    [
        ("claude-code", "UserPromptSubmit", "PostToolBatch"),
        ("codex", "UserPromptSubmit", "PostToolUse"),
        ("copilot", "userPromptSubmitted", "postToolUse"),
        ("gemini", "BeforeAgent", "AfterTool"),
    ],
)
def test_a_turn_is_the_users_words_and_a_tools_end_tells_the_call(host, turn, tool):
    (spoken,) = of(host, turn)
    assert bool(spoken.turn_id) == (host in ("claude-code", "codex"))  # the others tell none
    assert spoken.events == (Turn(turn=0, text="Look at the parser please"),)
    ends = of(host, tool)
    assert ends
    for one in ends:
        starts = [event for event in one.events if isinstance(event, ToolStarted)]
        assert starts
        assert [event.call for event in one.events if isinstance(event, ToolEnded)] == [s.call for s in starts]
        assert all(start.name and start.args.startswith("{") for start in starts)


def test_claude_codes_batch_tells_all_its_calls_once_each():
    first, *_ = of("claude-code", "PostToolBatch")
    assert [type(event) for event in first.events] == [ToolStarted, ToolEnded] * 2
    assert first.events[1] == ToolEnded(call="toolu_3044741", result="1\talpha\n2\t", result_bytes=15)


def test_a_failed_call_is_told_as_one():
    (failure, _) = of("claude-code", "PostToolUseFailure")
    assert failure.events[1] == ToolEnded(call="toolu_3963050", ok=False, result="Exit code 3\nhi", result_bytes=17)
    failed, went_well = of("gemini", "AfterTool")
    assert (failed.boundary, went_well.boundary) == (False, True)  # context given with an error is lost there
    assert [event.ok for event in failed.events if isinstance(event, ToolEnded)] == [False]


@pytest.mark.parametrize("host", FILES)
def test_only_where_the_host_takes_context_is_there_a_boundary_and_an_answer(host):
    for one in heard(host):
        answer = HOSTS[host].write(one.event, LINES)
        if one.boundary:
            assert answer
        if one.event in ("Stop", "SubagentStop", "AfterAgent", "SessionStart", "SessionEnd", "PreToolUse"):
            assert (one.boundary, answer) == (False, b"")
        assert HOSTS[host].write(one.event, []) == b""


def test_what_each_host_is_handed_holds_no_key_that_it_does_not_know():
    text = "\n".join(LINES)
    for host, event in (("claude-code", "PostToolBatch"), ("codex", "PostToolUse"), ("gemini", "AfterTool")):
        output = json.loads(HOSTS[host].write(event, LINES))
        assert output == {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}
    for event in ("userPromptSubmitted", "postToolUse", "postToolUseFailure"):
        assert json.loads(HOSTS["copilot"].write(event, LINES)) == {"additionalContext": text}
    assert HOSTS["opencode"].write("tool_ended", LINES).decode() == text


def test_what_hosts_add_to_a_prompt_is_no_users_word():
    (spoken,) = of("gemini", "BeforeAgent")
    assert "hook_context" not in str(spoken.events)
    for made in ("<task-notification>\n<task-id>7", "<local-command-stdout>x", " <system-reminder>y"):
        payload = {"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": made}
        told = HOSTS["claude-code"].read("", json.dumps(payload).encode())
        assert (told.events, told.boundary) == ((), True)


def test_ends_and_compaction():
    assert of("claude-code", "SessionEnd")[0].events == (Bye(),)
    assert of("claude-code", "Stop")[0].events == (Said(text="All done."),)
    for payload in (
        {"session_id": "s", "hook_event_name": "PostCompact", "compact_summary": "so far"},
        {"session_id": "s", "hook_event_name": "SessionStart", "source": "compact"},
    ):
        assert HOSTS["claude-code"].read("", json.dumps(payload).encode()).events == (Compacted(),)
    assert of("gemini", "PreCompress")[0].events == ()  # it comes with every turn, compacted or not
    assert HOSTS["copilot"].read("preCompact", b'{"sessionId":"s"}').events == (Compacted(),)


def test_a_subagent_is_a_session_of_its_own_and_ends_by_itself():
    base = {"session_id": "s", "agent_id": "a7", "hook_event_name": "SubagentStop", "last_assistant_message": "found"}
    told = HOSTS["claude-code"].read("", json.dumps(base).encode())
    assert (told.session, told.events) == ("s/a7", (Said(text="found"), Bye()))
    del base["agent_id"]
    assert HOSTS["claude-code"].read("", json.dumps(base).encode()).events == ()  # never the main session's end


def test_opencode_speaks_our_own_words():
    start = {"event": "tool_started", "session": "ses_1", "cwd": "/w", "call": "c1", "tool": "bash", "args": {"a": 1}}
    told = HOSTS["opencode"].read("", json.dumps(start).encode())
    assert (told.session, told.cwd, told.boundary) == ("ses_1", "/w", False)
    assert told.events == (ToolStarted(call="c1", name="bash", args='{"a":1}'),)
    end = HOSTS["opencode"].read("", json.dumps({**start, "event": "tool_ended", "result": "ok"}).encode())
    assert end.boundary
    assert end.events[1] == ToolEnded(call="c1", result="ok", result_bytes=4)
    threw = {**start, "event": "tool_failed", "result": "no such file", "ok": False}
    failed = HOSTS["opencode"].read("", json.dumps(threw).encode())
    assert (failed.boundary, failed.events[1]) == (
        False,
        ToolEnded(call="c1", ok=False, result="no such file", result_bytes=14),
    )


@pytest.mark.parametrize("host", HOSTS)
@given(payload=st.binary(max_size=200))
def test_what_is_no_payload_is_an_error_of_its_own_kind(host, payload):
    try:
        told = HOSTS[host].read("postToolUse", payload)
    except PayloadError:
        return
    assert told.session == ""


def test_half_a_surrogate_pair_loses_one_character_and_no_event():
    payload = b'{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"fix \\ud83d the parser"}'
    (spoken,) = HOSTS["claude-code"].read("", payload).events
    assert isinstance(spoken, Turn)
    assert spoken.text == "fix ? the parser"


@pytest.mark.parametrize(
    ("given", "head"),
    [(b'"a \xff b"', "a"), (b'{"n":1e999}', '{"n":1e999}'), (b'{"n":%s}' % (b"9" * 5000), '{"n":999')],
)
def test_a_value_that_json_readers_disagree_on_is_kept_as_text(given, head):
    payload = b'{"session_id":"s","hook_event_name":"PostToolUse","tool_use_id":"c","tool_input":%s}' % given
    (start, _) = HOSTS["claude-code"].read("", payload).events
    assert isinstance(start, ToolStarted)
    assert start.args.startswith(head)


def test_a_large_result_is_read_no_further_than_its_head():
    long = "first line\\n" + "\\u00e9" * 200_000
    head = head_of(msgspec.Raw(f'"{long}"'.encode()))
    assert head.startswith("first line\né")
    assert len(head) <= HEAD
    listed = head_of(msgspec.Raw(b"[" + b"1," * 200_000 + b"1]"))
    assert listed.startswith("[1,1")
    assert len(listed) <= HEAD


@given(session=st.text(min_size=1, max_size=300), agent=st.text(max_size=200))
def test_a_sessions_key_fits_the_wire_and_tells_sessions_apart(session, agent):
    key = session_key(session, agent)
    assert 0 < len(key) <= ID
    assert key == session_key(session, agent)
    assert session_key(session + "x", agent) != key


def test_a_made_call_id_depends_on_every_part():
    assert call_key("a", "b") == call_key("a", b"b")
    assert len({call_key("a", "b"), call_key("ab", ""), call_key("a", "b", ""), call_key("b", "a")}) == 4
