"""The memories and the questions that the gate is fitted on, all permissively licensed or made up.

A gate must know silence from speech, so half of the questions have no answer where they are asked: their answer is
hidden, they belong to another memory of the same kind (`sibling`) or of another kind (`foreign`), or they ask nothing
(small talk, nonsense, tool calls beside an encyclopaedia). Memories come in all sizes, down to one note, since a gate
that knows only large ones takes a small one for nonsense. Everything is drawn by seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from recalld_daemon.recall.types import Focus
from training import permissive
from training.pools import Ask, Pool, user

CAP = 3000  # rows of a large memory
TALK_CAP = 1200  # ... of coding sessions, whose rows are long
ASKED = 120  # questions with an answer, of a large memory
MEETINGS = 3  # of QMSum, the ones that are kept for validation
CHATS = 3  # made-up conversations; each has 120 to 200 questions
TINY = (1, 4, 20, 80)  # rows of the small memories
PER_SIZE = 4  # small memories of each size and kind
OF_TINY = 4  # questions with an answer, of a small memory
SMALLTALK = """ok cool|thanks a lot, that works|please go on with it|hm let me think|sounds good to me|what now?
try again please|can you check the test please|please check the test|fix it|run it again|why not
looks good, ship it|do the next one|good morning, how are you today?|never mind|that is not what I meant
can you explain that again?|I will be back later|open the file|check the file again
please continue with the next step|show me the code|is it done yet?|yes do that|great work so far|wait a moment
what do you think?|make it better|clean this up a bit|same as before|rename it|undo the last change
add a comment here|remove this line|update the readme|write a test for this function|run the tests
what does this function do?|where is this defined?|fix the failing test|bump the version|format the code
commit this|good night, see you tomorrow|how was your weekend?|I am tired today|that was funny
no idea to be honest|let me know when you are ready|we can talk about it later|did you sleep well?
can we move on?|it works now, thank you so much|sorry, I was away for a while|what time is it?"""
FAMILIES = ("til", "wiki", "tldr", "entire", "qmsum", "chat")


@dataclass(frozen=True, slots=True)
class Part:
    """A memory made of rows of another. rows: where they stand there; pool: those rows with questions of their own."""

    rows: tuple[int, ...]
    pool: Pool


def family_of(pool: Pool | str) -> str:
    """Which kind of memory: "til" for "til", "til/4/1", and so on.

    >>> family_of("qmsum Bed002"), family_of("chat-1-0/16/2")
    ('qmsum', 'chat')
    """
    name = pool if isinstance(pool, str) else pool.name
    return next(family for family in FAMILIES if name.startswith(family))


def large_pools(data: Path, seed: int, made_up: Sequence[Pool]) -> list[Pool]:
    """One memory of each kind of real data, some meetings, and what was `made_up`, each with its own questions."""
    rng = random.Random(seed)
    pools = [permissive.til_pool(data), permissive.wiki_pool(data), permissive.tldr_pool(data, seed)]
    pools.append(permissive.entire_pool(data))
    meetings = permissive.qmsum_pools(data, ("val",))[:MEETINGS]
    whole = [permissive.unrepeated(pool) for pool in [*pools, *meetings, *made_up]]
    return [_asked(cut(pool, rng, TALK_CAP if pool.name == "entire" else CAP).pool, rng) for pool in whole]


def cut(pool: Pool, rng: random.Random, cap: int = CAP) -> Part:
    """At most about `cap` rows, by whole sources, with the questions whose answers are among them."""
    sources = sorted({row.source for row in pool.rows})
    rng.shuffle(sources)
    kept, size = set[str](), 0
    counts: dict[str, int] = {}
    for row in pool.rows:
        counts[row.source] = counts.get(row.source, 0) + 1
    for source in sources:
        if size + counts[source] <= cap or not kept:
            kept.add(source)
            size += counts[source]
    return part(pool, [at for at, row in enumerate(pool.rows) if row.source in kept][: max(cap, 1)], pool.name)


def part(pool: Pool, rows: Sequence[int], name: str) -> Part:
    """These rows as a memory of their own, source by source; questions keep what of their answers is there."""
    first: dict[str, int] = {}
    for at in rows:
        first.setdefault(pool.rows[at].source, at)
    rows = sorted(rows, key=lambda at: (first[pool.rows[at].source], at))
    place = {at: number for number, at in enumerate(rows)}
    asks = [
        replace(
            ask,
            gold=frozenset(place[at] for at in ask.gold if at in place),
            hidden=frozenset(place[at] for at in ask.hidden if at in place),
        )
        for ask in pool.asks
        if any(at in place for at in ask.gold) or not ask.gold
    ]
    return Part(tuple(rows), Pool(name, [pool.rows[at] for at in rows], asks))


def small_parts(pool: Pool, rng: random.Random) -> Iterator[Part]:
    """Memories of TINY sizes: rows that answer something, each with its question; asked also what they can't answer."""
    answerable = [ask for ask in pool.asks if ask.gold]
    for size in (size for size in TINY if size < len(pool.rows) // 2):
        for number in range(PER_SIZE):
            chosen = rng.sample(answerable, min(OF_TINY, size, len(answerable)))
            rows = {rng.choice(sorted(ask.gold)) for ask in chosen}
            others = [at for at in range(len(pool.rows)) if at not in rows]
            start = rng.randrange(len(others))  # neighbours of one another, as notes of one time are
            rows |= set((others + others)[start : start + size - len(rows)])
            made = part(pool, sorted(rows), f"{pool.name}/{size}/{number}")
            mine = [ask for ask in made.pool.asks if ask.gold]
            made.pool.asks = rng.sample(mine, min(OF_TINY, len(mine)))
            yield made


def absent(pool: Pool, others: Sequence[Pool], share: float, rng: random.Random) -> list[Ask]:
    """Questions that nothing in this memory answers, each kind about `share` as many as those with an answer."""
    own = [ask for ask in pool.asks if ask.gold]
    count = max(1, round(len(own) * share))
    hidden = [
        replace(ask, kind="absent.hidden", gold=frozenset(), hidden=ask.hidden | ask.gold)
        for ask in rng.sample(own, min(len(own), count))
        if len(ask.hidden | ask.gold) < len(pool.rows)
    ]
    family = family_of(pool)
    siblings = [ask for other in others if family_of(other) == family for ask in other.asks]
    foreign = [ask for other in others if _unlike(family, family_of(other)) for ask in other.asks]
    made = [Ask("absent.sibling", ask.focus) for ask in rng.sample(siblings, min(len(siblings), count))]
    return hidden + made + [Ask("absent.foreign", ask.focus) for ask in rng.sample(foreign, min(len(foreign), count))]


def other_kind(pool: Pool) -> str:
    """What a question is, in a part of a memory, whose answer is in another part: of talk among the same people, and of
    sessions about one project, every part is about the same things; notes and pages are not.
    """
    return "absent.sibling" if family_of(pool) in ("til", "wiki", "tldr") else "absent.hidden"


def tool_calls(data: Path, most: int, rng: random.Random) -> list[Focus]:
    """Real tool calls, each with the user's text before it."""
    found: list[Focus] = []
    for session in permissive.lines(data / "real/entire_cli/sessions_slim.jsonl.xz"):
        asked = ""
        for event in session["events"]:
            if event["role"] == "user" and not event.get("meta"):
                asked = event["text"]
            if event["role"] == "tool_call":
                name, _, args = event["text"].partition(": ")
                found.append(Focus(tool_name=name, tool_args=args.replace(" :: ", "\n"), user_text=asked))
    return rng.sample(found, most)


def nonsense(most: int, rng: random.Random) -> list[Focus]:
    """Strings that mean nothing anywhere."""
    letters = "bcdfghjklmnpqrstvwxzaeiou"
    words = [
        ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(rng.randint(2, 6))] for _ in range(most)
    ]
    return [user(" ".join(row)) for row in words]


