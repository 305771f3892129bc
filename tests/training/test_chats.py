"""Made-up conversations: what a learner could exploit must not be in them, and what is asked must be answered there."""

from __future__ import annotations

import math
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # `training` is no package of the distribution

from training.chats import chat_pools, grammar
from training.chats.agents import agent_pools, written
from training.chats.asking import SHARES, all_asks
from training.chats.grammar import Frame, Voice, slots, tidy
from training.chats.people import KEPT, two_people
from training.chats.telling import Conversation
from training.pools import Ask, Pool

POOLS = chat_pools(10, seed=11)
AGENTS = agent_pools(6, seed=11)
GIVEN = {"p", "o", "when", "month", *KEPT}


def asks(pools: list[Pool]) -> Iterator[tuple[Pool, Ask]]:
    for pool in pools:
        for ask in pool.asks:
            yield pool, ask


def test_the_same_seed_gives_the_same_conversations_and_another_gives_others() -> None:
    assert chat_pools(2, seed=11) == POOLS[:2]
    assert chat_pools(1, seed=12)[0].rows != POOLS[0].rows
    assert agent_pools(1, seed=11) == AGENTS[:1]


def test_a_conversation_is_long_and_its_rows_are_in_order() -> None:
    for pool in POOLS:
        assert 15 <= len({row.source for row in pool.rows}) <= 30
        assert 250 <= len(pool.rows) <= 900
        assert len({row.speaker for row in pool.rows}) == 2
        times = [row.written_at or 0.0 for row in pool.rows]
        assert times == sorted(times)
        assert (times[-1] - times[0]) / 86400 < 400
        assert all(row.text == row.text.strip() and row.text for row in pool.rows)
    assert 300 <= mean(len(pool.rows) for pool in POOLS) <= 700


def test_no_slot_or_choice_is_left_open() -> None:
    texts = [row.text for pool in POOLS + AGENTS for row in pool.rows] + [ask.focus.user_text for _, ask in asks(POOLS)]
    assert [text for text in texts if re.search(r"\{\w+~?\}|</|/>| \| ", text)] == []


def test_every_gold_row_is_said_by_one_whom_the_question_names() -> None:
    for pool, ask in asks(POOLS):
        speakers = {row.speaker for row in pool.rows}
        named = {name for name in speakers if re.search(rf"\b{name}\b", ask.focus.user_text)}
        assert ask.gold <= set(range(len(pool.rows)))
        assert {pool.rows[place].speaker for place in ask.gold} <= (named or speakers)
        assert ask.group == pool.name


def test_most_questions_name_one_speaker() -> None:
    one = [
        len({row.speaker for row in pool.rows if row.speaker in ask.focus.user_text}) == 1 for pool, ask in asks(POOLS)
    ]
    assert mean(one) > 0.88


def test_a_question_that_nobody_answers_has_no_gold_and_all_others_have() -> None:
    assert all(bool(ask.gold) == (ask.kind not in ("chat.absent", "agent.absent")) for _, ask in asks(POOLS + AGENTS))


def test_kinds_come_in_the_stated_shares() -> None:
    counts = Counter(ask.kind for _, ask in asks(POOLS))
    total = sum(counts.values())
    assert set(counts) == set(SHARES)
    assert all(abs(counts[kind] / total - share) < 0.03 for kind, share in SHARES.items())
    assert all(90 <= len(pool.asks) <= 200 for pool in POOLS)


def test_no_question_is_asked_twice() -> None:
    for pool in POOLS:
        texts = [ask.focus.user_text for ask in pool.asks]
        assert len(texts) == len(set(texts))


def test_echoes_and_recaps_are_never_gold() -> None:
    """No row is gold that holds nothing but what the other says back: each gold row comes from a teller's own line."""
    echoes = [template for frame in grammar().frames for template in frame["e"]]
    fixed = [tidy(text) for text in echoes if not slots(text) and "<" not in text]
    slotless = {text for pool in POOLS for row in pool.rows for text in fixed if row.text == text}
    golden = {pool.rows[place].text for pool, ask in asks(POOLS) for place in ask.gold}
    assert not slotless & golden
    talk = conversation(5)
    told = {row for one in talk.told for row in one.rows} | {
        row for one in talk.told for a in one.answers for row in a.rows
    }
    tellers = {row: one.teller for one in talk.told for row in one.rows + [r for a in one.answers for r in a.rows]}
    for ask in all_asks(talk, "group"):
        assert ask.gold <= told
        assert all(talk.rows[row].speaker == talk.people[tellers[row]].name for row in ask.gold)


def conversation(seed: int) -> Conversation:
    rng = random.Random(seed)
    topics = sorted({frame.topic for frame in grammar().frames})
    talk = Conversation(grammar(), two_people(rng, grammar().lists, topics), rng, messy=bool(seed % 2))
    talk.live()
    return talk


