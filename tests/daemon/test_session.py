"""What a conversation is about, whose tools are ours, and when a client counts as gone."""

from __future__ import annotations

import pytest

from recalld_daemon.recall.types import Focus
from recalld_daemon.session import (
    ARGS_CHARS,
    ASSISTANT_CHARS,
    MISSED_BEATS,
    USER_CHARS,
    Conversation,
    Lease,
    both_ends,
    is_own_tool,
)

# ---------------------------------------------------------------- focus


def test_a_turn_s_focus_is_what_the_user_asks_after_what_the_assistant_said() -> None:
    talk = Conversation()
    talk.said("Shall I deploy to staging?")
    talk.turn(1, "  yes, do it ")
    assert talk.focus_for_turn() == Focus(user_text="yes, do it", assistant_text="Shall I deploy to staging?")


def test_a_tool_call_s_focus_has_its_own_words_first_and_no_results() -> None:
    talk = Conversation()
    talk.turn(1, "deploy it")
    talk.said("Looking at the script.")
    talk.said("Now I run it.")
    talk.tool_started("bash", "make deploy")
    assert talk.focus_for_tool("bash", "make deploy") == Focus(
        "bash", "make deploy", "deploy it", "Looking at the script.\nNow I run it."
    )


def test_what_was_said_in_an_earlier_turn_gives_way_to_what_is_said_in_this() -> None:
    talk = Conversation()
    talk.turn(1, "one")
    talk.said("about one")
    talk.turn(2, "two")
    assert talk.focus_for_turn().assistant_text == "about one"
    talk.said("about two")
    assert talk.focus_for_turn() == Focus(user_text="two", assistant_text="about two")


def test_counts_and_last_sign_of_life() -> None:
    talk = Conversation()
    talk.turn(7, "hello")
    for name in ("bash", "read"):
        talk.tool_started(name, "")
    talk.seen(12.0)
    talk.seen(11.0)
    assert (talk.turn_number, talk.turns, talk.calls, talk.last_seen_at) == (7, 1, 2, 12.0)


def test_nothing_grows_without_bound() -> None:
    talk = Conversation()
    for number in range(200):
        talk.turn(number, "u" * 100_000)
        talk.tool_started("n" * 10_000, "a" * 100_000)
        for _ in range(20):
            talk.said("s" * 10_000)
        talk.shown(["x" * 10_000] * 3)
    focus = talk.focus_for_tool("n" * 10_000, "a" * 100_000)
    assert len(focus.user_text) <= USER_CHARS
    assert len(focus.assistant_text) <= ASSISTANT_CHARS
    assert len(focus.tool_args) <= ARGS_CHARS
    assert len(focus.tool_name) <= 256
    assert sum(map(len, talk.texts())) < 45_000


def test_texts_are_what_the_agent_has_before_it() -> None:
    talk = Conversation()
    assert talk.texts() == ()
    talk.turn(1, "deploy it")
    talk.tool_started("bash", "make deploy")
    talk.shown(["ports are 8080"])
    assert talk.texts() == ("deploy it", "bash make deploy", "ports are 8080")


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    pasted = "Why does this fail?" + "x" * 10_000 + "Answer in one line."
    cut = both_ends(pasted, 100)
    assert len(cut) <= 100
    assert cut.startswith("Why does this fail?")
    assert cut.endswith("Answer in one line.")
    assert both_ends(" short ", 100) == "short"


def test_p016_what_is_said_and_called_is_masked_as_it_comes_in() -> None:
    key, password = "AKIAIOSFODNN7EXAMPLE", "Tr0ub4dor-9x"
    talk = Conversation()
    talk.said(f"I keep {key} for later")
    talk.turn(1, f"use {key}, the password is {password}")
    assert "use " in talk.focus_for_turn().user_text
    args = f'{{"password": "{password}", "command": "aws configure set key {key}"}}'
    talk.tool_started("bash", args)
    held = f"{talk.texts()} {talk.focus_for_turn()} {talk.focus_for_tool('bash', args)}"
    assert key not in held
    assert password not in held
    assert "aws configure set key" in held


# ---------------------------------------------------------------- P013: our own tools


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("mcp__recalld__search", "anything"),
        ("recalld.search", ""),
        ("recalld_remember", "{}"),
        ("Bash", "recallctl search ports"),
        ("Bash", '{"command": "recallctl search ports", "timeout": 5}'),
        ("bash", "cd /tmp && recallctl why r1"),
        ("bash", "echo ports | recallctl search -"),
        ("bash", "x=$(recallctl status --json)"),
        ("shell", '{"command": ["bash", "-lc", "recallctl tail"]}'),
        ("exec_command", "/home/u/.local/bin/recallctl ping"),
        ("run_shell_command", "A=1 sudo timeout 5 recalld run"),
        ("Bash", "python3 -m recalld_client.cli search x"),
        ("Bash", '{"command": "set -e\\nrecallctl ping"}'),
        ("Bash", "recallctl"),
    ],
)
def test_p013_calls_of_our_own_tools_trigger_no_recall(name: str, args: str) -> None:
    assert is_own_tool(name, args)
    assert Conversation.is_own_tool(name, args)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("Bash", "git log -- daemon/recalld_daemon/race.py"),
        ("Bash", "grep -rn recalld README.md"),
        ("Bash", "cd recalld && make"),
        ("Bash", "systemctl --user status recalld.service"),
        ("Bash", "./recalld-notes/run.sh"),
        ("Edit", '{"file_path": "README.md", "new_string": "\\nrecallctl search QUERY\\n"}'),
        ("Read", "/srv/recalld/README.md"),
        ("mcp__notes__recall", "recalld"),
        ("bash", "recall ports"),
        ("", ""),
    ],
)
def test_p013_calls_that_only_mention_us_do(name: str, args: str) -> None:
    assert not is_own_tool(name, args)


@pytest.mark.parametrize("piece", ["a=", ";", '"', "/", "sudo ", "a=;", "timeout 1 ", "\\n", "; a=b ", "python -m "])
def test_hostile_arguments_are_judged_in_bounded_work(piece: str) -> None:
    assert not is_own_tool("bash", piece * 10_000)


# ---------------------------------------------------------------- leases


def test_a_lease_is_alive_then_suspect_then_dead_and_any_traffic_renews_it() -> None:
    lease = Lease(5.0, at=100.0, dead_after_seconds=60.0)
    suspect_at = 100.0 + MISSED_BEATS * 5.0
    assert [lease.state(at) for at in (100.0, suspect_at - 0.1, suspect_at, 159.9, 160.0)] == [
        "alive", "alive", "suspect", "suspect", "dead",
    ]  # fmt: skip
    lease.seen(150.0)
    lease.seen(120.0)
    assert lease.state(160.0) == "alive"
    assert lease.state(210.0) == "dead"


def test_a_lease_is_never_dead_before_it_is_suspect() -> None:
    lease = Lease(5.0, dead_after_seconds=1.0)
    assert [lease.state(at) for at in (14.9, 15.0)] == ["alive", "dead"]
