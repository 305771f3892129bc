"""Small made-up files in the schemas of the evaluation sets, as a judge would lay them out."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TALKS = {
    "talk-1": ("Ilse", "Bram", "lighthouse", "kayak"),
    "talk-2": ("Oona", "Piet", "greenhouse", "trombone"),
    "talk-3": ("Rhea", "Sven", "beehive", "telescope"),
}


def locomo_entry(name: str) -> dict[str, Any]:
    """A conversation of two sessions about two things, with one question of each kind, its evidence dirty."""
    one, two, place, thing = TALKS[name]
    first = [
        (one, f"I visited the old {place} near the harbour last week."),
        (two, "How lovely! Did you go there alone?"),
        (one, "My sister came along and took pictures."),
        (two, "I spent the whole weekend in the garden."),
    ]
    second = [
        (two, f"Guess what, I bought a second-hand {thing} yesterday."),
        (one, "What did you pay for it?"),
        (two, "Ninety euros, from a neighbour who moves away."),
        (one, "I have started to bake bread on Sundays."),
    ]
    talk: dict[str, Any] = {"speaker_a": one, "speaker_b": two, "session_3_date_time": "1:00 pm on 9 May, 2024"}
    for number, turns in ((1, first), (2, second)):
        talk[f"session_{number}_date_time"] = f"4:0{number} pm on {number} May, 2024"
        talk[f"session_{number}"] = [
            {"speaker": who, "dia_id": f"D{number}:{at}", "text": text} for at, (who, text) in enumerate(turns, 1)
        ]
    talk["session_1"][2]["blip_caption"] = f"a photo of a {place}"
    rows = [
        (f"Which place near the harbour did {one} visit?", ["D1:1; D1:03"], 4),
        (f"When did {two} buy a {thing}?", ["D:2:1"], 2),
        (f"Who came along with {one} to the {place}?", ["D1:3", "D1:99"], 1),
        (f"What does {one} bake?", ["D02:04"], 4),
        (f"Would {two} be called thrifty?", ["D2:3"], 3),
        (f"What colour is the {thing} of {one}?", ["D2:1"], 5),
        ("What is never said?", ["D"], 4),
        ("What has no evidence?", [], 3),
    ]
    qa = [{"question": q, "evidence": e, "category": c, "answer": "-"} for q, e, c in rows]
    return {"sample_id": name, "conversation": talk, "qa": qa}


def write_locomo(directory: Path, names: Iterable[str] = TALKS) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "locomo_small.json"
    file.write_text(json.dumps([locomo_entry(name) for name in names]))
    return file


def write_notes(root: Path) -> None:
    """A vault with labels of all three kinds, as til has them."""
    notes = {
        "tools/prune-old-branches.md": "# Prune Old Branches\n\nDelete merged heads with `git branch -d`.\n",
        "tools/list-open-ports.md": "# List Open Ports\n\nUse `ss -ltn` to see which sockets listen.\n",
        "kitchen/sharpen-a-knife.md": "# Sharpen A Knife\n\nHold the whetstone wet, at twenty degrees.\n",
    }
    for name, text in notes.items():
        (root / "vault" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "vault" / name).write_text(text)
    first, second, third = notes
    write_lines(root / "labels_title.jsonl", [{"qid": "t0", "query": "Sharpen A Knife", "gold": [third]}])
    commit = {"qid": "c0", "query": "Which sockets listen on this machine", "gold": [second], "title_overlap": 0.1}
    write_lines(root / "labels_commit.jsonl", [commit | {"date": "2024-05-01", "change": "A"}])
    link = {"qid": "l0", "query": "see how to delete merged heads", "source": third, "gold": [first, third]}
    write_lines(root / "labels_crosslink.jsonl", [link])


def write_sessions(root: Path) -> None:
    """Three coding sessions with tool calls, a commit and a later prompt, as entire_cli has them."""
    said = {
        "s1": ("please cache the rendered tiles on disk", "The tile cache now lives below the data directory."),
        "s2": ("the parser chokes on empty headers", "Empty headers are skipped and counted."),
        "s3": ("make the tile cache smaller", "Tiles older than a month are dropped."),
    }
    rows = []
    for number, (name, (asked, answered)) in enumerate(said.items(), 1):
        events = [
            {"line": 1, "ts": f"2024-05-0{number}T10:00:00Z", "role": "user", "text": asked},
            {"line": 2, "ts": f"2024-05-0{number}T10:00:09Z", "role": "tool_call", "text": "Grep: tile_cache :: src"},
            {"line": 3, "ts": f"2024-05-0{number}T10:01:00Z", "role": "assistant", "text": answered},
        ]
        rows.append({"session_id": name, "first_checkpoint": f"2024-05-0{number}T11:00:00+00:00", "events": events})
    root.mkdir(parents=True, exist_ok=True)
    with lzma.open(root / "sessions_slim.jsonl.xz", "wt") as file:
        file.write("\n".join(map(json.dumps, rows)))
    commit = {"qid": "c1", "query": "Skip headers that are empty", "gold": ["s2"], "subject_verbatim_in_session": False}
    write_lines(root / "commit_to_session.jsonl", [commit | {"body": "", "date": "2024-05-02"}])
    prompt = {"qid": "p1", "session_id": "s3", "query": "make the tile cache smaller", "gold": {"s1": 0.7, "s3": 1.0}}
    write_lines(root / "prompt_to_earlier_sessions.jsonl", [prompt])


def write_beam(root: Path) -> None:
    asked = "Please always answer in metric units."
    turns = [
        {"id": 0, "role": "user", "batch": 1, "text": asked, "time_anchor": "May-01-2024"},
        {"id": 1, "role": "assistant", "batch": 1, "text": "Understood, metric units it is."},
        {"id": 2, "role": "user", "batch": 2, "text": "How long is the ferry to the island?"},
    ]
    root.mkdir(parents=True, exist_ok=True)
    write_lines(root / "beam1k_chats.jsonl", [{"chat_id": "b-1", "turns": turns}])
    label = {"qid": "b0", "chat_id": "b-1", "ability": "instruction_following", "query": "Answer in which units?"}
    write_lines(root / "beam1k_labels.jsonl", [label | {"gold": [0]}, label | {"qid": "b1", "gold": []}])


def write_cues(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    memory = "A: After the flood we keep all papers upstairs.\nB: A dry place for them."
    row = {"qid": "q", "memory_id": "m1", "memory": memory, "trigger": "A: The attic is full of folders now."}
    other = {"qid": "r", "memory_id": "m2", "memory": "A: I sold the boat.\nB: Good.", "trigger": "A: No more sailing."}
    write_lines(root / "cues.jsonl", [row, other])


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
