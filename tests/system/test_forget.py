"""P018: a real daemon forgets. Not found at once, gone from disk when it says so, also if it is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recalld_client import Session
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
    Why,
    WhyAsk,
)
from running import call_through, running, settle

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
    assert forgotten == Forgotten(session="", re=forgotten.re, path=memory, passages=1) if forgotten else False
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
