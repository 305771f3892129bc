"""Settings changed as text: what is not ours stays byte for byte, what is ours comes and goes as a whole."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import settings_written
from recalld_client.hosts.hook_command import hook_command
from recalld_client.hosts.installing.edits import insert, undo, without
from recalld_client.hosts.installing.entries import FORMS, MARK_HEADER, Form, Way, claude_events
from recalld_client.hosts.installing.jsonc import DEPTH_LIMIT, Unparsable, parse
from recalld_client.hosts.installing.marks import is_ours
from recalld_client.hosts.installing.settings import (
    NotSettings,
    found,
    is_bare,
    is_current,
    put_in,
    taken_out,
    undone,
)
from recalld_protocol.hook_http import HttpHook

HTTP = HttpHook(23_456, "t0ken")
forms = st.sampled_from(sorted(FORMS)).map(FORMS.__getitem__)


def way_of(form: Form) -> Way:
    return Way(http=HTTP if form.host == "claude-code" else None, python="/opt/py thon/bin/python3")


def merged(value: dict[str, Any], form: Form) -> dict[str, Any]:
    """What the settings must mean afterwards: the user's, and ours at the end of each list."""
    whole = copy.deepcopy(value)
    for event, item in form.entries(way_of(form)).items():
        whole.setdefault("hooks", {}).setdefault(event, []).append(item)
    return whole


# ---------------------------------------------------------------- the tree


@given(st.data(), settings_written.values, st.booleans())
def test_the_tree_holds_what_json_reads(data: st.DataObject, value: Any, comments: bool) -> None:
    text = data.draw(settings_written.written(value, comments))
    root = parse(text, comments=comments)
    assert root.value == value
    assert json.loads(text[root.start : root.end]) == value if not comments else True


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1), ("{", 1),
        ('{"a" 1}', 1), ('{\n"a": 1,\n}', 3), ("[1 2]", 1), ('{"a": tru}', 1), ('"\n"', 1), ("1 2", 1),
        ("{\r\n\r\n'a': 1}", 3), ('{"a": 1} // c', 1), ('{/* c */}', 1), ("[" * (DEPTH_LIMIT + 2), 1), ("01", 1),
        ('{"a": "\\x"}', 1), ("NaN", 1), ("9" * 5000, 1),
    ],
)  # fmt: skip
def test_what_is_no_json_is_told_with_its_line(text: str, line: int) -> None:
    with pytest.raises(Unparsable) as caught:
        parse(text)
    assert caught.value.line == line


def test_the_last_of_two_equal_keys_counts() -> None:
    root = parse('{"a": 1, "a": [2]}')
    member = root.member("a")
    assert member is not None
    assert (member.value, member.start, len(root.children)) == ([2], 14, 2)


# ---------------------------------------------------------------- putting in and taking out


@given(st.data(), settings_written.values.filter(lambda value: isinstance(value, dict | list)), st.booleans())
def test_what_is_inserted_is_there_and_goes_without_a_trace(data: st.DataObject, value: Any, comments: bool) -> None:
    text = data.draw(settings_written.written(value, comments))
    new, key = {"x": [1, "y"]}, "\u00e9 key" if isinstance(value, dict) else None
    changed, spans = insert(text, parse(text, comments=comments), new, key, comments=comments)
    expected = value | {key: new} if isinstance(value, dict) else [*value, new]
    assert parse(changed, comments=comments).value == expected
    assert undo(changed, spans) == text


@given(st.data(), settings_written.values.filter(lambda value: isinstance(value, dict | list) and value), st.booleans())
def test_any_child_can_be_taken_out(data: st.DataObject, value: Any, comments: bool) -> None:
    text = data.draw(settings_written.written(value, comments))
    index = data.draw(st.integers(0, len(value) - 1))
    left = parse(without(text, parse(text, comments=comments), index, comments=comments), comments=comments).value
    assert left == ([*value[:index], *value[index + 1 :]] if isinstance(value, list) else without_key(value, index))


@pytest.mark.parametrize(
    ("text", "index", "expected"),
    [
        ("[0,// c\n1,2\n]", 1, "[0// c\n,2\n]"),
        ("[0, // c\n  1\n]", 1, "[0 // c\n]"),
        ("[// c\n1]", 0, "[// c\n]"),
        ("[ 1 ]", 0, "[]"),
        ("[\n  0,\n  1\n]", 0, "[\n  1\n]"),
    ],
)
def test_a_comment_swallows_nothing_when_its_neighbour_goes(text: str, index: int, expected: str) -> None:
    assert without(text, parse(text, comments=True), index, comments=True) == expected


