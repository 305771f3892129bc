"""Directories that a program keeps in its own way: Obsidian's vaults, open-strix' homes, OpenClaw's workspaces."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
import trio

from ingest_fakes import House, open_house
from recalld_daemon.importing.finds import find
from recalld_daemon.importing.told import found_line
from recalld_daemon.ingest.frontmatter import Front, read_front, with_names
from recalld_daemon.ingest.layouts import LAYOUTS, places, told
from recalld_daemon.ingest.parse import kind_of
from recalld_daemon.ingest.ports import Root
from recalld_daemon.recall.locate import locate
from recalld_daemon.recall.types import Passage


def run(tmp_path: Path, root: Path, test: object) -> None:
    async def main() -> None:
        async with open_house(tmp_path / "db", Root(root)) as house:
            await test(house)  # type: ignore[operator]

    trio.run(main)


def all_passages(house: House) -> list[Passage]:
    return [p for ids in house.reader.walk_passages() for p in house.reader.passages([int(i) for i in ids])]


def check_quotable(house: House) -> None:
    """Every passage stands in its file, byte for byte."""
    assert all(locate(passage, 0, len(passage.text)) for passage in all_passages(house))


def summary(path: Path) -> str:
    return found_line(find(str(path), "", lambda *_: None)).partition(": ")[2].rpartition(" (")[0]


# ---------------------------------------------------------------- Obsidian


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    root = tmp_path / "vault"
    for name in (".obsidian", ".trash", "people", "attachments"):
        (root / name).mkdir(parents=True)
    (root / ".obsidian" / "workspace.md").write_text("The puffin is in a setting.\n")
    (root / ".trash" / "old.md").write_text("The razorbill was thrown away.\n")
    (root / "people" / "Anna Petrov.md").write_text(
        "---\naliases:\n  - AP\n  - 'Anna P.'\ntags: [people/kiln, friend]\ncreated: 2026-03-02\n---\n"
        "# Anna Petrov\n\nShe lights the [[Kiln schedule|kiln]] on Thursdays. #ceramics/fire\n\n![[anna.png]]\n\n"
        "## Work\n\nKnows [[Bo Larsen]] from the ferry to Aarhus.\n"
    )
    (root / "Kiln schedule.md").write_text("Thursdays at nine, see ![[Glazes]] for the rest of it.\n")
    (root / "Kiln schedule.sync-conflict-20260302-101010-ABCDEFG.md").write_text("The gannet is a conflict.\n")
    (root / "Note (conflicted copy 2026-03-02).md").write_text("The fulmar is a conflict too.\n")
    (root / "Sketch.excalidraw.md").write_text("The egret is drawn in here.\n")
    (root / "attachments" / "anna.png").write_bytes(b"\x89PNG")
    (root / "board.canvas").write_text('{"nodes": [{"text": "the knot is on a canvas"}]}')
    return root


def test_a_vault_is_told_and_counted(vault: Path) -> None:
    assert told(str(vault)) == "obsidian"
    assert summary(vault) == "Obsidian vault, 2 notes"


def test_a_note_goes_by_its_name_its_other_names_and_its_tags(tmp_path: Path, vault: Path) -> None:
    async def test(house: House) -> None:
        found = {p.text.strip(): p for p in all_passages(house) if p.path.endswith("Petrov.md")}
        first = next(p for text, p in found.items() if "kiln" in text)
        work = next(p for text, p in found.items() if "Aarhus" in text)
        assert first.heading == "Anna Petrov (AP, Anna P.) #people/kiln #friend"  # its heading of the same name once
        assert work.heading == "Anna Petrov (AP, Anna P.) #people/kiln #friend > Work"
        assert "[[Kiln schedule|kiln]]" in first.text  # a quotation: the bytes of the file
        assert time.strftime("%Y-%m-%d", time.localtime(first.written_at)) == "2026-03-02"
        assert not any("png" in text for text in found)
        schedule = next(p for p in all_passages(house) if p.path.endswith("Kiln schedule.md"))
        assert (schedule.heading, schedule.kind) == ("Kiln schedule", "obsidian")
        for word in ("kiln", "ceramics", "ap", "friend"):
            assert str(vault / "people" / "Anna Petrov.md") in house.paths_with(word)
        for word in ("puffin", "razorbill", "gannet", "fulmar", "egret", "knot"):
            assert house.paths_with(word) == []
        check_quotable(house)

    run(tmp_path, vault, test)


def test_p020_obsidian_saves_by_rename_and_renames_notes(tmp_path: Path, vault: Path) -> None:
    note = vault / "Kiln schedule.md"

    async def test(house: House) -> None:
        for word in ("avocet", "bittern"):
            (vault / ".Kiln schedule.md.tmp").write_text(f"Thursdays, says the {word}.\n")
            os.replace(vault / ".Kiln schedule.md.tmp", note)
            await house.until_found(word, note)
        note.rename(vault / "people" / "Fire.md")
        await house.until_found("bittern", vault / "people" / "Fire.md")
        await house.ingest.settled()
        assert house.consistent()

    run(tmp_path, vault, test)


def test_a_directory_that_becomes_a_vault_is_read_again_as_one(tmp_path: Path, vault: Path) -> None:
    shutil.rmtree(vault / ".obsidian")

    async def plain(house: House) -> None:
        assert {p.kind for p in all_passages(house)} == {"markdown"}
        assert house.paths_with("egret") != []

    async def as_vault(house: House) -> None:
        assert {p.kind for p in all_passages(house)} == {"obsidian"}
        assert house.paths_with("egret") == []
        assert house.consistent()

    run(tmp_path, vault, plain)
    (vault / ".obsidian").mkdir()
    run(tmp_path, vault, as_vault)


@pytest.mark.parametrize(
    ("lines", "front"),
    [
        (["aliases: AP"], Front(aliases=("AP",))),
        (["aliases: [AP, 'Anna, ']", "tags: #a, b"], Front(aliases=("AP", "Anna"), tags=("a", "b"))),
        (["tags:", "- x", "  - y/z", "other:", "  - no"], Front(tags=("x", "y/z"))),
        (["aliases:", "tags: []", "alias: "], Front()),
        (["- stray", "cssclasses: [wide]"], Front()),
    ],
)
def test_properties(lines: list[str], front: Front) -> None:
    assert read_front(lines) == front


def test_names_are_bounded() -> None:
    many = read_front(["aliases:", *(f"  - {'x' * 300}{n}" for n in range(100))])
    assert len(many.aliases) <= 12
    assert len(with_names("t", many)) < 1_500


# ---------------------------------------------------------------- open-strix

CHAT = {"timestamp": "2026-03-01T14:30:00.123456+00:00", "type": "message", "channel_id": "local-web", "source": "web"}


def chat_line(number: int, text: str, author: str = "ada#0", bot: bool = False) -> str:
    return json.dumps(
        CHAT | {"message_id": f"web-{number}", "author": author, "is_bot": bot, "content": text, "attachments": []}
    )


@pytest.fixture
def strix(tmp_path: Path) -> Path:
    """An agent's home, a git repository that does not keep its logs."""
    root = tmp_path / "agent"
    for name in ("blocks", "state/people", "logs/sessions/x", "skills/memory", ".git"):
        (root / name).mkdir(parents=True)
    (root / ".gitignore").write_text("logs/\n.env\n")
    (root / "config.yaml").write_text("api_port: 0\nname: x\n")
    (root / "scheduler.yaml").write_text("jobs: []\n")
    (root / "blocks" / "persona.yaml").write_text(
        "name: persona\nsort_order: 10\ntext: |\n  I keep the tide tables.\n  The heron is my witness.\n"
    )
    (root / "blocks" / "quoted.yaml").write_text(
        "name: 'quoted'\ntext: 'The plover''s nest is by the salt pans.\n\n  It moves each year.'\nsort_order: 20\n"
    )
    (root / "state" / "people" / "ada.md").write_text("# Ada\n\nShe counts the curlews at dawn.\n")
    (root / "skills" / "memory" / "SKILL.md").write_text("# Memory\n\nThe dunlin is an instruction.\n")
    (root / "README.md").write_text("# Agent\n\nThe ruff is in the readme.\n")
    (root / "logs" / "chat-history.jsonl").write_text(
        json.dumps({"timestamp": CHAT["timestamp"], "type": "reaction", "message_id": "w", "is_bot": True,
                    "channel_id": "x", "emoji": "+"}) + "\n"
        + chat_line(1, "the ferry to Aarhus leaves at nine") + "\n"
        + chat_line(2, "I noted the ferry\u2019s time, naïve as I am", "strix", bot=True) + "\n"
        + chat_line(1, "the ferry to Aarhus leaves at nine") + "\n"
    )  # fmt: skip
    (root / "logs" / "journal.jsonl").write_text(
        json.dumps(
            {
                "timestamp": "2026-03-02T08:00:00+00:00", "session_id": "s", "channel_id": "c",
                "user_wanted": "know when the sanderling flies", "agent_did": "looked at the almanac of tides",
                "predictions": "she will ask again by Friday",
            }
        ) + "\n"
    )  # fmt: skip
    (root / "logs" / "events.jsonl").write_text('{"timestamp": "x", "type": "tool_call", "tool": "bash gannet"}\n')
    (root / "logs" / "sessions" / "x" / "1.json").write_text('[{"mapping": {}, "text": "the petrel in a trace"}]')
    return root


