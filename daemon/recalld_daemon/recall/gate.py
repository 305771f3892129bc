"""What may come to mind: gates on absolute signals, each with a name and a reason that a person can read.

A fused list always has a best entry, also for nonsense; so order decides nothing here. A candidate must be new to the
conversation, must not read like an instruction, must share more than file names and ordinary words with the query or
be near it in meaning, and must be useful with a probability above its stage's threshold: a logistic model on the
signals, fitted by tests/bench/gate.py on public data and kept, with its provenance, in gate_weights.json. Of passages
that say nearly the same the latest speaks. The thresholds lean to silence.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources

from recalld_daemon.recall.signals import FEATURES, Wanted, excess, pool_of, shared, signals_of, wanted_of
from recalld_daemon.recall.types import Answer, Candidate, Passage, Query
from recalld_daemon.recall.words import content_stems, words_of

GATE_DEPTH = 8  # candidates whose passages are read and judged; what is not among them is not shown
SHOWN_LIMIT = 3  # snippets per recall, by design
SUBSTANCE = 0.35  # least summed excess of a query's words that are no file names ("run the test and check it" has less)
SOLID_WORD = 0.45  # a shared word at least this telling is no accident
NEAR_COSINE = 0.40  # so near in meaning, sharing no telling word is no accident either
KNOWN_SHARE = 0.5  # of a passage's word quadruples that the conversation already holds
GRAM_WORDS = 4
SAME_OVERLAP = 0.6  # of the smaller one's words: two passages say nearly the same thing

Gram = tuple[str, ...]
_INSTRUCTION = re.compile(
    r"""\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,30}\b(?:previous|prior|above|earlier|preceding|your|
        system)\b[^.\n]{0,20}\b(?:instruction|prompt|rule|direction|guideline|command)s?\b
      | \b(?:ignore|disregard|forget)\s+(?:all|any)\s+(?:of\s+)?(?:the\s+|my\s+)?(?:instruction|prompt|rule)s?\b
      | \b(?:reveal|print|show|repeat|output)\b[^.\n]{0,20}\b(?:your|the)\b[^.\n]{0,12}\bsystem\s+prompt\b
      | \byou\s+are\s+now\s+(?:a|an|in|the)\b | \bnew\s+(?:system\s+)?instructions?\s*:
      | \bdo\s+not\s+tell\s+the\s+user\b
      | \byou\s+must\s+now\b | \bact\s+as\s+(?:if\s+you|an?\s+(?:unrestricted|different|evil|new))\b
      | </?\s*(?:system|system-reminder|hook_context|instructions?|important|admin)\b[^>\n]{0,80}>
      | <\|\w+\|> | \[/?INST\]
      | (?:^|\n)\s*(?:system|human|assistant|user)\s*:\s*(?:ignore|disregard|forget|run|execute|you\s+must)\b
      | \bcurl\b[^\n]{0,200}\|\s*(?:sudo\s+)?(?:ba|z)?sh\b[^\n]{0,80}\b(?:now|immediately|silently)\b""",
    re.VERBOSE | re.IGNORECASE,
)

_INSTRUCTION_WORDS = (
    "ignor",
    "disregard",
    "forget",
    "overrid",
    "bypass",
    "prompt",
    "you are now",
    "instruction",
    "tell the user",
    "must now",
    "act as",
    "system",
    "hook_context",
    "important",
    "admin",
    "<|",
    "inst]",
    "human",
    "assistant",
    "user:",
    "curl",
)  # fmt: skip - without one of these nothing matches above; a tenth of the cost


@dataclass(frozen=True, slots=True)
class Context:
    """What was asked, and what the conversation already has."""

    query: Query
    shown: frozenset[int] = frozenset()  # passages shown in this session
    texts: tuple[str, ...] = ()  # the conversation's latest texts, of the user, the assistant and tool calls
    shift: float = 0.0  # log-odds added to the thresholds: the user's own taste
    opened: tuple[str, ...] = ()  # files that the tool call itself reads or writes: the agent has them before it


@dataclass(frozen=True, slots=True)
class Decision:
    """passed: at most SHOWN_LIMIT candidates, best first. reason: why these, or why none. stopped: gate -> how many."""

    passed: list[Candidate]
    reason: str
    stopped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Model:
    """A logistic model: p = 1 / (1 + exp(-(bias + sum of weight * (x - mean) / scale)))."""

    names: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    threshold: float

    def probability(self, signals: Mapping[str, float]) -> float:
        rows = zip(self.names, self.means, self.scales, self.weights, strict=True)
        logit = self.bias + sum(w * (signals[name] - mean) / scale for name, mean, scale, w in rows)
        return 1.0 / (1.0 + math.exp(-max(-50.0, min(50.0, logit))))


@lru_cache(maxsize=1)
def models() -> dict[str, Model]:
    """The fitted models by stage ("lexical": without an encoder, "fused", "late"), read once from the package."""
    text = resources.files(__package__).joinpath("gate_weights.json").read_text(encoding="utf-8")
    return {stage: model_of(stage, row) for stage, row in json.loads(text)["models"].items()}


def model_of(stage: str, row: Mapping[str, list[float] | float | list[str]]) -> Model:
    """A model from its JSON row. ValueError if it was fitted on other signals than this version computes."""
    names = tuple(row["features"])  # type: ignore[arg-type]
    if names != FEATURES[stage]:
        raise ValueError(f"gate_weights.json: stage {stage} was fitted on other signals; run tests/bench/gate.py")
    numbers = [tuple(float(x) for x in row[key]) for key in ("means", "scales", "weights")]  # type: ignore[union-attr]
    return Model(names, *numbers, bias=float(row["bias"]), threshold=float(row["threshold"]))  # type: ignore


def shifted(threshold: float, log_odds: float) -> float:
    """A probability moved by some log-odds.

    >>> shifted(0.5, 0.0), round(shifted(0.5, 1.0), 3)
    (0.5, 0.731)
    """
    return 1.0 / (1.0 + (1.0 - threshold) / threshold * math.exp(-log_odds))


def depth_of(answer: Answer) -> list[int]:
    """The passages that `decide` needs to see, best first."""
    return [candidate.passage for candidate in answer.candidates[:GATE_DEPTH]]


def decide(
    answer: Answer, passages: Sequence[Passage], context: Context, fitted: Mapping[str, Model] | None = None
) -> Decision:
    """Judges the answer's first GATE_DEPTH candidates; writes their probability, signals and gates into them.

    `passages` are those of `depth_of(answer)` that still exist, in any order. Pure. `fitted`: models other than the
    package's.
    """
    known = {passage.id: passage for passage in passages}
    judged = [candidate for candidate in answer.candidates[:GATE_DEPTH] if candidate.passage in known]
    wanted = wanted_of(context.query)
    stage = stage_of(answer)
    model, pool = (fitted or models())[stage], pool_of(answer.candidates)
    said = frozenset().union(*(_grams_of(text) for text in context.texts))
    for candidate in judged:
        passage = known[candidate.passage]
        text = full_text(passage)
        candidate.signals = signals_of(candidate, pool, wanted, text)
        candidate.probability = model.probability(candidate.signals)
        candidate.gates = {
            "query": _thin(wanted),
            "instruction": _instruction(passage.text),
            "accident": _accident(candidate, wanted, text, stage),
            "probability": _likely(candidate.probability, shifted(model.threshold, context.shift)),
            "known": _known(passage, context, said),
        }
    if any(not stopped_by(candidate) for candidate in judged):
        _latest_speaks(judged, known)
    passed = [candidate for candidate in judged if not stopped_by(candidate)]
    for extra in passed[SHOWN_LIMIT:]:
        extra.gates["room"] = f"stopped: {SHOWN_LIMIT} better ones"
    counts = Counter(gate for candidate in judged if (gate := stopped_by(candidate)))
    return Decision(passed[:SHOWN_LIMIT], _reason(passed[:SHOWN_LIMIT], judged), dict(counts))


def stage_of(answer: Answer) -> str:
    """Which model judges an answer: by what its candidates carry, not by what the stage is called."""
    if any(candidate.late is not None for candidate in answer.candidates):
        return "late"
    return "fused" if any("dense" in candidate.lanes for candidate in answer.candidates) else "lexical"


def stopped_by(candidate: Candidate) -> str:
    """The first gate that stopped it, or ""."""
    return next((gate for gate, verdict in candidate.gates.items() if verdict.startswith("stopped")), "")


def full_text(passage: Passage) -> str:
    """What a passage's words are compared by: heading and text, as the lexical index has them."""
    return f"{passage.heading}\n{passage.text}" if passage.heading else passage.text


