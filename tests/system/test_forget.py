"""P018: a real daemon forgets. Not found at once, gone from disk when it says so, also if it is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recalld_client import Session
from recalld_client.link import Subscription
from recalld_daemon.demo.private import PrivateDaemon, wait_until_indexed
from recalld_daemon.store.reader import open_reader
from recalld_protocol.messages import (
    Follow,
    Following,
    Forget,
    Forgotten,
    FromDaemon,
    Hits,
    Problem,
    Remember,
    Remembered,
    Search,
    StatusAsk,
    Why,
    WhyAsk,
)
from running import call_through, running, settle, wait_event

SECRET = "quexalorn"  # a word that stands nowhere else
TEXT = f"The berth_booking {SECRET} ledger of Mara Vintgaard moved to the harbour office in April"
ASK = "where is the berth_booking ledger of the harbour office?"
OTHER = "The harbour office opens at seven, the keys hang behind the pump"
WAIT = 60.0


@pytest.fixture
def daemon(tmp_path: Path, model_cache: Path) -> Iterator[PrivateDaemon]:
    with running(tmp_path / "home", model_cache) as private:
        yield private


def ask(daemon: PrivateDaemon, question: Remember | Forget | Follow | Search | WhyAsk) -> FromDaemon | None:
    return daemon.link.request(question, WAIT)


def remember(daemon: PrivateDaemon, text: str, key: str = "") -> str:
    kept = ask(daemon, Remember(text=text, scope="global", key=key))
    assert isinstance(kept, Remembered)
    return kept.memory


def embedded(daemon: PrivateDaemon) -> None:
    wait_until_indexed(daemon, lambda line: None, poll_seconds=0.02)


def found(daemon: PrivateDaemon, query: str = ASK) -> list[str]:
    hits = ask(daemon, Search(query=query, all_scopes=True))
    assert isinstance(hits, Hits)
    return [hit.path for hit in hits.hits]


def holding(home: Path, *words: str) -> dict[str, list[str]]:
    """Which files of the home hold one of the words, as bytes, in any of their places: free pages and logs too."""
    wanted = [word.lower().encode() for word in words]
    files = [path for path in (home / "data").rglob("*") if path.is_file()]
    assert any(path.name == "recalld.db" for path in files)
    held = {str(path.relative_to(home)): path.read_bytes().lower() for path in files}
    return {name: hits for name, data in held.items() if (hits := [w.decode() for w in wanted if w in data])}


def test_p018_a_memory_that_was_found_and_shown_is_gone_from_disk(daemon: PrivateDaemon) -> None:
    remember(daemon, OTHER)
    memory = remember(daemon, TEXT)
    embedded(daemon)
    assert memory in found(daemon)
    with Session("shown", endpoints=daemon.endpoints) as session:
        assert session.connect(10.0)
        shown, settled = call_through(session, "Bash", "open the berth_booking ledger of the harbour office")
        session.turn(f"I mean this: The berth_booking {SECRET} ledger of Mara Vintgaard; what of the pump?")
        quoting = settle(session, turn=1).recall
    assert memory in [injection.path for injection in shown]
    assert holding(daemon.home, SECRET, "vintgaard")

    forgotten = ask(daemon, Forget(path=memory))
    assert isinstance(forgotten, Forgotten)
    assert (forgotten.path, forgotten.passages) == (memory, 1)
    assert holding(daemon.home, SECRET, "vintgaard") == {}
    assert memory not in found(daemon)
    for recall in (settled.recall, quoting):
        why = ask(daemon, WhyAsk(target=recall))
        assert isinstance(why, Why)
        assert memory not in [candidate.path for candidate in why.candidates]
        assert "memory:1" in [candidate.path for candidate in why.candidates]
    assert why.query.endswith("what of the pump?")
    gone = ask(daemon, Forget(path=memory))
    assert isinstance(gone, Problem)
    assert (gone.code, gone.of) == ("not_found", "forget")


def test_two_memories_with_the_same_text_are_forgotten_one_by_one(daemon: PrivateDaemon) -> None:
    one, other = remember(daemon, TEXT, "k1"), remember(daemon, TEXT, "k2")
    embedded(daemon)
    assert isinstance(ask(daemon, Forget(path=one)), Forgotten)
    assert found(daemon) == [other]
    assert holding(daemon.home, SECRET)
    assert isinstance(ask(daemon, Forget(path=other)), Forgotten)
    assert found(daemon) == []
    assert holding(daemon.home, SECRET) == {}


def test_what_was_offered_and_not_yet_shown_is_withdrawn(daemon: PrivateDaemon) -> None:
    memory = remember(daemon, TEXT)
    embedded(daemon)
    ledger = "open the berth_booking ledger of the harbour office"
    with (
        Session("push", endpoints=daemon.endpoints) as push,
        Session("pull", endpoints=daemon.endpoints, delivery="pull") as pull,
    ):
        assert push.connect(10.0) and pull.connect(10.0)  # noqa: PT018
        settle(push, call=push.tool_started("Bash", ledger).id)
        with Subscription(daemon.endpoints, ["recall.settled"]) as events:
            pull.tool_started("Bash", ledger)
            assert wait_event(events.receive, "recall.settled").data["outcome"] == "ready"
        assert isinstance(ask(daemon, Forget(path=memory)), Forgotten)
        assert pull.outbox(wait_seconds=10.0) == []
        assert push.search("anything", wait_seconds=10.0) == []  # its answer comes after what withdraws the snippet
        assert push.boundary() == []
    assert holding(daemon.home, SECRET) == {}


def test_what_another_root_reads_too_is_not_said_to_be_gone(daemon: PrivateDaemon, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    note = outer / "a.md"
    note.write_text(f"# a\n\n{TEXT}\n")
    for path in (note, outer):
        assert isinstance(ask(daemon, Follow(path=str(path))), Following)
    embedded(daemon)
    for _ in range(2):
        refused = ask(daemon, Forget(path=str(note)))
        assert isinstance(refused, Problem)
        assert f"{note} is watched (below {outer}, which was imported)" in refused.text
        assert found(daemon)
    assert isinstance(ask(daemon, Forget(path=str(outer))), Forgotten)
    assert not found(daemon)


def test_an_imported_directory_is_followed_no_more_and_forgotten(daemon: PrivateDaemon, tmp_path: Path) -> None:
    imported = tmp_path / "imported"
    (imported / "deep").mkdir(parents=True)
    for name in ("a.md", "b.md", "deep/c.md"):
        (imported / name).write_text(f"# {name}\n\n{TEXT} ({name})\n")
    kept = remember(daemon, OTHER)
    assert isinstance(ask(daemon, Follow(path=str(imported))), Following)
    embedded(daemon)
    while len(found(daemon)) < 4:
        daemon.link.request(StatusAsk(), 0.2)
    refused = ask(daemon, Forget(path=str(imported / "a.md")))
    assert isinstance(refused, Problem)
    assert (refused.code, "is watched" in refused.text) == ("failed", True)
    forgotten = ask(daemon, Forget(path=str(imported)))
    assert isinstance(forgotten, Forgotten)
    assert forgotten.passages == 3
    assert found(daemon) == [kept]
    (imported / "a.md").write_text(f"# a\n\n{TEXT} once more\n")
    assert holding(daemon.home, SECRET) == {}
    again = ask(daemon, Forget(path=str(imported)))
    assert isinstance(again, Problem)
    assert again.code == "not_found"


def test_what_the_log_has_of_a_watched_file_goes_when_the_file_is_gone(tmp_path: Path, model_cache: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "ledger.md").write_text(f"# Ledger\n\n{TEXT}\n")
    with running(tmp_path / "home", model_cache, [notes]) as daemon:
        with Session("shown", endpoints=daemon.endpoints) as session:
            assert session.connect(10.0)
            shown, _ = call_through(session, "Bash", "open the berth_booking ledger of the harbour office")
        assert [injection.path for injection in shown] == ["notes/ledger.md"]
        for path in ("notes/ledger.md", str(notes / "ledger.md"), str(notes)):
            refused = ask(daemon, Forget(path=path))
            assert isinstance(refused, Problem)
            assert (refused.code, "delete it" in refused.text) == ("failed", True)
        with Subscription(daemon.endpoints, ["ingest.removed"]) as events:
            (notes / "ledger.md").unlink()
            wait_event(events.receive, "ingest.removed")
        assert holding(daemon.home, SECRET)
        assert isinstance(ask(daemon, Forget(path="notes/ledger.md")), Forgotten)
        assert holding(daemon.home, SECRET) == {}


def test_recalls_go_on_while_it_forgets(daemon: PrivateDaemon) -> None:
    memories = [remember(daemon, f"{TEXT}, part {n}", f"k{n}") for n in range(8)]
    remember(daemon, OTHER)
    embedded(daemon)
    asked: list[tuple[list[str], bool]] = []
    done = threading.Event()

    def recall() -> None:
        with Session("busy", endpoints=daemon.endpoints) as session:
            assert session.connect(10.0)
            while not done.is_set():
                shown, settled = call_through(session, "Bash", f"open the ledger of the harbour office {len(asked)}")
                asked.append(([injection.text for injection in shown], settled.outcome == "failed"))

    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(recall)
        while not asked:
            daemon.link.request(StatusAsk(), 0.2)
        before = len(asked)
        assert all(isinstance(ask(daemon, Forget(path=memory)), Forgotten) for memory in memories)
        while len(asked) <= before:
            daemon.link.request(StatusAsk(), 0.2)
        done.set()
        busy.result()
    assert not any(failed for _, failed in asked)
    assert holding(daemon.home, SECRET) == {}


@pytest.mark.parametrize("after_seconds", [0.001, 0.05, 0.3], ids=["at once", "soon", "later"])
def test_p018_killed_while_it_forgets_it_ends_it_when_it_is_asked_again(
    tmp_path: Path, model_cache: Path, after_seconds: float
) -> None:
    imported = tmp_path / "imported"
    imported.mkdir()
    for n in range(60):
        (imported / f"{n}.md").write_text("\n\n".join(f"## {k}\n\n{TEXT} {n} {k}" for k in range(10)))
    home = tmp_path / "home"
    with running(home, model_cache, indexed=False) as daemon:
        memory = remember(daemon, f"{TEXT}, kept by hand")
        assert isinstance(ask(daemon, Follow(path=str(imported))), Following)
        embedded(daemon)
        daemon.link.request(Forget(path=memory), after_seconds)  # its answer is not waited for
        daemon.link.request(Forget(path=str(imported)), after_seconds)
        os.kill(daemon.process.pid, signal.SIGKILL)
        daemon.process.wait()
    with running(home, model_cache) as daemon:
        for path in (memory, str(imported)):
            answer = ask(daemon, Forget(path=path))
            assert isinstance(answer, Forgotten) or (isinstance(answer, Problem) and answer.code == "not_found")
        assert found(daemon) == []
        assert holding(home, SECRET) == {}
        with open_reader(home / "data" / "recalld.db") as reader:
            assert reader.counts()["passages"] == 0


def test_recallctl_forgets(daemon: PrivateDaemon) -> None:
    memory = remember(daemon, TEXT)
    runtime = str(Path(daemon.endpoints.hooks).parent)
    ctl = [sys.executable, "-m", "recalld_client.cli", "--runtime-dir", runtime, "forget", memory]
    first = subprocess.run([*ctl, "--json"], capture_output=True, text=True, timeout=WAIT, stdin=subprocess.DEVNULL)
    again = subprocess.run(ctl, capture_output=True, text=True, timeout=WAIT, stdin=subprocess.DEVNULL)
    assert (first.returncode, first.stderr) == (0, "")
    assert json.loads(first.stdout) == {"kind": "forgotten", "path": memory, "passages": 1}
    assert (again.returncode, again.stdout) == (4, "")
    assert "nothing is known of" in again.stderr
    assert holding(daemon.home, SECRET) == {}


def test_it_forgets_before_the_model_is_loaded(tmp_path: Path, model_cache: Path) -> None:
    home = tmp_path / "home"
    with running(home, model_cache) as daemon:
        kept, memory = remember(daemon, OTHER), remember(daemon, TEXT)
        embedded(daemon)
        assert set(found(daemon)) == {kept, memory}
    assert holding(home, SECRET)
    with running(home, model_cache, indexed=False) as daemon:
        assert isinstance(ask(daemon, Forget(path=memory)), Forgotten)
        assert holding(home, SECRET) == {}
        embedded(daemon)
        assert found(daemon) == [kept]
