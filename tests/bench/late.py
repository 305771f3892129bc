"""An encoder alone, without any lane, ranker or gate: what its vectors find, and what its tokens find.

    python tests/bench/late.py --data DIR [--model default --model minilm] [--sets locomo realtalk ...] [--json FILE]

The models run as they ship: queries in the live runtime, passages in the bulk one, tokens in eight bits. All of a pool
is ranked by cosine, and again by max-sim. DIR holds `locomo`, `realtalk_dev` and `real`, all for evaluation only.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from bench_tools import keep, table
from eval_documents import load
from eval_pools import ADVERSARIAL, Judged, locomo
from house_encoders import Encoders
from judging import cache, tell
from numpy.typing import NDArray
from training.encoder_judge import Score, judge
from training.pools import Ask, Pool

from recalld_daemon.recall.types import Float32

SETS = ("locomo", "realtalk", "bukzor", "beam")


class AsShipped:
    """The daemon's two encoders, as `judge` wants one."""

    def __init__(self, encoders: Encoders) -> None:
        self._encoders = encoders

    def queries(self, texts: Sequence[str]) -> tuple[Float32, list[Float32]]:
        encoded = [self._encoders.live.encode_query(text) for text in texts]
        return np.array([vector for vector, _ in encoded]), [tokens for _, tokens in encoded]

    def passages(self, texts: Sequence[str]) -> tuple[Float32, list[NDArray[np.int8]]]:
        encoded = self._encoders.bulk.encode_passages(texts)
        return encoded.vectors.astype(np.float32), encoded.tokens


def main() -> None:
    options = _options()
    pools = {name: [_answerable(name, judged) for judged in _loaded(name, options.data)] for name in options.sets}
    found: dict[str, dict[str, Score]] = {}
    for model in options.model or ["minilm", "default"]:
        encoder = AsShipped(Encoders(options.models or options.work / "models", options.work, model))
        found[model] = {}
        for name, of_set in pools.items():
            tell(f"{model}: {name}, {len(of_set)} pools")
            found[model] |= judge(encoder, of_set)
    rows = [["model", "set", "n", "dense R@10", "dense MRR", "max-sim R@10", "max-sim MRR"]]
    for model, scores in found.items():
        for name, score in scores.items():
            figures = (score.dense_r10, score.dense_mrr, score.late_r10, score.late_mrr)
            rows.append([model, name, str(score.n), *(f"{figure:.3f}" for figure in figures)])
    table(rows)
    as_json = {model: {name: asdict(score) for name, score in scores.items()} for model, scores in found.items()}
    keep(as_json, options.json)


def _loaded(name: str, data: Path) -> list[Judged]:
    return locomo(data / "locomo") if name == "locomo" else next(pools for _, pools in load(data, [name]))


def _answerable(name: str, judged: Judged) -> Pool:
    """The pool under its set's name, with the questions that have an answer and count."""
    asks: list[Ask] = [ask for ask in judged.pool.asks if ask.gold and ask.kind != ADVERSARIAL]
    return Pool(f"{name} {judged.pool.name}", judged.pool.rows, asks)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="what holds the sets")
    parser.add_argument("--model", action="append", help="as in the configuration; may be given again")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS[:3]), help="%(default)s")
    parser.add_argument("--work", type=Path, default=cache(), metavar="DIR", help="keeps models (%(default)s)")
    parser.add_argument("--models", type=Path, metavar="DIR", help="keeps prepared models (below --work)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
