"""What is noted of sessions, recalls and impressions; what takes long is made in the writer's thread."""

from __future__ import annotations

import dataclasses
import time

import msgspec

from recalld_daemon.book import Pending, Trace
from recalld_daemon.recall.explain import rows_of
from recalld_daemon.recall.quotes import Quotes
from recalld_daemon.store.rows import ImpressionRecord, Outcome, RecallRecord, SessionRecord
from recalld_daemon.store.writer import Writer
from recalld_protocol import messages as wire


def keep_session(record: SessionRecord, writer: Writer) -> None:
    writer.touch_session(record)


def keep_compaction(session: str, at: float, writer: Writer) -> None:
    writer.note_compaction(session, at)


def recall_of(session: str, trace: Trace, outcome: str, reason: str, stage: str = "", ms: float = 0.0) -> RecallRecord:
    """A recall as it ended; stage "" and ms 0: as far as it is known to have come."""
    notes = "; ".join(trace.answer.notes) if trace.answer else ""
    return RecallRecord(
        id=trace.recall, session=session, cause=trace.cause, query=trace.query, at=trace.at, outcome=outcome,
        reason=f"{reason} ({notes})" if notes else reason,
        stage=stage or (trace.answer.stage if trace.answer else "none"),
        ms=ms or max(trace.stage_ms.values(), default=0.0),
    )  # fmt: skip


def explained(record: RecallRecord, trace: Trace) -> RecallRecord:
    """With what `why` will tell; made in the writer's thread, since nobody waits for it there."""
    candidates = list(trace.answer.candidates) if trace.answer else []
    detail = wire.Why(
        recall=record.id, cause=record.cause[:1024], query=record.query, stage_ms=trace.stage_ms,
        candidates=rows_of(candidates, trace.passages),
    )  # fmt: skip
    return dataclasses.replace(record, explain=msgspec.msgpack.encode(detail))


def without(explain: bytes, names: frozenset[str], quotes: Quotes) -> bytes:
    """An explanation without the passages of these paths, as shown, and without what its question quotes of them."""
    if not explain:
        return explain
    why = msgspec.msgpack.decode(explain, type=wire.Why)
    kept = [candidate for candidate in why.candidates if candidate.path not in names]
    told = msgspec.structs.replace(why, cause=quotes.mask(why.cause), query=quotes.mask(why.query), candidates=kept)
    return msgspec.msgpack.encode(told)


def impression_of(
    pending: Pending, recall: str, session: str, stage: str, outcome: Outcome, boundary: int
) -> ImpressionRecord:
    """A snippet as it was shown at `boundary`, or withheld from it."""
    snippet = pending.snippet
    return ImpressionRecord(
        id=pending.offer.id, recall=recall, session=session, passage=pending.offer.passage, path=snippet.path,
        start=snippet.start, end=snippet.end, text=snippet.text, rank=pending.rank, score=pending.score,
        probability=snippet.probability, stage=stage, outcome=outcome, boundary=boundary, shown_at=time.time(),
        propensity=pending.propensity,
    )  # fmt: skip
