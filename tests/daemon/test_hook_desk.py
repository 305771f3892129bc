"""The hook desk: payloads in, lines out; each thing is heard once, each snippet shown once, nobody waits too long."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from desk_house import DeskHouse, at_the_desk
from hook_payloads import HookHouse, batch, call, claude, prompt, recorded
from recalld_daemon.hooks.request import Refused, Request
from recalld_daemon.hooks.told import MAX_CALLS, Told
from recalld_protocol import messages as wire

TEXTS = {
    "oolong": "The good oolong is in a blue tin behind the coffee filters in the kitchen",
    "harbour": "The harbour host keeps the old unit file until daemon-reload has run there",
}


def check(tmp_path: Path, body: Callable[[HookHouse], Awaitable[None]], wait: float = 60.0, **limits: Any) -> None:
    async def main(house: DeskHouse) -> None:
        await body(HookHouse(house, wait))

    at_the_desk(tmp_path, TEXTS, main, **limits)


def test_a_turn_waits_for_its_own_recall(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        hooks.house.recaller.gate = trio.Event()
        answers: list[str] = []

        async def ask() -> None:
            answers.append(await hooks.ask(prompt("where is the oolong?")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert answers == []
            hooks.house.recaller.gate.set()
        assert "blue tin" in answers[0]
        assert answers[0].startswith('recalled: "… ')
        assert (hooks.figures.answered, hooks.figures.snippets, hooks.figures.hosts["claude-code"]) == (1, 1, 1)

    check(tmp_path, body)


def test_p002_what_is_late_comes_at_the_next_boundary(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        hooks.house.recaller.gate = trio.Event()
        assert await hooks.ask(prompt("where is the oolong?")) == ""
        hooks.house.recaller.gate.set()
        await hooks.house.settled()
        assert "blue tin" in await hooks.ask(batch(("t1", "ls")))
        assert hooks.house.desk.counts()["slipped"] == 1

    check(tmp_path, body, wait=0.0)


def test_p006_what_answers_the_last_turn_is_not_told_in_the_next(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        hooks.house.recaller.gate = trio.Event()
        assert await hooks.ask(prompt("where is the oolong?")) == ""
        second = prompt("what about the unit file on the harbour host?")
        answers: list[str] = []

        async def ask() -> None:
            hooks.desk._wait_seconds = 60.0
            answers.append(await hooks.ask(second))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            hooks.house.recaller.gate.set()
        await hooks.house.settled()
        later = await hooks.ask(batch(("t1", "ls")))
        assert "daemon-reload" in answers[0]
        assert "blue tin" not in answers[0] + later

    check(tmp_path, body, wait=0.0)


def test_a_tool_call_is_heard_once_however_often_it_is_told(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        await hooks.ask(prompt("hello there, please look around"))
        await hooks.ask(claude("PreToolUse", **call("t1", "find the oolong")))
        assert "blue tin" in await hooks.ask(batch(("t1", "find the oolong")))
        assert await hooks.ask(batch(("t1", "find the oolong"))) == ""
        live = hooks.house.book.get("s")
        assert live is not None
        assert (live.calls, live.race.turn, live.race.boundary) == (1, 1, 3)

    check(tmp_path, body)


def test_two_hooks_at_one_instant_do_not_get_the_same_snippet(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        hooks.house.recaller.gate = trio.Event()
        answers: list[str] = []

        async def ask(id: str) -> None:
            payload = claude("PostToolUse", **call(id, f"find the oolong {id}"))
            answers.append(await hooks.ask(payload))

        async with trio.open_nursery() as nursery:
            for id in ("t1", "t2", "t3"):
                nursery.start_soon(ask, id)
            await trio.testing.wait_all_tasks_blocked()
            hooks.house.recaller.gate.set()
        assert sorted(bool(answer) for answer in answers) == [False, False, True]

    check(tmp_path, body)


def test_a_session_that_two_hosts_see_is_one(tmp_path: Path) -> None:
    """Copilot also runs the hooks of a repository's Claude Code settings."""

    async def body(hooks: HookHouse) -> None:
        text = "where is the oolong?"
        copilot = json.dumps({"sessionId": "s", "timestamp": 1, "cwd": "/", "prompt": text}).encode()
        assert "blue tin" in await hooks.ask(copilot, "copilot", "userPromptSubmitted")
        assert await hooks.ask(prompt(text)) == ""
        end = {"sessionId": "s", "timestamp": 2, "cwd": "/", "toolName": "bash", "toolArgs": {"command": "oolong"}}
        assert await hooks.ask(json.dumps(end).encode(), "copilot", "postToolUse") == ""
        assert await hooks.ask(claude("PostToolUse", **call("t1", "oolong"))) == ""
        (live,) = hooks.house.book
        assert (live.race.turn, live.conversation.turns) == (1, 1)

    check(tmp_path, body)


