"""What a user has imported is a root of the running ingest, and one again after a restart, until it is taken back."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from desk_house import NoPublisher
from ingest_fakes import House, InProcessBulk, open_house
from recalld_daemon.config import Config
from recalld_daemon.events import EventFeed
from recalld_daemon.followed_paths import FollowedPaths, Refused, roots_followed
from recalld_daemon.importing.copies import copy_file
from recalld_daemon.ingest.ports import Root
from recalld_daemon.store import open_reader, open_writer
from recalld_daemon.store.migrations import APPLICATION_ID, MIGRATIONS
from recalld_protocol.messages import Follow

Test = Callable[[House, FollowedPaths], Awaitable[None]]


def run(database: Path, test: Test, *roots: Root | Path, bulk: InProcessBulk | None = None) -> None:
    """As the daemon starts: the configured roots, and those that the store says are followed."""

    async def main() -> None:
        kept: list[Root] = []
        if database.exists():
            with open_reader(database) as reader:
                kept = roots_followed(reader.followed(), Config())
        async with open_house(database, *kept, *roots, bulk=bulk) as house:
            feed = EventFeed(NoPublisher())  # type: ignore[arg-type]
            followed = FollowedPaths(house.reader, house.writer, house.turns, Config(), feed, lambda: house.ingest)
            await test(house, followed)

    trio.run(main)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A directory that nobody configured."""
    root = tmp_path / "notes"
    root.mkdir()
    (root / "deploy.md").write_text("# Deploy\n\nThe heron must be asked before every rollback.\n")
    return root


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    """A directory that is configured."""
    root = tmp_path / "watched"
    root.mkdir()
    (root / "birds.md").write_text("# Birds\n\nThe avocet nests by the salt pans.\n")
    return root


def check_consistent(house: House) -> None:
    assert house.consistent()


def test_a_followed_directory_is_read_now_and_whenever_it_changes(tmp_path: Path, notes: Path, watched: Path) -> None:
    async def test(house: House, followed: FollowedPaths) -> None:
        answer = await followed.follow(Follow(path=str(notes)))
        assert (answer.path, answer.known) == (str(notes), False)
        assert not house.ingest.progress()["idle"]  # from this moment on: who waits for it waits for all of it
        await house.ingest.settled()
        assert house.paths_with("heron") == [str(notes / "deploy.md")]
        (notes / "more.md").write_text("# More\n\nThe bittern booms at dusk.\n")
        await house.until_found("bittern", notes / "more.md")
        assert (await followed.follow(Follow(path=str(notes)))).known
        await house.ingest.settled()
        check_consistent(house)

    run(tmp_path / "db", test, watched)


def test_a_restart_goes_on_with_it_and_reads_nothing_again(tmp_path: Path, notes: Path, watched: Path) -> None:
    async def first(house: House, followed: FollowedPaths) -> None:
        await followed.follow(Follow(path=str(notes)))
        await house.ingest.settled()

    async def second(house: House, followed: FollowedPaths) -> None:
        await house.ingest.settled()
        assert house.paths_with("heron") == [str(notes / "deploy.md")]
        (notes / "deploy.md").write_text("# Deploy\n\nNow the curlew is asked.\n")
        await house.until_found("curlew", notes / "deploy.md")

    run(tmp_path / "db", first, watched)
    bulk = InProcessBulk()
    run(tmp_path / "db", second, watched, bulk=bulk)
    assert [path for path, _ in bulk.parsed] == [str(notes / "deploy.md")]


def test_one_file_is_followed_without_its_neighbours(tmp_path: Path, notes: Path) -> None:
    (notes / "secret.md").write_text("# Secret\n\nThe dunlin was not meant.\n")

    async def test(house: House, followed: FollowedPaths) -> None:
        await followed.follow(Follow(path=str(notes / "deploy.md")))
        await house.ingest.settled()
        (notes / "new.md").write_text("# New\n\nNor was the egret.\n")
        (notes / "deploy.md.tmp").write_text("# Deploy\n\nThe fulmar came by an atomic save.\n")
        os.replace(notes / "deploy.md.tmp", notes / "deploy.md")
        await house.until_found("fulmar", notes / "deploy.md")
        assert house.paths_with("dunlin") == house.paths_with("egret") == []
        assert house.reader.sources()[0].shown_path == "deploy.md"

    run(tmp_path / "db", test)


