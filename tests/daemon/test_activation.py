"""A version goes live while recalls go on: each answer comes wholly from one space, and what fails changes nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from recalld_daemon import activation as activation_module
from recalld_daemon.index import open_index
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import View
from recalld_daemon.store import StoreBusy, open_reader, open_writer
from recalld_daemon.versions import NoSuchVersion, VersionRefused, set_live_unattended
from version_house import ASKED, Found, VersionHouse, far_adapter, make_version, open_versions

KILLED = """
import os, signal, sys, trio
from pathlib import Path
sys.path[:0] = {paths!r}
import version_house
from recalld_daemon import activation as stages

def killed(*_args, **_more):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with version_house.open_versions(Path({directory!r})) as house:
        {patch}
        await house.memory.activate(1)

trio.run(main)
"""
STAGES = {  # where the process dies
    "projecting": "type(house.memory.ingest.keeping).project = killed",
    "index built": "stages.finds_nearest = killed",
    "commit": "stages.holds_all = killed",
    "before it is live": "type(house.memory.writer).set_live = killed",
}
AFTER = "type(house.memory)._go_live = killed"


@pytest.fixture(autouse=True)
def no_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.freeze", lambda: None)  # it would outlast the test


def run(directory: Path, test: Callable[[VersionHouse], Awaitable[None]], keep: int = 3) -> None:
    async def main() -> None:
        async with open_versions(directory, keep) as house:
            await test(house)

    trio.run(main)


async def made(house: VersionHouse, seed: int = 7, **more: Any) -> int:
    memory = house.memory
    return await house.turn(partial(make_version, memory.writer, memory.reader, house.encoder, seed, **more))


# ---------------------------------------------------------------- two spaces are never ranked together


def test_each_answer_comes_wholly_from_one_space_while_a_version_goes_live(tmp_path: Path) -> None:
    async def test(house: VersionHouse) -> None:
        version, plain = await made(house), await house.ask()
        assert dict(house.memory.extracts.facts._vectors), "the notes state nothing: facts would not be tested"
        found: list[Found] = []
        going = True

        async def recalls() -> None:
            while going:
                found.append(await house.ask())

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(recalls)
            for target in (version, 0, version):
                await house.memory.activate(target)
            seen = len(found)
            with trio.fail_after(30):
                while len(found) < seen + 16:
                    await trio.sleep(0.01)
            going = False
        learned = await house.ask()
        assert learned != plain
        assert set(found) == {plain, learned}
        check_space(house, plain, 0, None)
        check_space(house, learned, version, far_adapter(1_007))

    run(tmp_path, test)


def check_space(house: VersionHouse, found: Found, version: int, f_q: Adapter | None) -> None:
    """Cosines of passages and of facts are those of the adapted query with this snapshot's vectors in the store."""
    reader, query = house.memory.reader, house.live.made.encode_query(ASKED.text)[0]
    query = query if f_q is None else f_q.apply(query)
    ids, vectors = reader.plain_vectors([passage for passage, _, _ in found], house.encoder, version)
    cosines = dict(zip(ids.tolist(), (vectors @ query).tolist(), strict=True))
    lanes = {passage: {lane: score for lane, (_, score) in own} for passage, _, own in found}
    dense = {passage: own["dense"] for passage, own in lanes.items() if "dense" in own}
    assert dense
    assert dense == pytest.approx({passage: cosines[passage] for passage in dense}, abs=1e-4)
    (facts,) = reader.walk_fact_vectors(house.encoder, version, 1_000)
    every = (facts.vectors @ query).tolist()
    stated = [own["facts"] for own in lanes.values() if "facts" in own]
    assert stated
    assert all(min(abs(score - one) for one in every) < 1e-4 for score in stated)


@pytest.mark.parametrize("vectors", [None, 0])
def test_a_recall_that_is_under_way_ends_with_what_it_began_with(tmp_path: Path, vectors: int | None) -> None:
    """Its query is encoded before, and adapted after the version went live: by the adapter of before."""

    async def test(house: VersionHouse) -> None:
        version, plain = await made(house, vectors=vectors), await house.ask()
        house.live.held = trio.Event()
        found: list[Found] = []

        async def recall() -> None:
            found.append(await house.ask())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(recall)
            with trio.fail_after(30):
                while not house.live.waiting:
                    await trio.sleep(0.01)
            await house.memory.activate(version)
            house.live.held.set()
        house.live.held = None
        assert found == [plain]
        assert await house.ask() != plain

    run(tmp_path, test)


