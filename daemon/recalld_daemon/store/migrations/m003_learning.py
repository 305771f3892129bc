"""What is learned, and from what: verdicts seen by watching, versions with their artefacts, the learners' states.

A version is a snapshot: what was learned at one time, together with the vectors it is searched over. Where the keys did
not change it shares the vectors of an older one (`vectors`); where they did, rows of `vectors` with its own number
hold them, without token vectors, which no adapter touches: those are read from snapshot 0. All learned weights lie in
the database, so that a version is there whole or not at all, and no file can be orphaned.
"""

from __future__ import annotations

SQL = """
CREATE TABLE impressions_new (
  id TEXT PRIMARY KEY,
  recall TEXT NOT NULL REFERENCES recalls(id) ON DELETE CASCADE,
  session TEXT NOT NULL,
  passage INTEGER NOT NULL,                -- may be gone by now
  path TEXT NOT NULL,
  start INTEGER NOT NULL,
  "end" INTEGER NOT NULL,
  text TEXT NOT NULL,
  rank INTEGER NOT NULL,
  score REAL NOT NULL,
  probability REAL NOT NULL,
  stage TEXT NOT NULL,
  outcome TEXT NOT NULL CHECK (outcome IN ('won', 'slipped', 'withheld', 'asked')),
  boundary INTEGER NOT NULL,
  shown_at REAL NOT NULL,
  propensity REAL NOT NULL DEFAULT 1.0     -- the chance with which what passed the gate was treated so
) STRICT;
INSERT INTO impressions_new
  SELECT id, recall, session, passage, path, start, "end", text, rank, score, probability, stage, outcome, boundary,
    shown_at, 1.0 FROM impressions;
CREATE TABLE feedback_new (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  impression TEXT NOT NULL REFERENCES impressions_new(id),
  verdict TEXT NOT NULL CHECK (verdict IN ('good', 'bad', 'acted', 'used', 'ignored', 'unknown')),
  at REAL NOT NULL
) STRICT;
INSERT INTO feedback_new SELECT id, key, impression, verdict, at FROM feedback;
DROP TABLE feedback;
DROP TABLE impressions;
ALTER TABLE impressions_new RENAME TO impressions;
ALTER TABLE feedback_new RENAME TO feedback;
CREATE INDEX impressions_recall ON impressions(recall);
CREATE INDEX impressions_session ON impressions(session, passage);
CREATE INDEX feedback_impression ON feedback(impression);

ALTER TABLE snapshots ADD COLUMN vectors INTEGER NOT NULL DEFAULT 0;   -- the snapshot whose vectors it searches
ALTER TABLE snapshots ADD COLUMN state TEXT NOT NULL DEFAULT 'ready';  -- building | ready
ALTER TABLE snapshots ADD COLUMN why TEXT NOT NULL DEFAULT '';         -- what is learned in it, e.g. "f_Q + ranker"
ALTER TABLE snapshots ADD COLUMN metrics TEXT NOT NULL DEFAULT '{}';   -- JSON: how it was judged
ALTER TABLE snapshots ADD COLUMN drift REAL NOT NULL DEFAULT 0.0;      -- of its keys from the last re-projection

CREATE TABLE artefacts (
  encoder INTEGER NOT NULL,
  version INTEGER NOT NULL,
  name TEXT NOT NULL,                      -- query | key | value | usefulness | ranker
  key TEXT NOT NULL,                       -- every setting that shaped it
  data BLOB NOT NULL,                      -- safetensors; JSON for a ranker
  PRIMARY KEY (encoder, version, name),
  FOREIGN KEY (encoder, version) REFERENCES snapshots(encoder, version) ON DELETE CASCADE
) STRICT;

CREATE TABLE learning_states (
  name TEXT NOT NULL,                      -- online | interests | ...
  encoder INTEGER NOT NULL REFERENCES encoders(id) ON DELETE CASCADE,
  key TEXT NOT NULL,
  data BLOB NOT NULL,                      -- safetensors
  at REAL NOT NULL,
  PRIMARY KEY (name, encoder)
) STRICT;

CREATE TABLE cycles (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  encoder INTEGER NOT NULL REFERENCES encoders(id) ON DELETE CASCADE,
  began_at REAL NOT NULL,
  ended_at REAL,                           -- NULL: under way, or interrupted
  phase TEXT NOT NULL,
  key TEXT NOT NULL,                       -- every setting that shapes it: another key starts anew
  version INTEGER,                         -- the snapshot it builds
  report TEXT NOT NULL DEFAULT '{}'        -- JSON
) STRICT;
"""
