"""ChatGPT's export: the path that was seen last, who said it and when, and no conversation that spoils another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from export_samples import PEAK, START, conversation, said, write_array
from ingest_parsing import Outcome, parse
from recalld_daemon.ingest.parse import kind_of
from recalld_daemon.ingest.survey import survey

MEMORY_KB = 64 * 1024  # what reading may add, whatever the file's size; most of it is the largest conversation


def write(tmp_path: Path, *conversations: Any, name: str = "conversations.json", **dump: Any) -> Path:
    file = tmp_path / name
    file.write_text(json.dumps(list(conversations), **dump), encoding="utf-8")
    return file


def parsed(tmp_path: Path, *conversations: Any) -> Outcome:
    return parse(write(tmp_path, *conversations))


def test_both_speak_under_the_title_and_at_their_time(tmp_path: Path) -> None:
    one = said("a", 'How deep is the "inner" harbour?\nAt low tide.', at=START + 5)
    outcome = parsed(tmp_path, conversation(one, said("b", "Four metres, says the chart.", "assistant", at=None)))
    assert [(p.speaker, p.text, p.written_at) for p in outcome.passages] == [
        ("user", 'How deep is the "inner" harbour?\nAt low tide.', START + 5),
        ("assistant", "Four metres, says the chart.", START),
    ]
    assert {p.heading for p in outcome.passages} == {"Harbour"}
    assert (outcome.append_only, outcome.project, outcome.problems) == (False, "", [])


def test_an_abandoned_branch_is_not_read(tmp_path: Path) -> None:
    told = conversation(
        said("q", "the question about the harbour"),
        said("old", "an answer nobody kept", "assistant"),
        said("new", "the answer that was kept", "assistant", parent="q"),
    )
    assert parsed(tmp_path, told).texts == ["the question about the harbour", "the answer that was kept"]
    told["current_node"] = "old"
    assert parsed(tmp_path, told).texts == ["the question about the harbour", "an answer nobody kept"]


@pytest.mark.parametrize("current", [None, "gone", 7, ["x"]])
def test_without_a_current_node_the_message_written_last_ends_the_path(tmp_path: Path, current: Any) -> None:
    told = conversation(
        said("q", "the question about the harbour"),
        said("late", "the answer written last of all", "assistant", at=START + 9),
        said("early", "an answer written before it", "assistant", parent="q", at=START + 1),
        said("more", "with yet more words below", parent="early", at=START + 2),
        current_node=current,
    )
    assert parsed(tmp_path, told).texts[1:] == ["the answer written last of all"]
    del told["current_node"]
    for node in told["mapping"].values():
        if node["message"]:
            node["message"]["create_time"] = None
    assert parsed(tmp_path, told).texts[1:] == ["an answer written before it", "with yet more words below"]


def test_a_circle_of_parents_ends(tmp_path: Path) -> None:
    told = conversation(said("a", "round and round we go", parent="b"), said("b", "and round once more", parent="a"))
    assert set(parsed(tmp_path, told).texts) == {"round and round we go", "and round once more"}


@pytest.mark.parametrize(
    "silent",
    [
        {"author": {"role": "system"}},
        {"author": {"role": "tool", "name": "browser"}},
        {"author": None},
        {"recipient": "python"},
        {"channel": "analysis"},
        {"metadata": {"is_visually_hidden_from_conversation": True}},
        {"metadata": {"is_user_system_message": True}},
        {"content": None},
        {"content": {"content_type": "code", "text": "secret heron words"}},
        {"content": {"content_type": "thoughts", "thoughts": [{"content": "secret heron words"}]}},
        {"content": {"content_type": "user_editable_context", "user_profile": "secret heron words"}},
        {"content": {"content_type": "reasoning_recap", "parts": ["secret heron words here"]}},
        {"content": {"content_type": "text", "parts": [None, 7, [], {"asset_pointer": "secret heron words"}, ""]}},
        {"content": {"content_type": "text", "parts": ["thanks a"]}},
    ],
)
def test_what_neither_said_to_the_other_is_left_out(tmp_path: Path, silent: dict[str, Any]) -> None:
    node = said("x", "secret heron words here", "assistant")
    node["message"] |= silent
    told = conversation(said("a", "the first words of all"), node, said("b", "the last words of all"))
    outcome = parsed(tmp_path, told)
    assert (outcome.texts, outcome.problems) == (["the first words of all", "the last words of all"], [])


def test_parts_may_be_objects_with_a_text(tmp_path: Path) -> None:
    parts = [
        {"content_type": "audio_transcription", "text": "what I said aloud", "direction": "in"},
        {"content_type": "image_asset_pointer", "asset_pointer": "file://x", "size_bytes": 7},
        "and what I typed",
    ]
    node = said("a", parts)
    node["message"]["content"]["content_type"] = "multimodal_text"
    assert parsed(tmp_path, conversation(node)).texts == ["what I said aloud", "and what I typed"]


@pytest.mark.parametrize("keys", [sorted, lambda keys: sorted(keys, reverse=True), list])
def test_told_by_its_head_in_any_order_of_keys(tmp_path: Path, keys: Any) -> None:
    told = conversation(said("a", "the first words of all"))
    file = write(tmp_path, {key: told[key] for key in keys(told)}, name="export.json")
    assert kind_of(str(file)) == "chatgpt"
    file.write_text("\ufeff \n" + file.read_text())
    assert kind_of(str(file)) == "chatgpt"
    assert parse(file).texts == ["the first words of all"]


@pytest.mark.parametrize(
    "other",
    [
        "[]",
        "{}",
        '[{"mapping": {}}]',
        '[{"a": {"title": "x", "mapping": {}}}]',
        '["title", "mapping"]',
        '[{"uuid": "p", "name": "a project", "docs": [{"content": "heron"}]}]',
        '[{"uuid": "p", "full_name": "Ada", "email_address": "ada@example.org"}]',
        '{"id": "u", "email": "ada@example.org", "title": "x"}',
        '[{"id": "s", "conversation_id": "c", "title": "shared"}]',
        '{"title": "text \\"mapping\\": {} in a string"}',
    ],
)
def test_other_json_is_not_read(tmp_path: Path, other: str) -> None:
    file = tmp_path / "user.json"
    file.write_text(other)
    assert kind_of(str(file)) is None


def test_titles_without_faults(tmp_path: Path) -> None:
    for title, heading in [(None, ""), (7, ""), ("a\0b\ud83d \n c", "a\ufffdb\ufffd c"), ("x" * 999, "x" * 200)]:
        outcome = parsed(tmp_path, conversation(said("a", "the first words of all"), title=title))
        assert {p.heading for p in outcome.passages} == {heading}


def test_p016_secrets_are_masked_where_they_stand(tmp_path: Path) -> None:
    key = "AKIAQ3EGRZ7XN5W2KPLM"
    outcome = parsed(tmp_path, conversation(said("a", f"our key is {key} in the vault"), title=f"key {key}"))
    assert key not in outcome.all_text + outcome.passages[0].heading
    assert outcome.texts == [f"our key is {'█' * 20} in the vault"]


def test_p025_an_invalid_byte_costs_one_character(tmp_path: Path) -> None:
    file = write(tmp_path, *(conversation(said("a", f"the words of number{n} here")) for n in range(1, 5)))
    raw = file.read_bytes().replace(b"number2 here", b"number2 h\xffre").replace(b"number4 here", b"number4 h\xc3")
    file.write_bytes(raw)
    outcome = parse(file)
    assert [text.split()[3] for text in outcome.texts] == ["number1", "number2", "number3", "number4"]
    assert outcome.texts[1] == "the words of number2 h\ufffdre"
    starts = [raw.index(b'{"title"', at) for at in (2, raw.index(b"number3"))]
    assert [p.text for p in outcome.problems] == [f"conversation at byte {n}: 1 invalid bytes replaced" for n in starts]


def test_p031_nuls_and_halves_of_surrogate_pairs_are_replaced(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, conversation(said("a", "one \0 two \ud83d three \udda2 four 🦢")))
    assert outcome.texts == ["one \ufffd two \ufffd three \ufffd four 🦢"]
    assert outcome.problems == []


def test_a_garbled_conversation_is_told_with_its_byte_and_the_rest_is_read(tmp_path: Path) -> None:
    file = write(tmp_path, *(conversation(said("a", f"the words of number{n} here")) for n in range(1, 6)))
    raw = file.read_bytes()
    file.write_bytes(raw.replace(b'number3 here"', b"number3 here"))
    outcome = parse(file)
    assert [text.split()[3] for text in outcome.texts] == ["number1", "number2", "number4", "number5"]
    start = raw.rindex(b'{"title"', 0, raw.index(b"number3"))
    assert [p.text.split(": ")[0] for p in outcome.problems] == [f"conversation at byte {start}"]
    file.write_bytes(raw[: raw.index(b"number5")])
    outcome = parse(file)
    assert [text.split()[3] for text in outcome.texts] == ["number1", "number2", "number3", "number4"]
    assert len(outcome.problems) == 1


def test_a_message_of_another_shape_costs_itself(tmp_path: Path) -> None:
    told = conversation(
        said("a", "the first words of all"), said("b", "words in a box"), said("c", "the last words of all")
    )
    told["mapping"]["b"]["message"]["content"] = "words in a box"
    told["mapping"]["z"] = 7
    outcome = parsed(tmp_path, told, {"title": "x", "mapping": [], "current_node": None}, conversation(title="empty"))
    assert outcome.texts == ["the first words of all", "the last words of all"]
    assert len(outcome.problems) == 2
    assert outcome.problems[0].text.endswith(": 2 messages are garbled: left out")


def test_a_long_paste_is_read_in_pieces(tmp_path: Path) -> None:
    text = "\n".join(f"line {n} of the log \u00e9\u00df\U0001f9a2" for n in range(30_000))
    outcome = parsed(tmp_path, conversation(said("a", text)))
    words = outcome.all_text.split()
    assert words == text.split()


TREES = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(["user", "assistant", "tool"]), st.booleans()), min_size=1, max_size=10
)


@given(TREES, st.integers(0, 9), st.booleans(), st.randoms(use_true_random=False))
def test_any_tree_gives_the_path_above_its_current_node(
    tmp_path_factory: pytest.TempPathFactory,
    tree: list[tuple[int, str, bool]],
    current: int,
    ascii_only: bool,
    any: Any,
) -> None:
    nodes = [
        said(f"n{n}", f"words of node n{n} é\U0001f9a2", role, parent="root" if n == 0 else f"n{parent % n}")
        for n, (parent, role, _) in enumerate(tree)
    ]
    for node, (_, _, null) in zip(nodes, tree, strict=True):
        node["message"] = None if null else node["message"]
    current %= len(nodes)
    told = conversation(*nodes, current_node=f"n{current}")
    order = list(told["mapping"])
    any.shuffle(order)  # the file may hold the tree in any order
    told["mapping"] = {id: told["mapping"][id] for id in order}
    path, at = set(), current
    while True:
        path.add(f"n{at}")
        if at == 0:
            break
        at = tree[at][0] % at
    spoken = {f"n{n}" for n, (_, role, null) in enumerate(tree) if role != "tool" and not null}
    file = tmp_path_factory.mktemp("tree") / "conversations.json"
    file.write_text(json.dumps([told], ensure_ascii=ascii_only))
    outcome = parse(file)
    assert [text.split()[3] for text in outcome.texts] == [id for id in order if id in path & spoken]


def test_survey_counts_messages_and_dates(tmp_path: Path) -> None:
    told = conversation(
        said("a", "hm", at=START + 60), said("b", "the answer in full words", "assistant", at=START + 90)
    )
    file = write(tmp_path, told, told, conversation(title="empty"), 7)
    calls: list[tuple[int, int]] = []
    surveyed = survey(file, lambda done, total: calls.append((done, total)))
    assert (surveyed.kind, surveyed.label, surveyed.passages) == ("chatgpt", "ChatGPT export", 2)
    tally = surveyed.tally
    assert (tally.conversations, tally.messages, dict(tally.by)) == (3, 4, {"user": 2, "assistant": 2})
    assert (tally.first, tally.last) == (START + 60, START + 90)
    assert calls[-1] == (surveyed.size, surveyed.size) == (file.stat().st_size, file.stat().st_size)


def test_memory_is_bounded_whatever_the_size(tmp_path: Path) -> None:
    """200 MB, of which most is what tools wrote, as in a real export."""
    noise = said("t", "output " * 8_000, "tool")
    told = [
        conversation(said("a", f"what number {n} asks of us"), noise, said("b", "four metres at low tide", "assistant"))
        for n in range(9)
    ]
    file = tmp_path / "conversations.json"
    size = write_array(file, told, 200_000_000)
    done = subprocess.run([sys.executable, "-c", PEAK, str(file)], capture_output=True, text=True, check=True)
    kind, passages, grown = done.stdout.split()
    assert kind == "chatgpt"
    assert int(passages) > 2 * size // 70_000
    assert int(grown) < MEMORY_KB
