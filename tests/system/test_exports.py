"""Exports in a watched directory: a real daemon reads them, quotes them by their bytes, and tells what was wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from export_samples import chat, conversation, message, said
from recalld_daemon.demo.private import PrivateDaemon
from recalld_daemon.ingest.offsets import decode_span
from recalld_protocol.messages import Hit, Hits, Search
from running import running

pytestmark = pytest.mark.models

CODECS = {".json": "json", ".af": "json", ".txt": "utf-8"}


def search(daemon: PrivateDaemon, query: str) -> Hit:
    hits = daemon.link.request(Search(query=query, limit=1, all_scopes=True), 30.0)
    assert isinstance(hits, Hits)
    return hits.hits[0]


@pytest.fixture
def exports(tmp_path: Path) -> Path:
    place = tmp_path / "exports"
    for name in ("chatgpt", "claude"):
        (place / name).mkdir(parents=True)
    asked = said("a", 'How deep is the "inner" harbour \U0001f9a2\nat the lowest tide?')
    whole = json.dumps([conversation(asked), conversation(said("b", "The crane needs new cables.")), {"title": "torn"}])
    (place / "chatgpt" / "conversations.json").write_text(whole[:-3])
    attached = [{"file_name": "bees.txt", "extracted_content": "Honey is harvested twice,\nin June and in August."}]
    (place / "claude" / "conversations.json").write_text(json.dumps([chat(message("see this", attachments=attached))]))
    (place / "claude" / "users.json").write_text('[{"uuid": "u", "full_name": "Ada of the zeppelin hangar"}]')
    memory = {"agents": [], "blocks": [{"label": "human", "value": "Ada sails a wooden sloop called Teal."}]}
    (place / "master.af").write_text(json.dumps(memory))
    lines = [
        "30/12/2020, 13:00 - Ana: the lighthouse lamp",
        "30/12/2020, 13:01 - Ana: was replaced by Ben\u2019s brother",
    ]
    (place / "WhatsApp Chat with Ana.txt").write_text("\n".join(lines), encoding="utf-8")
    return place


def test_each_export_is_found_and_quoted_by_its_bytes(exports: Path, tmp_path: Path, model_cache: Path) -> None:
    with running(tmp_path / "home", model_cache, [exports]) as daemon:
        for query, name, words in [
            ("depth of the inner harbour", "chatgpt/conversations.json", 'the "inner" harbour \U0001f9a2\nat'),
            ("cables of the crane", "chatgpt/conversations.json", "The crane needs new cables."),
            ("when is honey harvested", "claude/conversations.json", "twice,\nin June"),
            ("what boat does Ada sail", "master.af", "a wooden sloop called Teal"),
            ("who replaced the lighthouse lamp", "WhatsApp Chat with Ana.txt", "Ben\u2019s brother"),
        ]:
            hit = search(daemon, query)
            assert hit.path == f"exports/{name}"
            raw = (exports / name).read_bytes()[hit.start : hit.end]
            assert decode_span(raw, CODECS[Path(name).suffix]) == hit.text
            assert words in hit.text
        assert "zeppelin" not in search(daemon, "zeppelin hangar").text
        status = daemon.status()
        assert status is not None
        assert status.topics["index"]["problems"] == 1  # the conversation that was cut off
