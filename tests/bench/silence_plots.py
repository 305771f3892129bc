"""Two pictures: precision against coverage as the gate's cut moves, and how reliable its probabilities are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

try:
    import matplotlib
except ImportError:
    raise SystemExit("--plot needs matplotlib: pip install 'recalld[bench]'") from None

matplotlib.use("Agg")

from matplotlib import pyplot

SIZE = (5.5, 4.5)  # inches


def draw(
    curve: Sequence[tuple[float, float, float, float]], bins: Sequence[tuple[float, float, int]], directory: Path
) -> list[Path]:
    """Writes precision_coverage and reliability, each as SVG and PNG. curve, bins: as `silence` makes them."""
    directory.mkdir(parents=True, exist_ok=True)
    return [*_precision_coverage(curve, directory), *_reliability(bins, directory)]


def _precision_coverage(curve: Sequence[tuple[float, float, float, float]], directory: Path) -> list[Path]:
    figure, axes = pyplot.subplots(figsize=SIZE)
    spoken = [row for row in curve if row[1] > 0]
    coverage = [row[1] for row in spoken]
    axes.plot(coverage, [row[2] for row in spoken], label="precision of what is shown")
    axes.plot(coverage, [row[3] for row in spoken], "--", label="fires in another conversation's memory")
    axes.set(xlabel="coverage: questions with an answer that get something", ylabel="share", xlim=(0, 1), ylim=(0, 1))
    axes.legend()
    return _save(figure, directory / "precision_coverage")


def _reliability(bins: Sequence[tuple[float, float, int]], directory: Path) -> list[Path]:
    figure, axes = pyplot.subplots(figsize=SIZE)
    axes.plot([0, 1], [0, 1], ":", color="grey")
    axes.plot([row[0] for row in bins], [row[1] for row in bins], "o-")
    for mean, right, n in bins:
        axes.annotate(str(n), (mean, right), textcoords="offset points", xytext=(5, -10), fontsize=8)
    axes.set(xlabel="probability that the gate gives", ylabel="share that was right", xlim=(0, 1), ylim=(0, 1))
    return _save(figure, directory / "reliability")


def _save(figure: pyplot.Figure, stem: Path) -> list[Path]:
    figure.tight_layout()
    written = [stem.with_suffix(".svg"), stem.with_suffix(".png")]
    for path in written:
        figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return written
