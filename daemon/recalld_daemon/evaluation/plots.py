"""Three pictures of a survey: the learning curve, how reliable the gate is, and how what was learned has drifted.

The only file that imports matplotlib, which is in an extra: nothing else needs it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Format = Literal["png", "svg"]
SIZE = (5.5, 4.0)  # inches
DOTS = 120  # per inch, of a PNG
MISSING = "plots need matplotlib: pip install 'recalld[plots]'"


def can_draw() -> bool:
    """Whether matplotlib is installed; it is not imported."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(document: Mapping[str, Any], directory: Path, format: Format = "png") -> list[Path]:
    """Writes what the survey has data for; returns the files. Raises OSError, ModuleNotFoundError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    directory.mkdir(parents=True, exist_ok=True)
    pictures = (
        ("learning_curve", document.get("curve") or (), _curve),
        ("reliability", document["reliability"]["bins"], _reliability),
        ("drift", _made(document), _drift),
    )
    written = []
    for name, rows, put in pictures:
        if rows:
            figure = Figure(figsize=SIZE, layout="constrained")
            FigureCanvasAgg(figure)
            put(figure, rows)
            written.append(directory / f"{name}.{format}")
            figure.savefig(written[-1], dpi=DOTS)
    return written


def left_out(document: Mapping[str, Any]) -> list[str]:
    """What `draw` does not draw though there is a little of it, in words."""
    few = len([row for row in document["versions"] if row["version"]]) == 1
    return ["drift is drawn from two versions on; there is one so far"] if few else []


def _made(document: Mapping[str, Any]) -> list[Any]:
    """Versions that were learned; none where there is only one, whose course in time is no line."""
    rows = [row for row in document["versions"] if row["version"]]
    return rows if len(rows) > 1 else []


def _curve(figure: Figure, rows: Sequence[Mapping[str, Any]]) -> None:
    axes = figure.subplots()
    at, values = [row["questions"] for row in rows], [row["mrr"] for row in rows]
    axes.plot(at, values, "o-", label="f_Q")
    low, high = ([values[0] + row[end] for row in rows] for end in ("low", "high"))
    axes.fill_between(at, low, high, alpha=0.2, label="95 % of its gain")
    axes.axhline(values[0], linestyle=":", color="grey", label="plain")
    axes.set(xlabel="questions learned from, oldest first", ylabel="MRR on the newest, by cosine alone")
    axes.legend()


def _reliability(figure: Figure, bins: Sequence[tuple[float, float, int]]) -> None:
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], ":", color="grey")
    axes.plot([row[0] for row in bins], [row[1] for row in bins], "o-")
    for mean, share, n in bins:
        axes.annotate(str(n), (mean, share), textcoords="offset points", xytext=(5, -10), fontsize=8)
    axes.set(xlabel="probability that the gate gave", ylabel="share that helped", xlim=(0, 1), ylim=(0, 1))


def _drift(figure: Figure, rows: Sequence[Mapping[str, Any]]) -> None:
    axes: Axes = figure.subplots()
    days = [datetime.fromtimestamp(row["at"], UTC) for row in rows]
    for name, label in (("drift", "drift of the keys"), ("w2", "|W2| of f_Q"), ("b2", "|b2| of f_Q")):
        axes.plot(days, [row[name] for row in rows], "o-", label=label)  # type: ignore[arg-type]
    for row, day in zip(rows, days, strict=True):
        axes.annotate(f"v{row['version']}", (day, row["drift"]), textcoords="offset points", xytext=(4, 4), fontsize=8)
    axes.set(xlabel="made", ylabel="size")
    axes.legend()
    figure.autofmt_xdate()
