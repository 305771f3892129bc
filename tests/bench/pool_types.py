"""`training.pools`, for benches that are run as scripts: only here is the root put on the path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from training.pools import Ask, Pool, Row, user

__all__ = ["Ask", "Pool", "Row", "user"]
