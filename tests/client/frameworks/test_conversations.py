"""Sessions by conversation: bounded, closed when idle, safe under threads and forks; and who imports what."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from recalld_client.frameworks.conversations import IDLE_SECONDS, Conversations
from recalld_protocol.endpoints import Endpoints
from recalld_protocol.messages import Bye, Hello, ToolEnded, ToolStarted, Turn
from scripted_recalls import Recalls, line_of, remembering

FRAMEWORKS = (
    "langchain",
    "langchain_core",
    "langgraph",
    "agents",
    "claude_agent_sdk",
    "pydantic_ai",
    "mcp",
    "pydantic",
)


@pytest.fixture
def script() -> Recalls:
    return Recalls({"deploy": ["of-turn"]})


@pytest.fixture
def where(script: Recalls) -> Iterator[Endpoints]:
    with remembering(script) as endpoints:
        yield endpoints


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def conversations(where: Endpoints, most: int = 128, clock: Clock | None = None) -> Conversations:
    return Conversations("tests", {"endpoints": where}, wait_seconds=10.0, most=most, clock=clock or Clock())


def test_one_key_is_one_session_and_its_id_is_never_used_again(where: Endpoints, script: Recalls) -> None:
    several = conversations(where)
    first = several.of("t1")
    assert several.of("t1") is first
    assert several.of("t2").session.id != first.session.id
    several.forget("t1")
    assert several.of("t1").session.id != first.session.id
    several.close()
    assert len(several) == 0
    assert len({one.session for one in script.all_of(Bye, 3)}) == 3


def test_beyond_the_bound_the_least_recently_used_is_closed(where: Endpoints) -> None:
    several = conversations(where, most=2)
    one, two = several.of("1"), several.of("2")
    several.of("1")
    several.of("3")
    assert len(several) == 2
    assert several.of("1") is one
    assert two.session.problem == "closed"
    several.close()


def test_what_is_idle_is_closed_when_another_opens(where: Endpoints) -> None:
    clock = Clock()
    several = conversations(where, clock=clock)
    old = several.of("old")
    clock.now = IDLE_SECONDS - 1
    several.of("young")
    clock.now = IDLE_SECONDS
    several.of("new")
    assert old.session.problem == "closed"
    assert len(several) == 2
    several.close()


def test_a_second_run_of_a_conversation_has_a_session_of_its_own_to_its_end(where: Endpoints) -> None:
    several = conversations(where)
    assert several.claim("t", "run 1") == "t"
    assert several.claim("t", "run 1") == "t"
    assert several.claim("t", "run 2") == ("t", "run 2")
    several.release("t", "run 1")
    assert several.claim("t", "run 2") == ("t", "run 2"), "it does not move while it runs"
    assert several.claim("t", "run 3") == "t"
    several.release("t", "run 2")
    assert len(several) == 1
    several.release("t", "run 3")
    assert several.claim("t", "run 4") == "t"
    several.close()


def test_a_turn_and_a_call_are_told_once(where: Endpoints, script: Recalls) -> None:
    several = conversations(where)
    conversation = several.of("t")
    for mark in (1, 1, 2):
        conversation.turn(mark, "deploy")
    conversation.turn(3, "  ")
    conversation.ended("c1", "never begun")
    for _ in range(2):
        conversation.started("c1", "bash", "ls")
    conversation.ended("c1", "done")
    conversation.ended("c1", "done")
    several.close()
    script.all_of(Bye, 1)
    assert len(script.all_of(Turn)) == 2
    assert (len(script.all_of(ToolStarted)), len(script.all_of(ToolEnded))) == (1, 1)


def test_threads_open_one_session_for_one_key(where: Endpoints, script: Recalls) -> None:
    several = conversations(where)
    together = threading.Barrier(8)

    def open_it() -> None:
        together.wait()
        several.of("t")

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    several.close()
    assert len({one.session for one in script.all_of(Hello, 1)}) == 1


def test_a_forked_child_goes_on_though_a_thread_held_the_locks(where: Endpoints, script: Recalls) -> None:
    several = conversations(where)
    conversation = several.of("t")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with several._lock, conversation._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        try:
            forked = several.of("t")
            forked.plain.connect(10.0)
            forked.turn(1, "deploy")
            found = forked.boundary()
            shown = forked.woven(["asked"], str, found, "/".join)
            os._exit(0 if shown == ["asked", line_of("of-turn")] else 3)
        except BaseException:  # noqa: BLE001 - a child of the test run must not go on as one
            os._exit(4)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    several.close()
    assert os.waitstatus_to_exitcode(status) == 0
    assert script.all_of(Turn)[0].session != conversation.session.id


def test_what_is_dropped_is_closed(where: Endpoints, script: Recalls) -> None:
    several = conversations(where)
    session = several.of("t").session
    del several
    gc.collect()
    assert session.problem == "closed"
    assert script.all_of(Bye, 1)


def test_a_process_that_ends_says_goodbye(where: Endpoints, script: Recalls) -> None:
    program = """
from recalld_client.frameworks.conversations import Conversations
conversation = (several := Conversations("tests", {})).of("t")
assert conversation.plain.connect(10.0)
"""
    directory = os.path.dirname(where.request.removeprefix("ipc://"))
    environ = dict(os.environ, RECALLD_RUNTIME_DIR=directory)
    ended = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert script.all_of(Bye, 1)


def test_importing_the_client_imports_no_framework() -> None:
    """The whole package but the adapters and the MCP server, with every framework barred."""
    program = f"""
import pkgutil, sys
for name in {FRAMEWORKS!r}:
    sys.modules[name] = None  # an import of it fails
import recalld_client
adapters = ("langchain", "openai_agents", "claude_agent_sdk", "pydantic_ai")
own = {{f"recalld_client.frameworks.{{name}}" for name in adapters}} | {{"recalld_client.mcp_server"}}
names = [found.name for found in pkgutil.walk_packages(recalld_client.__path__, "recalld_client.")]
assert own <= set(names), names
for name in names:
    if name not in own and not name.endswith(("__main__", ".hook")):
        __import__(name)
for name in sorted(own):
    try:
        __import__(name)
    except ImportError as error:
        print(name)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert len(shown.stdout.split()) == 5, "each adapter needs its framework"