def without_key(value: dict[str, Any], index: int) -> dict[str, Any]:
    return {key: part for place, (key, part) in enumerate(value.items()) if place != index}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', '{"a": 1, "k": [1]}'),
        ("{}", '{\n  "k": [\n    1\n  ]\n}'),
        ('{\n\t"a": 1\n}\n', '{\n\t"a": 1,\n\t"k": [\n\t\t1\n\t]\n}\n'),
        ('{\r\n    "a": 1\r\n}', '{\r\n    "a": 1,\r\n    "k": [\r\n        1\r\n    ]\r\n}'),
        ('{\n  "a": 1 // one\n}', '{\n  "a": 1, // one\n  "k": [\n    1\n  ]\n}'),
        ("{ // nothing yet\n}", '{ // nothing yet\n  "k": [\n    1\n  ]\n}'),
    ],
)
def test_what_goes_in_looks_like_what_is_there(text: str, expected: str) -> None:
    assert insert(text, parse(text, comments=True), [1], "k", comments=True)[0] == expected


# ---------------------------------------------------------------- a whole settings file


@settings(max_examples=100, deadline=None)
@given(st.data(), settings_written.settings(), forms)
def test_p049_install_then_uninstall_is_nothing(data: st.DataObject, value: dict[str, Any], form: Form) -> None:
    text = data.draw(settings_written.written(value, form.comments))
    installed = put_in(text, form, form.entries(way_of(form)))
    assert parse(installed.text, comments=form.comments).value == merged(value, form)
    assert is_current(installed.text, form, form.entries(way_of(form)))
    assert undone(installed.text, installed.steps) == text


@settings(max_examples=80, deadline=None)
@given(st.data(), settings_written.settings(), forms)
def test_p049_without_a_note_the_users_own_is_left(data: st.DataObject, value: dict[str, Any], form: Form) -> None:
    """Nobody knows any more what it was, only what is ours: the meaning is as before, but for what is empty."""
    text = data.draw(settings_written.written(value, form.comments))
    installed = put_in(text, form, form.entries(way_of(form)))
    left = parse(taken_out(installed.text, form, installed.made), comments=form.comments).value
    assert left == value
    assert not found(taken_out(installed.text, form), form)


@settings(max_examples=40, deadline=None)
@given(st.data(), settings_written.settings(), forms)
def test_twice_is_once(data: st.DataObject, value: dict[str, Any], form: Form) -> None:
    text = data.draw(settings_written.written(value, form.comments))
    once = put_in(text, form, form.entries(way_of(form)))
    again = put_in(taken_out(once.text, form, once.made), form, form.entries(way_of(form)))
    assert parse(again.text, comments=form.comments).value == parse(once.text, comments=form.comments).value


@pytest.mark.parametrize("form", FORMS.values(), ids=lambda form: form.host)
def test_a_file_of_our_own_becomes_nothing_again(form: Form) -> None:
    installed = put_in("", form, form.entries(way_of(form)))
    assert installed.text.endswith("}\n")
    assert undone(installed.text, installed.steps) == ""
    assert is_bare(taken_out(installed.text, form, installed.made), form)
    user_added = installed.text.replace('{\n  "', '{\n  "mine": 1,\n  "', 1)
    assert not is_bare(taken_out(user_added, form, installed.made), form)


def test_what_somebody_put_beside_ours_stays() -> None:
    form = FORMS["codex"]
    installed = put_in("{}", form, form.entries(way_of(form)))
    value = json.loads(installed.text)
    value["hooks"]["Stop"][0]["hooks"].append({"type": "command", "command": "say done"})
    value["hooks"]["Notification"] = []
    left = json.loads(taken_out(json.dumps(value), form, installed.made))
    assert left == {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}], "Notification": []}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "line 1: an object"), ('{\n"hooks": 3}', 'line 2: "hooks" is no object'),
        ('{"hooks": {\n\n"Stop": {}}}', 'line 3: "Stop" in "hooks" is no list'), ('{"a": 1,}', "line 1"),
    ],
)  # fmt: skip
def test_settings_that_are_none_are_told(text: str, told: str) -> None:
    form = FORMS["codex"]
    with pytest.raises(NotSettings, match=told):
        put_in(text, form, form.entries(way_of(form)))


def test_comments_only_where_the_host_reads_them() -> None:
    text = '{\n  // mine\n  "a": 1\n}'
    assert "// mine" in put_in(text, FORMS["gemini"], FORMS["gemini"].entries(way_of(FORMS["gemini"]))).text
    with pytest.raises(NotSettings, match="comment"):
        put_in(text, FORMS["claude-code"], FORMS["claude-code"].entries(way_of(FORMS["claude-code"])))


