"""Times in words: what each way of saying when means, that it is always a range, and what is left alone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld_daemon.extract.dates import date_of
from recalld_daemon.extract.spans import month, shifted, week
from recalld_daemon.extract.times import ALWAYS, bounds_of, whens
from recalld_daemon.recall.types import When

THURSDAY = datetime(2023, 5, 11, 14, 0, tzinfo=UTC).timestamp()

SAID = """
I saw it yesterday                  | 2023-05-10 2023-05-11 day
the day before yesterday it rained  | 2023-05-09 2023-05-10 day
we'll do it tomorrow                | 2023-05-12 2023-05-13 day
the day after tomorrow              | 2023-05-13 2023-05-14 day
three days ago                      | 2023-05-08 2023-05-09 day
we met last week                    | 2023-05-01 2023-05-08 week
the week before last we met         | 2023-04-24 2023-05-01 week
two weeks ago                       | 2023-04-24 2023-05-01 week
this week is busy                   | 2023-05-08 2023-05-15 week
next week I fly                     | 2023-05-15 2023-05-22 week
the week of 3 April                 | 2023-04-03 2023-04-10 week
two weekends ago                    | 2023-04-29 2023-05-01 span
last weekend                        | 2023-05-06 2023-05-08 span
over the weekend we camped          | 2023-05-06 2023-05-08 span
this weekend we will camp           | 2023-05-13 2023-05-15 span
last Friday                         | 2023-05-05 2023-05-06 day
she came on Friday                  | 2023-05-05 2023-05-06 day
we ship on Friday                   | 2023-05-12 2023-05-13 day
I'll call you Monday                | 2023-05-15 2023-05-16 day
next Friday                         | 2023-05-19 2023-05-20 day
last month I moved                  | 2023-04-01 2023-05-01 month
next month I move                   | 2023-06-01 2023-07-01 month
four months ago                     | 2023-01-01 2023-02-01 month
in May it was warm                  | 2023-05-01 2023-06-01 month
in July we went there               | 2022-07-01 2022-08-01 month
in July we will go there            | 2023-07-01 2023-08-01 month
last October                        | 2022-10-01 2022-11-01 month
last May                            | 2022-05-01 2022-06-01 month
in May 2021                         | 2021-05-01 2021-06-01 month
late May 2021                       | 2021-05-22 2021-06-01 span
on 3 July I left                    | 2022-07-03 2022-07-04 day
July 4, 2022                        | 2022-07-04 2022-07-05 day
the 4th of July 2022                | 2022-07-04 2022-07-05 day
Oct. 3rd                            | 2022-10-03 2022-10-04 day
it opened on the 15th of March      | 2023-03-15 2023-03-16 day
it was on the 2nd                   | 2023-05-02 2023-05-03 day
last year                           | 2022-01-01 2023-01-01 year
two years ago                       | 2021-01-01 2022-01-01 year
back in 2016                        | 2016-01-01 2017-01-01 year
in the 1980s                        | 1980-01-01 1990-01-01 span
summer of 2022                      | 2022-06-01 2022-09-01 season
last summer                         | 2022-06-01 2022-09-01 season
last winter                         | 2022-12-01 2023-03-01 season
next spring                         | 2024-03-01 2024-06-01 season
last Christmas                      | 2022-12-24 2022-12-27 span
for three years I have painted      | 2020-05-11 2023-05-12 span
the past two weeks                  | 2023-04-27 2023-05-12 span
a few weeks ago                     | 2023-04-03 2023-05-01 span
from 3 May to 5 May                 | 2023-05-03 2023-05-06 span
between March and May               | 2023-03-01 2023-06-01 span
in Q1 2023                          | 2023-01-01 2023-04-01 span
last quarter                        | 2023-01-01 2023-04-01 span
released 2023-04-02                 | 2023-04-02 2023-04-03 day
at 2023-04-02T23:30:00Z             | 2023-04-02 2023-04-03 day
13/4/2023                           | 2023-04-13 2023-04-14 day
4/13/2023                           | 2023-04-13 2023-04-14 day
5.5.2023                            | 2023-05-05 2023-05-06 day
in two weeks we will go             | 2023-05-22 2023-05-29 week
"""
NOTHING = """
3/4/2023 may be March or April
version 1.2.3 or 2.0.2023
2023-13-45
31 February
you may go, they march on, the second fall
5000 years ago
in two weeks it was built
port 8080, 2021 files
soon, recently, some time
recalld 0.2023.1
"""


def lines(table: str) -> list[str]:
    return [line for line in table.strip().splitlines() if line]


@pytest.mark.parametrize("line", lines(SAID))
def test_what_is_meant(line: str) -> None:
    said, _, meant = line.partition("|")
    first, after, grain = meant.split()
    (found,) = whens(said, THURSDAY)
    expected = (f"{first}T00:00:00+00:00", f"{after}T00:00:00+00:00", grain)
    assert (iso(found.start), iso(found.end), found.grain) == expected
    assert found.said in said


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()


@pytest.mark.parametrize("line", lines(NOTHING))
def test_what_says_nothing_or_nothing_certain(line: str) -> None:
    assert whens(line, THURSDAY) == []


def test_parts_of_days_have_their_hours() -> None:
    morning, night = whens("this morning I ran, last night I read", THURSDAY)
    assert (iso(morning.start)[:13], iso(morning.end)[:13]) == ("2023-05-11T05", "2023-05-11T12")
    assert (iso(night.start)[:13], iso(night.end)[:13]) == ("2023-05-10T18", "2023-05-11T06")


def test_hours_ago_are_a_moment() -> None:
    (found,) = whens("two hours ago", THURSDAY)
    assert (found.grain, iso(found.start)[11:16], found.end - found.start) == ("moment", "12:00", 3600)


def test_since_and_until_reach_from_and_to_the_moment_of_saying() -> None:
    (since,) = whens("painting since 2016", THURSDAY)
    assert (iso(since.start)[:10], since.end) == ("2016-01-01", THURSDAY)
    (until,) = whens("away until Friday", THURSDAY)
    assert (until.start, iso(until.end)[:10]) == (pytest.approx(THURSDAY - 14 * 3600, abs=86_400), "2023-05-13")


def test_asked_ranges_are_open_and_bound_what_is_found() -> None:
    may = datetime(2023, 5, 1, tzinfo=UTC).timestamp()
    june = datetime(2023, 6, 1, tzinfo=UTC).timestamp()
    for text, low, high in [
        ("what changed since May", may, float("inf")),
        ("what changed before May", float("-inf"), may),
        ("what changed until May", float("-inf"), june),
        ("what changed after May", june, float("inf")),
        ("what changed in May", float("-inf"), float("inf")),
    ]:
        assert bounds_of(whens(text, THURSDAY, asked=True)) == (low, high), text
    assert whens("what came after May", THURSDAY, asked=True)[0].end == ALWAYS


def test_a_question_looks_back() -> None:
    for text, day in [
        ("what did we say about Friday", "2023-05-05"),
        ("what about the June release in June", "2022-06-01"),
    ]:
        assert [iso(w.start)[:10] for w in whens(text, THURSDAY, asked=True)] == [day]


def test_without_a_moment_only_absolute_dates_are_understood() -> None:
    assert whens("yesterday, last week, on Friday, in May", None) == []
    assert [w.said for w in whens("yesterday and in May 2021", None)] == ["May 2021"]


def test_days_begin_where_the_writer_is() -> None:
    late = datetime(2023, 5, 11, 23, 30, tzinfo=UTC).timestamp()  # the 12th in Tokyo
    tokyo, new_york = ZoneInfo("Asia/Tokyo"), ZoneInfo("America/New_York")
    assert iso(whens("yesterday", late, tokyo)[0].start) == "2023-05-10T15:00:00+00:00"
    assert iso(whens("yesterday", late, new_york)[0].start) == "2023-05-10T04:00:00+00:00"
    short = whens("yesterday", datetime(2023, 3, 13, 12, tzinfo=UTC).timestamp(), new_york)[0]
    assert short.end - short.start == 23 * 3600  # the clocks went forward


def test_a_zone_in_the_text_is_heard() -> None:
    (found,) = whens("at 2023-04-02T23:30:00Z", THURSDAY, timezone(timedelta(hours=2)))
    assert iso(found.start) == "2023-04-02T22:00:00+00:00"  # the 3rd there


def test_letters_that_grow_when_lowered_do_not_move_what_was_said() -> None:
    assert [w.said for w in whens("İİİ left yesterday", THURSDAY)] == ["yesterday"]


@given(st.floats(0, 4e9), st.sampled_from([line.partition("|")[0] for line in lines(SAID)]))
def test_every_time_is_a_range_whenever_it_is_said(moment: float, said: str) -> None:
    for found in whens(said, moment):
        assert found.start < found.end
        assert found.said in said


@given(
    st.text(st.characters(codec="utf-8"), max_size=60),
    st.sampled_from(lines(SAID) + lines(NOTHING)),
    st.floats(-1e12, 1e13),
)
def test_no_text_and_no_moment_is_too_strange(noise: str, said: str, moment: float) -> None:
    for asked in (False, True):
        for found in whens(noise + said + noise, moment, asked=asked):
            assert found.start < found.end


@given(st.dates(date(1990, 1, 1), date(2090, 1, 1)), st.integers(-40, 40))
def test_calendar_steps_hold_the_day_that_far_away(day: date, by: int) -> None:
    there = shifted(day, "week", by)
    assert there.first.weekday() == 0
    assert there.first <= day + timedelta(7 * by) < there.after == there.first + timedelta(7)
    assert week(day) == shifted(day, "week", 0)
    whole = shifted(day, "month", by)
    assert whole.first.day == whole.after.day == 1
    assert (whole.first.year * 12 + whole.first.month) - (day.year * 12 + day.month) == by
    assert whole == month(day.year, day.month + by)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("yesterday", "10 May 2023"), ("last week", "week of 1 May 2023"), ("last month", "April 2023"),
        ("last summer", "summer 2022"), ("last year", "2022"), ("last weekend", "6 to 7 May 2023"),
        ("from 30 April to 5 May", "30 April 2023 to 5 May 2023"),
    ],
)  # fmt: skip
def test_dates_are_shown_as_exactly_as_they_are_known(said: str, shown: str) -> None:
    assert date_of(whens(said, THURSDAY)[0]) == shown


def test_an_open_range_is_not_shown() -> None:
    assert date_of(When(0.0, 1e9, "span")) == ""


def test_a_day_that_most_years_lack_is_read_or_passed_over() -> None:
    in_2023 = 1_690_000_000.0
    for text in ("what was she up to around 29 February?", "on 29 February 2024 we met", "since 29 February"):
        for moment in whens(text, in_2023, UTC, asked=True):
            assert 0 < moment.start < moment.end
    assert whens("on 29 February 2024 we met", in_2023, UTC)
    assert whens("around 29 February and on 3 May 2022", in_2023, UTC)[-1].said.endswith("3 May 2022")
