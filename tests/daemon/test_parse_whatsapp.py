"""WhatsApp's exported chats: senders, dates that are decided once, and what WhatsApp itself says left out."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from export_samples import PEAK
from ingest_parsing import Outcome, parse
from recalld_daemon.ingest.formats.whatsapp_lines import is_placeholder, read_header
from recalld_daemon.ingest.parse import kind_of
from recalld_daemon.ingest.survey import survey

MEMORY_KB = 32 * 1024


def write(tmp_path: Path, *lines: str, codec: str = "utf-8", end: str = "\n", changed: datetime | None = None) -> Path:
    file = tmp_path / "_chat.txt"
    file.write_bytes(end.join(lines).encode(codec))
    if changed:
        os.utime(file, (changed.timestamp(), changed.timestamp()))
    return file


def parsed(tmp_path: Path, *lines: str) -> Outcome:
    return parse(write(tmp_path, *lines))


def said(outcome: Outcome) -> list[tuple[str, str]]:
    return [(passage.speaker, passage.text) for passage in outcome.passages]


def moments(outcome: Outcome) -> list[str]:
    return [f"{datetime.fromtimestamp(p.written_at):%Y-%m-%d %H:%M:%S}" for p in outcome.passages if p.written_at]


@pytest.mark.parametrize(
    ("stamp", "moment"),
    [
        ("15.04.2016, 15:04 - ", "2016-04-15 15:04:00"),
        ("15.04.16, 15:04 - ", "2016-04-15 15:04:00"),
        ("2016/04/15, 15:04 - ", "2016-04-15 15:04:00"),
        ("2016-04-15 15:04 - ", "2016-04-15 15:04:00"),
        ("15/4/2016 3:04 p. m. - ", "2016-04-15 15:04:00"),
        ("15/4/2016, 3:04\u00a0p.\u00a0m. - ", "2016-04-15 15:04:00"),
        ("4/15/16, 12:04 AM - ", "2016-04-15 00:04:00"),
        ("4/15/16, 12:04\u202fPM - ", "2016-04-15 12:04:00"),
        ("[4/15/16, 3:04:33\u202fPM] ", "2016-04-15 15:04:33"),
        ("\u200e[15.04.2016, 15:04:33] ", "2016-04-15 15:04:33"),
        ("[15.4.2016 klo 15.04.33] ", "2016-04-15 15:04:33"),
        ("[2016/4/15 \u4e0b\u53483:04:33] ", "2016-04-15 15:04:33"),
        ("15. 4. 2016 15:04 - ", "2016-04-15 15:04:00"),
        ("\u200f15\u200f/4\u200f/2016\u060c 3:04 \u0645 - ", "2016-04-15 15:04:00"),
        ("15/4/2559 15:04 - ", "2016-04-15 15:04:00"),
        ("\u0661\u0665/\u0664/\u0662\u0660\u0661\u0666, 15:04 - ", "2016-04-15 15:04:00"),
    ],
)
def test_p052_stamps_of_many_phones(tmp_path: Path, stamp: str, moment: str) -> None:
    outcome = parsed(
        tmp_path, f"{stamp}Ana: the harbour is four metres deep", f"{stamp}\u202a+12 345 678\u202c: is that so"
    )
    assert said(outcome) == [("Ana", "the harbour is four metres deep"), ("+12 345 678", "is that so")]
    assert moments(outcome) == [moment] * 2
    assert outcome.problems == []


def test_p052_day_and_month_are_decided_once_for_the_file(tmp_path: Path) -> None:
    lines = ["1/2/2021 13:00 - Ana: words of the first", "13/1/2021 13:00 - Ben: words of the second"]
    outcome = parsed(tmp_path, *lines, "3/2/2021 13:00 - Ana: words of the third")
    assert moments(outcome) == ["2021-02-01 13:00:00", "2021-01-13 13:00:00", "2021-02-03 13:00:00"]
    assert outcome.problems == []
    outcome = parsed(tmp_path, lines[0], "1/13/2021 13:00 - Ben: words of the second")
    assert moments(outcome) == ["2021-01-02 13:00:00", "2021-01-13 13:00:00"]


@pytest.mark.parametrize(
    ("dates", "read", "why"),
    [
        (["1/6/24", "2/6/24", "3/6/24", "4/6/24"], "day/month", "the days vary"),
        (["6/1/24", "6/2/24", "6/3/24", "6/4/24"], "month/day", "the days vary"),
        (["10/1/24", "12/1/24", "1/2/24", "2/2/24"], "day/month", "the lines are in order"),
        (["1/10/24", "1/12/24", "2/1/24", "2/2/24"], "month/day", "the lines are in order"),
        (["12/11/26", "2/12/26"], "day/month", "in the future"),
        (["11/12/26", "12/2/26"], "month/day", "in the future"),
        (["3/4/24", "3/4/24"], "day/month", "most phones"),
        (["3/4/24, 1:00 PM", "3/4/24, 1:01 PM"], "month/day", "US English"),
        (["03/04/24, 1:00 pm", "03/04/24, 1:01 pm"], "day/month", "most phones"),
    ],
)
def test_p052_an_ambiguous_file_is_flagged_never_guessed_silently(
    tmp_path: Path, dates: list[str], read: str, why: str
) -> None:
    stamps = [date if "," in date else f"{date}, 13:00" for date in dates]
    lines = [f"{stamp} - Ana: words of number {n}" for n, stamp in enumerate(stamps)]
    outcome = parse(write(tmp_path, *lines, changed=datetime(2026, 12, 5)))
    assert len(outcome.problems) == 1
    assert f"no date in this chat tells day from month: read as {read}, " in outcome.problems[0].text
    assert why in outcome.problems[0].text
    first, second = (int(part) for part in dates[0].split(",")[0].split("/")[:2])
    month, day = (second, first) if read == "day/month" else (first, second)
    assert moments(outcome)[0][5:10] == f"{month:02}-{day:02}"


def test_p052_dates_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    lines = [f"{day}/1/2021 13:00 - Ana: words of day {day}" for day in (13, 14, 15)]
    outcome = parsed(tmp_path, *lines, "1/16/2021 13:00 - Ben: words of the other order")
    assert "3 lines can only be day/month, 1 only month/day" in outcome.problems[0].text
    assert "1 messages have dates that do not exist" in outcome.problems[1].text
    assert (len(outcome.passages), outcome.passages[-1].written_at) == (4, None)


def test_the_same_day_and_month_is_not_ambiguous(tmp_path: Path) -> None:
    outcome = parsed(tmp_path, "5/5/2021 13:00 - Ana: words of the fifth of May")
    assert (moments(outcome), outcome.problems) == (["2021-05-05 13:00:00"], [])


def test_p052_a_message_of_many_lines_may_hold_dates(tmp_path: Path) -> None:
    body = [
        "the plan for the week:",
        "12/30/2020 dentist: at noon",
        "[12/30/2020, 10:00:00] Ben: quoted from elsewhere",
        "2020-12-30 10:00 - Carl: and from there",
        "",
        "31. 12. 2020 party: bring a friend",
    ]
    outcome = parsed(
        tmp_path, f"30/12/2020 13:00 - Ana: {body[0]}", *body[1:], "31/12/2020 13:00 - Ben: that is a plan"
    )
    assert said(outcome) == [("Ana", "\n".join(body)), ("Ben", "that is a plan")]


def test_what_whatsapp_says_is_left_out(tmp_path: Path) -> None:
    lines = [
        "30/12/2020 12:00 - Messages and calls are end-to-end encrypted. Tap to learn more.",
        '30/12/2020 12:01 - Ana created group "Harbour: the watch"',
        '30/12/2020 12:02 - Ana changed the subject from "Harbour: old words" to "Harbour: new words"',
        "30/12/2020 12:03 - +12 345 678 was added",
        "30/12/2020 13:00 - Ana: words that were said",
        "30/12/2020 13:01 - Ben left",
        "nobody says this line",
        "31/12/2020 13:00 - Ana: more words that were said",
    ]
    outcome = parsed(tmp_path, *lines)
    assert said(outcome) == [("Ana", "words that were said"), ("Ana", "more words that were said")]
    assert outcome.problems == []


@pytest.mark.parametrize(
    "body",
    [
        "<Media omitted>", "<Medien ausgeschlossen>", "<M\u00e9dias omis>", "<Multimedia omitido>",
        "<M\u00eddia oculta>",
        "\u200eimage omitted", "image omitted", "GIF omitted", "Bild weggelassen", "imagen omitida", "immagine omessa",
        "\u200e<attached: 00000012-PHOTO-2020-12-30.jpg>", "IMG-20201230-WA0001.jpg (file attached)",
        "\u200eIMG-20201230-WA0001.jpg (Datei angeh\u00e4ngt)", "This message was deleted", "You deleted this message.",
        "Diese Nachricht wurde gel\u00f6scht.", "Se elimin\u00f3 este mensaje", "null", "Missed voice call",
    ],
)  # fmt: skip
def test_words_that_stand_for_a_picture_are_left_out(tmp_path: Path, body: str) -> None:
    lines = [f"30/12/2020 13:0{n} - Ana: {text}" for n, text in enumerate(["words before", body, "words after it"])]
    outcome = parsed(tmp_path, *lines, "and below the last of them")
    assert outcome.texts == ["words after it\nand below the last of them"]
    captioned = parsed(tmp_path, lines[1], "a caption stands below")
    assert captioned.texts == ["a caption stands below"]


@pytest.mark.parametrize(
    "body", ["<3", "image omitted from the report?", "a < b and b > c", "I deleted this message board"]
)
def test_words_that_only_look_so_are_words(body: str) -> None:
    assert not is_placeholder(body)


def test_what_one_sender_writes_in_one_go_is_one_passage(tmp_path: Path) -> None:
    lines = [
        "30/12/2020 13:00 - Ana: well",
        "30/12/2020 13:01 - Ana: the harbour",
        "30/12/2020 13:02 - Ana: is deep",
        "30/12/2020 13:02 - Ben: ok",
        "30/12/2020 15:00 - Ana: words after a long silence",
        "30/12/2020 14:59 - Ana: and a line out of order",
        "30/12/2020 15:01 - Ana: " + "long " * 400,
    ]
    outcome = parsed(tmp_path, *lines)
    assert said(outcome)[:2] == [
        ("Ana", "well\n30/12/2020 13:01 - Ana: the harbour\n30/12/2020 13:02 - Ana: is deep"),
        ("Ana", "words after a long silence\n30/12/2020 14:59 - Ana: and a line out of order"),
    ]
    assert moments(outcome)[:2] == ["2020-12-30 13:00:00", "2020-12-30 15:00:00"]
    assert all(text.startswith("long") for text in outcome.texts[2:])


def test_names_of_all_kinds(tmp_path: Path) -> None:
    names = [
        "John-John Doe",
        "\U0001f913",
        "~\u202fCarla",
        "\u202a+49 170 1234567\u202c",
        'Bob "the Builder" Ross',
        "\u05d3\u05d5\u05d3",
    ]
    lines = [
        f"30/12/2020 {hour}:0{n} - {name}: so many words at {hour}" for hour in (13, 14) for n, name in enumerate(names)
    ]
    tally = survey(write(tmp_path, *lines), lambda done, total: None).tally
    kept = ["John-John Doe", "\U0001f913", "Carla", "+49 170 1234567", 'Bob "the Builder" Ross', "\u05d3\u05d5\u05d3"]
    assert (dict(tally.by), tally.conversations) == (dict.fromkeys(kept, 2), 1)
    assert tally.first == datetime(2020, 12, 30, 13).timestamp()


@pytest.mark.parametrize("sample", ["[{}/{}/{} {}] {}", "{}/{}/{}, {} - {}"])
def test_chat_miners_samples(tmp_path: Path, sample: str) -> None:
    """The lines of joweich/chat-miner's test files (MIT), in two of their formats."""
    rows = [
        ("01", "01", "19", "11:25", "John Doe: Lorem ipsum dolor sit amet."),
        ("01", "20", "19", "11:23", "John Doe:."),
        ("01", "30", "19", "20:49", "Jahn Doe: Lorem ipsum dolor sit amet,\nconsectetur adipiscing elit. Duis libero."),
        ("06", "10", "20", "15:55", "John-John Doe: Lorem ipsum : dolor sit amet."),
        ("06", "20", "20", "00:08", '+12 345 578 created group "Groupname"'),
        ("12", "10", "21", "10:10", "John Doe \U0001f913: Lorem ipsum \U0001f913"),
    ]
    outcome = parsed(tmp_path, *(sample.format(*row) for row in rows))
    assert [speaker for speaker, _ in said(outcome)] == ["John Doe", "Jahn Doe", "John-John Doe"]
    assert outcome.texts[1] == "Lorem ipsum dolor sit amet,\nconsectetur adipiscing elit. Duis libero."
    assert moments(outcome)[1] == "2019-01-30 20:49:00"


