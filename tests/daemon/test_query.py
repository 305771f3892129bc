"""A focus becomes a query: the tool call first, never a tool's result, and silence where nothing is asked."""

from __future__ import annotations

import doctest
import json
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld_daemon.recall import fusion, late, query, signals, snippet, words
from recalld_daemon.recall.query import (
    TERM_LIMIT,
    TEXT_WORDS,
    cut_words,
    file_stems,
    opened_by,
    query_of,
    render_tool,
    terms_of,
)
from recalld_daemon.recall.types import Focus
from recalld_daemon.recall.words import content_stems, weight_of


@pytest.mark.parametrize("module", [query, words, fusion, late, signals, snippet], ids=lambda module: module.__name__)
def test_the_examples_in_the_docs_hold(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0


def call(name: str, **args: object) -> Focus:
    return Focus(tool_name=name, tool_args=json.dumps(args))


def test_the_tool_call_comes_first_then_user_then_assistant() -> None:
    focus = Focus("bash", '{"command": "git push origin main"}', "ship the billing fix", "I will push the branch")
    assert query_of(focus).text == "bash: git push origin main. ship the billing fix. I will push the branch"


def test_without_a_tool_the_user_asks() -> None:
    found = query_of(Focus(user_text="why does the nightly export fail?", assistant_text="let me look"))
    assert found.text.startswith("why does the nightly export fail?")
    assert "nightly" in found.terms
    assert "why" not in found.terms


@pytest.mark.parametrize(
    ("focus", "line"),
    [
        (
            call("Read", file_path="/home/ada/work/app/src/auth/login.py", offset=80, limit=40),
            "Read: src/auth/login.py",
        ),
        (call("Bash", command="cargo test -p ledger", timeout=60000), "Bash: cargo test -p ledger"),
        (call("Grep", pattern="retry_backoff", output_mode="files"), "Grep: retry_backoff"),
        (call("Deploy", target="staging", options={"dry_run": True}), "Deploy: target staging"),
        (call("Write", file_path="a.md", content="word " * 500), "Write: a.md. " + "word " * 11 + "word"),
        (call("Bash", command="make ship 2>/dev/null >&1 | head", run_in_background=True), "Bash: make ship | head"),
        (Focus("run", "plain text arguments"), "run: plain text arguments"),
        (Focus("Edit", '{"file_path": "src/x.py", "new_string": "cut off in the mid'), "Edit: src/x.py"),
    ],
)
def test_arguments_read_as_a_person_would_write_them(focus: Focus, line: str) -> None:
    assert render_tool(focus.tool_name, focus.tool_args) == line


@pytest.mark.parametrize("text", ["ok", "thanks", "go on", "Yes!", "ok, thanks", "please continue", "👍", "", "  \n"])
def test_p010_small_talk_asks_nothing_and_says_so(text: str) -> None:
    found = query_of(Focus(user_text=text, assistant_text="The ledger migration is done."))
    assert (found.text, found.terms, found.key) == ("", (), "")
    assert found.silence


@pytest.mark.parametrize("command", ["ls", "ls -la", "pwd", "cd ..", "git status", "cat", "git diff"])
def test_p010_a_mute_command_asks_nothing_whatever_was_said_before(command: str) -> None:
    found = query_of(Focus("bash", json.dumps({"command": command}), "fix the ledger migration"))
    assert found.text == ""
    assert command in found.silence


def test_trivially_equal_queries_repeat() -> None:
    one = query_of(Focus(user_text="Why does  the export fail?"))
    assert one.key == query_of(Focus(user_text="why does the export fail")).key
    assert one.key != query_of(Focus(user_text="why does the import fail")).key


def test_terms_hold_identifiers_whole_and_in_parts_most_telling_first() -> None:
    terms = terms_of("the function parseLedgerRow in src/billing/import_rows.py")
    assert {"parseledgerrow", "ledger", "import", "rows", "src/billing/import_rows.py"} <= set(terms)
    weights = [weight_of(term) for term in terms]
    assert weights == sorted(weights, reverse=True)
    assert "the" not in terms


def test_p011_words_that_only_file_names_bring_are_known() -> None:
    assert file_stems("Edit: src/index.js") == {"src", "index", "js"}
    assert file_stems("Edit: CLAUDE.md. release checklist") == {"claude", "md"}
    assert file_stems("Read: docs/ledger.md. how the ledger balances") == {"doc", "md"}


@given(st.text(max_size=400), st.text(max_size=400), st.text(max_size=400))
def test_any_text_gives_a_bounded_query(args: str, said: str, answered: str) -> None:
    found = query_of(Focus("tool", args, said, answered))
    assert len(found.text.split()) <= TEXT_WORDS + 3
    assert len(found.terms) <= TERM_LIMIT
    assert bool(found.text) != bool(found.silence)


scalars = st.text(max_size=20) | st.integers() | st.booleans() | st.none()
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


@given(json_values)
def test_any_json_renders_to_one_line(value: object) -> None:
    assert "\n" not in render_tool("tool", json.dumps(value))


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    words_in = [f"w{i}" for i in range(100)]
    kept = cut_words(" ".join(words_in), 12).split()
    assert kept == words_in[:8] + words_in[-4:]


def test_ordinary_words_weigh_little_and_unseen_ones_most() -> None:
    assert weight_of("the") == 0.0
    assert weight_of("file") < 0.45
    assert weight_of("test") < 0.5
    assert weight_of("zzxv") == 1.0


def test_stems_let_plurals_meet() -> None:
    assert content_stems("two hooks") & content_stems("one hook") == {"hook"}


def test_the_files_a_tool_call_opens() -> None:
    assert opened_by(call("Edit", file_path="/w/src/a.py", new_string="use b")) == ("/w/src/a.py",)
    assert opened_by(call("bash", command="cat notes/deploy.md | head -3")) == ("notes/deploy.md",)
    assert opened_by(Focus(user_text="open notes/deploy.md")) == ()


def test_hashes_and_numbers_come_last() -> None:
    terms = terms_of("why did 132b2f66-ee5f break port 8080 of the gateway")
    assert terms.index("gateway") < terms.index("port") < terms.index("8080")
    assert set(terms[-2:]) == {"8080", "132b2f66-ee5f"}


def test_a_query_names_the_files_that_its_call_opens() -> None:
    read = query_of(Focus("Read", '{"file_path": "/w/notes/deploy.md"}', "how do we deploy the ledger"))
    assert read.opened == ("/w/notes/deploy.md",)
    assert query_of(Focus(user_text="see notes/deploy.md about the ledger")).opened == ()
