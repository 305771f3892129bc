"""False injections: how often something comes to mind where nothing should, and what is kept back where it should not.

    python tests/bench/silence.py --data DIR [--plot DIR] [--json FILE]

Every moment goes through the cascade and the daemon's own gate at its default setting. It `fires` when at least one
passage passes. Where the answer is in the memory, it is served when a passage that answers is among those that pass;
`served_when_known` is the share of such questions among those whose answer is in the first three before the gate.

Sets: cross (LoCoMo's questions in another conversation's memory), unrelated (tool calls of real coding sessions beside
vaults of notes that have nothing to do with them) and smalltalk (and nonsense, in every memory) should fire at no more
than 5 % of moments; adversarial (LoCoMo's false premises, whose misleading turn is on topic) is reported only.
Reliability is over all candidates that were judged for LoCoMo's questions, known and cross: in ten bins, how far the
probabilities are from the share that was right (ECE). --plot draws that, and precision against coverage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import silence_sets
from bench_tools import keep, table
from figures import cell, share_interval
from house import House, open_house, search
from judging import bench_options, encoders_of, tell
from pool_types import Ask
from silence_sets import Moment

from recalld_daemon.recall import gate

SETS = ("cross", "adversarial", "unrelated", "smalltalk")
TOP = 3  # ranks before the gate within which an answer counts as known
BINS = 10
FIRE_TARGET, SERVED_TARGET = 0.05, 0.60


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate did. judged: (probability, right, whether all gates but the probability's let it pass), by rank."""

    moment: Moment
    passed: tuple[bool, ...]  # for each that passed, whether it answers
    known: bool  # an answer was among the first TOP
    judged: tuple[tuple[float, bool, bool], ...]
    reason: str

    @property
    def fires(self) -> bool:
        return bool(self.passed)


def main() -> None:
    options = _options()
    loaded = silence_sets.load(options.data, options.most, options.vaults)
    encoders = encoders_of(options)
    verdicts: list[Verdict] = []
    for name, pool in loaded.pools.items():
        own = [moment for moment in loaded.moments if moment.memory == name]
        with open_house(pool, encoders) as house:
            verdicts += [verdict(house, moment) for moment in own]
        tell(f"{name}: {len(pool.rows)} passages, {len(own)} moments")
    result = report(verdicts)
    show(verdicts, result)
    keep(result, options.json)
    if options.plot is not None:
        _plot(verdicts, options.plot)


def verdict(house: House, moment: Moment) -> Verdict:
    """As `recalls` has it: the first candidates' passages are read and judged against query and conversation."""
    found = search(house, Ask(moment.kind, moment.focus))
    focus = moment.focus
    said = (focus.user_text, focus.assistant_text, f"{focus.tool_name} {focus.tool_args}".strip())
    context = gate.Context(query=found.query, texts=tuple(text for text in said if text), opened=found.query.opened)
    passages = house.memory.reader.passages(gate.depth_of(found.answer))
    decision = gate.decide(found.answer, passages, context) if found.rows else gate.Decision([], found.query.silence)
    judged = [candidate for candidate in found.candidates[: gate.GATE_DEPTH] if candidate.gates]
    return Verdict(
        moment,
        tuple(house.row_of[candidate.passage] in moment.gold for candidate in decision.passed),
        any(row in moment.gold for row in found.rows[:TOP]),
        tuple((c.probability, house.row_of[c.passage] in moment.gold, _else_passes(c.gates)) for c in judged),
        decision.reason,
    )


