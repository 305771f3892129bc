"""The pipeline against real files and a real store: found at start, followed, moved, deleted, restored."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import trio
import trio.testing

from ingest_fakes import House, InProcessBulk, open_house
from recalld_daemon.ingest.ports import Root


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    root = tmp_path / "notes"
    root.mkdir()
    (root / "deploy.md").write_text("# Deploy\n\nThe heron must be asked before every rollback.\n")
    (root / "cooking.txt").write_text("Lentils need twenty minutes, never salt them before.\n")
    return root


def run(database: Path, *roots: Root | Path, test: object, bulk: InProcessBulk | None = None) -> None:
    async def main() -> None:
        async with open_house(database, *roots, bulk=bulk) as house:
            await test(house)  # type: ignore[operator]

    trio.run(main)


def record(text: str, *, cwd: str = "/p/a", uuid: str = "", role: str = "user") -> str:
    message = {"role": role, "content": text}
    line = {"parentUuid": None, "type": role, "uuid": uuid or text, "timestamp": "2026-03-02T10:00:00Z", "cwd": cwd}
    return json.dumps(line | {"message": message}) + "\n"


def test_what_is_there_at_start_is_found_by_words_and_embedded(tmp_path: Path, notes: Path) -> None:
    async def test(house: House) -> None:
        assert house.paths_with("heron") == [str(notes / "deploy.md")]
        assert house.consistent()
        assert {p.shown_path for p in house.reader.passages([1, 2])} == {"notes/deploy.md", "notes/cooking.txt"}
        assert house.ingest.progress()["files_done"] == 2

    run(tmp_path / "db", notes, test=test)


def test_a_second_start_reads_and_embeds_nothing(tmp_path: Path, notes: Path) -> None:
    async def nothing(house: House) -> None:
        assert house.consistent()

    run(tmp_path / "db", notes, test=nothing)
    bulk = InProcessBulk()
    run(tmp_path / "db", notes, test=nothing, bulk=bulk)
    assert (bulk.parsed, bulk.encoded) == ([], [])


def test_p020_three_atomic_saves_of_one_watched_file(tmp_path: Path, notes: Path) -> None:
    file = notes / "deploy.md"

    async def test(house: House) -> None:
        for word in ("avocet", "bittern", "curlew"):
            (notes / "deploy.md.tmp123").write_text(f"# Deploy\n\nNow the {word} is asked.\n")
            os.replace(notes / "deploy.md.tmp123", file)
            await house.until_found(word, file)
        assert house.paths_with("avocet") == []
        assert house.paths_with("lentils") == []  # only the one file is watched

    run(tmp_path / "db", file, test=test)


def test_a_symlink_made_while_we_watch_is_treated_as_one_found_at_start(tmp_path: Path, notes: Path) -> None:
    (tmp_path / "out.md").write_text("# Out\n\nThe petrel flies outside.\n")

    async def test(house: House) -> None:
        (notes / "again.md").symlink_to(notes / "deploy.md")
        (notes / "round.md").symlink_to(notes / "round.md")
        (notes / "led.md").symlink_to(tmp_path / "out.md")
        await house.until_found("petrel", notes / "led.md")
        await house.ingest.settled()
        assert house.paths_with("heron") == [str(notes / "deploy.md")]
        assert house.reports.of("ingest.failed") == []

    run(tmp_path / "db", notes, test=test)


def test_an_index_whose_disk_is_full_is_made_up_for_later(tmp_path: Path, notes: Path) -> None:
    async def test(house: House) -> None:
        house.index.full = True
        (notes / "gone.md").write_text("# Gone\n\nThe gannet is written down and deleted.\n")
        (notes / "stays.md").write_text("# Stays\n\nThe fulmar is written down.\n")
        await house.until_found("gannet", notes / "gone.md")
        await house.until_found("fulmar", notes / "stays.md")
        await house.ingest.settled()
        assert not house.consistent()
        (notes / "gone.md").unlink()
        await house.until_found("gannet")
        house.index.full = False
        house.ingest.catch_up()
        assert house.consistent()

    run(tmp_path / "db", notes, test=test)


def test_an_edit_embeds_only_what_changed(tmp_path: Path, notes: Path) -> None:
    (notes / "long.md").write_text(
        "".join(f"# Part {n}\n\nThis part tells of subject{n} at length.\n\n" for n in range(40))
    )

    async def test(house: House) -> None:
        before = len(house.bulk.encoded)
        text = (notes / "long.md").read_text().replace("subject7 at", "subject7 and whimbrels at")
        (notes / "long.md").write_text(text)
        await house.until_found("whimbrels", notes / "long.md")
        await house.ingest.settled()
        assert len(house.bulk.encoded) == before + 1
        assert house.consistent()

    run(tmp_path / "db", notes, test=test)


def test_p022a_deleted_and_restored_is_found_again_without_embedding(tmp_path: Path, notes: Path) -> None:
    async def test(house: House) -> None:
        file = notes / "deploy.md"
        text, encoded = file.read_bytes(), len(house.bulk.encoded)
        file.unlink()
        await house.until_found("heron")
        assert house.reader.source(str(file)) is None
        file.write_bytes(text)
        await house.until_found("heron", file)
        await house.ingest.settled()
        assert len(house.bulk.encoded) == encoded
        assert house.consistent()

    run(tmp_path / "db", notes, test=test)


def test_p022b_a_directory_renamed_during_indexing(tmp_path: Path, notes: Path) -> None:
    many = notes / "many"
    many.mkdir()
    for n in range(60):
        (many / f"{n}.md").write_text(f"Note {n} about the godwit and its ways, number{n}.\n")

    async def main() -> None:
        async with open_house(tmp_path / "db", notes, settle=False) as house:
            await house.reports.until(lambda: bool(house.reports.of("ingest.file")))
            many.rename(notes / "moved")
            await house.reports.until(
                lambda: (
                    house.paths_with("number59") == [str(notes / "moved" / "59.md")]
                    and not house.reader.sources(under=str(many))
                    and len(house.reader.sources(under=str(notes / "moved"))) == 60
                )
            )
            await house.ingest.settled()
            assert house.consistent()
            assert not house.reports.of("ingest.failed")

    trio.run(main)


def test_p022c_a_rename_that_changes_only_the_case(tmp_path: Path, notes: Path) -> None:
    (notes / "Finance").mkdir()
    (notes / "Finance" / "tax.md").write_text("The dunlin pays its taxes in April.\n")

    async def test(house: House) -> None:
        (notes / "Finance").rename(notes / "finance")
        await house.until_found("dunlin", notes / "finance" / "tax.md")
        assert house.consistent()

    run(tmp_path / "db", notes, test=test)


def test_p022d_deleted_and_moved_while_off(tmp_path: Path, notes: Path) -> None:
    (notes / "plan.md").write_text("The plover plan has four steps, none of them easy.\n")
    ids: list[int] = []

    async def first(house: House) -> None:
        ids.extend(house.reader.passage_ids(str(notes / "plan.md")))

    async def second(house: House) -> None:
        assert house.paths_with("plover") == [str(notes / "sub" / "plan.md")]
        assert house.reader.passage_ids(str(notes / "sub" / "plan.md")) == ids  # what was learnt of it stays
        assert house.paths_with("heron") == []
        assert house.consistent()
        assert house.bulk.encoded == []

    run(tmp_path / "db", notes, test=first)
    (notes / "sub").mkdir()
    (notes / "plan.md").rename(notes / "sub" / "plan.md")
    (notes / "deploy.md").unlink()
    run(tmp_path / "db", notes, test=second)


def test_a_file_in_a_new_directory_in_a_new_directory(tmp_path: Path, notes: Path) -> None:
    async def test(house: House) -> None:
        deep = notes / "a" / "b" / "c"
        deep.mkdir(parents=True)
        (deep / "one.md").write_text("The first sandpiper stands on one leg.\n")
        await house.until_found("sandpiper", deep / "one.md")
        (deep / "two.md").write_text("A second redshank stands beside it.\n")
        await house.until_found("redshank", deep / "two.md")

    run(tmp_path / "db", notes, test=test)


def test_a_root_deleted_and_made_again(tmp_path: Path, notes: Path) -> None:
    async def test(house: House) -> None:
        shutil.rmtree(notes)
        await house.until_found("heron")
        notes.mkdir()
        (notes / "new.md").write_text("After the flood the turnstone came back.\n")
        await house.until_found("turnstone", notes / "new.md")

    run(tmp_path / "db", notes, test=test)


def test_a_root_that_is_missing_is_waited_for(tmp_path: Path) -> None:
    root = tmp_path / "later"

    async def test(house: House) -> None:
        root.mkdir()
        (root / "new.md").write_text("The late ruff arrives with a fanfare.\n")
        await house.until_found("ruff", root / "new.md")
        assert "not there" in str(house.reports.of("ingest.warning"))

    run(tmp_path / "db", root, test=test)


def test_a_host_that_is_not_installed_is_waited_for_without_a_word(tmp_path: Path) -> None:
    root = tmp_path / ".gemini" / "tmp"

    async def test(house: House) -> None:
        root.mkdir(parents=True)
        (root / "new.md").write_text("The late ruff arrives with a fanfare.\n")
        await house.until_found("ruff", root / "new.md")
        assert not house.reports.of("ingest.warning")

    run(tmp_path / "db", Root(root, transcripts=True), test=test)


def test_p026_a_transcripts_last_line_is_taken_when_it_is_whole(tmp_path: Path) -> None:
    root = tmp_path / "projects"
    file = root / "-p-a" / "s.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(record("We keep the stilt in the garden shed."))
    late = record("The phalarope 🐦 swims in circles all day.").encode()
    late = late.replace(b"\\ud83d\\udc26", "🐦".encode())
    cut = late.index("🐦".encode()) + 2

    async def test(house: House) -> None:
        size = file.stat().st_size
        with file.open("ab") as out:
            out.write(late[:cut])
            out.flush()
            await house.reports.until(lambda: house.reader.source(str(file)).size == size + cut)  # type: ignore[union-attr]
            assert house.reader.source(str(file)).cursor == size  # type: ignore[union-attr]
            out.write(late[cut:])
        await house.until_found("phalarope", file)
        assert house.paths_with("stilt") == [str(file)]
        assert len(house.reader.passage_ids(str(file))) == 2
        assert house.bulk.parsed[-1] == (str(file), size)

    run(tmp_path / "db", Root(root, transcripts=True), test=test)


def test_p014_a_transcript_belongs_to_its_project_and_a_note_to_all(tmp_path: Path, notes: Path) -> None:
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    (work / "sub").mkdir()
    root = tmp_path / "projects"
    (root / "-work" / "memory").mkdir(parents=True)
    (root / "-work" / "s.jsonl").write_text(record("Ship it with make knot only.", cwd=str(work / "sub")))
    (root / "-work" / "memory" / "MEMORY.md").write_text("The sanderling is our mascot here.\n")
    (root / "-x").mkdir()
    (root / "-x" / "t.jsonl").write_text(record("Nobody says where the whinchat lives.", cwd=""))

    async def test(house: House) -> None:
        scopes = house.reader.scopes()
        of = {source.path: source.scope for source in house.reader.sources()}
        assert of[str(root / "-work" / "s.jsonl")] == scopes[str(work)]
        assert of[str(root / "-work" / "memory" / "MEMORY.md")] == scopes[str(work)]
        assert of[str(root / "-x" / "t.jsonl")] == scopes[str(root / "-x")]
        assert of[str(notes / "deploy.md")] == 1

    run(tmp_path / "db", Root(root, transcripts=True), notes, test=test)


def test_a_watched_directory_may_belong_to_its_project(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    (work / "readme.md").write_text("The wheatear builds under stones.\n")

    async def test(house: House) -> None:
        source = house.reader.source(str(work / "readme.md"))
        assert source is not None
        assert source.scope == house.reader.scopes()[str(work)]

    run(tmp_path / "db", Root(work, project_scope=True), test=test)


def test_a_transcript_that_names_its_project_late_moves_there_and_stays(tmp_path: Path) -> None:
    root = tmp_path / "projects"
    file = root / "-x" / "t.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(record("Nobody says where the whinchat lives.", cwd=""))

    async def test(house: House) -> None:
        def scopes() -> set[str]:
            keys = {id: key for key, id in house.reader.scopes().items()}
            return {keys[p.scope] for p in house.reader.passages(house.reader.passage_ids(str(file)))}

        assert scopes() == {str(file.parent)}
        for word, cwd in (("siskin", "/p/a"), ("linnet", "/p/a/deeper")):
            with file.open("a") as out:
                out.write(record(f"Here we talk about the {word}.", cwd=cwd))
            await house.until_found(word, file)
            await house.ingest.settled()
            assert scopes() == {"/p/a"}
        assert house.consistent()

    run(tmp_path / "db", Root(root, transcripts=True), test=test)


def test_another_rule_moves_what_is_unchanged_to_its_scope(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    (work / "readme.md").write_text("The wheatear builds under stones.\n")
    bulk = InProcessBulk()
    seen: list[tuple[str, list[int]]] = []

    async def test(house: House) -> None:
        passage = house.reader.passages(house.reader.passage_ids(str(work / "readme.md")))[0]
        keys = {id: key for key, id in house.reader.scopes().items()}
        seen.append((keys[passage.scope], [passage.id]))
        assert house.consistent()

    for project_scope in (False, True, True, False):
        run(tmp_path / "db", Root(work, project_scope=project_scope), test=test, bulk=bulk)
    assert [key for key, _ in seen] == ["global", str(work), str(work), "global"]
    assert {id for _, ids in seen for id in ids} == {seen[0][1][0]}
    assert len(bulk.encoded) == 1
    assert len(bulk.parsed) == 3


def test_one_file_that_cannot_be_read_is_named_and_stops_nothing(tmp_path: Path, notes: Path) -> None:
    bad = notes / "bad.md"
    bad.symlink_to("/proc/self/mem")  # opens, and fails to read, whoever we are

    async def test(house: House) -> None:
        assert house.paths_with("heron")
        source = house.reader.source(str(bad))
        assert source is not None
        assert source.state == "failed"
        assert [data["path"] for data in house.reports.of("ingest.failed")] == [str(bad)]

    run(tmp_path / "db", notes, test=test)


def test_a_file_that_kills_the_worker_twice_is_given_up(tmp_path: Path, notes: Path) -> None:
    (notes / "poison.md").write_text("The cuckoo lays its eggs elsewhere.\n")
    bulk = InProcessBulk()
    bulk.deadly = {"poison.md"}

    async def test(house: House) -> None:
        source = house.reader.source(str(notes / "poison.md"))
        assert source is not None
        assert source.state == "failed"
        assert "died" in source.error
        assert house.paths_with("heron")
        assert house.consistent()

    run(tmp_path / "db", notes, test=test, bulk=bulk)
    assert bulk.deaths == 2
    run(tmp_path / "db", notes, test=test, bulk=bulk)  # nor is it tried again unchanged
    assert bulk.deaths == 2


def test_a_text_that_kills_the_worker_is_singled_out(tmp_path: Path, notes: Path) -> None:
    (notes / "poison.md").write_text("The cuckoo lays its eggs elsewhere.\n")
    bulk = InProcessBulk()
    bulk.deadly = {"cuckoo"}

    async def test(house: House) -> None:
        assert house.paths_with("cuckoo")  # by words it is found all the same
        assert house.ingest.progress()["passages_unembeddable"] == 1
        assert any("heron" in text for text in bulk.encoded)
        assert any("Lentils" in text for text in bulk.encoded)

    run(tmp_path / "db", notes, test=test, bulk=bulk)


def test_sources_outside_all_roots_are_forgotten(tmp_path: Path, notes: Path) -> None:
    async def nothing(house: House) -> None:
        pass

    async def test(house: House) -> None:
        assert house.paths_with("heron") == []
        assert house.reader.counts()["sources"] == 0

    run(tmp_path / "db", notes, test=nothing)
    (tmp_path / "other").mkdir()
    run(tmp_path / "db", tmp_path / "other", test=test)


def test_of_nested_roots_the_inner_has_the_file(tmp_path: Path, notes: Path) -> None:
    (notes / "in").mkdir()
    (notes / "in" / "x.md").write_text("The ouzel sings in the rain.\n")

    async def test(house: House) -> None:
        passage = house.reader.passages(house.reader.passage_ids(str(notes / "in" / "x.md")))[0]
        assert passage.shown_path == "in/x.md"
        assert len(house.bulk.parsed) == 3

    run(tmp_path / "db", notes, notes / "in", test=test)


def test_live_recalls_go_first(tmp_path: Path, notes: Path) -> None:
    async def main() -> None:
        gate = trio.Event()
        async with open_house(tmp_path / "db", notes, gate=gate.wait, settle=False) as house:
            await house.reports.until(lambda: bool(house.reports.of("ingest.scanned")))
            await trio.testing.wait_all_tasks_blocked()
            assert house.bulk.encoded == []
            gate.set()
            with trio.fail_after(10):
                await house.ingest.settled()
            assert house.consistent()

    trio.run(main)