def test_p052_no_line_parsed_is_a_visible_warning_and_loses_nothing(tmp_path: Path) -> None:
    lines = [f"[{day}-Dez.-2020 um 13:00:00] Ana: words of day {day}" for day in range(10, 20)]
    odd = [f"{day}|12|2020, 13:00 - Ana: words of day {day}" for day in range(10, 20)]
    file = write(tmp_path, *odd)
    assert kind_of(str(file)) == "whatsapp"
    outcome = parse(file)
    assert "none of its 10 lines is laid out as recalld knows it: 0 messages" in outcome.problems[0].text
    assert "words of day 19" in outcome.all_text
    assert kind_of(str(write(tmp_path, *lines))) in ("whatsapp", "text")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A plain note.\n\nIt has words.",
        "2020-12-30 was a good day: we sailed.\nSo was the next: we slept.",
        "[2024-01-01 10:00:00] INFO: started\n[2024-01-01 10:00:01] app.ERROR: it broke\n",
        "Shopping: milk, bread\nTo do: call Ana",
        "12:30 - lunch: soup\n13:30 - walk: harbour",
    ],
)
def test_another_text_stays_a_plain_text(tmp_path: Path, text: str) -> None:
    assert kind_of(str(write(tmp_path, text))) == "text"


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings_and_newlines(tmp_path: Path, codec: str, end: str) -> None:
    lines = [
        "30/12/2020 13:00 - Zo\u00eb: caf\u00e9 at the harbour \U0001f9a2",
        "with a second line",
        "31/12/2020 13:00 - Ben: fine by me",
    ]
    outcome = parse(write(tmp_path, *lines, codec=codec, end=end))
    assert said(outcome) == [
        ("Zo\u00eb", f"caf\u00e9 at the harbour \U0001f9a2{end}with a second line"),
        ("Ben", "fine by me"),
    ]