def _thin(wanted: Wanted) -> str:
    if wanted.substance >= SUBSTANCE:
        return f"passed: substance {wanted.substance:.2f}"
    return f"stopped: only file names and ordinary words are asked for ({wanted.substance:.2f} < {SUBSTANCE})"


def _known(passage: Passage, context: Context, said: frozenset[Gram]) -> str:
    if passage.id in context.shown:
        return "stopped: already shown in this session"
    for path in context.opened:
        if path and (passage.path == path or passage.path.endswith("/" + path.lstrip("./"))):
            return f"stopped: the agent itself opens {path[-60:]}"
    grams = _grams_of(passage.text)
    share = len(grams & said) / len(grams) if grams else 0.0
    if share >= KNOWN_SHARE:
        return f"stopped: {share:.0%} of it stands in the conversation"
    return "passed: new to the conversation"


@lru_cache(maxsize=512)  # texts are the same from recall to recall, passages from stage to stage
def _grams_of(text: str) -> frozenset[Gram]:
    """Runs of four words, and of fewer of a text that has fewer."""
    words = words_of(text)
    size = min(GRAM_WORDS, len(words))
    return frozenset(zip(*(words[i:] for i in range(size)), strict=False)) if size else frozenset()


def _instruction(text: str) -> str:
    lower = text.lower()
    found = _INSTRUCTION.search(text) if any(word in lower for word in _INSTRUCTION_WORDS) else None
    if found:
        return f"stopped: reads like an instruction: {' '.join(found.group().split())[:60]!r}"
    return "passed: no instruction"


