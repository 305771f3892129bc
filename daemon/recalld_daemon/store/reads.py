"""What the parts of the reader share: a pool of connections, and one short read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recalld_daemon.store.connections import Pool


class Reads:
    """A part of the reader."""

    _pool: Pool

    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._pool.lend() as db:
            return db.execute(sql, values).fetchall()