def test_facts_are_searched_in_the_space_of_the_passages(tmp_path: Path) -> None:
    async def test(house: VersionHouse) -> None:
        version = await made(house)
        await house.memory.activate(version)
        reader = house.memory.reader
        facts = next(reader.walk_fact_vectors(house.encoder, version, 1))
        frozen = next(reader.walk_fact_vectors(house.encoder, 0, 1))
        projected = far_adapter(7).apply(frozen.vectors)[0]
        table = house.memory.extracts.facts
        assert table.by_vector(projected, View(scopes=None), 1).scores[0] == pytest.approx(1.0, abs=2e-3)
        assert np.allclose(facts.vectors[0], projected, atol=2e-3)
        assert table.by_vector(frozen.vectors[0], View(scopes=None), 1).scores[0] < 0.99

    run(tmp_path, test)


# ---------------------------------------------------------------- ingest goes on


def test_what_is_added_while_a_version_is_prepared_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(house: VersionHouse) -> None:
        version = await made(house, leave_out=2)

        def opening(*arguments: Any) -> Any:
            index = open_index(*arguments)
            trio.from_thread.run(house.write, "late.md", "The lighthouse keeper sings at noon.\n")
            trio.from_thread.run(gone, house, "cooking.md")
            return index

        monkeypatch.setattr(activation_module, "open_index", opening)
        await house.memory.activate(version)
        await check_whole(house, version)
        await house.write("later.md", "The lighthouse lamp is lit at dusk.\n")
        await check_whole(house, version)
        (late,) = house.memory.reader.passage_ids(str(house.notes / "late.md"))
        assert house.memory.index is not None
        assert late in house.memory.index.scope_of

    run(tmp_path, test)


async def gone(house: VersionHouse, name: str) -> None:
    (house.notes / name).unlink()
    with trio.fail_after(30):
        while house.memory.reader.passage_ids(str(house.notes / name)):
            await trio.sleep(0.01)


async def check_whole(house: VersionHouse, version: int) -> None:
    """Index and store agree on this version, every passage has its vectors, and each is f_K of the frozen one."""
    memory, reader = house.memory, house.memory.reader
    assert memory.index is not None
    assert memory.index.snapshot == version
    wanted = reader.encoded(house.encoder, version)
    assert set(memory.index.scope_of) == set(wanted.ids.tolist())
    assert len(wanted.ids) == reader.counts()["passages"]
    assert reader.count_unprojected(house.encoder, version) == 0
    ids, frozen = reader.plain_vectors(wanted.ids.tolist(), house.encoder, 0)
    again, projected = reader.plain_vectors(wanted.ids.tolist(), house.encoder, version)
    assert np.array_equal(np.sort(ids), np.sort(again))
    expected = far_adapter(7).apply(frozen)[np.argsort(ids)]
    assert np.allclose(projected[np.argsort(again)], expected, atol=2e-3)


# ---------------------------------------------------------------- going back


def test_rolled_back_to_plain_search_every_bit_is_as_before(tmp_path: Path) -> None:
    async def test(house: VersionHouse) -> None:
        await house.memory.save()
        plain, bits = await house.ask(), await house.ask(digits=17)
        one = await made(house, 7)
        await house.memory.activate(one)
        learned = await house.ask()
        two = await made(house, 8, vectors=one)
        index = house.memory.index
        await house.memory.activate(two)
        assert house.memory.index is index, "versions that share vectors share the index"
        assert await house.ask() not in (plain, learned)
        await house.memory.activate(one)
        assert await house.ask() == learned
        await house.memory.activate(0)
        assert await house.ask(digits=17) == bits
        moves = [(data["from"], data["version"]) for what, data in house.published if what == "version.activated"]
        assert moves == [(0, one), (one, two), (two, one), (one, 0)]

    run(tmp_path, test)


def test_after_a_restart_the_live_version_is_searched(tmp_path: Path) -> None:
    found: list[Found] = []

    async def first(house: VersionHouse) -> None:
        await house.memory.activate(await made(house))
        found.append(await house.ask())

    async def second(house: VersionHouse) -> None:
        assert house.memory.learned.version == 1
        found.append(await house.ask())
        await house.write("late.md", "The lighthouse keeper sings at noon.\n")
        await check_whole(house, 1)

    run(tmp_path, first)
    run(tmp_path, second)
    assert found[0] == found[1]


