"""What is learned of one's own memory, and when it is worth anything: LoCoMo in four splits, by cosine and by recall.

    python tests/bench/learning.py --data DIR [--json FILE|-] [--quick] [--cascade] [--encoder minilm] [--tries]

DIR holds LoCoMo, or is `locomo`'s parent; categories 1 to 4, adversarial questions are counted apart. `plain` is dense
search over "Speaker: text" per turn in the question's own conversation, questions as asked, the same encoder; fq, fk,
fv add f_Q, f_Q + f_K, f_Q + f_K + f_V. random holds out tenths of the question-memory pairs (a question's pairs stay
together), chrono each conversation's newest fifth, conversation each as a whole; prequential asks each question, in the
order of its evidence, before it is learned from. --cascade does the same by the product's whole recall, with `ranker`.

r@k is the share of the evidence among the first k, mrr the mean reciprocal rank of the first. gain, low, high: of mrr
over plain, a paired 95 % bootstrap: over questions (random), over conversations (conversation), over the sessions in
which the evidence stands (chrono, prequential). promoted: what the rule would ship, chosen inside the training part,
and what that gives on what was held out.

LoCoMo's data (CC BY-NC) is for evaluation only. The default encoder was tuned for conversations (on other data), so its
plain search is much better than plain MiniLM's (`--encoder minilm`), and there is less left for an adapter to repair.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import learning_cascade
import learning_fits
import learning_stream
import numpy as np
from bench_tools import table
from eval_pools import locomo
from house_encoders import Encoders
from judging import cache, tell
from learning_fits import Judgement, summed
from learning_sets import Talks, talks_of
from learning_splits import REPORTED, Fold, chrono_folds, conversation_folds, random_folds, time_order
from learning_tries import SETTINGS, tries

from recalld_daemon.adapters.settings import OnlineSettings
from recalld_daemon.evaluation.metrics import NAMES
from recalld_daemon.recall.types import Int64

SPLITS = ("random", "chrono", "conversation", "prequential")
TARGET = {"random": "+50 % relative", "prequential": "low > 0", "chrono": "low >= 0 or not promoted"}
QUICK_NIGHT = 300  # questions a day with --quick

Judge = Callable[[Fold], Judgement]


def main() -> None:
    options = _options()
    began = time.monotonic()
    encoders = Encoders(options.models or options.work / "models", options.work, options.encoder)
    talks = talks_of(locomo(_directory(options.data)), encoders, options.work)
    tell(f"{len(talks)} questions over {len(talks.pairs.memories)} turns; {talks.adversarial} adversarial left out")
    result: dict[str, Any] = {"encoder": encoders.live.fingerprint, "n": len(talks), "settings": options.settings}
    result["adversarial_left_out"] = talks.adversarial
    if options.tries:
        result["tries"] = tries(talks.pairs, tell)
    result |= dense(talks, options)
    if options.cascade:
        with learning_cascade.opened(talks, encoders, tell) as cascade:
            result["cascade"] = whole(cascade, talks, options)
    result["seconds"] = round(time.monotonic() - began, 1)
    show(result, to=sys.stderr if str(options.json) == "-" else sys.stdout)
    _keep(result, options.json)


def dense(talks: Talks, options: argparse.Namespace) -> dict[str, Any]:
    """splits and promoted, by cosine alone."""
    pairs, settings, online = talks.pairs, SETTINGS[options.settings], OnlineSettings()
    splits = _splits(talks, options, lambda fold: learning_fits.judged_fold(pairs, fold, settings), "by cosine")
    order, sessions = time_order(pairs.at, pairs.groups), sessions_of(talks)
    night = QUICK_NIGHT if options.quick else learning_stream.NIGHT
    splits["prequential"] = learning_stream.prequential(pairs, order, sessions, settings, online, night)
    if not options.quick:
        splits["prequential"]["other_orders"] = learning_stream.other_orders(pairs, sessions, online)
    return {"splits": splits, "promoted": {name: splits[name]["promoted"] for name in SPLITS}}


def whole(cascade: learning_cascade.Cascade, talks: Talks, options: argparse.Namespace) -> dict[str, Any]:
    """The same by the whole recall."""
    settings, online = SETTINGS[options.settings], OnlineSettings()
    splits = _splits(talks, options, lambda fold: learning_cascade.judged_fold(cascade, fold, settings), "by recall")
    order, sessions = time_order(talks.pairs.at, talks.pairs.groups), sessions_of(talks)
    night = QUICK_NIGHT if options.quick else learning_stream.NIGHT
    splits["prequential"] = learning_cascade.prequential(cascade, order, sessions, settings, online, night)
    return {"splits": splits, "promoted": {name: splits[name]["promoted"] for name in SPLITS}}


def _splits(talks: Talks, options: argparse.Namespace, judge: Judge, how: str) -> dict[str, Any]:
    pairs, most = talks.pairs, 1 if options.quick else REPORTED
    folds: dict[str, tuple[list[Fold], Int64 | None]] = {
        "random": (random_folds(pairs.names, range(most)), None),
        "chrono": (chrono_folds(pairs.names, pairs.at, pairs.groups), sessions_of(talks)),
        "conversation": (conversation_folds(pairs.names, pairs.groups)[: 2 if options.quick else None], pairs.groups),
    }
    found = {}
    for name, (own, groups) in folds.items():
        judged = []
        for fold in own:
            judged.append(judge(fold))
            tell(f"{how}, {name}: {len(judged)} of {len(own)} folds")
        found[name] = summed(judged, groups)
        tell(f"{how}, {name}: " + ", ".join(f"{each} {found[name][each]['mrr']}" for each in judged[0].told))
    return found


def sessions_of(talks: Talks) -> Int64:
    """(n,) a number for each conversation's session in which the newest evidence stands."""
    keys = np.stack([talks.pairs.groups.astype(np.float64), talks.pairs.at], axis=1)
    found: Int64 = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return found


