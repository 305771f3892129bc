"""Made-up conversations: what a learner could exploit must not be in them, and what is asked must be answered there."""

from __future__ import annotations

import math
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
from training.chats.asking import SHARES
from training.chats.grammar import Frame, Voice, slots, tidy
from training.chats.people import KEPT
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
        assert 280 <= len(pool.rows) <= 900
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
    assert all(110 <= len(pool.asks) <= 200 for pool in POOLS)


def test_no_question_is_asked_twice() -> None:
    for pool in POOLS:
        texts = [ask.focus.user_text for ask in pool.asks]
        assert len(texts) == len(set(texts))


def test_echoes_and_recaps_are_never_gold() -> None:
    """What only the other says of a frame (echo, recap, follow-up) stands in no gold row of the one who told it."""
    for pool, ask in asks(POOLS):
        if ask.kind == "chat.single":
            for place in ask.gold:
                other = ({row.speaker for row in pool.rows} - {pool.rows[place].speaker}).pop()
                assert (
                    re.search(rf"\b{pool.rows[place].speaker}\b", ask.focus.user_text)
                    or other not in ask.focus.user_text
                )


def test_two_conversations_share_few_turns() -> None:
    long = [{row.text for row in pool.rows if len(row.text.split()) >= 8} for pool in POOLS]
    for place, one in enumerate(long):
        for other in long[:place]:
            assert len(one & other) <= 0.05 * min(len(one), len(other))


def test_gold_rows_cannot_be_told_by_length_or_place() -> None:
    """Statements that nobody asks about are as many; gold and other turns of the middle lengths overlap."""
    gold_words, other_words, told = [], [], []
    for pool in POOLS:
        gold = {place for ask in pool.asks for place in ask.gold}
        gold_words += [len(pool.rows[place].text.split()) for place in gold]
        other_words += [len(row.text.split()) for place, row in enumerate(pool.rows) if place not in gold]
        told.append(len(gold) / len(pool.rows))
    assert abs(mean(gold_words) - mean(other_words)) < 6
    assert mean(told) < 0.4
    assert max(gold_words) <= 60


def test_a_quarter_is_messenger_style() -> None:
    short = [mean(len(row.text.split()) for row in pool.rows) < 10 for pool in chat_pools(16, seed=2)]
    assert 0.05 <= mean(short) <= 0.5


def hits(pools: list[Pool]) -> list[float]:
    """Of each question, the share of its gold in the first ten of a plain BM25 (k1 1.2, b 0.75) over speaker and text."""
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
    import random

    voice = Voice(random.Random(0), {"who": (("my sister", "a sibling"), ("my aunt", "a relative"))}, {})
    mine = voice.say("I went with {who}.")
    assert voice.say("With {who}?", "your") == mine.replace("I went with my", "With your").replace(".", "?")
    assert voice.say("{Who} came.", "their").startswith("Their ")


def test_articles_and_sentences_are_tidied() -> None:
    assert tidy("i saw a owl . it was a unicorn") == "I saw an owl. It was a unicorn"
    assert tidy("a one-off since on Tuesday") == "A one-off since Tuesday"