def test_a_file_that_is_away_at_a_start_is_kept_and_waited_for(tmp_path: Path, notes: Path) -> None:
    file = notes / "deploy.md"

    async def first(house: House, followed: FollowedPaths) -> None:
        await followed.follow(Follow(path=str(file)))
        await house.ingest.settled()

    async def second(house: House, followed: FollowedPaths) -> None:
        (notes / "x.md").write_text("The gannet is not followed either.\n")
        file.write_text("# Deploy\n\nThe heron is back, with a knot.\n")
        await house.until_found("knot", file)

    run(tmp_path / "db", first)
    file.unlink()
    run(tmp_path / "db", second)


def test_unfollow_ends_it_and_leaves_what_was_read_to_the_caller(tmp_path: Path, notes: Path, watched: Path) -> None:
    async def test(house: House, followed: FollowedPaths) -> None:
        await followed.follow(Follow(path=str(notes)))
        await house.ingest.settled()
        assert await followed.unfollow(str(notes))
        assert house.paths_with("heron") == [str(notes / "deploy.md")]
        house.ingest.keeping.remove(str(notes))
        (notes / "late.md").write_text("# Late\n\nThe knot came too late.\n")
        (watched / "seen.md").write_text("# Seen\n\nThe osprey is seen.\n")
        await house.until_found("osprey", watched / "seen.md")
        await house.ingest.settled()
        assert house.paths_with("knot") == house.paths_with("heron") == []
        assert not await followed.unfollow(str(notes))  # a second time
        assert not await followed.unfollow(str(watched))  # as configured: not ours to end
        assert house.reader.followed() == []
        check_consistent(house)

    async def later(house: House, followed: FollowedPaths) -> None:
        await house.ingest.settled()
        assert house.paths_with("knot") == []

    run(tmp_path / "db", test, watched)
    run(tmp_path / "db", later, watched)


def test_a_copy_that_was_kept_goes_with_it_and_nothing_else_does(tmp_path: Path, notes: Path) -> None:
    copies = tmp_path / "imported"
    kept = copy_file(copies, str(notes / "deploy.md"), lambda done, total: None)
    (notes / "other").mkdir()
    (notes / "other" / "x.md").write_text("# X\n\nThe knot is elsewhere.\n")
    other = copy_file(copies, str(notes / "other" / "x.md"), lambda done, total: None)

    async def test(house: House, followed: FollowedPaths) -> None:
        followed.copies = copies
        await followed.follow(Follow(path=kept))
        await followed.follow(Follow(path=str(notes)))
        await house.ingest.settled()
        assert await followed.unfollow(kept)
        assert await followed.unfollow(str(notes))
        assert not await followed.unfollow(str(copies))
        assert not Path(kept).parent.exists()
        assert Path(other).exists()
        assert (notes / "deploy.md").exists()

    run(tmp_path / "db", test)


def test_unfollow_in_the_middle_of_a_file_lets_nothing_more_in(tmp_path: Path, notes: Path) -> None:
    big = notes / "big.md"
    big.write_text("".join(f"# Part {n}\n\nThe pelican of part {n} has a name.\n\n" for n in range(2_000)))

    async def test(house: House, followed: FollowedPaths) -> None:
        await followed.follow(Follow(path=str(big)))
        await house.reports.until(lambda: bool(house.reader.counts()["passages"]))
        assert await followed.unfollow(str(big))
        house.ingest.keeping.remove(str(big))
        await house.ingest.settled()
        assert house.reader.counts()["passages"] == house.reader.counts()["sources"] == 0

    run(tmp_path / "db", test)


def test_below_a_watched_directory_it_is_followed_already(tmp_path: Path, notes: Path) -> None:
    (notes / ".hidden").mkdir()
    (notes / ".hidden" / "x.md").write_text("# X\n\nThe quail hides.\n")

    async def test(house: House, followed: FollowedPaths) -> None:
        answer = await followed.follow(Follow(path=str(notes / "deploy.md")))
        assert (answer.path, answer.known) == (str(notes), True)
        assert house.reader.followed() == []
        hidden = await followed.follow(Follow(path=str(notes / ".hidden")))  # left out there, and named here
        assert (hidden.path, hidden.known) == (str(notes / ".hidden"), False)
        await house.until_found("quail", notes / ".hidden" / "x.md")

    run(tmp_path / "db", test, notes)


def test_what_a_root_leaves_out_by_its_layout_is_followed_if_it_is_named(tmp_path: Path, notes: Path) -> None:
    for name in ("blocks", "state", "skills"):
        (notes / name).mkdir()
        (notes / name / "x.md").write_text(f"# X\n\nThe quail of {name} is written.\n")
    (notes / "config.yaml").write_text("a: 1\n")

    async def test(house: House, followed: FollowedPaths) -> None:
        assert house.paths_with("quail") == [str(notes / "state" / "x.md")]
        assert (await followed.follow(Follow(path=str(notes / "state")))).known
        assert (await followed.follow(Follow(path=str(notes / "state" / "x.md")))).known
        assert not (await followed.follow(Follow(path=str(notes / "skills")))).known
        assert not (await followed.follow(Follow(path=str(notes / "deploy.md")))).known
        await house.until_found("heron", notes / "deploy.md")
        await house.ingest.settled()
        assert house.paths_with("quail") == [str(notes / "skills" / "x.md"), str(notes / "state" / "x.md")]

    run(tmp_path / "db", test, notes)


