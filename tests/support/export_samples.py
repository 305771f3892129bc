"""Exports of chat services, made up: trees of ChatGPT's messages, and files of any length written on the fly."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

START = 1_700_000_000.0


def said(id: str, text: Any, role: str = "user", parent: str | None = None, at: float | None = START) -> dict[str, Any]:
    """A node of ChatGPT's tree. text: the parts, or the only one."""
    parts = text if isinstance(text, list) else [text]
    return {
        "id": id,
        "parent": parent,
        "children": [],
        "message": {
            "id": id,
            "author": {"role": role, "name": None, "metadata": {}},
            "create_time": at,
            "update_time": None,
            "content": {"content_type": "text", "parts": parts},
            "status": "finished_successfully",
            "metadata": {"model_slug": "a-model", "citations": []},
            "recipient": "all",
            "channel": None,
        },
    }


def conversation(*nodes: dict[str, Any], title: Any = "Harbour", **more: Any) -> dict[str, Any]:
    """A conversation of ChatGPT's; each node without a parent follows the one before it."""
    root: dict[str, Any] = {"id": "root", "parent": None, "children": [], "message": None}
    mapping = {"root": root}
    before = "root"
    for node in nodes:
        node["parent"] = node["parent"] or before
        mapping[node["id"]] = node
        before = node["id"]
    for node in nodes:
        if node["parent"] in mapping:
            mapping[node["parent"]]["children"].append(node["id"])
    whole = {"title": title, "create_time": START, "update_time": START, "mapping": mapping, "current_node": before}
    return whole | {"conversation_id": "c", "id": "c"} | more


def chat(*messages: dict[str, Any], name: Any = "Harbour", **more: Any) -> dict[str, Any]:
    """A conversation of Claude.ai's."""
    whole = {"uuid": "u", "name": name, "summary": "", "created_at": "2024-05-01T10:00:00.000000Z"}
    return whole | {"account": {"uuid": "a"}, "chat_messages": list(messages)} | more


def message(text: Any, sender: str = "human", **more: Any) -> dict[str, Any]:
    """One of its messages, which says what it says twice."""
    blocks = [{"type": "text", "text": text, "citations": []}]
    whole = {"uuid": "m", "text": text, "content": blocks, "sender": sender, "attachments": [], "files": []}
    return whole | {"created_at": "2024-05-02T10:00:00.000000Z"} | more


def write_array(path: Path, elements: Iterable[Any], least_bytes: int = 0) -> int:
    """Write a JSON array, its elements over and over until the file has so many bytes; returns its size."""
    texts = [json.dumps(element).encode() for element in elements]
    with path.open("wb") as file:
        file.write(b"[")
        n = 0
        while n < len(texts) or file.tell() < least_bytes:
            file.write((b", " if n else b"") + texts[n % len(texts)])
            n += 1
        file.write(b"]")
        return file.tell()


PEAK = """
import resource, sys
from recalld_daemon.ingest.parse import kind_of, parse_file
path = sys.argv[1]
kind = kind_of(path)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
passages = sum(len(parsed.passages) for parsed in parse_file(path, kind, 0))
print(kind, passages, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""  # what a process of its own prints: kind, passages, and by how many KB its memory grew at most
