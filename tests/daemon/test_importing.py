"""`recalld import` in parts: what is found and how it is said, copies, what the daemon is asked, exit codes."""

from __future__ import annotations

import io
import json
import os
import zipfile
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from recalld_daemon.__main__ import main
from recalld_daemon.followed_paths import Refused
from recalld_daemon.importing import command, there
from recalld_daemon.importing.copies import copy_file, place_of, unpack
from recalld_daemon.importing.finds import find, is_export, takes_the_place
from recalld_daemon.importing.here import Noted
from recalld_daemon.importing.outcome import Outcome
from recalld_daemon.importing.progress import ProgressLine
from recalld_daemon.importing.told import found_line, outcome_lines, problem_lines
from recalld_daemon.lock import held_lock
from recalld_daemon.paths import home_under
from recalld_daemon.store import open_reader, open_writer
from recalld_daemon.store.followed import Kept
from recalld_protocol.messages import Follow, Following, FromAgent, FromDaemon, Pong, Problem, Status, StatusAsk


def quiet(what: str, done: int, total: int, unit: str) -> None: ...


def nothing(done: int, total: int) -> None: ...


def chatgpt(path: Path, *texts: str) -> Path:
    """An export with one conversation."""
    mapping: dict[str, object] = {"root": {"id": "root", "parent": None, "children": ["m0"], "message": None}}
    for n, text in enumerate(texts):
        role = "user" if n % 2 == 0 else "assistant"
        content = {"content_type": "text", "parts": [text]}
        message = {"id": f"m{n}", "author": {"role": role}, "create_time": 1.7e9 + n, "content": content}
        parent = f"m{n - 1}" if n else "root"
        mapping[f"m{n}"] = {"id": f"m{n}", "parent": parent, "children": [f"m{n + 1}"], "message": message}
    talk = {"title": "Ferries", "create_time": 1.7e9, "mapping": mapping, "current_node": f"m{len(texts) - 1}"}
    path.write_text(json.dumps([talk | {"conversation_id": "c1", "id": "c1"}]))
    return path


# ---------------------------------------------------------------- what is there


def test_an_export_is_told_and_counted(tmp_path: Path) -> None:
    path = chatgpt(tmp_path / "conversations.json", "when does the ferry to Aarhus leave", "it leaves at nine o'clock")
    found = find(str(path), "", quiet)
    assert (found.kind, found.tally.conversations, found.tally.messages) == ("chatgpt", 1, 2)
    assert "ChatGPT export, 1 conversation, 2 messages, 2023-11-1" in found_line(found)


def test_a_directory_is_counted_by_kind_and_its_exports_by_what_they_hold(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n\nThe heron is here.\n")
    (tmp_path / "b.txt").write_text("The avocet is there.\n")
    (tmp_path / "c.png").write_bytes(b"\x89PNG")
    (tmp_path / "d.json").write_text("{}")
    chatgpt(tmp_path / "conversations.json", "when does the ferry to Aarhus leave", "it leaves at nine o'clock")
    line = found_line(find(str(tmp_path), "", quiet))
    for part in ("1 Markdown file", "1 plain text file", "1 ChatGPT export", "1 conversation", "2 messages"):
        assert part in line


def test_what_an_export_is() -> None:
    kinds = (
        "chatgpt",
        "claude-ai",
        "whatsapp",
        "letta",
        "opencode",
        "gemini",
        "claude-code",
        "open-strix-block",
        "text",
    )
    assert [kind for kind in kinds if is_export(kind)] == ["chatgpt", "claude-ai", "whatsapp", "letta"]
    assert [kind for kind in kinds if takes_the_place(kind)] == ["chatgpt", "claude-ai"]


def test_what_holds_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "only.png").write_bytes(b"\x89PNG")
    with pytest.raises(Refused, match="no file in it is one that recalld reads"):
        find(str(tmp_path), "", quiet)
    with pytest.raises(Refused, match="nothing that is read here"):
        find(str(tmp_path / "only.png"), "", quiet)