def test_what_an_inner_root_gives_up_its_outer_one_takes_over(tmp_path: Path, notes: Path) -> None:
    inner = notes / "inner"
    inner.mkdir()
    (inner / "x.md").write_text("# X\n\nThe plover is within.\n")

    async def test(house: House, followed: FollowedPaths) -> None:
        await followed.follow(Follow(path=str(inner)))
        await followed.follow(Follow(path=str(notes)))
        await house.ingest.settled()
        assert await followed.unfollow(str(inner))
        (inner / "y.md").write_text("# Y\n\nThe ruff is within.\n")
        await house.until_found("ruff", inner / "y.md")
        assert house.paths_with("plover") == [str(inner / "x.md")]

    run(tmp_path / "db", test)


def test_a_kind_that_is_named_is_how_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "words.log"
    file.write_text("# Heading\n\nThe redshank is written in a log.\n")

    async def test(house: House, followed: FollowedPaths) -> None:
        with pytest.raises(Refused, match=r"nothing that is read here: .*claude-code.*markdown"):
            await followed.follow(Follow(path=str(file)))
        await followed.follow(Follow(path=str(file), source_kind="text"))
        await house.until_found("redshank", file)
        await house.ingest.settled()
        again = await followed.follow(Follow(path=str(file), source_kind="markdown"))
        assert again.known
        await house.ingest.settled()
        assert [source.kind for source in house.reader.sources()] == ["markdown"]
        check_consistent(house)

    run(tmp_path / "db", test)


def test_a_transcript_belongs_to_its_project_wherever_it_lies(tmp_path: Path) -> None:
    project = tmp_path / "shop"
    (project / ".git").mkdir(parents=True)
    file = tmp_path / "backup.jsonl"
    said = {"role": "user", "content": "the sanderling runs before the wave"}
    line = {"parentUuid": None, "type": "user", "uuid": "1", "timestamp": "2026-03-02T10:00:00Z", "cwd": str(project)}
    file.write_text(json.dumps(line | {"message": said}) + "\n")

    async def test(house: House, followed: FollowedPaths) -> None:
        await followed.follow(Follow(path=str(file)))
        await house.until_found("sanderling", file)
        scopes = {number: key for key, number in house.reader.scopes().items()}
        assert [scopes[source.scope] for source in house.reader.sources()] == [str(project)]

    run(tmp_path / "db", test)


@pytest.mark.parametrize("name", ["missing.md", "fifo", "kind"])
def test_what_cant_be_followed_is_told_at_once_and_not_kept(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "kind").write_text("x")
    code, says = {
        "missing.md": ("not_found", "there is no such file or directory"),
        "fifo": ("failed", "neither a file nor a directory"),
        "kind": ("malformed", "no kind 'nonsense': known are .*claude-code"),
    }[name]

    async def test(house: House, followed: FollowedPaths) -> None:
        with pytest.raises(Refused, match=says) as refused:
            await followed.follow(Follow(path=str(tmp_path / name), source_kind="nonsense" if name == "kind" else ""))
        assert refused.value.code == code
        assert house.reader.followed() == []

    run(tmp_path / "db", test)


def test_a_database_of_the_third_schema_gets_the_table(tmp_path: Path) -> None:
    path = tmp_path / "recalld.db"
    with open_writer(path) as writer:
        writer.remember("a memory of before", at=1.7e9)
    with sqlite3.connect(path) as db:  # as the third schema had it: all but the table and the column
        old = "DROP TABLE followed; ALTER TABLE sessions DROP COLUMN compacted_at; PRAGMA user_version = 3;"
        db.executescript(old)
    db.close()
    assert len(MIGRATIONS) >= 4
    with open_writer(path) as writer, open_reader(path) as reader:
        assert writer.check() == []
        assert reader.followed() == []
        assert writer.follow("/n/ä.md", kind="", is_file=True, at=1.0)
        assert not writer.follow("/n/ä.md", kind="text", is_file=True, at=2.0)
        assert [(f.path, f.kind, f.at) for f in reader.followed()] == [("/n/ä.md", "text", 1.0)]
        assert reader.counts()["memories"] == 1
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    db.close()
