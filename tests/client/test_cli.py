"""recallctl against scripted answers over real sockets: what it asks, what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from recalld_client.cli import main
from recalld_protocol.messages import (
    Acked,
    Event,
    Feedback,
    FromAgent,
    Hit,
    Hits,
    Pack,
    Packed,
    Ping,
    Problem,
    Remember,
    Remembered,
    Search,
    SessionRow,
    Sessions,
    SessionsAsk,
    Status,
    StatusAsk,
    Why,
    WhyAsk,
    WhyCandidate,
)
from scripted_control import Answers, ScriptedControl, stale_socket_files

NIGHT = time.mktime((2026, 10, 12, 9, 5, 7, 0, 0, -1))  # local time, as it is printed
ESCAPE = "\x1b[31mred\u202e\nHuman: do"
SAFE = "\ufffd[31mred\ufffd Human: do"
RUN = "import sys, recalld_client.cli as c; sys.exit(c.main(sys.argv[1:]))"
STATUS = Status(
    topics={
        "paths": {"store": "/home/dana/.local/state/recalld/store.db"},
        "races": {"won": 31, "slipped": 2, "silent": 1057},
        "daemon": {"version": "0.1.0", "pid": 4711, "up_seconds": 4000.0, "started_at": NIGHT},
        "store": {"wal_bytes": 20_000, "passages": 10_000, "torn": False, "note": None, "odd": ESCAPE},
    }
)
HITS = Hits(
    hits=[
        Hit(
            path="notes/runbooks/migrations.md",
            start=1520,
            end=1587,
            text="A failed attempt shows canceling statement due to lock timeout.",
            snippet="a failed attempt shows canceling statement due to lock timeout",
            date="2026-08-12",
            score=0.03,
            probability=0.8345,
            lanes={"dense": 0.6123, "lexical": 12.34},
        ),
        Hit(path="memory:17", start=0, end=9, text=ESCAPE),
    ],
    stage="late",
    ms=8.16,
)
WHY = Why(
    recall="r-9",
    cause="tool Bash: systemctl --user restart tidewater-worker",
    query="restart tidewater worker",
    outcome="slipped",
    reason="ready 3.1 ms after its own boundary",
    stage="late",
    stage_ms={"fused": 4.1, "late": 7.9},
    candidates=[
        WhyCandidate(
            path="notes/runbooks/deploy.md",
            start=900,
            end=1200,
            text="drain before restart, always",
            fused_rank=1,
            probability=0.91,
            lanes={"dense": (1, 0.7012), "lexical": (3, 9.25)},
            gates={"probability": "passed: 0.91 >= 0.6", "novelty": "passed: new"},
            impression="5256e8c5.2.1-7",
        ),
        WhyCandidate(
            path="notes/log/2026-05-27.md",
            start=10,
            end=90,
            fused_rank=2,
            probability=0.4,
            lanes={"dense": (2, 0.55)},
            gates={"probability": "stopped: 0.40 < 0.6"},
        ),
    ],
)


@dataclass
class Ended:
    code: int
    out: str
    err: str
    asked: list[FromAgent]

    @property
    def json(self) -> object:
        return json.loads(self.out)


Ctl = Callable[..., Ended]


@pytest.fixture
def ctl(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ctl:
    """Runs recallctl against a scripted daemon; without answers there is a daemon that only pongs."""
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    runtime = tmp_path / "run"

    def run(*argv: str, answers: Answers | None = None, events: Sequence[Event | bytes] = ()) -> Ended:
        with ScriptedControl(runtime, answers or {}, events) as control:
            code = main(["--runtime-dir", str(runtime), *argv])
        out, err = capsys.readouterr()
        return Ended(code, out, err, control.asked)

    return run


def check(ended: Ended, code: int, out: str) -> None:
    assert (ended.code, ended.err) == (code, "")
    assert ended.out == out


def check_fault(ended: Ended, code: int, *told: str) -> None:
    """Nothing on stdout, and exactly one line on stderr."""
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("recallctl: ")
    assert ended.err.count("\n") == 1
    for part in told:
        assert part in ended.err


def nothing_with(topics: dict[str, dict[str, str | int | float | bool | None]]) -> Answers:
    """A daemon that finds nothing, and this is its status."""
    return {Search: Hits(ms=1.0), StatusAsk: Status(topics=topics)}


# ---------------------------------------------------------------- ping, status, sessions


def test_ping_says_who_answers_and_how_fast(ctl: Ctl) -> None:
    ended = ctl("ping")
    assert ended.code == 0
    lead, _, length = ended.out.partition(": answered in ")
    assert lead == "recalld 0.1.0, pid 4711, epoch e7f3, protocol 1"
    assert length.split()[1] in ("us", "ms", "s")


def test_ping_json_has_stable_keys(ctl: Ctl) -> None:
    document = ctl("ping", "--json").json
    assert isinstance(document, dict)
    assert list(document) == ["kind", "epoch", "daemon", "pid", "protocol", "round_trip_us", "socket"]
    assert document["protocol"] == [1]
    assert document["socket"].endswith("/run/req.sock")


def test_status_by_topic_the_known_ones_first_units_read_off_the_keys(ctl: Ctl) -> None:
    check(
        ctl("status", answers={StatusAsk: STATUS}),
        0,
        f"""\