def test_an_agents_home_is_told_and_read_for_what_it_remembers(tmp_path: Path, strix: Path) -> None:
    assert told(str(strix)) == "open-strix"
    assert summary(strix).startswith("open-strix agent, 2 memory blocks, ")
    assert kind_of(str(strix / "config.yaml")) is None

    async def test(house: House) -> None:
        found = {Path(p.path).name: [] for p in all_passages(house)}
        for passage in all_passages(house):
            found[Path(passage.path).name].append((passage.speaker, passage.heading, passage.text.strip()))
        assert found["persona.yaml"] == [
            ("", "persona", "I keep the tide tables.\n  The heron is my witness."),
        ]
        assert found["quoted.yaml"][0][2].startswith("'The plover''s nest")
        assert "sort_order" not in str(found["quoted.yaml"])
        assert [(who, text) for who, _, text in found["chat-history.jsonl"]] == [
            ("ada", "the ferry to Aarhus leaves at nine"),
            ("assistant", "I noted the ferry\u2019s time, naïve as I am"),
        ]
        assert [text for _, _, text in found["journal.jsonl"]] == [
            "know when the sanderling flies", "looked at the almanac of tides", "she will ask again by Friday",
        ]  # fmt: skip
        assert found["ada.md"][0][1] == "Ada"
        for word in ("dunlin", "ruff", "gannet", "petrel"):
            assert house.paths_with(word) == []
        check_quotable(house)

    run(tmp_path, strix, test)