def test_p016_p025_p031_secrets_invalid_bytes_and_nuls(tmp_path: Path) -> None:
    key = "ghp_" + "a1B2c3D4e5" * 3
    file = write(
        tmp_path,
        f"30/12/2020 13:00 - Ana: the key {key} is mine",
        "31/12/2020 13:00 - Ben: an odd X caf\u00e9 and \0 here",
    )
    file.write_bytes(file.read_bytes().replace(b"X", b"\xff"))
    outcome = parse(file)
    assert outcome.texts == [f"the key {'█' * len(key)} is mine", "an odd \ufffd caf\u00e9 and \ufffd here"]
    assert [(p.line, p.text) for p in outcome.problems] == [(2, "2 invalid or NUL characters replaced")]


def test_lines_before_the_first_message_are_counted(tmp_path: Path) -> None:
    file = write(tmp_path, *(f"30/12/2020 13:0{n} - Ana: words of number {n}" for n in range(3)))
    body = file.read_bytes()
    file.write_bytes(b"30/12/2020 12:00 - You were added\n" + body)
    assert parse(file).problems == []
    file.write_bytes(b"30/12/2020 12:00 - x: y\n" + body)  # a head that tells, and then one that is cut off
    assert kind_of(str(file)) == "whatsapp"


BODIES = st.lists(
    st.text(st.sampled_from('ab \u00e9\U0001f9a2.:-[]/12"<>\u200e'), min_size=1, max_size=20).map(
        "word {} more words".format
    ),
    min_size=1,
    max_size=4,
)
MESSAGES = st.lists(
    st.tuples(st.sampled_from(["Ana", "Ben B.", "+12 345"]), BODIES, st.integers(0, 59)), min_size=1, max_size=8
)
STAMPS = st.sampled_from(["30/12/2020, 13:{:02} - ", "[12/30/20, 1:{:02}:09\u202fPM] ", "2020-12-30 13:{:02} - "])