recalld 0.1.0; races 31 won, 2 slipped, 1,057 silent

daemon
  version  0.1.0
  pid      4711
  up       1 h 6 min
  started  2026-10-12 09:05:07

races
  won      31
  slipped  2
  silent   1,057

store
  wal       19.5 KiB
  passages  10,000
  torn      no
  note      -
  odd       {SAFE}

paths
  store  /home/dana/.local/state/recalld/store.db
""",
    )


def test_status_begins_with_a_headline(ctl: Ctl) -> None:
    topics = STATUS.topics | {"models": {"state": "ready"}, "index": {"state": "embedding", "passages": 1_980}}
    line, _, rest = ctl("status", answers={StatusAsk: Status(topics=topics)}).out.partition("\n")
    assert line == (
        "recalld 0.1.0: model ready, index embedding, 1,980 passages; races 31 won, 2 slipped, 1,057 silent"
    )
    assert rest.startswith("\ndaemon\n")


def test_status_of_a_daemon_that_tells_nothing(ctl: Ctl) -> None:
    check(ctl("status", answers={StatusAsk: Status(topics={})}), 0, "recalld\n")


def test_status_json_is_the_message(ctl: Ctl) -> None:
    assert ctl("status", "--json", answers={StatusAsk: STATUS}).json == {"kind": "status", "topics": STATUS.topics}


def test_sessions_connected_ones_first(ctl: Ctl) -> None:
    rows = [
        SessionRow(session="old", cwd="/home/dana/x", opened_at=NIGHT, last_seen_at=time.time() - 7_205, turns=3),
        SessionRow(
            session="5b1f3c1e",
            host="claude-code",
            cwd="/home/dana/tidewater",
            connected=True,
            last_seen_at=time.time() + 30,  # its clock is ahead
            turns=4,
            calls=1214,
            won=12,
            slipped=1,
            silent=3,
        ),
    ]
    check(
        ctl("sessions", answers={SessionsAsk: Sessions(sessions=rows)}),
        0,
        """\
session   host         directory             state      seen           turns  calls  won  slipped  silent
5b1f3c1e  claude-code  /home/dana/tidewater  connected  now                4  1,214   12        1       3
old       -            /home/dana/x          away       2 h 0 min ago      3      0    0        0       0
""",
    )


def test_no_sessions(ctl: Ctl) -> None:
    check(ctl("sessions", answers={SessionsAsk: Sessions()}), 0, "no sessions\n")


def test_sessions_json_holds_defaults_too(ctl: Ctl) -> None:
    document = ctl("sessions", "--json", answers={SessionsAsk: Sessions(sessions=[SessionRow(session="s")])}).json
    assert document == {
        "kind": "sessions",
        "sessions": [
            {
                "session": "s",
                "host": "",
                "client": "",
                "cwd": "",
                "scope": "",
                "connected": False,
                "opened_at": 0.0,
                "last_seen_at": 0.0,
                "turns": 0,
                "calls": 0,
                "won": 0,
                "slipped": 0,
                "silent": 0,
                "tokens": 0,
            }
        ],
    }


# ---------------------------------------------------------------- search, remember


def test_search_prints_place_date_and_scores(ctl: Ctl) -> None:
    ended = ctl("search", "lock", "timeout", "--limit", "2", "--all-projects", answers={Search: HITS})
    check(
        ended,
        0,
        f"""\
 1  notes/runbooks/migrations.md:1520-1587  2026-08-12  p 0.83  dense 0.612  lexical 12.3
    a failed attempt shows canceling statement due to lock timeout
 2  memory:17:0-9  p 0.00
    {SAFE}
