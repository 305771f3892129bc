"""What the benchmarks share: quantiles, tables, and the JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else float("nan")


def spread(values: Sequence[float], *shares: int) -> dict[str, float]:
    """{"p50": ..., "p95": ..., "p99": ...} of the values, or of the shares given."""
    return {f"p{share}": round(quantile(values, share / 100), 3) for share in shares or (50, 95, 99)}


def table(rows: Sequence[Sequence[object]]) -> None:
    """The first row is the head."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in texts) for column in range(len(texts[0]))]
    for row in texts:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def keep(result: dict[str, Any], file: Path | None) -> None:
    """As JSON; a figure that is not finite is null, since JSON has no nan."""
    if file is not None:
        file.write_text(json.dumps(_finite(result), indent=1, allow_nan=False) + "\n")
        print(f"written to {file}")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value