def test_problems_are_told_in_short(tmp_path: Path) -> None:
    lines = "".join(
        json.dumps({"parentUuid": None, "type": "user", "uuid": str(n), "message": None})[:-1] + "\n" for n in range(9)
    )
    (tmp_path / "torn.jsonl").write_text(lines)
    torn = find(str(tmp_path / "torn.jsonl"), "", quiet)
    assert torn.problem_count == 9
    told = list(problem_lines(torn))
    assert len(told) == 4
    assert told[-1] == "  and 6 more problems; what can be read is read"


# ---------------------------------------------------------------- copies


def test_a_newer_export_at_the_same_place_takes_its_copys_place(tmp_path: Path) -> None:
    path, kept = tmp_path / "talk.md", tmp_path / "imported"
    path.write_text("The first of them.\n")
    first = copy_file(kept, str(path), nothing)
    path.write_text("The second of them.\n")
    assert copy_file(kept, str(path), nothing) == first
    assert Path(first).read_text() == "The second of them.\n"
    assert (Path(first).stat().st_mode & 0o777, Path(first).parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert os.listdir(Path(first).parent) == ["talk.md"]  # no half copies
    assert place_of(kept, str(path)) != place_of(kept, "/elsewhere/talk.md")


def test_an_archive_puts_nothing_beside_its_place(tmp_path: Path) -> None:
    archive, kept = tmp_path / "export.zip", tmp_path / "imported"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("in/a.md", "../out.md", "/etc/out.md", "a/../../out.md", "x.exe", "..\\out.md"):
            file.writestr(name, "The heron.\n")
    place = Path(unpack(kept, str(archive), nothing))
    assert [str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()] == ["in/a.md"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export.zip", "imported"]


def test_a_newer_archive_leaves_nothing_of_the_older_one(tmp_path: Path) -> None:
    archive, kept = tmp_path / "export.zip", tmp_path / "imported"
    for names in (("a.md", "in/b.md"), ("a.md",)):
        with zipfile.ZipFile(archive, "w") as file:
            for name in names:
                file.writestr(name, "The heron.\n")
        place = Path(unpack(kept, str(archive), nothing))
    assert [str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()] == ["a.md"]
    archive.write_bytes(b"no zip at all")
    with pytest.raises(Refused):
        unpack(kept, str(archive), nothing)
    assert (place / "a.md").exists()  # it is followed


def test_an_archive_whose_bytes_are_damaged_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.md", "".join(f"The heron {n}. " for n in range(1_000)))
    content = archive.read_bytes()
    archive.write_bytes(content[:40] + bytes(byte ^ 0xFF for byte in content[40:100]) + content[100:])
    with pytest.raises(Refused, match="can't be unpacked"):
        unpack(tmp_path / "imported", str(archive), nothing)
    assert list((tmp_path / "imported").iterdir()) == []


@pytest.mark.parametrize("damage", ["no zip", "cut"])
def test_a_damaged_archive_is_refused_and_leaves_no_half_file(tmp_path: Path, damage: str) -> None:
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.md", "The heron. " * 1_000)
    content = archive.read_bytes()
    archive.write_bytes(b"no zip at all" if damage == "no zip" else content[:40] + b"\xff" + content[41:])
    with pytest.raises(Refused, match="can't be unpacked"):
        unpack(tmp_path / "imported", str(archive), nothing)
    assert not [path for path in (tmp_path / "imported").rglob("*") if path.is_file()]


# ---------------------------------------------------------------- what is asked of a daemon


def daemon(answer: Callable[[FromAgent], FromDaemon | None], pid: int = 7) -> there.Daemon:
    """One that answers as scripted."""
    link = SimpleNamespace(open=lambda seconds: True, request=lambda ask, seconds: answer(ask), problem="no answer")
    return there.Daemon(link, pid, pause=lambda seconds: None)  # type: ignore[arg-type]


def test_a_path_is_noted_by_the_daemon_in_its_own_words() -> None:
    def answer(ask: FromAgent) -> FromDaemon:
        assert isinstance(ask, Follow)
        match ask.path:
            case "/new":
                return Following(path="/new")
            case "/inside/x":
                return Following(path="/inside", known=True)
            case _:
                return Problem(code="not_found", text="there is no such file", of="follow")

    running = daemon(answer)
    assert running.note("/new", "") == Noted("/new", False)
    assert running.note("/inside/x", "") == Noted("/inside/x", True, "/inside")
    with pytest.raises(there.NotTaken, match="no such file"):
        running.note("/none", "")


def test_a_daemon_that_has_just_started_is_asked_again_and_another_homes_is_not_taken() -> None:
    answers = [Problem(code="busy", text="not open yet", of="follow"), Following(path="/new")]
    assert daemon(lambda ask: answers.pop(0)).note("/new", "") == Noted("/new", False)
    with pytest.raises(there.NoAnswer, match=r"pid 8.*not the one of this home \(pid 7\)"):
        daemon(lambda ask: Pong(epoch="e", daemon="1", pid=8)).greet()
    with pytest.raises(there.NoAnswer, match="does not answer"):
        daemon(lambda ask: None).greet()


def test_what_the_daemon_is_at_is_said_until_it_is_ready() -> None:
    def status(state: str, done: int = 0, missing: int = 0, model: str = "ready") -> Status:
        index: dict[str, str | int] = {"state": state, "files_done": done, "files_total": 4}
        topics = {
            "index": index,
            "queue": {"passages_to_embed": missing},
            "models": {"state": model, "phase": "no room"},
        }
        return Status(topics=topics)  # type: ignore[arg-type]

    told: list[tuple[str, int, int, str]] = []
    states: list[FromDaemon | None] = [status("indexing", 1, 90), None, status("embedding", 4, 30), status("ready")]

    def answer(ask: FromAgent) -> FromDaemon | None:
        assert isinstance(ask, StatusAsk)
        return states.pop(0)

    assert daemon(answer).wait(lambda *line: told.append(line)) == ""
    assert told == [("reading", 1, 4, "files"), ("embedding", 60, 90, "passages")]
    states[:] = [status("embedding", 4, 30, "failed")]
    assert daemon(answer).wait(quiet) == "no room"
    with pytest.raises(there.NoAnswer, match="any more"):
        daemon(lambda ask: None).wait(quiet)


# ---------------------------------------------------------------- said


def test_progress_is_a_line_now_and_then_where_it_cant_be_written_over() -> None:
    clock, to = [0.0], io.StringIO()
    line = ProgressLine(to, clock=lambda: clock[0])
    for second in range(25):
        clock[0] = float(second)
        line.say("reading", second, 25, "files")
    line.say("embedding", 0, 9, "passages")
    line.end()
    assert [text.split()[0] for text in to.getvalue().splitlines()] == ["reading"] * 3 + ["embedding"]


def test_what_became_of_a_path_is_said_with_what_can_be_done(tmp_path: Path) -> None:
    path = chatgpt(tmp_path / "conversations.json", "when does the ferry to Aarhus leave", "it leaves at nine o'clock")
    found = find(str(path), "", quiet)
    new = Outcome(found, kept=Kept(1, 0, 0, 0, 2, 2), others=["/old/conversations.json"])
    text = "\n".join(outcome_lines(new))
    assert "2 passages can be recalled, 2 of them new" in text
    assert "must stay where it is" in text
    assert "recallctl forget /old/conversations.json" in text
    again = "\n".join(outcome_lines(Outcome(found, known=True, kept=Kept(1, 0, 0, 0, 2, 0), copy="/c/x.json")))
    assert "already known" in again
    assert "nothing new" in again
    assert "the original may be deleted" in again
    assert json.dumps(new.row())  # for JSON, all of it


# ---------------------------------------------------------------- the command


def run(*arguments: str | Path, home: Path) -> int:
    config = home.parent / "import.toml"
    config.write_text("[sources]\ntranscripts = false\n")
    return main(["import", "--home", str(home), "--config", str(config), *map(str, arguments)])


def test_wrong_usage_says_what_would_be_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(home=tmp_path / "home") == 2
    assert run("--kind", "nonsense", "x", home=tmp_path / "home") == 2
    said = capsys.readouterr().err
    assert "name a PATH, or --list" in said
    assert "known are chatgpt" in said
    assert not (tmp_path / "home").exists()


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.md").write_text("# A\n\nThe heron is here.\n")
    assert run("--dry-run", "--json", "--copy", tmp_path / "a.md", home=tmp_path / "home") == 0
    (row,) = json.loads(capsys.readouterr().out)["paths"]
    assert (row["kind"], row["kept"], row["copy"]) == ("markdown", None, None)
    assert run("--list", home=tmp_path / "home") == 0
    assert capsys.readouterr().out == "nothing was imported yet\n"
    assert not (tmp_path / "home").exists()


def test_a_kind_that_fits_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else a note that is read already would be read as something else, of which nothing is left."""
    (tmp_path / "a.md").write_text("# A\n\nThe heron is here.\n")
    assert run("--kind", "chatgpt", "--dry-run", tmp_path / "a.md", home=tmp_path / "home") == 1
    assert "nothing in it can be read as chatgpt" in capsys.readouterr().err


def test_an_archive_with_nothing_to_read_leaves_no_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive, home = tmp_path / "export.zip", tmp_path / "home"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("conversations.json", " " * 100_000)
    assert run("--copy", "--no-wait", archive, home=home) == 1
    assert "no file in it is one that recalld reads" in capsys.readouterr().err
    assert not list((home / "data" / "imported").iterdir())


def test_what_is_noted_without_waiting_is_listed_and_read_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes, home = tmp_path / "notes", tmp_path / "home"
    notes.mkdir()
    (notes / "a.md").write_text("# A\n\nThe heron is here.\n")
    assert run("--no-wait", notes, tmp_path / "missing", notes / "a.md", home=home) == 1
    out, err = capsys.readouterr()
    assert "missing: there is no such file" in err
    assert f"is read already, as part of {notes}" in out
    assert run("--list", "--json", home=home) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["path"], row["passages"], row["there"]) == (str(notes), 0, True)
    (notes / "a.md").unlink()
    notes.rmdir()
    assert run("--list", home=home) == 0
    assert "not there: what was read of it is not shown" in capsys.readouterr().out


def test_another_daemon_that_cant_be_asked_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.md").write_text("# A\n\nThe heron is here.\n")
    monkeypatch.setenv("RECALLD_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(there, "GREETINGS", 1)
    monkeypatch.setattr(there, "ANSWER_SECONDS", 0.01)
    home = home_under(tmp_path / "home")
    home.make()
    with held_lock(home.data / "lock"):
        assert run(tmp_path / "a.md", home=tmp_path / "home") == 1
    assert "does not answer" in capsys.readouterr().err


def test_a_damaged_store_is_an_error_and_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = home_under(tmp_path / "home")
    home.make()
    home.database.write_bytes(b"no database" * 1_000)
    (tmp_path / "a.md").write_text("# A\n\nThe heron is here.\n")
    assert run(tmp_path / "a.md", home=tmp_path / "home") == 1
    assert "recalld.db" in capsys.readouterr().err


def test_what_is_kept_below_a_path_is_counted_by_what_is_newer(tmp_path: Path) -> None:
    with open_writer(tmp_path / "db") as writer, open_reader(tmp_path / "db") as reader:
        assert reader.last_passage() == 0
        writer.fail_source("/n/a.md", "Permission denied")
        writer.fail_source("/no/b.md", "Permission denied")
        assert reader.kept_below("/n") == Kept(1, 1, 0, 0, 0, 0)
        assert reader.kept_below("/n/a.md").failed == 1
        assert reader.kept_below("/\udcff").files == 0


def test_every_flag_is_explained() -> None:
    parser = ArgumentParser()
    command.add_flags(parser)
    assert all(action.help for action in parser._actions)
