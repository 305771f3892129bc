"""Messages carry their date into what is embedded, and passages what was extracted from them: facts, subjects, times.

Passages with a speaker get new hashes (their vectors are made anew; their ids, and so what was shown of them, stay).
A message's date is its own unless it is the file's. Every source is marked as not yet read, so that the parsers extract
from it; memories, which have no file, are extracted from their texts when the daemon starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recalld_daemon.store.texts import content_hash, searched_parts

FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "content_hash": (4, content_hash),  # heading, speaker, text, written_at
    "searched_parts": (4, searched_parts),
}

SQL = """
ALTER TABLE passages ADD COLUMN dated INTEGER NOT NULL DEFAULT 0;   -- 1: a message, and written_at is its own
ALTER TABLE passages ADD COLUMN recipe INTEGER NOT NULL DEFAULT 0;  -- what extracted from it; 0: nothing yet

UPDATE passages SET dated = 1 WHERE speaker <> '' AND written_at <> 0
  AND written_at <> (SELECT mtime_ns / 1e9 FROM sources s WHERE s.id = passages.source);
UPDATE passages SET hash = content_hash(heading, speaker, text, written_at),
  parts = searched_parts(heading, speaker, text, written_at) WHERE dated = 1;
INSERT INTO passages_fts(passages_fts) VALUES ('rebuild');
UPDATE meta SET value = value + 1 WHERE key = 'generation';

CREATE TABLE recipes (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE                -- e.g. "facts=rules-1 subjects=rules-1 whens=rules-1"
) STRICT;

CREATE TABLE facts (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  passage INTEGER NOT NULL REFERENCES passages(id) ON DELETE CASCADE,
  hash BLOB NOT NULL,                      -- of what is embedded of it; never a passage's
  text TEXT NOT NULL,
  made_by TEXT NOT NULL                    -- the extractor and its version, e.g. "rules-1"
) STRICT;
CREATE INDEX facts_passage ON facts(passage);
CREATE INDEX facts_hash ON facts(hash);

CREATE TABLE subjects (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL,                      -- person | project | path | symbol | tool | topic
  name TEXT NOT NULL,                      -- as it was first written
  key TEXT NOT NULL UNIQUE,                -- kind and folded name
  hash BLOB NOT NULL,                      -- of the name, as it is embedded
  shared INTEGER NOT NULL DEFAULT 0        -- 1: two passages or more have had it; only then is its name embedded
) STRICT;
CREATE INDEX subjects_hash ON subjects(hash) WHERE shared = 1;
CREATE INDEX subjects_shared ON subjects(id) WHERE shared = 1;
CREATE TABLE subject_aliases (
  alias TEXT NOT NULL,                     -- folded
  subject INTEGER NOT NULL REFERENCES subjects(id) ON DELETE CASCADE,
  PRIMARY KEY (alias, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX subject_aliases_subject ON subject_aliases(subject);

CREATE TABLE passage_subjects (
  passage INTEGER NOT NULL REFERENCES passages(id) ON DELETE CASCADE,
  subject INTEGER NOT NULL REFERENCES subjects(id) ON DELETE CASCADE,
  PRIMARY KEY (passage, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX passage_subjects_subject ON passage_subjects(subject, passage);

CREATE TABLE passage_whens (
  passage INTEGER NOT NULL REFERENCES passages(id) ON DELETE CASCADE,
  start REAL NOT NULL,                     -- epoch seconds, half open
  "end" REAL NOT NULL,
  grain TEXT NOT NULL,                     -- moment | day | week | month | season | year | span
  said TEXT NOT NULL,                      -- the words, e.g. "last week"
  PRIMARY KEY (passage, start, "end", grain, said)
) STRICT, WITHOUT ROWID;

UPDATE sources SET cursor = 0, mtime_ns = iif(state = 'ok', -1, mtime_ns) WHERE kind <> 'memory';
"""
