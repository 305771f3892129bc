"""What doctor sends to a hook, what it takes as an answer, and when it takes a memory to have arrived."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from recalld_client.hosts import HOSTS
from recalld_client.hosts.checking import proof
from recalld_client.hosts.checking.contract import LIMIT_CHARS, Breach, context_of
from recalld_client.hosts.checking.delivery import NoDelivery
from recalld_client.hosts.checking.samples import Step, end, steps
from recalld_client.hosts.installing.entries import FORMS, Way
from recalld_protocol.messages import Bye, Forget, Forgotten, FromAgent, Hit, Hits, Message, Remember, Remembered, Turn

EVENTS = {host: [*form.handlers(Way())] for host, form in FORMS.items()}


# ---------------------------------------------------------------- payloads and answers


@pytest.mark.parametrize("host", [host for host in HOSTS if host != "opencode"])
def test_the_samples_are_what_the_translations_take(host: str) -> None:
    """A turn with the question, then tool calls, each a boundary of one session; then its end."""
    asked = steps(host, "s-1", "/tmp/p", "How much?", 3, EVENTS[host])
    told = [HOSTS[host].read(step.event, json.dumps(step.payload).encode()) for step in asked]
    assert [(heard.session, heard.cwd, heard.boundary) for heard in told] == [("s-1", "/tmp/p", True)] * 4
    assert [heard.event for heard in told] == [step.event for step in asked]
    assert told[0].events == (Turn(turn=0, text="How much?"),)
    assert all(len(heard.events) == 2 for heard in told[1:])
    calls = {getattr(heard.events[0], "call", "") for heard in told[1:]}
    assert len(calls) == 3, "a call that was told already is no call"
    last = end(host, "s-1", "/tmp/p")
    assert HOSTS[host].read(last.event, json.dumps(last.payload).encode()).events == (Bye(),)


@pytest.mark.parametrize("host", [host for host in HOSTS if host != "opencode"])
def test_the_samples_look_like_what_was_recorded(host: str) -> None:
    """Every key of ours is one that the program itself has sent at this event."""
    names = {"claude-code": "claude-code-2.1.332", "codex": "codex-0.171.0", "copilot": "copilot-cli-1.0.102"}
    path = Path(__file__).parent / "fixtures" / "payloads" / f"{names.get(host, 'gemini-cli-0.61.0')}.jsonl"
    recorded: dict[str, list[set[str]]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        payload = row["stdin"]
        recorded.setdefault(row.get("event") or payload["hook_event_name"], []).append({*payload})
    for step in steps(host, "s", "/p", "q", 1, EVENTS[host]):
        assert any({*step.payload} <= keys for keys in recorded[step.event]), step.event


def test_an_older_claude_code_is_told_its_tools_one_by_one() -> None:
    assert steps("claude-code", "s", "/p", "q", 1, ["UserPromptSubmit", "PostToolUse"])[1].event == "PostToolUse"


@pytest.mark.parametrize("host", HOSTS)
def test_what_our_translations_write_is_taken(host: str) -> None:
    event = steps(host, "s", "/p", "q", 1, EVENTS.get(host, []))[0].event
    written = HOSTS[host].write("turn" if host == "opencode" else event, ['recalled: "one" \u2014 a.md', "two"])
    assert context_of(host, event, written) == 'recalled: "one" \u2014 a.md\ntwo'
    assert context_of(host, event, b"") == ""


@pytest.mark.parametrize(
    ("host", "answer", "told"),
    [
        ("codex", b'{"hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": "x"}}', "answers 'Stop'"),
        ("codex", b'{"suppressOutput": true}', "its keys"),
        ("codex", b'{"hookSpecificOutput": {"hookEventName": "E", "additionalContext": "x", "more": 1}}', "its keys"),
        ("codex", b'{"hookSpecificOutput": []}', "no object"),
        ("copilot", b'{"additionalContext": ""}', "no text"),
        ("copilot", b'{"hookSpecificOutput": {}}', "its keys"),
        ("gemini", b"Welcome to bash\n{}", "'Welcome to bash'"),
        ("claude-code", b"nothing like it", "no JSON"),
        ("claude-code", b"[]", "no JSON object"),
        ("claude-code", b"\xff", "UTF-8"),
        ("copilot", b'{"additionalContext": "a\\u001b[31m"}', "control characters"),
    ],
)
def test_what_a_host_would_not_take_is_a_breach(host: str, answer: bytes, told: str) -> None:
    with pytest.raises(Breach, match=told):
        context_of(host, "E", answer)


def test_more_than_a_host_takes_is_a_breach() -> None:
    for host, limit in LIMIT_CHARS.items():
        event = "E"
        written = HOSTS[host].write({"opencode": "turn", "gemini": "AfterTool"}.get(host, "postToolUse"), ["x" * limit])
        if host in ("claude-code", "codex"):
            written = json.dumps(
                {"hookSpecificOutput": {"hookEventName": event, "additionalContext": "x" * (limit + 1)}}
            ).encode()
        else:
            event, written = {"gemini": "AfterTool"}.get(host, event), written.replace(b"xx", b"xxx", 1)
        with pytest.raises(Breach, match="are taken"):
            context_of(host, event, written)


# ---------------------------------------------------------------- the proof


class Planted:
    """A daemon's memory, and a hook that says what `say` makes of the texts that are in it."""

    def __init__(self, say: Callable[[str, int], bytes]) -> None:
        self.texts: dict[str, str] = {}
        self.planted = self.runs = 0
        self.slept: list[float] = []
        self._say = say

    def ask(self, message: FromAgent, answer: type[Message]) -> Message:
        match message:
            case Remember():
                self.planted += 1
                self.texts[f"memory:{self.planted}"] = message.text
                return Remembered(memory=f"memory:{self.planted}")
            case Forget():
                del self.texts[message.path]
                return Forgotten(path=message.path, passages=1)
        text = next(iter(self.texts.values()))
        return Hits(hits=[Hit(path="m", start=0, end=1, text=text, lanes={"dense": 1.0})])

    def run(self, step: Step, cwd: Path) -> bytes:
        assert cwd.is_dir()
        if step.event == "SessionEnd":
            return b""
        self.runs += 1
        said = self._say(next(iter(self.texts.values())), self.runs)
        return HOSTS["codex"].write(step.event, [said.decode()]) if said else b""

    def prove(self) -> proof.Proof:
        return proof.prove("codex", EVENTS["codex"], self.run, self.ask, self.slept.append, random.Random(7))


