"""OpenCode's database as a source: its sessions, read beside the running program, checked again at answer time.

The fixture was written by OpenCode 1.18.33 itself (a scripted model, two turns, one tool call); its paths were changed,
its log of events was emptied.
"""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio

from ingest_fakes import House, open_house
from recalld_daemon.config import Config
from recalld_daemon.ingest.parse import kind_of, parse_file
from recalld_daemon.ingest.ports import Root
from recalld_daemon.recall.locate import locate
from recalld_daemon.recall.types import Passage
from recalld_daemon.sources import roots_of
from recalld_daemon.store import opencode

FIXTURE = Path(__file__).parent / "fixtures" / "opencode-1.18.33.db.gz"
SESSION = "ses_dd3f3e3d5ffeeK3TrUc0JfrQyf"
SAID = [
    ("user", '"What colour is the stoat in the hedge, please tell"'),
    ("assistant", "I will look at the notes."),
    ("assistant", 'The stoat is brown, and "it" lives in the hedge — naïve as that sounds.'),
    ("user", '"And when do we deploy the hedge service"'),
    ("assistant", "Second answer: we deploy on Tuesdays after the heron is asked."),
]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """As the program left it: at rest."""
    path = tmp_path / "opencode" / "opencode.db"
    path.parent.mkdir()
    path.write_bytes(gzip.decompress(FIXTURE.read_bytes()))
    return path


