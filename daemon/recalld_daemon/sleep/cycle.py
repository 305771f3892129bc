"""One night, from what was asked to what is searched: collect, train, judge, re-project, index, verify, activate, tidy.

A state machine that the store keeps: each phase does its work again without harm, and the next is noted when all of it
is on disk. So a night that was killed goes on where it was (`phases`), or its leftovers go and another one begins. What
is searched meanwhile is the old version, whole; nothing else ever goes live than a version that was declared finished.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from recalld_daemon.adapters.settings import key_of
from recalld_daemon.config import Config
from recalld_daemon.evaluation.ground import NoGround
from recalld_daemon.evaluation.judge import TrainedOn
from recalld_daemon.lock import held_lock
from recalld_daemon.paths import Home
from recalld_daemon.ranking.forest import ForestError
from recalld_daemon.recall.adapter import AdapterUnreadable
from recalld_daemon.sleep.building import index, verify
from recalld_daemon.sleep.collect import collect
from recalld_daemon.sleep.judge import judge
from recalld_daemon.sleep.kept import Kept
from recalld_daemon.sleep.night import Failed, Night
from recalld_daemon.sleep.phases import Phase, Start, after, start_of
from recalld_daemon.sleep.ports import Answer, Settings, Tell, Works
from recalld_daemon.sleep.reproject import reproject
from recalld_daemon.sleep.slow import move_interests
from recalld_daemon.sleep.train import train
from recalld_daemon.store.reader import Reader, open_reader
from recalld_daemon.store.rows import CycleRecord
from recalld_daemon.store.writer import Writer, open_writer
from recalld_daemon.versions import sweep_indexes

FORMAT = 1  # of what a night keeps; another one does not go on with it

Said = Callable[[Phase], None]  # a phase begins


@dataclass(frozen=True, slots=True)
class Ended:
    """report: as in the store; failed: it could not be finished, and the text of `result` says why."""

    report: dict[str, Any]
    version: int | None
    failed: bool = False


def sleep(
    home: Home, config: Config, settings: Settings, works: Works, tell: Tell, said: Said = lambda phase: None
) -> Ended:
    """One night, or the rest of one. Raises lock.AlreadyRunning, Interrupted, NoGround, StoreError, OSError.

    After Interrupted, StoreError or OSError the next call goes on from there.
    """
    if not home.database.exists():
        raise NoGround(f"{home.database}: there is no memory yet: start recalld first")
    with (
        held_lock(home.data / "sleep.lock"),
        open_writer(home.database) as writer,
        open_reader(home.database) as reader,
        ExitStack() as stack,
    ):
        return _through(_begun(home, config, settings, works, tell, writer, reader, stack), said)


def night_key(reader: Reader, encoder: int, live: int, config: Config, settings: Settings) -> str:
    """Names all that shapes a night: its settings, what recall is made of, encoder and live version."""
    record = reader.encoder(encoder)
    return key_of(
        settings, settings.fit, format=FORMAT, encoder=record.fingerprint if record else "", live=live,
        late=config.late_interaction, ranker=config.ranker, lanes=" ".join(config.more_lanes),
        names="\n".join([*config.user_names, "", *config.agent_names]),
    )  # fmt: skip


def last_of(reader: Reader) -> CycleRecord | None:
    return next(iter(reader.cycles(1)), None)


def what_is_live(reader: Reader) -> tuple[int, int]:
    """(encoder, version). Raises NoGround."""
    live = reader.live_snapshot()
    if live is None:
        raise NoGround("nothing is searched yet: let recalld index something first")
    return live


# ---------------------------------------------------------------- beginning


def _begun(
    home: Home, config: Config, settings: Settings, works: Works, tell: Tell, writer: Writer, reader: Reader,
    stack: ExitStack,
) -> Night:  # fmt: skip
    """The night to go on with, or a new one after what the last one left is gone."""
    encoder, live = what_is_live(reader)
    key, last, now = night_key(reader, encoder, live, config, settings), last_of(reader), time.time()
    start = start_of(last, key, live, now)
    if start.way == "begin":
        _abandon(home, writer, reader, encoder, last, start)
        id = writer.begin_cycle(encoder, at=now, phase="collect", key=key)
        report: dict[str, Any] = {"champion": live, "encoder": encoder}
        version = None
    else:
        assert last is not None
        id, version, key = last.id, last.version, last.key
        report = json.loads(last.report) or {"champion": live, "encoder": encoder}
        report["resumed"] = [*report.get("resumed", []), start.phase]
        writer.drop_unfinished(encoder, version)
    kept = Kept(writer, reader, encoder, key)
    return Night(
        id, encoder, int(report["champion"]), home, config, settings, works, writer, reader, kept, tell, start.phase,
        version, report, stack,
    )  # fmt: skip


def _abandon(home: Home, writer: Writer, reader: Reader, encoder: int, last: CycleRecord | None, start: Start) -> None:
    """What a night that will not go on has left: versions that were not finished, fits, an index without a version."""
    if last is not None and last.ended_at is None:
        report = {**json.loads(last.report), "result": f"abandoned: {start.why}"}
        text = json.dumps(report)
        writer.note_cycle(last.id, phase=last.phase, version=last.version, report=text, ended_at=time.time())
    for number in {encoder, encoder if last is None else last.encoder}:
        writer.drop_unfinished(number)
        Kept(writer, reader, number, "").drop_all()
    sweep_indexes(home.index, reader)


# ---------------------------------------------------------------- phases


def _through(night: Night, said: Said) -> Ended:
    """From the night's phase to the end."""
    phase: Phase | None = night.phase
    try:
        while phase is not None:
            said(phase)
            night.tell(phase, 0, 0)
            began = time.monotonic()
            onward = _PHASES[phase](night)
            seconds = night.report.setdefault("seconds", {})
            seconds[phase] = round(seconds.get(phase, 0.0) + time.monotonic() - began, 2)
            phase = after(phase) if onward else "tidy"
            if phase is None:
                night.note("tidy", time.time())
            else:
                night.note(phase)
    except (Failed, TrainedOn, AdapterUnreadable, ForestError) as error:
        return _failed(night, str(error))
    return Ended(night.report, night.version)


