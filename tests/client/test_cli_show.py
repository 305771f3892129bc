"""How recallctl renders values, and when it colours them; and the doctests of its files."""

from __future__ import annotations

import doctest
import importlib
import io
import math

import pytest

from recalld_client.cli.document import document
from recalld_client.cli.screen import Screen, open_screen
from recalld_client.cli.show import ago, cells, clock, cut, moment, safe, size, span, table, value
from recalld_protocol.messages import Hit, Hits


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", ["show", "screen", "tail", "why"])
def test_doctests(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"recalld_client.cli.{name}"))
    assert found.attempted
    assert not found.failed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\r\n c", "a b c"),
        ("\x1b]0;title\x07", "\ufffd]0;title\ufffd"),
        ("\u202egnp.exe\u200b\ufeff", "\ufffdgnp.exe\ufffd\ufffd"),
        ("nul\x00 \x9b31m \ud83d", "nul\ufffd \ufffd31m \ufffd"),
        ("Måke 港 🌊", "Måke 港 🌊"),
    ],
)
def test_p015_text_from_memories_cannot_steer_the_terminal(text: str, shown: str) -> None:
    assert safe(text) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 us"),
        (0.000_999_4, "999 us"),
        (0.000_999_6, "1.0 ms"),
        (0.999_94, "999.9 ms"),
        (0.999_96, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (3_599.7, "1 h 0 min"),
        (86_399.9, "1 d 0 h"),
        (-0.02, "-20.0 ms"),
    ],
)
def test_durations_at_their_seams(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (2**20 - 1, "1.0 MiB"), (5 * 2**40, "5.0 TiB")],
)
def test_sizes_at_their_seams(count: int, shown: str) -> None:
    assert size(count) == shown


def test_moments() -> None:
    assert moment(0) == "-"
    assert ago(0, 100) == "-"
    assert ago(100, 100.5) == "now"
    assert ago(200, 100) == "now"
    assert ago(40, 100) == "1 min 0 s ago"
    assert moment(1e300) == clock(math.nan) == "-"


@pytest.mark.parametrize(
    ("key", "of", "shown"),
    [
        ("pid", 12345, "12345"),
        ("protocol_version", 1000, "1000"),
        ("passages", 12345, "12,345"),
        ("p50_ms", 7.9, "7.9 ms"),
        ("ms", 8.16, "8.16"),
        ("start", 1520, "1520"),
        ("rss_mb", 210, "200.3 MiB"),
        ("ratio", 0.123456, "0.1235"),
        ("runtime", "", "-"),
        ("torn", True, "yes"),
        ("x_seconds", math.nan, "nan"),
        ("x_seconds", math.inf, "inf"),
    ],
)
def test_values(key: str, of: str | int | float | bool | None, shown: str) -> None:
    assert value(key, of) == shown


def test_cutting_counts_columns_not_characters() -> None:
    assert cells("e\u0301港") == 3
    assert cut("港港港", 5) == "港港…"
    assert cut("港港港", 4, keep_end=True) == "…港"
    assert cut("abc", 3) == "abc"
    assert cut("abc", 0) == "…"


def test_a_table_keeps_its_width_at_the_cost_of_one_column() -> None:
    rows = [("1", "notes/runbooks/deploy.md"), ("12", "a.md")]
    assert table(("n", "path"), rows, 16, flexible=1, numbers=[0]) == [" n  path", " 1  …s/deploy.md", "12  a.md"]
    assert max(map(cells, table(("n", "path"), rows, 3, flexible=1))) == 12  # no narrower than can be read


def test_json_has_no_nan() -> None:
    shown = document(Hits(hits=[Hit(path="a", start=0, end=1, text="", score=math.nan)], ms=math.inf))
    assert shown["ms"] is None
    assert shown["hits"][0]["score"] is None


def check_colours(screen: Screen, shown: str) -> None:
    assert screen.paint("won", "green") == shown


def test_colours_on_a_terminal_alone_and_not_where_they_are_unwanted() -> None:
    err = io.StringIO()
    check_colours(open_screen(Terminal(), err, {}), "\x1b[32mwon\x1b[0m")
    check_colours(open_screen(io.StringIO(), err, {}), "won")
    check_colours(open_screen(Terminal(), err, {"NO_COLOR": "1"}), "won")
    check_colours(open_screen(Terminal(), err, {"NO_COLOR": ""}), "\x1b[32mwon\x1b[0m")
    check_colours(open_screen(Terminal(), err, {"TERM": "dumb"}), "won")


def test_width() -> None:
    err = io.StringIO()
    assert open_screen(io.StringIO(), err, {}).width is None
    assert open_screen(io.StringIO(), err, {"COLUMNS": "72"}).width == 72
    assert open_screen(Terminal(), err, {"COLUMNS": "wide"}).width == 80