def show(result: dict[str, Any], to: Any) -> None:
    """Tables of the splits, then what would be promoted."""
    sys.stdout, kept = to, sys.stdout
    try:
        table(_rows("by cosine", result))
        if "cascade" in result:
            print()
            table(_rows("by recall", result["cascade"]))
        print(f"\n{result['encoder'].split()[0]}, settings {result['settings']}, {result['seconds']} s")
    finally:
        sys.stdout = kept


def _rows(how: str, found: dict[str, Any]) -> list[list[object]]:
    rows: list[list[object]] = [[how, "n", *NAMES, "gain of mrr, 95 %", "relative", "ships, by fold"]]
    for split in SPLITS:
        own = found["splits"][split]
        for name, values in own.items():
            if isinstance(values, dict) and "mrr" in values:
                rows.append([f"{split} {name}", own["n"], *_cells(values), _ships(values)])
        rows.append([""])
    return [row + [""] * (len(rows[0]) - len(row)) for row in rows]


def _cells(values: dict[str, Any]) -> list[str]:
    cells = [f"{values[name]:.3f}" for name in NAMES]
    if "gain" not in values:
        return [*cells, "", ""]
    return [*cells, f"{values['gain']:+.3f} [{values['low']:+.3f} {values['high']:+.3f}]", f"{values['relative']:+.0%}"]


def _ships(values: dict[str, Any]) -> str:
    folds: Sequence[str] = values.get("by_fold", ())
    return ", ".join(f"{name} {folds.count(name)}" for name in dict.fromkeys(folds)) or str(values.get("ships", ""))


def _directory(data: Path) -> Path:
    return data / "locomo" if (data / "locomo").is_dir() else data


def _keep(result: dict[str, Any], to: Path | None) -> None:
    text = json.dumps(result, indent=1)
    if to is not None and str(to) == "-":
        print(text)
    elif to is not None:
        to.write_text(text + "\n")
        print(f"written to {to}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="holds LoCoMo, or its parent")
    parser.add_argument("--work", type=Path, default=cache(), metavar="DIR", help="keeps encodings (%(default)s)")
    parser.add_argument("--models", type=Path, metavar="DIR", help="keeps prepared models (below --work)")
    parser.add_argument("--encoder", default="default", help="as in the configuration (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there; -: to standard output")
    parser.add_argument("--settings", choices=list(SETTINGS), default="usual", help="of fits (%(default)s, as nights)")
    parser.add_argument("--cascade", action="store_true", help="the same by the whole recall, with the ranker's refit")
    parser.add_argument("--tries", action="store_true", help="first the settings that were tried, on questions apart")
    parser.add_argument("--quick", action="store_true", help="one fold of ten, two conversations, fewer nights")
    return parser.parse_args()


if __name__ == "__main__":
    main()
