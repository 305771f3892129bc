"""What we put into a context is never read back as if somebody had said it (P013), wherever and however it stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_parsing import parse
from recalld_client.injection import Injection
from recalld_daemon.ingest.holes import holes, solids
from recalld_daemon.recall.packing import HEAD

LINE = 'recalled: "… the harbour pump needs two keys …" — notes/pump.md:15-60 (2026-03-02)'
BEFORE, AFTER = "We looked at the pump first.", "Then both keys were found again."
BLOCK = f"""{HEAD}
- 2 March 2026 · Ada: "the harbour pump needs two keys" (notes/pump.md:15-60)
- "'heron' stands in the reeds (see b.md:1-2)" (notes/a b.md:0-9)"""


def left(text: str, *, host: bool = False) -> str:
    """What of a text may become passages."""
    return "|".join(text[a:b].strip() for a, b in solids(text, holes(text, host=host)) if text[a:b].strip())


def markdown(text: str) -> tuple[str, str]:
    return "note.md", text


def claude_code(text: str) -> tuple[str, str]:
    record = {"parentUuid": None, "type": "assistant", "message": {"content": [{"type": "text", "text": text}]}}
    return "session.jsonl", json.dumps(record) + "\n"


def unescaped(text: str) -> tuple[str, str]:
    name, lines = claude_code(text)
    return name, json.dumps(json.loads(lines), ensure_ascii=False) + "\n"


def codex(text: str) -> tuple[str, str]:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    lines = [{"type": "session_meta", "payload": {"cwd": "/p"}}, {"type": "response_item", "payload": item}]
    return "rollout-1.jsonl", "".join(json.dumps(line) + "\n" for line in lines)


def copilot(text: str) -> tuple[str, str]:
    lines = [{"type": "session.start", "data": {}}, {"type": "assistant.message", "data": {"content": text}}]
    return "events.jsonl", "".join(json.dumps(line) + "\n" for line in lines)


def gemini(text: str) -> tuple[str, str]:
    lines = [
        {"sessionId": "s", "projectHash": "h"},
        {"id": "1", "type": "user", "content": [{"text": text}], "timestamp": "2026-03-02T10:00:00Z"},
    ]
    return "session-1.jsonl", "".join(json.dumps(line) + "\n" for line in lines)


def chatgpt(text: str) -> tuple[str, str]:
    message = {"author": {"role": "assistant"}, "content": {"content_type": "text", "parts": [text]}}
    mapping = {"a": {"id": "a", "parent": None, "children": [], "message": message}}
    return "conversations.json", json.dumps([{"title": "t", "current_node": "a", "mapping": mapping}])


Written = Callable[[str], tuple[str, str]]
KINDS: list[Written] = [markdown, claude_code, unescaped, codex, copilot, gemini, chatgpt]


@pytest.mark.parametrize("written", KINDS)
def test_p013_a_rendered_line_is_a_hole_and_what_stands_around_it_stays(written: Written, tmp_path: Path) -> None:
    name, content = written(f"{BEFORE} {LINE} {AFTER}\n\n{BEFORE}\n{LINE}\n{AFTER}\n\n{BLOCK}\n\n{AFTER}")
    (tmp_path / name).write_text(content)
    outcome = parse(tmp_path / name)
    assert outcome.problems == []
    said = " ".join(outcome.all_text.split())
    assert (said.count(BEFORE), said.count(AFTER)) == (2, 3)
    assert not any(word in said for word in ("recalled", "harbour", "heron", "pump.md", "From memory"))


words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=120).map(lambda text: f"zugvogel {text} zugvogel")
paths = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60)
injections = st.builds(
    Injection,
    id=st.just("i"),
    text=words,
    path=paths.map(lambda path: f"/notes/{path}.md"),
    start=st.integers(0, 10**9),
    end=st.integers(0, 10**9),
    date=st.sampled_from(["", "2026-03-02"]),
)
around = st.text(st.sampled_from("ab .\n\t\"'`*->1:—…\\"), max_size=40)


@settings(max_examples=300, deadline=None)
@given(injection=injections, before=around, after=around, nested=st.integers(0, 3), ascii=st.booleans())
def test_p013_of_any_injection_in_any_text_nothing_is_left(
    injection: Injection, before: str, after: str, nested: int, ascii: bool
) -> None:
    line = injection.render()
    for _ in range(nested):  # a log of a log of it
        line = json.dumps({"additionalContext": line}, ensure_ascii=ascii)
    rest = left(before + line + after)
    assert "zugvogel" not in rest
    assert "recalled:" not in rest


@settings(max_examples=60, deadline=None)
@given(injection=injections, before=around, after=around, written=st.sampled_from(KINDS))
def test_p013_no_passage_of_any_kind_of_source_holds_an_injection(
    tmp_path_factory: pytest.TempPathFactory, injection: Injection, before: str, after: str, written: Written
) -> None:
    name, content = written(f"{BEFORE} {before}{injection.render()}{after}")
    file = tmp_path_factory.mktemp("echo") / name
    file.write_bytes(content.encode("utf-8", "surrogatepass"))
    assert "zugvogel" not in parse(file).all_text


@pytest.mark.parametrize(
    "wrapped",
    [
        f"<hook_context>{LINE}\nof herons</hook_context>",
        f"<system-reminder>\nPostToolBatch hook additional context: {LINE} herons\n</system-reminder>",
        f"UserPromptSubmit hook additional context: {LINE}",
        f'Tool "bash" succeeded. Additional guidance from postToolUse hooks:\n{LINE}',
        f"<user-prompt-submit-hook>{LINE}</user-prompt-submit-hook>",
        "<system_reminder>\nherons and hooks\n</system_reminder>",
        f"<hook_context>{LINE}\nherons without an end",
        "recalled: “… the harbour pump\nneeds two keys …” – notes/pump.md:15-60",
        'recalled: "… the harbour pump needs two ke',
        'recalled: "... the harbour pump needs two keys ..." - notes/pump.md:15-60 (2026-03-02)',
        LINE.capitalize(),
        "recalled: &quot;… the harbour pump needs two keys …&quot; — notes/pump.md:15-60",
        f"> {LINE}\n> {LINE}",
        BLOCK,
        json.dumps({"text": BLOCK}),
        json.dumps(json.dumps({"text": BLOCK})),
    ],
)
def test_p013_hosts_wrappers_and_rewritten_lines_are_holes_too(wrapped: str) -> None:
    rest = left(f"{BEFORE}\n\n{wrapped}", host=True)
    assert rest.startswith(BEFORE)
    assert not any(word in rest for word in ("recalled", "harbour", "keys", "heron", "hook", "pump.md"))


@pytest.mark.parametrize(
    "prose",
    [
        "He recalled: the harbour pump needs two keys.",
        'She recalled: "the pump needs two keys" — and was right.',
        "Total recalled: 12 of 40 passages (a.md:1-2).",
        "The hook puts it into `<hook_context>` and Gemini strips it, which is where herons come in.",
        "From memory, oldest first: the pump, the heron, the keys.",
        "The additional context: two keys.",
    ],
)
def test_prose_that_only_sounds_like_it_is_not_harmed(prose: str) -> None:
    assert left(prose) == prose


@pytest.mark.parametrize("opening", ["<hook_context ", "<system-reminder>", f"{HEAD}\n- ", 'recalled: "… a …" — '])
def test_many_openings_without_an_end_take_one_pass(opening: str) -> None:
    """Looking for each one's end to the end of the text would take hours here."""
    assert holes(opening * 20_000, host=True)[-1][1] <= len(opening) * 20_000