def test_two_conversations_share_few_turns() -> None:
    """Of the turns of some length, not more than a few per cent; small talk without a slot may come back."""
    long = [{row.text for row in pool.rows if len(row.text.split()) >= 8} for pool in POOLS]
    shared = [len(one & other) / min(len(one), len(other)) for at, one in enumerate(long) for other in long[:at]]
    assert mean(shared) < 0.04
    assert max(shared) < 0.09


def test_gold_rows_cannot_be_told_by_their_length() -> None:
    """At each length that is not rare, what is asked for is the smaller part of what is said."""
    gold, total = Counter[int](), Counter[int]()
    for pool in POOLS:
        answering = {place for ask in pool.asks for place in ask.gold}
        for place, row in enumerate(pool.rows):
            length = len(row.text.split()) // 5
            total[length] += 1
            gold[length] += place in answering
    assert all(gold[length] / count < 0.6 for length, count in total.items() if count >= 60)
    assert sum(gold.values()) / sum(total.values()) < 0.35


def test_a_quarter_is_messenger_style() -> None:
    short = [mean(len(row.text.split()) for row in pool.rows) < 10 for pool in chat_pools(16, seed=2)]
    assert 0.05 <= mean(short) <= 0.5


def hits(pools: list[Pool]) -> list[float]:
    """Of each question, the share of its gold in the first ten of a BM25 (k1 1.2, b 0.75), speaker and text."""
    shares = []
    for pool in pools:
        docs = [Counter(re.findall(r"\w+", f"{row.speaker} {row.text}".lower())) for row in pool.rows]
        length = mean(sum(doc.values()) for doc in docs)
        seen = Counter(word for doc in docs for word in doc)
        idf = {word: math.log(1 + (len(docs) - count + 0.5) / (count + 0.5)) for word, count in seen.items()}
        for ask in pool.asks:
            query = set(re.findall(r"\w+", ask.focus.user_text.lower()))
            scores = [
                sum(
                    idf[word] * doc[word] * 2.2 / (doc[word] + 1.2 * (0.25 + 0.75 * sum(doc.values()) / length))
                    for word in query
                    if word in doc
                )
                for doc in docs
            ]
            best = sorted(range(len(docs)), key=lambda place: -scores[place])[:10]
            if ask.gold:
                shares.append(len(ask.gold & set(best)) / len(ask.gold))
    return shares


def test_word_overlap_helps_and_does_not_solve_it() -> None:
    assert 0.3 < mean(hits(POOLS[:6])) < 0.7


def test_an_agents_memory_is_hardly_found_by_its_words() -> None:
    assert mean(hits(AGENTS[:3])) < 0.4
    assert {ask.kind for _, ask in asks(AGENTS)} == {
        *("agent.preference", "agent.instruction", "agent.decision", "agent.lesson", "agent.absent")
    }


def test_tool_calls_are_among_an_agents_moments() -> None:
    calls = [ask.focus for _, ask in asks(AGENTS) if ask.focus.tool_name]
    assert calls
    assert all(focus.tool_args and not focus.user_text for focus in calls)


@pytest.mark.parametrize("frame", grammar().frames, ids=lambda frame: frame.name)
def test_a_frame_asks_only_for_what_all_its_tellings_tell(frame: Frame) -> None:
    told = [slots(text) for text in frame["s"] + [answer for _, answer in frame.elliptic]]
    common = frozenset.intersection(*told) | GIVEN
    assert len(frame["s"]) >= 1
    assert frame["e"]
    for template in frame["q"] + frame["v"] + frame["g"] + frame["e"] + frame["o"]:
        assert slots(template) <= common, template
    for follow in frame.follow:
        answered = common | frozenset.intersection(*(slots(answer) for answer in follow.answers))
        for template in follow.asks:
            assert slots(template) <= answered, template


def test_every_slot_has_a_list() -> None:
    frames = grammar().frames + written()[1]
    names = {slot for frame in frames for texts in frame.lines.values() for text in texts for slot in slots(text)}
    lists = grammar().lists
    missing = {name for name in names if name not in lists and name.rstrip("0123456789") not in {*lists, *GIVEN}}
    assert missing - GIVEN == set()


def test_there_is_breadth() -> None:
    frames = grammar().frames
    assert len({frame.topic for frame in frames}) >= 45
    assert len({frame.name for frame in frames}) == len(frames) >= 200
    assert len(grammar().lists["name"]) >= 150
    assert sum(len(fillers) for fillers in grammar().lists.values()) > 1500


def test_a_filler_is_drawn_once_and_follows_who_speaks() -> None:
    voice = Voice(random.Random(0), {"who": (("my sister", "a sibling"), ("my aunt", "a relative"))}, {})
    mine = voice.say("I went with {who}.")
    assert voice.say("With {who}?", "your") == mine.replace("I went with my", "With your").replace(".", "?")
    assert voice.say("{Who} came.", "their").startswith("Their ")


def test_articles_and_sentences_are_tidied() -> None:
    assert tidy("i saw a owl . it was a unicorn") == "I saw an owl. It was a unicorn"
    assert tidy("a one-off since on Tuesday") == "A one-off since Tuesday"
