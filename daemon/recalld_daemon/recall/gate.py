"""What may come to mind: gates on absolute signals, each with a name and a reason that a person can read.

A fused list always has a best entry, also for nonsense; so order decides nothing here. A candidate must be new to the
conversation and to what was shown in it, must not read like an instruction, must share more than file names and
ordinary words with the query or be near it in meaning, and must be useful with a probability above its stage's cut
(`gate_model`), which is higher for what was shown before and never used (`habituation`). Of passages that say nearly
the same the latest speaks. The cuts lean to silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePath

from recalld_daemon.recall.gate_instruction import order_in
from recalld_daemon.recall.gate_model import FALSE_RATE, Model, model_for, models, shifted, stage_of
from recalld_daemon.recall.habituation import NO_HABITS, Habits, alike
from recalld_daemon.recall.signals import Wanted, excess, full_text, pool_of, shared, signals_of, wanted_of
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


@dataclass(frozen=True, slots=True)
class Context:
    """What was asked, and what the conversation already has."""

    query: Query
    shown: frozenset[int] = frozenset()  # passages shown in this session
    texts: tuple[str, ...] = ()  # the conversation's latest texts, of the user, the assistant and tool calls
    shift: float = 0.0  # log-odds added to the thresholds: the user's own taste
    opened: tuple[str, ...] = ()  # files that the tool call itself reads or writes: the agent has them before it
    loaded: frozenset[int] = frozenset()  # passages that stand in the agent's prompt anyway
    seen: tuple[frozenset[str], ...] = ()  # words (`words_shown`) of what was shown in this session
    false_rate: float = FALSE_RATE  # of boundaries where nothing fits, the share that may get something
    habits: Habits = NO_HABITS


@dataclass(frozen=True, slots=True)
class Decision:
    """passed: at most SHOWN_LIMIT candidates, best first. reason: why these, or why none. stopped: gate -> how many."""

    passed: list[Candidate]
    reason: str
    stopped: dict[str, int] = field(default_factory=dict)


def words_shown(passage: Passage) -> frozenset[str]:
    """By what the near-duplicates of a passage that is shown will be known."""
    return content_stems(passage.text)


def depth_of(answer: Answer, depth: int = GATE_DEPTH) -> list[int]:
    """The passages that `decide` needs to see, best first."""
    return [candidate.passage for candidate in answer.candidates[:depth]]


def decide(
    answer: Answer,
    passages: Sequence[Passage],
    context: Context,
    fitted: Mapping[str, Model] | None = None,
    depth: int = GATE_DEPTH,
) -> Decision:
    """Judges the answer's first `depth` candidates; writes their probability, signals and gates into them.

    `passages` are those of `depth_of(answer, depth)` that still exist, in any order. Pure. `fitted`: models other than
    the package's.
    """
    known = {passage.id: passage for passage in passages}
    judged = [candidate for candidate in answer.candidates[:depth] if candidate.passage in known]
    wanted, stage = wanted_of(context.query), stage_of(answer)
    model = model_for(stage, fitted or models())
    cut = shifted(model.cut(context.false_rate), context.shift)
    pool = pool_of(answer.candidates, model.usual, (full_text(known[c.passage]) for c in judged))
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
            "probability": _likely(candidate.probability, shifted(cut, context.habits.log_odds(passage.id))),
            "known": _known(passage, context, said),
        }
        if not stopped_by(candidate):
            _news(candidate, passage, context, cut)
    if any(not stopped_by(candidate) for candidate in judged):
        _latest_speaks(judged, known)
    passed = [candidate for candidate in judged if not stopped_by(candidate)]
    for extra in passed[SHOWN_LIMIT:]:
        extra.gates["room"] = f"stopped: {SHOWN_LIMIT} better ones"
    counts = Counter(gate for candidate in judged if (gate := stopped_by(candidate)))
    return Decision(passed[:SHOWN_LIMIT], _reason(passed[:SHOWN_LIMIT], judged), dict(counts))


def stopped_by(candidate: Candidate) -> str:
    """The first gate that stopped it, or ""."""
    return next((gate for gate, verdict in candidate.gates.items() if verdict.startswith("stopped")), "")


def _thin(wanted: Wanted) -> str:
    if wanted.substance >= SUBSTANCE:
        return f"passed: substance {wanted.substance:.2f}"
    return f"stopped: only file names and ordinary words are asked for ({wanted.substance:.2f} < {SUBSTANCE})"


def _known(passage: Passage, context: Context, said: frozenset[Gram]) -> str:
    if passage.id in context.shown:
        return "stopped: already shown in this session"
    if passage.id in context.loaded:
        return f"stopped: {PurePath(passage.path).name[:60]} stands in the agent's prompt anyway"
    for path in context.opened:
        if path and (passage.path == path or passage.path.endswith("/" + path.lstrip("./"))):
            return f"stopped: the agent itself opens {path[-60:]}"
    grams = _grams_of(passage.text)
    share = len(grams & said) / len(grams) if grams else 0.0
    if share >= KNOWN_SHARE:
        return f"stopped: {share:.0%} of it stands in the conversation"
    return "passed: new to the conversation"


def _news(candidate: Candidate, passage: Passage, context: Context, cut: float) -> None:
    """What would pass must not be nearly what was shown, here or, in vain, elsewhere. Only this is compared."""
    words = words_shown(passage)
    if any(alike(words, seen) for seen in context.seen):
        candidate.gates["known"] = "stopped: nearly the same was shown in this session"
    elif (log_odds := context.habits.log_odds_alike(words)) > context.habits.log_odds(passage.id):
        candidate.gates["probability"] = _likely(candidate.probability, shifted(cut, log_odds))


@lru_cache(maxsize=512)  # texts are the same from recall to recall, passages from stage to stage
def _grams_of(text: str) -> frozenset[Gram]:
    """Runs of four words, and of fewer of a text that has fewer."""
    words = words_of(text)
    size = min(GRAM_WORDS, len(words))
    return frozenset(zip(*(words[i:] for i in range(size)), strict=False)) if size else frozenset()


def _instruction(text: str) -> str:
    if order := order_in(text):
        return f"stopped: reads like an instruction: {order[:60]!r}"
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
    what = named or ", ".join(sorted(both))
    return f"stopped: shares {f'only {what[:80]}' if what else 'nothing'}, cosine {cosine:.2f} < {NEAR_COSINE}"


def _likely(probability: float, threshold: float) -> str:
    if probability >= threshold:
        return f"passed: {probability:.2f} >= {threshold:.2f}"
    digits = 2 if round(probability, 2) < round(threshold, 2) else 4  # never "0.20 < 0.20"
    return f"stopped: {probability:.{digits}f} < {threshold:.{digits}f}"


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