def test_a_log_that_is_cut_to_its_end_loses_nothing_and_doubles_nothing(tmp_path: Path, strix: Path) -> None:
    log = strix / "logs" / "chat-history.jsonl"
    log.write_text("".join(chat_line(n, f"message {n} is about the dotterel") + "\n" for n in range(30)))

    async def test(house: House) -> None:
        def said() -> dict[str, int]:
            return {p.text: p.id for p in all_passages(house) if "dotterel" in p.text or "avocet" in p.text}

        before = said()
        assert len(before) == 30
        for round in range(3):
            temporary = log.with_name("chat-history.jsonl.tmp")
            temporary.write_text("".join(line + "\n" for line in log.read_text().splitlines()[-20:]))
            os.replace(temporary, log)
            with log.open("a") as file:  # and goes on at once
                file.write(chat_line(100 + round, f"round {round}: the avocet nests, number {round}") + "\n")
            await house.reports.until(lambda round=round: f"round {round}: the avocet nests, number {round}" in said())
        await house.ingest.settled()
        now = said()
        lines = [json.loads(line)["content"] for line in log.read_text().splitlines()]
        assert list(now) == lines  # each once, in order
        assert {text: id for text, id in now.items() if text in before} == {
            text: id for text, id in before.items() if text in now
        }
        check_quotable(house)
        assert house.consistent()

    run(tmp_path, strix, test)


# ---------------------------------------------------------------- OpenClaw