def _accident(candidate: Candidate, wanted: Wanted, text: str, stage: str) -> str:
    """Stops what shares only file names and ordinary words, unless it is near in meaning."""
    both = shared(wanted, text)
    solid = sorted((w for w in both if w not in wanted.from_files), key=lambda w: -both[w])
    named = ", ".join(solid[:3])
    telling = excess(both[word] for word in solid)
    if stage == "lexical":
        return f"passed: shares {named}" if telling >= SUBSTANCE else f"stopped: shares only {named or 'file names'}"
    if any(both[word] >= SOLID_WORD for word in solid) or telling >= SUBSTANCE:
        return f"passed: shares {named}"
    cosine = candidate.signals["cosine"]
    if cosine >= NEAR_COSINE:
        return f"passed: near in meaning ({cosine:.2f})"
    what = named or ", ".join(sorted(both)) or "nothing"
    return f"stopped: shares only {what[:80]}, cosine {cosine:.2f} < {NEAR_COSINE}"


def _likely(probability: float, threshold: float) -> str:
    if probability >= threshold:
        return f"passed: {probability:.2f} >= {threshold:.2f}"
    return f"stopped: {probability:.2f} < {threshold:.2f}"


def _latest_speaks(judged: list[Candidate], known: Mapping[int, Passage]) -> None:
    """Of passages that say nearly the same, only the latest may pass; it takes over the chance of the one it replaces.

    Numbers do not count as words here: "port is 8080" and "port moved to 9090" are about the same. Where dates are
    missing or equal the better-ranked one stays. One that is stopped for what it is replaces nothing, except when it is
    known already: then the older one would be a step back.
    """
    stems = {c.passage: _subject_stems(known[c.passage]) for c in judged}
    for i, better in enumerate(judged):
        for worse in judged[i + 1 :]:
            if _overlap(stems[better.passage], stems[worse.passage]) < SAME_OVERLAP:
                continue
            if "same" in better.gates or "same" in worse.gates:
                continue
            new, old = known[worse.passage].written_at, known[better.passage].written_at
            later = new is not None and old is not None and new > old
            loser, winner = (better, worse) if later else (worse, better)
            gate = stopped_by(winner)
            if gate in ("", "known", "probability"):
                where = known[winner.passage].shown_path
                loser_passes = not stopped_by(loser)
                loser.gates["same"] = f"stopped: {'a later' if later else 'a better'} passage says it: {where[-80:]}"
                if gate == "probability" and loser_passes:
                    winner.probability = max(winner.probability, loser.probability)
                    winner.gates["probability"] = f"passed: {winner.probability:.2f}, for the older one it replaces"


def _subject_stems(passage: Passage) -> set[str]:
    return {word for word in content_stems(passage.text) if not any(letter.isdigit() for letter in word)}


def _overlap(a: set[str], b: set[str]) -> float:
    small, large = sorted((len(a), len(b)))
    return len(a & b) / small if small >= 2 and large <= 3 * small else 0.0


def _reason(passed: list[Candidate], judged: list[Candidate]) -> str:
    if passed:
        return f"{len(passed)} passed, best {passed[0].probability:.2f}"
    if not judged:
        return "nothing was found"
    best = max(judged, key=lambda candidate: candidate.probability)
    gate = stopped_by(best)
    return f"{gate}: {best.gates[gate].removeprefix('stopped: ')}"
