"""Made-up conversations with questions, for fitting the learned parts: permissive, since all of it is written here.

Real conversations of this kind may only be judged by. What is learned from these must carry over, so they have the
traits that make the real ones hard: statements in the first person, echoes by the other that repeat their words, the
same topics again in other sessions, answers that lean on the question before, dates relative to the day, and
questioners who use other words. `telling` makes a conversation, `asking` its questions, `agents` the memories of
personal and coding agents.
"""

from __future__ import annotations

import random
from functools import cache

from training.chats.asking import all_asks
from training.chats.grammar import DATA, alternatives, read_frames, read_lists, read_sections, written
from training.chats.people import two_people
from training.chats.telling import Conversation, Grammar
from training.pools import Pool

MESSY_SHARE = 0.25  # of the conversations are messenger style


@cache
def grammar() -> Grammar:
    """All that is written in data/."""
    lists = read_lists(*sorted(DATA.glob("lists*.txt")))
    frames = read_frames(*sorted(DATA.glob("frames*.txt")))
    talk = read_sections(*sorted(DATA.glob("talk*.txt")))
    pairs = [pair for _, line in written(DATA / "lexicon.txt") for pair in alternatives(line)]
    lexicon = [(asked, told) for asked, _, told in (pair.partition(" > ") for pair in pairs)]
    return Grammar(lists, frames, talk, read_sections(DATA / "style.txt"), lexicon)


def chat_pools(conversations: int, seed: int) -> list[Pool]:
    """So many long conversations of two friends, each with 120 to 200 questions; the same for the same seed."""
    return [chat_pool(f"chat-{seed}-{number}", random.Random(f"{seed}/{number}")) for number in range(conversations)]


def chat_pool(name: str, rng: random.Random) -> Pool:
    written = grammar()
    topics = sorted({frame.topic for frame in written.frames})
    talk = Conversation(written, two_people(rng, written.lists, topics), rng, messy=rng.random() < MESSY_SHARE)
    talk.live()
    return Pool(name, talk.rows, all_asks(talk, name))