def _failed(night: Night, why: str) -> Ended:
    night.report["result"] = f"failed in phase {night.phase}: {why}"
    version, night.version = night.version, None
    record = None if version is None else night.reader.version(night.encoder, version)
    if record is not None and record.state == "ready" and not record.live:
        night.writer.drop_snapshot(night.encoder, record.version)
    _sweep(night)
    night.note(night.phase, time.time())
    return Ended(night.report, None, failed=True)


def _train(night: Night) -> bool:
    train(night)
    return True


def _reproject(night: Night) -> bool:
    reproject(night)
    return True


def _index(night: Night) -> bool:
    index(night)
    return True


def _verify(night: Night) -> bool:
    verify(night)
    return True


_BY = {"here": ": no daemon was running, so it was set live here, and the next one starts with it"}


def _activate(night: Night) -> bool:
    """Asked once more after a kill it finds the version live, and goes on."""
    assert night.version is not None
    live = night.reader.live_version(night.encoder)
    if live not in (night.version, night.live):
        night.report["result"] = (
            f"version {night.version} is finished and was not set live, since version {live} went live meanwhile: "
            f"`recallctl rollback {night.version}` does it"
        )
        return True
    answer = Answer(True, "before") if live == night.version else _asked(night)
    night.report["activated"] = {"version": night.version, "by": answer.by}
    night.report["result"] = f"version {night.version} ({night.report['chosen']}) is live{_BY.get(answer.by, '')}"
    return True


def _asked(night: Night) -> Answer:
    """Raises Failed where it was refused, NotYet where nobody could be asked."""
    assert night.version is not None
    answer = night.works.activate(night.home, night.encoder, night.version)
    if answer.live:
        return answer
    if answer.again:
        raise NotYet(f"version {night.version} is finished and not live yet: {answer.problem}")
    raise Failed(f"version {night.version} was refused: {answer.problem}")


class NotYet(Exception):
    """The version is finished, and who runs could not be asked to search by it; the next run asks again."""


def _tidy(night: Night) -> bool:
    """Old versions go where no daemon runs: one that runs drops them itself when it searches by another version."""
    if night.report.get("activated", {}).get("by") == "here":
        gone = night.writer.drop_old_versions(night.encoder, night.config.keep_versions)
        night.report["dropped"] = gone
    night.report["uses"] = move_interests(night.writer, night.reader, night.encoder)
    _sweep(night)
    return True


def _sweep(night: Night) -> None:
    night.writer.drop_unfinished(night.encoder)
    night.kept.drop_all()
    sweep_indexes(night.home.index, night.reader)


_PHASES: dict[Phase, Callable[[Night], bool]] = {
    "collect": collect, "train": _train, "judge": judge, "reproject": _reproject, "index": _index, "verify": _verify,
    "activate": _activate, "tidy": _tidy,
}  # fmt: skip
