"""SQLite: the only truth. One writer, many readers; the only room that imports sqlite3."""

from recalld_daemon.extract.dates import spoken_date
from recalld_daemon.store.errors import (
    NewerSchema,
    NoSuchRow,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnreadable,
    WriterInUse,
)
from recalld_daemon.store.lane import LexicalLane
from recalld_daemon.store.reader import Reader, open_reader
from recalld_daemon.store.rows import (
    Checkpoint,
    Encoded,
    EncoderRecord,
    FeedbackRecord,
    ImpressionRecord,
    RecallRecord,
    SessionRecord,
    Source,
    VectorBatch,
)
from recalld_daemon.store.texts import content_hash, embedded_text, text_offset
from recalld_daemon.store.writer import Writer, open_writer

__all__ = [
    "Checkpoint",
    "Encoded",
    "EncoderRecord",
    "FeedbackRecord",
    "ImpressionRecord",
    "LexicalLane",
    "NewerSchema",
    "NoSuchRow",
    "Reader",
    "RecallRecord",
    "SessionRecord",
    "Source",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreUnreadable",
    "VectorBatch",
    "Writer",
    "WriterInUse",
    "content_hash",
    "embedded_text",
    "open_reader",
    "open_writer",
    "spoken_date",
    "text_offset",
]