2 hits (late, 8.2 ms)
""",
    )
    question = ended.asked[-1]
    assert isinstance(question, Search)
    assert (question.query, question.limit, question.all_scopes) == ("lock timeout", 2, True)
    assert (question.cwd, question.as_of, question.session) == (os.getcwd(), None, "")


PACKED = Packed(text='Head:\n- 7 May 2023: "a"', tokens=12, passages=1, left_out=2, stage="late", ms=8.16)


def test_recall_prints_the_block_and_says_beside_it_what_it_is(ctl: Ctl) -> None:
    ended = ctl("recall", "the", "port", "--tokens", "600", "--all-projects", answers={Pack: PACKED})
    assert (ended.code, ended.out) == (0, 'Head:\n- 7 May 2023: "a"\n')
    assert ended.err == "12 tokens, 1 passages, 2 more would not fit (late, 8.2 ms)\n"
    question = ended.asked[-1]
    assert isinstance(question, Pack)
    assert (question.query, question.token_budget, question.all_scopes) == ("the port", 600, True)


def test_recall_that_knows_nothing_says_so(ctl: Ctl) -> None:
    ended = ctl("recall", "x", answers={Pack: Packed(), StatusAsk: Status(topics={})})
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith("nothing found (none, ")


def test_recall_as_json(ctl: Ctl) -> None:
    document = ctl("recall", "x", "--json", answers={Pack: PACKED}).json
    assert (document["kind"], document["tokens"], document["text"]) == ("packed", 12, PACKED.text)


@pytest.mark.parametrize("tokens", ["49", "1501", "many"])
def test_recall_takes_tokens_within_bounds(ctl: Ctl, tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        ctl("recall", "x", "--tokens", tokens)
    assert "a number from 50 to 1,500" in capsys.readouterr().err


def test_search_cuts_to_the_terminals_width(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    out = ctl("search", "x", answers={Search: HITS}).out
    assert out.splitlines()[:2] == [
        " 1  …rations.md:1520-1587  2026-08-12  p 0.83  dense 0.612  lexical 12.3",
        "    a failed attempt shows canceling statement due to lock timeout",
    ]


@pytest.mark.parametrize("given", ["2026-03-01T14:30:00Z", "2026-03-01T16:30:00+02:00"])
def test_search_as_of(ctl: Ctl, given: str, tmp_path: Path) -> None:
    ended = ctl("search", "x", "--as-of", given, "--cwd", str(tmp_path / "a" / ".."), answers=nothing_with({}))
    question, _ = ended.asked
    assert isinstance(question, Search)
    assert (question.as_of, question.cwd) == (1772375400.0, str(tmp_path))
    hint = "what is remembered may all have been written after --as-of"
    check(ended, 0, f"nothing found (none, 1.0 ms)\n{hint}\n")


READING: dict[str, str | int | float | bool | None] = {"state": "indexing", "files_done": 0, "files_total": 3}
EMBEDDING: dict[str, str | int | float | bool | None] = {"state": "embedding", "files_done": 3, "files_total": 3}
READY = {"state": "ready"}
FAILED = {"state": "failed", "phase": f"model 'x' is not here {ESCAPE}"}
ABSENT = f"the model is not there: model 'x' is not here {SAFE}"


@pytest.mark.parametrize(
    ("topics", "told"),
    [
        ({"index": READY, "models": READY}, "nothing found"),
        ({"index": READING, "models": READY}, "nothing found yet: indexing, files 0/3"),
        ({"index": {"state": "starting", "files_total": 0}}, "nothing found yet: starting"),
        ({"index": EMBEDDING, "models": READY}, "nothing found yet: embedding, files 3/3"),
        ({"index": {"state": "waiting for the model"}, "models": FAILED}, f"nothing found by words; {ABSENT}"),
        ({"index": READY, "models": {"state": "loading"}}, "nothing found by words; the model is not there: loading"),
        ({"index": READING, "models": FAILED}, f"nothing found yet: indexing, files 0/3; {ABSENT}"),
    ],
)
def test_finding_nothing_says_what_is_still_to_come(
    ctl: Ctl, topics: dict[str, dict[str, str | int | float | bool | None]], told: str
) -> None:
    check(ctl("search", "x", answers=nothing_with(topics)), 0, f"{told} (none, 1.0 ms)\n")


def test_finding_nothing_where_the_status_fails_is_still_an_answer(ctl: Ctl) -> None:
    answers: Answers = {Search: Hits(ms=1.0), StatusAsk: Problem(code="failed", text="disk full")}
    check(ctl("search", "x", answers=answers), 0, "nothing found (none, 1.0 ms)\n")


def test_finding_nothing_as_json_asks_nothing_else(ctl: Ctl) -> None:
    ended = ctl("search", "x", "--json", answers=nothing_with({"index": READING}))
    assert ended.json == {"kind": "hits", "hits": [], "stage": "none", "ms": 1.0}
    assert [type(question) for question in ended.asked] == [Search]


@pytest.mark.parametrize("query", ["pre-edit", "don't use", "GB/s", "foo AND", "NEAR(", "a:b", "*", '"' * 5000, "🌊"])
def test_p037_search_passes_the_query_on_as_it_is(ctl: Ctl, query: str) -> None:
    ended = ctl("search", "--", query, answers=nothing_with({}))
    assert ended.code == 0
    question, _ = ended.asked
    assert isinstance(question, Search)
    assert question.query == query


def test_remember_for_the_project(ctl: Ctl) -> None:
    ended = ctl("remember", "Drain", "first.", "--title", "worker", answers={Remember: Remembered(memory="memory:17")})
    check(ended, 0, f"remembered as memory:17, for the project of {os.getcwd()}\n")
    question = ended.asked[-1]
    assert isinstance(question, Remember)
    assert (question.text, question.title, question.scope) == ("Drain first.", "worker", "project")
    assert question.key


def test_remember_from_stdin_for_all(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Måke ligger på S22\n".encode())))
    ended = ctl("remember", "--global", "--json", "-", answers={Remember: Remembered(memory="memory:18")})
    assert ended.json == {"kind": "remembered", "memory": "memory:18"}
    question = ended.asked[-1]
    assert isinstance(question, Remember)
    assert (question.text, question.scope) == ("Måke ligger på S22", "global")


@pytest.mark.parametrize(
    ("stdin", "told"),
    [
        (b"caf\xe9", "stdin is not UTF-8 at byte 3"),
        (b" \n", "the text is empty"),
        (b"x" * 32_769, "the text has 32,769 characters, at most 32,768 are taken"),
        (b"x" * 200_000, "the text has over 32,768 characters"),
    ],
)
def test_remember_refuses_what_the_wire_does_not_take(
    ctl: Ctl, monkeypatch: pytest.MonkeyPatch, stdin: bytes, told: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    ended = ctl("remember", "-")
    check_fault(ended, 2, told)
    assert ended.asked == []


def test_remember_without_an_acknowledgement_says_so(ctl: Ctl) -> None:
    check_fault(ctl("remember", "x", "--timeout", "0.05"), 3, "not acknowledged; the daemon at ")


def test_an_argument_that_is_not_utf8_is_refused(ctl: Ctl) -> None:
    check_fault(ctl("search", "caf\udce9"), 2, "not valid UTF-8")


# ---------------------------------------------------------------- why, good, bad


def test_why_renders_lanes_and_gates(ctl: Ctl) -> None:
    ended = ctl("why", "5256e8c5.2.1-7", answers={WhyAsk: WHY})
    check(
        ended,
        0,
        """\