@given(MESSAGES, STAMPS)
def test_every_message_is_read_with_its_sender(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[str, list[str], int]], stamp: str
) -> None:
    """`parse` checks that each passage's bytes decode to its text."""
    lines = [
        line for sender, body, minute in told for line in (f"{stamp.format(minute)}{sender}: {body[0]}", *body[1:])
    ]
    outcome = parse(write(tmp_path_factory.mktemp("chat"), *lines))
    kept: dict[str, list[str]] = {}
    for passage in outcome.passages:
        for line in passage.text.split("\n"):
            header = read_header(line)
            kept.setdefault(passage.speaker, []).append(line[header.body :] if header else line)
    wanted: dict[str, list[str]] = {}
    for sender, body, _ in told:
        wanted.setdefault(sender, []).extend(body)
    assert {who: "".join("".join(lines).split()) for who, lines in kept.items()} == {
        who: "".join("".join(lines).split()) for who, lines in wanted.items()
    }


def test_memory_is_bounded_whatever_the_size(tmp_path: Path) -> None:
    """40 MB: many messages, and between them one that is a single line of no words."""
    lines = [f"{1 + n % 28:02}/12/2020, 13:{n % 60:02} - P{n % 9}: what {n} says of the harbour" for n in range(3_000)]
    file = tmp_path / "_chat.txt"
    blob = b"30/12/2020, 13:00 - Ana: " + b"QUJDREVGR0hJSktM" * 2_500_000
    file.write_bytes("\n".join(lines).encode() + b"\n" + blob + b"\n" + "\n".join(lines).encode())
    done = subprocess.run([sys.executable, "-c", PEAK, str(file)], capture_output=True, text=True, check=True)
    kind, passages, grown = done.stdout.split()
    assert (kind, int(passages)) == ("whatsapp", 6_000)
    assert int(grown) < MEMORY_KB
