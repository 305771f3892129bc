"""What the user had imported: files and directories that are read and followed beside those that are configured.

They are rows and not lines of the configuration, since a command adds them and `forget` takes them away; the user's
own file is never written by a program.

And when a session's context was last compacted: what it was shown before may come once more, also after a restart.
"""

from __future__ import annotations

SQL = """
CREATE TABLE followed (
  path TEXT PRIMARY KEY,                   -- absolute
  kind TEXT NOT NULL DEFAULT '',           -- how it is read; '': told by looking at it
  is_file INTEGER NOT NULL CHECK (is_file IN (0, 1)),  -- so that a file that is away for a while is waited for as one
  at REAL NOT NULL                         -- epoch seconds: when the user said so
) STRICT, WITHOUT ROWID;
ALTER TABLE sessions ADD COLUMN compacted_at REAL NOT NULL DEFAULT 0;  -- epoch seconds; 0: never
"""
