"""The first schema. A scope stands on every passage, an encoder and a snapshot on every vector, from the start.

Passage ids are never used twice (AUTOINCREMENT): an impression or an index row that outlives its passage can't come to
mean another one. The full-text table has no copy of the texts; it reads them through a view, so that what it holds can
be checked against them and a delete removes exactly what was indexed.
"""

from __future__ import annotations

SQL = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('generation', 0);  -- grows by one with each transaction that changes passages or vectors

CREATE TABLE scopes (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO scopes VALUES (1, 'global');

CREATE TABLE sources (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  scope INTEGER NOT NULL REFERENCES scopes(id),
  kind TEXT NOT NULL,                      -- markdown | text | claude-code | memory
  path TEXT NOT NULL UNIQUE,
  shown_path TEXT NOT NULL,
  path_words TEXT NOT NULL,                -- what of the path is full-text searched
  size INTEGER NOT NULL DEFAULT 0,         -- bytes
  mtime_ns INTEGER NOT NULL DEFAULT 0,
  inode INTEGER NOT NULL DEFAULT 0,
  cursor INTEGER NOT NULL DEFAULT 0,       -- bytes: where to go on when it grows
  codec TEXT NOT NULL DEFAULT '',
  state TEXT NOT NULL CHECK (state IN ('ok', 'failed', 'indexing')),
  error TEXT NOT NULL DEFAULT '',
  problems INTEGER NOT NULL DEFAULT 0,     -- lines that could not be read
  generation INTEGER NOT NULL DEFAULT 1,   -- grows with each pass over the file
  base INTEGER NOT NULL DEFAULT 0,         -- bytes: this pass replaces the passages that start here or later
  ordinals INTEGER NOT NULL DEFAULT 0      -- the next passage's place in the file
) STRICT;
CREATE INDEX sources_state ON sources(state) WHERE state <> 'ok';

CREATE TABLE passages (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  source INTEGER NOT NULL REFERENCES sources(id) ON DELETE CASCADE,
  scope INTEGER NOT NULL REFERENCES scopes(id),
  written_at REAL NOT NULL,                -- epoch seconds
  hash BLOB NOT NULL,                      -- blake2b-16 of the embedded text
  generation INTEGER NOT NULL,             -- the source's, when this passage was last seen
  ordinal INTEGER NOT NULL,
  start INTEGER NOT NULL,                  -- bytes of the file, half open
  "end" INTEGER NOT NULL,
  codec TEXT NOT NULL,
  heading TEXT NOT NULL,
  speaker TEXT NOT NULL,
  parts TEXT NOT NULL,                     -- humps of identifiers, for full-text search
  text TEXT NOT NULL
) STRICT;
CREATE INDEX passages_source ON passages(source, start);
CREATE INDEX passages_hash ON passages(hash, source, start);
CREATE INDEX passages_seen ON passages(id, scope, written_at, hash);  -- narrow: filters never touch the texts

CREATE VIEW passage_fields AS
  SELECT p.id AS id, p.text AS text, p.heading AS heading, p.speaker AS speaker, s.path_words AS path, p.parts AS parts
  FROM passages p JOIN sources s ON s.id = p.source;
CREATE VIRTUAL TABLE passages_fts USING fts5(
  text, heading, speaker, path, parts,
  content='passage_fields', content_rowid='id', tokenize='unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE passages_terms USING fts5vocab('passages_fts', 'row');

CREATE TABLE memories (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  source INTEGER NOT NULL UNIQUE REFERENCES sources(id) ON DELETE CASCADE,
  key TEXT UNIQUE,                         -- the client's, so that a resend counts once
  title TEXT NOT NULL,
  text TEXT NOT NULL,
  at REAL NOT NULL
) STRICT;

CREATE TABLE encoders (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  fingerprint TEXT NOT NULL UNIQUE,
  model TEXT NOT NULL,
  runtime TEXT NOT NULL,
  dims INTEGER NOT NULL,
  token_dims INTEGER NOT NULL
) STRICT;
CREATE TABLE snapshots (
  encoder INTEGER NOT NULL REFERENCES encoders(id) ON DELETE CASCADE,
  version INTEGER NOT NULL,                -- 0: the frozen encodings
  created_at REAL NOT NULL,
  live INTEGER NOT NULL CHECK (live IN (0, 1)),
  notes TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (encoder, version)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX snapshots_live ON snapshots(live) WHERE live = 1;

CREATE TABLE vectors (
  hash BLOB NOT NULL,
  encoder INTEGER NOT NULL,
  snapshot INTEGER NOT NULL,
  vector BLOB NOT NULL,                    -- float16 (dims,)
  starts BLOB NOT NULL,                    -- uint16 (T,): characters of the embedded text
  ends BLOB NOT NULL,                      -- uint16 (T,)
  tokens BLOB NOT NULL,                    -- int8 (T, token_dims)
  FOREIGN KEY (encoder, snapshot) REFERENCES snapshots(encoder, version) ON DELETE CASCADE
) STRICT;
CREATE UNIQUE INDEX vectors_hash ON vectors(hash, encoder, snapshot);
CREATE INDEX vectors_snapshot ON vectors(encoder, snapshot);

CREATE TABLE sessions (
  id TEXT PRIMARY KEY,
  scope INTEGER NOT NULL REFERENCES scopes(id),
  host TEXT NOT NULL,
  client TEXT NOT NULL,
  cwd TEXT NOT NULL,
  opened_at REAL NOT NULL,
  last_seen_at REAL NOT NULL,
  closed_at REAL,
  boundary INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  calls INTEGER NOT NULL,
  won INTEGER NOT NULL,
  slipped INTEGER NOT NULL,
  silent INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_last_seen ON sessions(last_seen_at);

CREATE TABLE recalls (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  session TEXT REFERENCES sessions(id) ON DELETE CASCADE,
  cause TEXT NOT NULL,
  query TEXT NOT NULL,
  at REAL NOT NULL,
  outcome TEXT NOT NULL,
  reason TEXT NOT NULL,
  stage TEXT NOT NULL,
  ms REAL NOT NULL,
  explain BLOB NOT NULL                    -- msgpack: each lane's rank and score, each gate's decision
) STRICT;
CREATE INDEX recalls_session ON recalls(session);

CREATE TABLE impressions (
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
  outcome TEXT NOT NULL CHECK (outcome IN ('won', 'slipped', 'withheld')),
  boundary INTEGER NOT NULL,
  shown_at REAL NOT NULL
) STRICT;
CREATE INDEX impressions_recall ON impressions(recall);
CREATE INDEX impressions_session ON impressions(session, passage);

CREATE TABLE feedback (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  impression TEXT NOT NULL REFERENCES impressions(id),
  verdict TEXT NOT NULL CHECK (verdict IN ('good', 'bad', 'used', 'ignored')),
  at REAL NOT NULL
) STRICT;
CREATE INDEX feedback_impression ON feedback(impression);
"""