@pytest.fixture
def program(database: Path) -> Iterator[sqlite3.Connection]:
    """OpenCode while it runs: in WAL, its database open, every statement a transaction of its own."""
    with closing(sqlite3.connect(database, isolation_level=None, check_same_thread=False)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA foreign_keys = ON")
        yield db


def say(
    db: sqlite3.Connection, text: str, *, session: str = SESSION, role: str = "user", part: str = "", **more: object
) -> str:
    """A message of one part, as the program writes them: message, part, then the session's time. Returns the part."""
    now = 1_900_000_000_000 + db.total_changes
    message, part = f"msg_{db.total_changes:06}", part or f"prt_{db.total_changes:06}"
    db.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", (message, session, now, now, json.dumps({"role": role})))
    data = json.dumps({"type": "text", "text": text} | more)
    db.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", (part, message, session, now, now, data))
    db.execute("UPDATE session SET time_updated = ? WHERE id = ?", (now, session))
    return part


def begin(db: sqlite3.Connection, session: str, directory: str, *, parent: str | None = None, title: str = "") -> None:
    db.execute(
        """INSERT INTO session(id, project_id, parent_id, slug, directory, title, version, time_created, time_updated)
        VALUES (?, 'global', ?, 'x', ?, ?, '1', 1, 1)""",
        (session, parent, directory, title or "New session - 2026-03-02T10:00:00.000Z"),
    )


def root_of(database: Path) -> Root:
    return Root(database, transcripts=True, kind=opencode.KIND, is_file=True)


def all_passages(house: House) -> list[Passage]:
    return [p for ids in house.reader.walk_passages() for p in house.reader.passages([int(i) for i in ids])]


def run(tmp_path: Path, database: Path, test: object, *roots: Root) -> None:
    async def main() -> None:
        async with open_house(tmp_path / "db", *(roots or (root_of(database),))) as house:
            await test(house)  # type: ignore[operator]

    trio.run(main)


def test_what_was_said_is_found_with_its_speaker_title_and_project(tmp_path: Path, database: Path) -> None:
    async def test(house: House) -> None:
        found = all_passages(house)
        assert [(p.speaker, p.text) for p in found] == SAID
        assert {p.path for p in found} == {f"{database}/{SESSION}"}
        assert {p.shown_path for p in found} == {f"opencode.db/{SESSION}"}
        assert {(p.kind, p.heading) for p in found} == {("opencode", "title")}
        assert house.paths_with("output") == []  # of a tool
        scopes = {number: key for key, number in house.reader.scopes().items()}
        assert {scopes[p.scope] for p in found} == {"/home/ada/shop"}
        assert house.consistent()

    run(tmp_path, database, test)


def test_reading_leaves_no_trace_beside_the_database(tmp_path: Path, database: Path) -> None:
    before = database.read_bytes()

    async def test(house: House) -> None:
        assert [locate(p, 0, len(p.text)) is not None for p in all_passages(house)] == [True] * 5

    run(tmp_path, database, test)
    assert os.listdir(database.parent) == ["opencode.db"]
    assert database.read_bytes() == before


def test_what_the_running_program_adds_is_read_out_of_its_log(
    tmp_path: Path, database: Path, program: sqlite3.Connection
) -> None:
    async def test(house: House) -> None:
        ids = {p.id for p in all_passages(house)}
        say(program, "the ferry to Aarhus leaves at nine")
        await house.until_found("ferry", Path(f"{database}/{SESSION}"))
        assert ids < {p.id for p in all_passages(house)}  # what was known keeps its id, and so its vectors
        begin(program, "ses_two", "/home/ada/kiln", title="The kiln")
        say(program, "the kiln is lit on Thursdays", session="ses_two")
        await house.until_found("kiln", Path(f"{database}/ses_two"))
        scopes = {number: key for key, number in house.reader.scopes().items()}
        (kiln,) = (p for p in all_passages(house) if p.path.endswith("ses_two"))
        assert (scopes[kiln.scope], kiln.heading, kiln.start) == ("/home/ada/kiln", "The kiln", 0)
        program.execute("DELETE FROM session WHERE id = ?", (SESSION,))
        await house.until_found("ferry")
        await house.ingest.settled()
        assert [p.path for p in all_passages(house)] == [f"{database}/ses_two"]
        assert house.consistent()

    run(tmp_path, database, test)


def test_p015_what_a_program_put_in_is_not_what_was_said(
    tmp_path: Path, database: Path, program: sqlite3.Connection
) -> None:
    """Echo: our snippets are synthetic parts, or stand in a tool's output."""
    say(program, "the injected walrus must never come back", synthetic=True)
    say(program, "the ignored walrus neither, ever again", ignored=True)
    say(program, "ok go on")  # says nothing later
    say(program, "the tool's walrus stands in an output", type="tool")
    program.execute(
        """UPDATE message SET data = '{"role":"assistant","summary":true}' WHERE id =
        (SELECT message_id FROM part WHERE id = ?)""",
        (say(program, "the summary of the walrus was compacted", role="assistant"),),
    )
    program.execute("INSERT INTO part VALUES ('prt_bad', ?, ?, 1, 1, 'no json')", (_any_message(program), SESSION))
    say(program, "the walrus that a person mentioned stays")

    async def test(house: House) -> None:
        assert [p.text for p in all_passages(house) if "walrus" in p.text] == [
            "the walrus that a person mentioned stays"
        ]

    run(tmp_path, database, test)


def _any_message(db: sqlite3.Connection) -> str:
    return str(db.execute("SELECT id FROM message LIMIT 1").fetchone()[0])


def test_a_subagents_user_is_no_user(tmp_path: Path, database: Path, program: sqlite3.Connection) -> None:
    begin(program, "ses_child", "/home/ada/shop", parent=SESSION)
    say(program, "find out where the narwhal is kept", session="ses_child")

    async def test(house: House) -> None:
        (child,) = (p for p in all_passages(house) if "narwhal" in p.text)
        assert (child.speaker, child.heading) == ("assistant", "")

    run(tmp_path, database, test)


def test_a_quote_is_checked_at_answer_time(tmp_path: Path, database: Path, program: sqlite3.Connection) -> None:
    part = say(program, "naïve — the ferry to Aarhus leaves at nine")

    async def test(house: House) -> None:
        (found,) = (p for p in all_passages(house) if "ferry" in p.text)
        at = found.text.index("ferry")
        place = locate(found, at, at + 5)
        assert place is not None
        assert not place.moved
        before = opencode.as_bytes(found.text[:at])
        assert (place.start, place.end) == (found.start + len(before), found.start + len(before) + 5)
        edited = json.dumps({"type": "text", "text": "Edited: naïve — the ferry to Aarhus leaves at nine"})
        program.execute("UPDATE part SET data = ? WHERE id = ?", (edited, part))
        moved = locate(found, at, at + 5)
        assert moved is not None
        assert moved.moved
        assert moved.start == place.start + len(b"Edited: ")
        program.execute("UPDATE part SET data = ? WHERE id = ?", (json.dumps({"type": "text", "text": "gone"}), part))
        assert locate(found, at, at + 5) is None
        program.execute("DELETE FROM part WHERE id = ?", (part,))
        assert locate(found, at, at + 5) is None

    run(tmp_path, database, test)
    assert locate(Passage(1, f"{database}/x", "x", 0, 4, "text", "opencode:prt_none:0"), 0, 4) is None


def test_a_locked_or_damaged_database_loses_nothing(
    tmp_path: Path, database: Path, program: sqlite3.Connection
) -> None:
    async def test(house: House) -> None:
        say(program, "the puffin came before the damage")
        await house.until_found("puffin", Path(f"{database}/{SESSION}"))
        program.execute("ALTER TABLE session RENAME TO session_away")
        program.execute("INSERT INTO data_migration VALUES ('x', 1)")
        await house.reports.until(lambda: bool(house.reports.of("ingest.failed")))
        (failed,) = {str(report["path"]) for report in house.reports.of("ingest.failed")}
        assert failed == str(database)
        program.execute("ALTER TABLE session_away RENAME TO session")
        say(program, "the razorbill came after it")
        await house.until_found("razorbill", Path(f"{database}/{SESSION}"))
        assert house.paths_with("puffin") == [f"{database}/{SESSION}"]

    run(tmp_path, database, test)


def test_one_that_is_not_there_yet_is_waited_for(tmp_path: Path, database: Path) -> None:
    content = database.read_bytes()
    database.unlink()

    async def test(house: House) -> None:
        database.write_bytes(content)
        await house.until_found("stoat", Path(f"{database}/{SESSION}"))

    run(tmp_path, database, test)


def test_inside_a_watched_directory_it_is_read_by_its_own_root_alone(tmp_path: Path, database: Path) -> None:
    (database.parent / "notes.md").write_text("# Notes\n\nThe shearwater is in a file.\n")

    async def test(house: House) -> None:
        assert house.paths_with("shearwater") == [str(database.parent / "notes.md")]
        assert house.paths_with("stoat") == [f"{database}/{SESSION}"]
        assert house.reports.of("ingest.failed") == []

    run(tmp_path, database, test, Root(database.parent), root_of(database))
    run(tmp_path, database, test, Root(database.parent), Root(database))  # told by looking, as `recalld import` has it


def test_where_the_host_keeps_it(tmp_path: Path) -> None:
    def place(config: Config, **environ: str) -> list[Path]:
        return [root.path for root in roots_of(config, {"HOME": "/h"} | environ) if root.kind == opencode.KIND]

    assert place(Config()) == [Path("/h/.local/share/opencode/opencode.db")]
    assert place(Config(), XDG_DATA_HOME="/d") == [Path("/d/opencode/opencode.db")]
    assert place(Config(opencode=False)) == place(Config(transcripts=False)) == []


def test_another_programs_database_is_none(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE session(id)")
    (tmp_path / "text.db").write_text("not even SQLite")
    assert kind_of(str(other)) is None
    assert kind_of(str(tmp_path / "text.db")) is None
    with pytest.raises(OSError, match="OpenCode's database can't be read"):
        list(parse_file(f"{other}/ses_1".replace("other", "text"), opencode.KIND, 0))