def test_what_was_set_live_without_a_daemon_is_completed_at_its_start(tmp_path: Path) -> None:
    async def nothing(house: VersionHouse) -> None:
        pass

    async def completed(house: VersionHouse) -> None:
        assert house.memory.learned.version == 1
        await check_whole(house, 1)

    run(tmp_path, nothing)
    database = tmp_path / "home" / "data" / "recalld.db"
    with open_writer(database) as writer, open_reader(database) as reader:
        encoder = reader.encoder_named("made 1") or 0
        version = make_version(writer, reader, encoder, 7, leave_out=3)
        with pytest.raises(NoSuchVersion, match="no version 9"):
            set_live_unattended(writer, reader, encoder, 9)
        set_live_unattended(writer, reader, encoder, version)
    run(tmp_path, completed)


def test_a_live_version_that_cannot_be_read_gives_way_to_the_last_good_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def first(house: VersionHouse) -> None:
        one = await made(house)
        bad = await made(house, 8, vectors=one)
        await house.memory.activate(bad)
        await house.turn(partial(house.memory.writer.put_artefact, house.encoder, bad, "query", "made", b"no adapter"))

    async def second(house: VersionHouse) -> None:
        assert house.memory.learned.version == 1
        assert house.memory.reader.live_snapshot() == (house.encoder, 1)
        assert "its query adapter can't be read: an older version stands in for it" in caplog.text
        await house.turn(partial(house.memory.writer.put_artefact, house.encoder, 1, "key", "made", b"no adapter"))

    async def third(house: VersionHouse) -> None:
        assert house.memory.learned.version == 0

    for test in (first, second, third):
        run(tmp_path, test)


# ---------------------------------------------------------------- what fails changes nothing


async def refused(house: VersionHouse, version: int, error: type[Exception], match: str) -> None:
    before, index, found = house.memory.reader.live_snapshot(), house.memory.index, await house.ask()
    with pytest.raises(error, match=match):
        await house.memory.activate(version)
    assert house.memory.reader.live_snapshot() == before
    assert house.memory.index is index
    assert await house.ask() == found
    assert house.memory.ingest is not None
    assert house.memory.ingest.keeping._prepared is None
    assert house.memory.extracts._beside is None
    assert len(house.memory.extracts.facts._known.tables) == 1
    await house.write(f"after-{version}.md", f"Passage number {version} still comes in.\n")
    assert index is not None
    assert len(index.scope_of) == house.memory.reader.counts()["passages"]


def test_versions_that_cannot_be_searched_are_refused_with_the_reason(tmp_path: Path) -> None:
    async def test(house: VersionHouse) -> None:
        writer, encoder = house.memory.writer, house.encoder
        await refused(house, 5, NoSuchVersion, "no version 5: `recallctl versions` lists")
        building = await house.turn(partial(writer.begin_version, encoder, at=1.0, vectors=0, why="made"))
        await refused(house, building, VersionRefused, "is not finished")
        unreadable = await made(house)
        await house.turn(partial(writer.put_artefact, encoder, unreadable, "key", "made", b"no adapter"))
        await refused(house, unreadable, VersionRefused, "its key adapter can't be read")
        keyless = await house.turn(partial(writer.begin_version, encoder, at=1.0, vectors=None, why="made"))
        await house.turn(partial(writer.finish_version, encoder, keyless, metrics="{}", drift=0.0))
        await refused(house, keyless, VersionRefused, f"has no key, but searches the vectors of version {keyless}")

    run(tmp_path, test)


def test_an_index_that_finds_other_passages_than_an_exact_search_is_refused(tmp_path: Path) -> None:
    async def test(house: VersionHouse) -> None:
        text = "\n\n".join(f"## {n}\n\nThe matter number {n} of {n * 7} is about {n % 5} things." for n in range(60))
        await house.write("many.md", text)
        version = await made(house)
        directory = house.memory.home.index / f"encoder-{house.encoder}-v{version}"
        index = open_index(directory, house.memory.reader, house.encoder, version)
        index.save()
        index.close()
        other = far_adapter(99)
        for hashes, frozen in house.memory.reader.walk_vectors(house.encoder, 0):
            moved = other.apply(frozen).astype(np.float16)
            await house.turn(partial(house.memory.writer.put_projected, house.encoder, version, hashes, moved))
        await refused(house, version, VersionRefused, "of the nearest 10 passages its index finds 0")

    run(tmp_path, test)