def test_the_same_words_again_are_another_turn(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        for _ in range(3):
            await hooks.ask(prompt("go on"))
        (live,) = hooks.house.book
        assert live.race.turn == 3

    check(tmp_path, body)


def test_one_turn_told_twice_by_the_hosts_own_id_is_one(tmp_path: Path) -> None:
    """As where a host has our hooks in two of its files."""

    async def body(hooks: HookHouse) -> None:
        for id in ("p1", "p1", "p2", "p2"):
            await hooks.ask(prompt("go on", prompt_id=id))
        (live,) = hooks.house.book
        assert live.race.turn == 2

    check(tmp_path, body)


def test_p009_a_compaction_is_remembered_when_the_session_is_opened_again(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        assert "blue tin" in await hooks.ask(prompt("where is the oolong?"))
        await hooks.ask(claude("PostCompact", compact_summary="tea"))
        await hooks.ask(claude("SessionEnd"))
        await hooks.house.desk._journal.flush()
        assert "blue tin" in await hooks.ask(prompt("where is the oolong now?"))
        await hooks.ask(claude("SessionEnd"))
        await hooks.house.desk._journal.flush()
        assert await hooks.ask(prompt("and where is the oolong today?")) == ""

    check(tmp_path, body)


def test_a_hook_that_has_gone_takes_nothing_and_what_was_found_slips(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        assert await hooks.ask(prompt("where is the oolong?"), gone=True) == ""
        assert (hooks.figures.abandoned, hooks.figures.snippets) == (1, 0)
        assert "blue tin" in await hooks.ask(batch(("t1", "ls")))
        assert hooks.house.desk.counts()["slipped"] == 1

    check(tmp_path, body)


def test_a_session_is_opened_again_and_knows_what_it_was_shown(tmp_path: Path) -> None:
    """After a restart, or when it was idle for too long: the hook has nothing to say hello by."""

    async def body(hooks: HookHouse) -> None:
        assert "blue tin" in await hooks.ask(prompt("where is the oolong?"))
        (live,) = hooks.house.book
        hooks.house.desk.close(live, "idle", trio.current_time())
        await hooks.house.settled()
        assert await hooks.ask(batch(("t1", "find the oolong"))) == ""
        assert "daemon-reload" in await hooks.ask(batch(("t2", "ssh to the harbour host")))
        (again,) = hooks.house.book
        assert again is not live
        assert (again.hello.client, again.hello.host, again.hello.delivery) == ("hook", "claude-code", "pull")

    check(tmp_path, body)


def test_another_directory_moves_the_session_and_loses_nothing(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        hooks.house.recaller.gate = trio.Event()
        hooks.desk._wait_seconds = 0.0
        await hooks.ask(prompt("where is the oolong?"))
        (tmp_path / "repo" / ".git").mkdir(parents=True)
        hooks.house.recaller.gate.set()
        await hooks.house.settled()
        assert "blue tin" in await hooks.ask(batch(("t1", "ls"), cwd=str(tmp_path / "repo")))
        (live,) = hooks.house.book
        assert (live.scope_key, live.race.turn) == (str(tmp_path / "repo"), 1)
        await hooks.ask(batch(("t2", "ls"), cwd="/" + "x" * 5000))
        assert live.scope_key == str(tmp_path / "repo")

    check(tmp_path, body)


def test_the_end_closes_a_session_and_opens_none(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        await hooks.ask(claude("SessionEnd", reason="exit"))
        await hooks.ask(claude("SessionStart", source="startup"))
        assert len(hooks.house.book) == 0
        await hooks.ask(prompt("hello", session="a"))
        await hooks.ask(claude("PostToolBatch", "a", agent_id="sub", tool_calls=[call("t1", "ls")]))
        assert {live.id for live in hooks.house.book} == {"a", "a/sub"}
        await hooks.ask(claude("SubagentStop", "a", agent_id="sub", last_assistant_message="done"))
        await hooks.ask(claude("SessionEnd", "a"))
        assert len(hooks.house.book) == 0

    check(tmp_path, body)


def test_a_session_with_a_client_of_its_own_is_left_alone(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        hooks.house.hello("s")
        assert await hooks.ask(prompt("where is the oolong?")) == ""
        (live,) = hooks.house.book
        assert (live.push, live.race.turn, live.route) == (True, 0, b"one")

    check(tmp_path, body)


def test_while_the_model_loads_nobody_waits_and_nothing_is_taken(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        hooks.ready = False
        hooks.house.recaller.gate = trio.Event()  # what waited for it would wait for ever
        assert await hooks.ask(prompt("where is the oolong?")) == ""
        hooks.house.recaller.gate.set()
        await hooks.house.settled()
        assert await hooks.ask(batch(("t1", "ls"))) == ""
        hooks.ready = True
        assert "blue tin" in await hooks.ask(batch(("t2", "ls")))

    check(tmp_path, body)


def test_a_daemon_that_drains_answers_at_once(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        await hooks.ask(prompt("hello"))
        hooks.house.desk.draining = True
        assert await hooks.ask(prompt("where is the oolong?")) == ""
        assert await hooks.ask(prompt("where is the oolong?", session="new")) == ""
        assert [(live.id, live.race.turn) for live in hooks.house.book] == [("s", 1)]

    check(tmp_path, body)


@pytest.mark.parametrize(
    ("host", "payload", "code"),
    [
        ("claude-code", b"{", "malformed"),
        ("claude-code", b'{"session_id": 3}', "malformed"),
        ("gpt-shell", b"{}", "unknown_host"),
        ("codex", prompt("hello", session="third"), "busy"),
    ],
)
def test_what_can_t_be_served_is_refused_with_its_kind(tmp_path: Path, host: str, payload: bytes, code: str) -> None:
    async def body(hooks: HookHouse) -> None:
        for session in ("one", "two"):
            hooks.house.hello(session)
        with pytest.raises(Refused) as refused:
            await hooks.ask(payload, host)
        assert refused.value.code == code

    check(tmp_path, body, max_sessions=2)


def test_p009_a_hundred_calls_about_one_subject_show_it_once_per_compaction_epoch(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        answers = [await hooks.ask(prompt("let us talk about the oolong"))]
        answers += [await hooks.ask(batch((f"t{n}", f"look for oolong, try {n}"))) for n in range(100)]
        assert ["blue tin" in answer for answer in answers].count(True) == 1
        await hooks.ask(claude("PostCompact", compact_summary="tea"))
        again = [await hooks.ask(batch((f"u{n}", f"look for oolong, once more {n}"))) for n in range(50)]
        assert ["blue tin" in answer for answer in again].count(True) == 1

    check(tmp_path, body)


@pytest.mark.parametrize("host", ["claude-code", "codex", "copilot", "gemini"])
def test_a_recorded_session_is_heard_to_its_end(tmp_path: Path, host: str) -> None:
    async def body(hooks: HookHouse) -> None:
        events = recorded(host)
        for event, payload in events:
            await hooks.desk.answer(Request(host, event, len(payload)), payload, lambda: False)
        assert (hooks.figures.requests, hooks.figures.hosts[host]) == (len(events), len(events))

    check(tmp_path, body)


def test_a_large_payload_is_read_beside_the_loop(tmp_path: Path) -> None:
    async def body(hooks: HookHouse) -> None:
        large = {**call("t1", "find the oolong"), "tool_response": "x" * 3_000_000}
        assert "blue tin" in await hooks.ask(claude("PostToolBatch", tool_calls=[large]))

    check(tmp_path, body)


words = st.sampled_from(["oolong", "harbour", "oolong and harbour", "nothing of the kind"])
steps = st.one_of(
    st.tuples(st.just("turn"), words, st.booleans()),
    st.tuples(st.just("start"), words, st.just(False)),
    st.tuples(st.just("batch"), words, st.booleans()),
    st.tuples(st.just("crowd"), words, st.just(False)),
    st.tuples(st.sampled_from(["compact", "end", "idle", "held", "freed"]), st.just(""), st.just(False)),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(steps, min_size=3, max_size=25))
def test_whatever_hooks_tell_nothing_is_shown_twice_in_a_compaction_epoch(told: list[tuple[str, str, bool]]) -> None:
    """Turns, calls, several hooks at once, hooks that vanish, late recalls, compactions, ends and idle closings."""

    async def body(hooks: HookHouse) -> None:
        answers: list[str] = []

        async def ask(payload: bytes, gone: bool = False) -> None:
            answers.append(await hooks.ask(payload, gone=gone))

        for n, (what, text, gone) in enumerate(told):
            match what:
                case "turn":
                    await ask(prompt(f"{text} {n}"), gone)
                case "start":
                    await ask(claude("PreToolUse", **call(f"t{n}", f"{text} {n}")))
                case "batch":
                    await ask(batch((f"t{n - 1}", f"{text} {n - 1}"), (f"t{n}", f"{text} {n}")), gone)
                case "crowd":
                    async with trio.open_nursery() as nursery:
                        for k in range(3):
                            nursery.start_soon(ask, claude("PostToolUse", **call(f"c{n}-{k}", f"{text} {n} {k}")))
                case "compact":
                    _shown_once(answers)
                    answers.clear()
                    await ask(claude("PostCompact"))
                case "end":
                    await ask(claude("SessionEnd"))
                case "idle" if live := hooks.house.book.get("s"):
                    hooks.house.desk.close(live, "idle", trio.current_time())
                case "held" if hooks.house.recaller.gate.is_set():  # who waits at a gate must not lose it
                    hooks.house.recaller.gate = trio.Event()
                case "freed":
                    hooks.house.recaller.gate.set()
            for live in hooks.house.book:
                live.race.validate()
            await hooks.house.journal.flush()
        hooks.house.recaller.gate.set()
        await hooks.house.settled()
        _shown_once(answers)

    with tempfile.TemporaryDirectory() as directory:
        check(Path(directory), body, wait=0.0005)


def _shown_once(answers: list[str]) -> None:
    for words in ("blue tin", "daemon-reload"):
        assert sum(answer.count(words) for answer in answers) <= 1


def test_what_a_session_told_is_remembered_within_bounds() -> None:
    told = Told(1)
    assert [told.started("a"), told.started("a"), told.ended("a"), told.ended("a"), told.started("a")] == [
        True, False, True, False, False,
    ]  # fmt: skip
    for n in range(MAX_CALLS):
        told.started(f"b{n}")
    assert len(told.calls) == MAX_CALLS
    assert told.started("a")


def test_an_outbox_is_never_sent_to_the_wire_for_a_hook(tmp_path: Path) -> None:
    """Hook sessions have no route: nothing of theirs reaches a socket of ours."""

    async def body(hooks: HookHouse) -> None:
        await hooks.ask(prompt("where is the oolong?"))
        assert hooks.house.take(wire.Injections) == []
        assert hooks.house.router.sent == []

    check(tmp_path, body)