def smalltalk() -> list[Focus]:
    """Talk that asks for nothing."""
    return [user(line.strip()) for line in SMALLTALK.replace("\n", "|").split("|")]


def halves(pool: Pool, rng: random.Random) -> tuple[Part, Part]:
    """Two memories of the same kind without a source in common: each can't answer what the other can."""
    sources = sorted({row.source for row in pool.rows})
    left = set(rng.sample(sources, len(sources) // 2))
    rows = [[at for at, row in enumerate(pool.rows) if (row.source in left) is side] for side in (True, False)]
    return part(pool, rows[0], f"{pool.name}/half/0"), part(pool, rows[1], f"{pool.name}/half/1")


def _asked(pool: Pool, rng: random.Random) -> Pool:
    """At most ASKED of its questions, of each kind about as many."""
    kinds: dict[str, list[Ask]] = {}
    for ask in pool.asks:
        kinds.setdefault(ask.kind, []).append(ask)
    room = max(1, ASKED // max(1, len(kinds)))
    chosen = [ask for asks in kinds.values() for ask in rng.sample(asks, min(room, len(asks)))]
    return Pool(pool.name, pool.rows, chosen)


def _unlike(one: str, other: str) -> bool:
    """Notes, command pages and coding sessions answer each other's questions; so may talk and meetings."""
    software = {"til", "tldr", "entire"}
    return one != other and not {one, other} <= software