def test_what_comes_at_once_is_proven_at_once() -> None:
    planted = Planted(lambda text, run: text.encode())
    assert planted.prove() == proof.Proof(True, boundary=1, memories=1)
    assert planted.texts == {}


def test_a_slip_is_no_fault() -> None:
    planted = Planted(lambda text, run: text.encode() if run == 3 else b"")
    assert planted.prove() == proof.Proof(True, boundary=3, memories=1)


def test_a_memory_that_is_withheld_is_no_fault() -> None:
    planted = Planted(lambda text, run: text.encode() if run > 8 else b"")
    assert planted.prove() == proof.Proof(True, boundary=1, memories=3)
    assert planted.texts == {}


def test_what_came_to_mind_of_something_else_is_no_proof() -> None:
    planted = Planted(lambda text, run: b"the tea is in the blue tin")
    told = planted.prove()
    assert (told.arrived, told.memories, planted.texts) == (False, proof.MEMORIES, {})
    assert "recallctl why" in told.remedy


@pytest.mark.parametrize("error", [KeyboardInterrupt(), NoDelivery("it is gone"), Breach("no JSON")])
def test_whatever_happens_what_was_planted_goes(error: BaseException) -> None:
    def fail(text: str, run: int) -> bytes:
        raise error

    planted = Planted(fail)
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            planted.prove()
    else:
        assert str(error) == planted.prove().why
    assert (planted.planted, planted.texts) == (1, {})
