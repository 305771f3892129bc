"""What is noted of sessions and recalls: made in the writer's thread, since nobody waits for it there."""

from __future__ import annotations

import dataclasses

import msgspec

from recalld_daemon.book import Trace
from recalld_daemon.recall.explain import rows_of
from recalld_daemon.store.rows import RecallRecord, SessionRecord
from recalld_daemon.store.writer import Writer
from recalld_protocol import messages as wire


def keep_session(record: SessionRecord, writer: Writer) -> None:
    writer.touch_session(record)


def explained(record: RecallRecord, trace: Trace) -> RecallRecord:
    """With what `why` will tell; made in the writer's thread, since nobody waits for it there."""
    candidates = list(trace.answer.candidates) if trace.answer else []
    detail = wire.Why(
        recall=record.id, cause=record.cause[:1024], query=record.query, stage_ms=trace.stage_ms,
        candidates=rows_of(candidates, trace.passages),
    )  # fmt: skip
    return dataclasses.replace(record, explain=msgspec.msgpack.encode(detail))
