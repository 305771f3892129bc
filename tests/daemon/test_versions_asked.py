"""Versions over the wire: what is listed, and with which code a refusal is answered."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from recalld_daemon.memory import Memory
from recalld_daemon.memory_topic import topic_of
from recalld_daemon.questions import Answers
from recalld_daemon.versions import flat, sweep_indexes
from recalld_protocol import messages as wire
from version_house import VersionHouse, made_home, make_version, open_versions


async def asked(memory: Memory, question: wire.FromAgent) -> Any:
    nobody: Any = None
    replies: list[wire.FromDaemon] = []
    answers = Answers(nobody, memory.reader, nobody, nobody, nobody, {}, nobody, memory=memory)
    await answers.answer(question, replies.append)
    (reply,) = replies
    return reply


def run(directory: Path, test: Any) -> None:
    async def main() -> None:
        async with open_versions(directory) as house:
            await test(house)

    trio.run(main)


@pytest.fixture(autouse=True)
def no_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.freeze", lambda: None)  # it would outlast the test


def test_versions_are_listed_with_the_live_one_marked(tmp_path: Path) -> None:
    async def test(house: VersionHouse) -> None:
        memory = house.memory
        make = partial(make_version, memory.writer, memory.reader, house.encoder)
        begin = partial(memory.writer.begin_version, house.encoder, at=1.0, vectors=0, why="not yet")
        own, building = await house.turn(partial(make, 1)), await house.turn(begin)
        sharing = await house.turn(partial(make, 2, vectors=own))
        assert await asked(memory, wire.Activate(version=sharing)) == wire.Activated(
            version=sharing, ms=pytest.approx(0, abs=1e6)
        )
        frozen, first, second = (await asked(memory, wire.VersionsAsk())).versions
        assert building not in (first.version, second.version)
        assert [row.live for row in (frozen, first, second)] == [False, False, True]
        assert (frozen.version, frozen.why, frozen.w2, frozen.bytes) == (0, "plain search", 0.0, 0)
        assert (first.vectors, second.vectors, second.why, second.metrics) == (own, own, "made", {"mrr": 0.5})
        assert (second.drift, second.created_at) == (0.1, 102.0)
        assert min(first.w2, first.b2) > 0
        assert first.bytes > second.bytes > 0
        topic = topic_of(memory)
        assert (topic["version"], topic["snapshot"], topic["preparing"]) == (sharing, own, 0)

    run(tmp_path, test)


def test_refusals_have_a_code_and_a_reason(tmp_path: Path) -> None:
    async def test(house: VersionHouse) -> None:
        writer = house.memory.writer
        version = await house.turn(partial(make_version, writer, house.memory.reader, house.encoder, 1))
        await house.turn(partial(writer.put_artefact, house.encoder, version, "key", "made", b"no adapter"))
        missing = await asked(house.memory, wire.Activate(version=9))
        assert (missing.code, missing.of) == ("not_found", "activate")
        unreadable = await asked(house.memory, wire.Activate(version=version))
        assert (unreadable.code, unreadable.text) == ("failed", "version 1: its key adapter can't be read")

    run(tmp_path, test)


def test_before_the_encoder_is_loaded_one_is_told_to_ask_again(tmp_path: Path) -> None:
    memory = Memory.open(made_home(tmp_path))
    refused = trio.run(asked, memory, wire.Activate(version=1))
    assert (refused.code, refused.text) == ("busy", "the encoder is not loaded yet: ask again in a moment")
    assert trio.run(asked, memory, wire.VersionsAsk()) == wire.Versions()
    memory.close()


def test_an_index_directory_that_is_not_there_yet_has_nothing_to_sweep(tmp_path: Path) -> None:
    memory = Memory.open(made_home(tmp_path))
    assert sweep_indexes(tmp_path / "none", memory.reader) == []
    (tmp_path / "encoder-7-v3").mkdir()
    (tmp_path / "encoder-8").write_text("a file, not ours")
    (tmp_path / "encoder-9").symlink_to(tmp_path / "home")
    assert sweep_indexes(tmp_path, memory.reader) == ["encoder-7-v3"]
    assert (tmp_path / "encoder-9").is_symlink()
    memory.close()


@pytest.mark.parametrize("metrics", ["", "[1]", "3", "{", '{"a": []}'])
def test_metrics_of_another_kind_are_left_out(metrics: str) -> None:
    assert list(flat(metrics)) == []


def test_of_too_many_metrics_the_first_are_shown() -> None:
    found = dict(flat("{" + ", ".join(f'"m{n}": {n}' for n in range(300)) + "}"))
    assert list(found.items())[:2] == [("m0", 0), ("m1", 1)]
    assert len(found) == 64
