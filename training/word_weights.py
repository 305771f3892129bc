"""How telling each word is, counted over the permissively licensed memories; --write keeps it in the package.

    python -m training.word_weights --data DIR [--write]

What is weighed, and why two memories must know a word before it counts as ordinary, is told in `recall.words`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from math import log
from pathlib import Path

from recalld_daemon import recall
from recalld_daemon.recall.words import content_stems
from training.gate_asks import large_pools
from training.permissive import LICENCES
from training.pools import Pool

HERE = Path(next(iter(recall.__path__)))
SEED = 20260101
WORD_FLOOR = 3 / 16000  # share of passages; a rarer word weighs 1
WORD_CEILING = 0.8  # words that weigh more are not listed: an unlisted word weighs 1


def word_weights(pools: Sequence[Pool]) -> dict[str, float]:
    """stem -> weight in 0..WORD_CEILING: log of the share of passages that hold it, the mean over pools.

    Only words that at least two pools know: what one project says all day (its name, its people) is not ordinary.
    """
    shares: dict[str, list[float]] = defaultdict(list)
    for pool in pools:
        counts = Counter(word for row in pool.rows for word in content_stems(f"{row.heading}\n{row.text}"))
        for word, count in counts.items():
            if count > 1 and len(word) > 1:
                shares[word].append(count / len(pool.rows))
    weights = {word: log(sum(s) / len(pools)) / log(WORD_FLOOR) for word, s in shares.items() if len(s) > 1}
    return {word: round(w, 2) for word, w in sorted(weights.items()) if w < WORD_CEILING}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory of the development data")
    parser.add_argument("--write", action="store_true", help="keep the weights in the package")
    options = parser.parse_args()
    pools = [pool for pool in large_pools(options.data, SEED, ()) if not pool.name.startswith("qmsum")]
    weights = word_weights(pools)
    print(f"{len(weights)} ordinary words; the most ordinary: {sorted(weights, key=weights.get)[:20]}")  # type: ignore[arg-type]
    if options.write:
        provenance = {
            "made_by": "python -m training.word_weights --data DATA --write",
            "made_on": datetime.now(UTC).strftime("%Y-%m-%d"),
            "seed": SEED,
            "data": {pool.name: LICENCES[pool.name] for pool in pools},
        }
        text = json.dumps({"provenance": provenance, "weights": weights}, indent=1, ensure_ascii=False)
        (HERE / "word_weights.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
