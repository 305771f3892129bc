"""The configuration: every key documented, every mistake named by file, line, key and remedy."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from recalld_daemon.config import KEYS, Config, ConfigError, load_config, to_toml


def complaint(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return str(caught.value).replace(str(path), "config.toml")


def test_defaults_without_a_file() -> None:
    assert load_config(None) == Config()


def test_every_key_is_documented_with_its_default() -> None:
    text = to_toml(Config())
    for key in KEYS:
        assert f"# {key.name} = " in text
        assert key.says.split(".")[0] in text
    assert {key.attribute for key in KEYS} | {"source"} == {field.name for field in dataclasses.fields(Config)}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    config = Config(watch=("/notes", 'a "b"'), stale_after=3, threshold_shift=-0.5, inject=False, encoder="some/model")
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config))
    assert load_config(path) == config


def test_whole_numbers_are_taken_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[daemon]\nheartbeat_seconds = 3\n")
    assert load_config(path).heartbeat_seconds == 3.0


def test_flags_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[recall]\nmax_snippets = 2\nstale_after = 5\n")
    config = load_config(path, {"max_snippets": 1})
    assert (config.max_snippets, config.stale_after) == (1, 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[recall]\n\nstale_afer = 1\n",
            "config.toml:3: [recall] stale_afer: unknown key; did you mean `stale_after`?",
        ),
        ("[sourcez]\nwatch = []\n", "config.toml:1: [sourcez]: unknown section; did you mean `sources`?"),
        ("recall = 3\n", "config.toml:1: `recall` must be a section: [recall]"),
        (
            "[recall]\n# no\nmax_snippets = 9\n",
            "config.toml:3: [recall] max_snippets: must lie between 1 and 3, not 9",
        ),
        (
            "[recall]\nmax_snippets = true\n",
            "config.toml:2: [recall] max_snippets: must be a whole number, not True",
        ),
        ('[recall]\ninject = "no"\n', "config.toml:2: [recall] inject: must be a true or false, not 'no'"),
        (
            "[sources]\nwatch = [1]\n",
            "config.toml:2: [sources] watch: must be a list of non-empty strings, not [1]",
        ),
        (
            '[daemon]\nlog_level = "loud"\n',
            "config.toml:2: [daemon] log_level: must be one of debug, info, warning, error",
        ),
    ],
)
def test_mistakes_name_file_line_key_and_remedy(tmp_path: Path, text: str, expected: str) -> None:
    assert complaint(tmp_path, text).startswith(expected)


def test_broken_toml_names_the_line(tmp_path: Path) -> None:
    assert "config.toml: not valid TOML" in complaint(tmp_path, "[recall]\nmax = = 1\n")
    assert "line 2" in complaint(tmp_path, "[recall]\nmax = = 1\n")


def test_tcp_without_keys_is_refused(tmp_path: Path) -> None:
    assert "TCP is only served encrypted" in complaint(tmp_path, '[tcp]\naddress = "tcp://127.0.0.1:5555"\n')


def test_a_missing_or_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: can't be read: No such file"):
        load_config(tmp_path / "nowhere.toml")
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_config(tmp_path / "latin.toml")