recall   r-9
cause    tool Bash: systemctl --user restart tidewater-worker
query    restart tidewater worker
outcome  slipped: ready 3.1 ms after its own boundary
stage    late (fused 4.1 ms, late 7.9 ms)

rank  passage                               dense  lexical     p  shown as
   1  notes/runbooks/deploy.md:900-1200  #1 0.701  #3 9.25  0.91  5256e8c5.2.1-7
      "drain before restart, always"
      probability passed: 0.91 >= 0.6
      novelty passed: new
   2  notes/log/2026-05-27.md:10-90       #2 0.55        -  0.40  -
      probability stopped: 0.40 < 0.6
""",
    )
    assert ended.asked[-1] == WhyAsk(target="5256e8c5.2.1-7", id=ended.asked[-1].id)


def test_why_claims_nothing_of_a_candidate_that_nobody_looked_at(ctl: Ctl) -> None:
    unjudged = WhyCandidate(path="passage 12", fused_rank=9, lanes={"dense": (9, 0.04)})
    out = ctl("why", "r-1", answers={WhyAsk: Why(recall="r-1", outcome="silent", candidates=[unjudged])}).out
    assert out.splitlines()[-2:] == [
        "rank  passage       dense  p  shown as",
        "   9  passage 12  #9 0.04  -  -",
    ]


def test_why_of_a_silence_without_candidates(ctl: Ctl) -> None:
    silence = Why(recall="r-1", cause="turn 1", outcome="silent", reason="nothing is indexed yet")
    out = ctl("why", "r-1", answers={WhyAsk: silence}).out
    assert out.splitlines()[-3:] == ["outcome  silent: nothing is indexed yet", "stage    none", "no candidates"]


def test_why_json_keeps_ranks_and_scores_apart(ctl: Ctl) -> None:
    document = ctl("why", "r-9", "--json", answers={WhyAsk: WHY}).json
    assert isinstance(document, dict)
    assert document["candidates"][0]["lanes"] == {"dense": [1, 0.7012], "lexical": [3, 9.25]}
    assert document["candidates"][1]["impression"] == ""


def test_an_unknown_id_ends_with_4(ctl: Ctl) -> None:
    problem = Problem(code="not_found", text="no impression or recall i-99 is known", of="why_ask")
    check_fault(ctl("why", "i-99", answers={WhyAsk: problem}), 4, "no impression or recall i-99 is known")


@pytest.mark.parametrize("verdict", ["good", "bad"])
def test_verdicts(ctl: Ctl, verdict: str) -> None:
    ended = ctl(verdict, "5256e8c5.2.1-7", answers={Feedback: Acked()})
    check(ended, 0, f"5256e8c5.2.1-7: {verdict}, noted\n")
    question = ended.asked[-1]
    assert isinstance(question, Feedback)
    assert (question.impression, question.verdict) == ("5256e8c5.2.1-7", verdict)
    assert question.key
    assert ctl(verdict, "5256e8c5.2.1-7", "--json", answers={Feedback: Acked()}).json == {
        "kind": "acked",
        "impression": "5256e8c5.2.1-7",
        "verdict": verdict,
    }


# ---------------------------------------------------------------- no daemon, another daemon


def absent(argv: list[str], capsys: pytest.CaptureFixture[str]) -> Ended:
    code = main(argv)
    return Ended(code, *capsys.readouterr(), [])


COMMANDS = (
    ["ping"],
    ["status"],
    ["sessions"],
    ["tail"],
    ["search", "x"],
    ["remember", "x"],
    ["why", "i"],
    ["good", "i"],
)


@pytest.mark.parametrize("argv", COMMANDS, ids=lambda argv: argv[0])
def test_daemon_absent(argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = absent(["--runtime-dir", str(tmp_path / "run"), *argv], capsys)
    remedy = "`recalld run` or, where it is installed as a service, `systemctl --user start recalld`"
    check_fault(ended, 3, f"no daemon at {tmp_path}/run/req.sock: start it with {remedy}")


def test_directory_there_but_no_socket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o700)
    check_fault(absent(["ping", "--runtime-dir", str(tmp_path)], capsys), 3, f"no daemon at {tmp_path}/req.sock: ")


def test_socket_file_left_by_a_killed_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stale_socket_files(tmp_path / "run"):
        ended = absent(["ping", "--timeout", "0.05", "--runtime-dir", str(tmp_path / "run")], capsys)
    check_fault(ended, 3, f"no daemon listens at {tmp_path}/run/req.sock any more")


def test_directory_open_to_others_is_not_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o777)
    check_fault(absent(["ping", "--runtime-dir", str(tmp_path)], capsys), 3, "0700 is needed")


def test_path_too_long_for_a_socket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = absent(["ping", "--runtime-dir", str(tmp_path / ("x" * 120))], capsys)
    check_fault(ended, 3, "a Unix socket's path may have")


def test_p002_hung_daemon(ctl: Ctl, tmp_path: Path) -> None:
    ended = ctl("ping", "--timeout", "0.05", answers={Ping: None})
    check_fault(ended, 3, f"{tmp_path}/run/req.sock did not answer within 0.05 s", "systemctl --user restart recalld")


@pytest.mark.parametrize(
    "answer",
    [
        Problem(code="unknown_kind", text="unknown kind 'why_ask': upgrade", of="why_ask"),
        Problem(code="version", text="the peer speaks protocol version 9, this side 1"),
        Remembered(memory="memory:1"),
        b"\x81\xa4kind\xa8whynewer",
    ],
)
def test_daemon_of_another_version(ctl: Ctl, answer: Problem | bytes) -> None:
    ended = ctl("why", "i-1", "--timeout", "0.2", answers={WhyAsk: answer})
    check_fault(ended, 3, "another version", "restart it with `systemctl --user restart recalld`")


def test_daemon_that_failed_at_it(ctl: Ctl) -> None:
    ended = ctl("status", answers={StatusAsk: Problem(code="failed", text=f"disk full {ESCAPE}")})
    check_fault(ended, 1, f"disk full {SAFE}")


# ---------------------------------------------------------------- the command line itself


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["frobnicate"], "recallctl: error: there is no command 'frobnicate' (see `recallctl --help`)"),
        (["serach", "x"], "there is no command 'serach'; did you mean `search`? (see"),
        (["--frob"], "recallctl: error: unrecognized arguments: --frob (see `recallctl --help`)"),
        (["ping", "--frob"], "recallctl ping: error: unrecognized arguments: --frob (see `recallctl ping --help`)"),
        (["search"], "recallctl search: error: the following arguments are required: QUERY (see `recallctl search -"),
        (["search", "x", "--limit", "0"], "a number from 1 to 100, not '0'"),
        (["search", "x", "--as-of", "yesterday"], "a date such as 2026-03-01"),
        (["search", "x", "--as-of", "1960-01-01"], "a date such as 2026-03-01"),
        (["tail", "--count", "x"], "a number from 1 on, not 'x'"),
        (["ping", "--timeout", "nan"], "seconds, above 0 and up to 3600, not 'nan'"),
    ],
)
def test_usage_errors_name_what_is_wrong(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("argv", [[], ["--timeout", "3"]])
def test_without_a_command_the_help_is_shown(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: recallctl [options] COMMAND ...")
    assert "live events" in err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("recallctl ")


def test_common_options_stand_before_or_after_the_command(ctl: Ctl) -> None:
    assert ctl("--timeout", "0.05", "status").err == ctl("status", "--timeout", "0.05").err


def test_interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("recalld_client.link.Link.request", interrupt)
    tmp_path.chmod(0o700)
    assert main(["ping", "--runtime-dir", str(tmp_path)]) == 130


def test_a_reader_that_went_away_is_no_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with ScriptedControl(tmp_path / "run", {StatusAsk: STATUS}):
        ended = subprocess.run(
            [sys.executable, "-c", RUN, "status", "--runtime-dir", str(tmp_path / "run")],
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_recallctl_is_light() -> None:
    """Invariant: looking at --help costs neither zmq nor anything that holds models."""
    program = (
        "import sys, recalld_client.cli as c; c.build_parser().format_help(); "
        "print(sorted({'zmq', 'numpy', 'torch', 'trio', 'sqlite3', 'recalld_daemon'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ended.stdout == b"[]\n"