def report(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The JSON."""
    fires = {kind: share_interval([v.fires for v in of(verdicts, kind)]) for kind in SETS}
    served = share_interval([any(v.passed) for v in of(verdicts, "known") if v.known])
    answers = of(verdicts, "known")
    return {
        "false_fire": {kind: share for kind, (share, _) in fires.items()},
        "served_when_known": served[0],
        "reliability_ece": _ece(rated(verdicts)),
        "reliability_ece_first": _ece([v.judged[0][:2] for v in _talked(verdicts) if v.judged]),
        "intervals": {kind: span for kind, (_, span) in fires.items()} | {"served_when_known": served[1]},
        "n": {kind: len(of(verdicts, kind)) for kind in SETS} | {"known": len(answers)},
        "known": {
            "in_top3": _share([v.known for v in answers]),
            "fires": _share([v.fires for v in answers]),
            "right": _share([any(v.passed) for v in answers]),
            "precision": _share([right for v in answers for right in v.passed]),
        },
        "by_memory": {
            f"{kind} in {memory}": _share([v.fires for v in of(verdicts, kind) if v.moment.memory == memory])
            for kind in SETS
            for memory in dict.fromkeys(v.moment.memory for v in of(verdicts, kind))
        },
        "reliability": bins(rated(verdicts)),
        "targets": {"false_fire": FIRE_TARGET, "served_when_known": SERVED_TARGET},
    }


def of(verdicts: Sequence[Verdict], kind: str) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.moment.kind == kind]


def rated(verdicts: Sequence[Verdict]) -> list[tuple[float, bool]]:
    """(probability, right) of all candidates judged for LoCoMo's questions, known and cross."""
    return [(probability, right) for v in _talked(verdicts) for probability, right, _ in v.judged]


def bins(pairs: Sequence[tuple[float, bool]]) -> list[tuple[float, float, int]]:
    """(mean probability, share that was right, n) in BINS bins of equal width; empty ones are left out.

    >>> bins([(0.05, False), (0.95, True), (0.95, False)])
    [(0.05, 0.0, 1), (0.95, 0.5, 2)]
    """
    held: dict[int, list[tuple[float, bool]]] = {}
    for probability, right in pairs:
        held.setdefault(min(BINS - 1, int(probability * BINS)), []).append((probability, right))
    return [
        (round(float(np.mean([p for p, _ in own])), 4), round(float(np.mean([r for _, r in own])), 4), len(own))
        for _, own in sorted(held.items())
    ]


def curve(verdicts: Sequence[Verdict]) -> list[tuple[float, float, float, float]]:
    """(cut, share of known questions that get something, precision of what they get, share of cross moments that fire).

    At each cut the first of a moment's candidates that all other gates let pass are shown.
    """
    rows = []
    for cut in np.linspace(0.0, 0.99, 100).tolist():
        shown = [_shown(v, cut) for v in of(verdicts, "known")]
        rights = [right for own in shown for right in own]
        false = _share([bool(_shown(v, cut)) for v in of(verdicts, "cross")])
        rows.append((cut, _share([bool(own) for own in shown]), _share(rights), false))
    return rows


def show(verdicts: Sequence[Verdict], result: dict[str, Any]) -> None:
    rows: list[list[object]] = [["set", "n", "fires", "target", ""]]
    for kind in SETS:
        share, span = result["false_fire"][kind], result["intervals"][kind]
        judged = "reported only" if kind == "adversarial" else "met" if share <= FIRE_TARGET else "short"
        rows.append([kind, result["n"][kind], cell(share, span), f"<= {FIRE_TARGET:.2f}", judged])
    known = sum(v.known for v in of(verdicts, "known"))
    share, span = result["served_when_known"], result["intervals"]["served_when_known"]
    met = "met" if share >= SERVED_TARGET else "short"
    rows.append(["served when known", known, cell(share, span), f">= {SERVED_TARGET:.2f}", met])
    table(rows)
    print(f"\nquestions with an answer, n {result['n']['known']}: {result['known']}")
    print(f"reliability: ECE {result['reliability_ece']}, of the first candidates {result['reliability_ece_first']}\n")
    table([["probability", "right", "n"], *result["reliability"]])
    print()
    table([["set and memory", "fires"], *result["by_memory"].items()])


def _talked(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [*of(verdicts, "known"), *of(verdicts, "cross")]


def _shown(verdict: Verdict, cut: float) -> list[bool]:
    return [right for p, right, passes in verdict.judged if passes and p >= cut][: gate.SHOWN_LIMIT]


def _else_passes(gates: dict[str, str]) -> bool:
    return not any(text.startswith("stopped") for name, text in gates.items() if name not in ("probability", "room"))


def _ece(pairs: Sequence[tuple[float, bool]]) -> float:
    """Expected calibration error: the bins' distances from the diagonal, by size."""
    total = max(1, len(pairs))
    return round(sum(abs(mean - right) * n for mean, right, n in bins(pairs)) / total, 4)


def _share(values: Sequence[bool]) -> float:
    return round(float(np.mean(values)), 4) if len(values) else float("nan")


def _plot(verdicts: Sequence[Verdict], directory: Path) -> None:
    from silence_plots import draw

    written = draw(curve(verdicts), bins(rated(verdicts)), directory)
    print("drawn: " + ", ".join(map(str, written)))


def _options() -> argparse.Namespace:
    parser = bench_options(__doc__ or "", "a directory below which LoCoMo, vaults and coding sessions lie")
    parser.add_argument("--most", type=int, default=10_000, metavar="N", help="moments per set and memory at most")
    parser.add_argument("--vaults", default="", metavar="NAME", help="only vaults whose path holds this")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw the curves there (needs matplotlib)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