def test_an_index_that_holds_less_than_the_store_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(house: VersionHouse) -> None:
        def opening(*arguments: Any) -> Any:
            index = open_index(*arguments)
            index.remove(house.memory.reader.passage_ids(str(house.notes / "cooking.md"))[:1])
            return index

        with monkeypatch.context() as patch:
            patch.setattr(activation_module, "open_index", opening)
            await refused(house, await made(house), VersionRefused, "its index holds .* passages where the store has")

    run(tmp_path, test)


@pytest.mark.parametrize("vectors", [None, 0])
def test_a_store_that_cannot_be_written_leaves_the_old_version_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: int | None
) -> None:
    async def test(house: VersionHouse) -> None:
        def busy(*_: object) -> None:
            raise StoreBusy("another process writes")

        version = await made(house, vectors=vectors)
        with monkeypatch.context() as patch:
            patch.setattr("recalld_daemon.store.writer.Writer.set_live", busy)
            await refused(house, version, StoreBusy, "another process")
        await house.memory.activate(version)

    run(tmp_path, test)


def test_an_activation_that_is_cancelled_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(house: VersionHouse) -> None:
        version, plain = await made(house), await house.ask()
        with trio.CancelScope() as scope, monkeypatch.context() as patch:

            def opening(*arguments: Any) -> Any:
                trio.from_thread.run_sync(scope.cancel)
                return open_index(*arguments)

            patch.setattr(activation_module, "open_index", opening)
            await house.memory.activate(version)
        assert scope.cancelled_caught
        assert house.memory.learned.version == 0
        assert await house.ask() == plain
        await house.memory.activate(version)
        assert await house.ask() != plain

    run(tmp_path, test)


# ---------------------------------------------------------------- kill -9


def killed_at(directory: Path, patch: str) -> None:
    root = Path(__file__).parents[2]
    script = KILLED.format(paths=[str(root / "tests" / "support"), str(root)], directory=str(directory), patch=patch)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


@pytest.fixture(scope="module")
def with_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("versions")

    async def test(house: VersionHouse) -> None:
        assert await made(house, leave_out=2) == 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gc.freeze", lambda: None)
        run(directory, test)
    return directory


@pytest.mark.parametrize("stage", STAGES)
def test_killed_in_the_middle_of_an_activation_the_old_version_is_live(with_version: Path, stage: str) -> None:
    async def test(house: VersionHouse) -> None:
        assert house.memory.learned.version == 0
        plain = await house.ask()
        await house.memory.activate(1)
        await check_whole(house, 1)
        await house.memory.activate(0)
        assert await house.ask() == plain

    killed_at(with_version, STAGES[stage])
    run(with_version, test)


def test_killed_after_the_commit_the_new_version_is_live(tmp_path: Path) -> None:
    async def first(house: VersionHouse) -> None:
        await made(house)

    async def second(house: VersionHouse) -> None:
        assert house.memory.learned.version == 1
        await check_whole(house, 1)

    run(tmp_path, first)
    killed_at(tmp_path, AFTER)
    run(tmp_path, second)


# ---------------------------------------------------------------- tidied up


def test_old_versions_go_with_their_indexes_and_nothing_else_does(tmp_path: Path) -> None:
    async def test(house: VersionHouse) -> None:
        root, name = house.memory.home.index, f"encoder-{house.encoder}"
        for other in ("notes", f"{name}-v2x", "encoder-x"):
            (root / other).mkdir()
        first = await made(house, 1)
        await house.memory.activate(first)
        sharing = await made(house, 2, vectors=first)
        third = await made(house, 3)
        for version in (sharing, third):
            await house.memory.activate(version)
        fourth = await made(house, 4)
        await house.memory.activate(fourth)
        with trio.fail_after(30):
            while (root / f"{name}-v{first}").exists() and not _settled(house):
                await trio.sleep(0.01)
        async with house.memory._one_at_a_time:
            pass
        known = [record.version for record in house.memory.reader.versions(house.encoder)]
        assert known == [0, third, fourth]
        kept = {name, f"{name}-v{third}", f"{name}-v{fourth}", "catalogue", "notes", f"{name}-v2x", "encoder-x"}
        assert {entry.name for entry in root.iterdir() if entry.is_dir()} == kept

    run(tmp_path, test, keep=2)


def _settled(house: VersionHouse) -> bool:
    return not house.memory._untidy.is_set()