@pytest.fixture
def claw(tmp_path: Path) -> Path:
    """Its own directory, dotted, with two agents' workspaces and much that is no memory."""
    root = tmp_path / ".openclaw"
    for place in ("workspace", "workspace-work"):
        (root / place / "memory").mkdir(parents=True)
        for name in ("AGENTS.md", "SOUL.md", "TOOLS.md"):
            (root / place / name).write_text("# Rules\n\nThe dunlin is an instruction.\n")
    (root / "workspace" / "USER.md").write_text("# User\n\n- Name: Ada, who counts curlews\n")
    (root / "workspace" / "MEMORY.md").write_text("# Memory\n\nThe heron is asked before a rollback.\n")
    (root / "workspace" / "memory" / "2026-03-02.md").write_text("## 14:30\n\nThe avocet was seen yesterday.\n")
    (root / "workspace" / "skills" / "x").mkdir(parents=True)
    (root / "workspace" / "skills" / "x" / "SKILL.md").write_text("# Skill\n\nThe dunlin is here as well.\n")
    (root / "workspace-work" / "MEMORY.md").write_text("# Memory\n\nThe plover works.\n")
    (root / "openclaw.json").write_text("{}")
    (root / "credentials.md").write_text("the puffin is a credential\n")
    return root


def test_of_openclaw_its_workspaces_are_followed(tmp_path: Path, claw: Path) -> None:
    assert places(str(claw)) == [str(claw / "workspace"), str(claw / "workspace-work")]
    assert told(str(claw / "workspace")) == "openclaw"
    assert summary(claw / "workspace") == "OpenClaw workspace, 3 Markdown files"
    assert places(str(tmp_path)) == [str(tmp_path)]

    async def test(house: House) -> None:
        memory = claw / "workspace" / "memory" / "2026-03-02.md"
        assert house.paths_with("avocet") == [str(memory)]
        assert house.paths_with("curlews") == [str(claw / "workspace" / "USER.md")]
        assert house.paths_with("heron") == [str(claw / "workspace" / "MEMORY.md")]
        assert house.paths_with("dunlin") == []
        (day,) = (p for p in all_passages(house) if p.path == str(memory))
        end_of_day = time.mktime((2026, 3, 2, 23, 59, 59, 0, 0, -1))  # of the local day; no later than the file itself
        assert day.written_at == min(end_of_day, memory.stat().st_mtime)
        (memory.parent / "2026-03-03.md").write_text("The bittern came on the next day.\n")
        await house.until_found("bittern", memory.parent / "2026-03-03.md")

    run(tmp_path, claw / "workspace", test)


def test_layouts_are_told_by_more_than_a_name(tmp_path: Path) -> None:
    for name in ("blocks", "memory", "state", "workspace"):
        (tmp_path / name).mkdir()
    (tmp_path / "MEMORY.md").write_text("x")
    assert told(str(tmp_path)) == ""
    assert told(str(tmp_path / "MEMORY.md")) == ""
    assert places(str(tmp_path)) == [str(tmp_path)]
    assert sorted(LAYOUTS) == ["claude-code-projects", "obsidian", "open-strix", "openclaw"]


# ---------------------------------------------------------------- hosts' own directories


def test_a_copy_of_claude_codes_projects_shows_no_project_anothers_notes(tmp_path: Path) -> None:
    shop, kiln = tmp_path / "shop", tmp_path / "kiln"
    projects = tmp_path / "backup" / ".claude" / "projects"
    for number, project in enumerate((shop, kiln)):
        (project / ".git").mkdir(parents=True)
        place = projects / str(project).replace("/", "-")
        (place / "memory").mkdir(parents=True)
        said = {"role": "user", "content": f"the heron of {project.name} is asked first"}
        line = {"parentUuid": None, "type": "user", "uuid": str(number), "cwd": str(project), "message": said}
        (place / f"0000000{number}-1111-2222-3333-444444444444.jsonl").write_text(json.dumps(line) + "\n")
        (place / "memory" / "MEMORY.md").write_text(f"# Memory\n\nThe secret of {project.name} is an avocet.\n")
        (place / "tool-results").mkdir()
        (place / "tool-results" / "x.txt").write_text("the gannet is an output\n")
    (projects.parent / "CLAUDE.md").write_text("the dunlin is an instruction\n")
    assert places(str(projects.parent)) == [str(projects)]
    assert summary(projects) == "Claude Code projects, 2 Claude Code sessions, 2 Markdown files"

    async def test(house: House) -> None:
        scopes = {number: key for key, number in house.reader.scopes().items()}
        found = {(scopes[p.scope], p.text.strip()) for p in all_passages(house)}
        assert found == {
            (str(project), text)
            for project in (shop, kiln)
            for text in (
                f"the heron of {project.name} is asked first",
                f"The secret of {project.name} is an avocet.",
            )
        }

    run(tmp_path, projects, test)