def test_an_older_versions_entry_is_found_and_a_narrowed_one_is_not_current() -> None:
    form = FORMS["codex"]
    older = form.entries(Way(python="/gone/python3.9"))
    text = put_in("{}", form, older).text
    assert len(found(text, form)) == len(older)
    assert not is_current(text, form, form.entries(way_of(form)))
    narrowed = json.loads(put_in("{}", form, form.entries(way_of(form))).text)
    narrowed["hooks"]["PostToolUse"][0]["matcher"] = "Bash"
    assert not is_current(json.dumps(narrowed), form, form.entries(way_of(form)))


# ---------------------------------------------------------------- what is ours


@pytest.mark.parametrize(
    "handler",
    [
        {"type": "command", "command": "node ~/recalld-notes/x.js"},
        {"type": "command", "command": "python /home/me/recalld_client/hosts/hook.py codex"},
        {"type": "command", "command": "python -c 'print(1)' /home/me/recalld_client codex"},
        {"type": "command", "command": "python -c x /x/recalld_client/hosts gemini"},
        {"type": "command", "command": "it's not closed /x/recalld_client/hosts codex"},
        {"type": "http", "url": "http://127.0.0.1:80/hooks/codex", "headers": {"Authorization": "Bearer x"}},
        {"type": "http", "url": "http://127.0.0.1:80/hooks/codex/more", "headers": {MARK_HEADER: "1"}},
        {"type": "http", "url": "http://recalld.example/hooks/codex", "headers": {MARK_HEADER: "1"}},
        {"type": "http", "url": "http://127.0.0.1:x/hooks/codex", "headers": {MARK_HEADER: "1"}},
        {"type": "http", "url": "http://[", "headers": {MARK_HEADER: "1"}},
        {"type": "http"}, {"command": 3}, "recalld", None, [],
    ],
)  # fmt: skip
def test_p049_no_word_makes_a_hook_ours(handler: Any) -> None:
    assert not is_ours(handler, "codex")


@pytest.mark.parametrize("form", FORMS.values(), ids=lambda form: form.host)
def test_ours_is_known_by_its_structure(form: Form) -> None:
    for way in (way_of(form), Way(python="/else where/python"), Way(version=(2, 1, 90), python="/it's/python")):
        for handler in form.handlers(way).values():
            assert is_ours(handler, form.host)
            assert not is_ours(handler, "another")


# ---------------------------------------------------------------- per host


@pytest.mark.parametrize(
    ("host", "key", "number"),
    [("claude-code", "timeout", 2), ("codex", "timeout", 3), ("copilot", "timeoutSec", 3), ("gemini", "timeout", 3000)],
)
def test_p001_each_timeout_is_in_the_hosts_own_unit(host: str, key: str, number: int) -> None:
    """Seconds for Claude Code, Codex and Copilot, milliseconds for Gemini: 1 to 5 s."""
    form = FORMS[host]
    for handler in form.handlers(way_of(form)).values():
        assert handler[key] == number
        assert 1 <= number / (1000 if host == "gemini" else 1) <= 5
    for handler in FORMS["claude-code"].handlers(Way()).values():
        assert handler["timeout"] == 3


def test_what_claude_code_is_asked_for_fits_its_version() -> None:
    assert "PostToolBatch" in claude_events(None)
    assert claude_events((2, 1, 332)) == claude_events(None)
    before = claude_events((2, 1, 99))
    assert {"PostToolUse", "PostToolUseFailure", "PostCompact"} <= {*before}
    assert "PostToolBatch" not in before
    assert "PostCompact" not in claude_events((2, 1, 75))


def test_a_claude_code_that_knows_no_arguments_gets_a_line_for_the_shell() -> None:
    form, command = FORMS["claude-code"], hook_command("claude-code", python="/a b/python")
    old = form.handlers(Way(python="/a b/python", version=(2, 1, 138)))["Stop"]
    assert "args" not in old
    assert old["command"].startswith("'/a b/python' -I -S -E -c ")
    new = form.handlers(Way(python="/a b/python", version=(2, 1, 139)))["Stop"]
    assert [new["command"], *new["args"]] == command


def test_no_line_holds_what_changes_with_the_version() -> None:
    """Codex asks its user again to trust a hook whose line has changed."""
    from recalld_client.cli import package_version

    for form in FORMS.values():
        for handler in form.handlers(Way(python="/opt/py/bin/python")).values():
            assert package_version() not in json.dumps(handler)
    assert Path(hook_command("codex")[6]).is_dir()
