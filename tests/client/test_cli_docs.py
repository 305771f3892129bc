"""docs/recallctl.md is what --help prints, and every command teaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from recalld_client.cli import COMMANDS, build_parser
from recalld_client.cli.docs import main, page

PAGE = Path(__file__).parents[2] / "docs" / "recallctl.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m recalld_client.cli.docs --write"


def test_the_page_is_the_same_in_any_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert PAGE.read_text(encoding="utf-8") == page()


def test_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--write", str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page()
    assert main([]) == 0
    assert capsys.readouterr().out == page()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_help_teaches(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    name = getattr(command, "name", "")
    with pytest.raises(SystemExit) as ended:
        build_parser(88).parse_args([name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for part in (f"usage: recallctl {name}", "--json", "example:", f"recallctl {name}", "exit codes:"):
        assert part in shown
    assert max(map(len, shown.splitlines())) <= 88
