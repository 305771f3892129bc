"""What a personal or coding agent should remember of its user, and the later requests and tool calls where it matters.

The hard part is that they share few words: "Write me a recipe for four" needs "I'm allergic to nuts". Among the
memory's rows are the same kinds of work talk, so that a request is nearest, by its words, to what does not matter.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import cache

from recalld_daemon.recall.types import Focus
from training.chats.grammar import DATA, Fillers, Frame, Voice, read_frames, read_lists, read_sections
from training.pools import Ask, Pool, Row, user

TOLD_SHARE = 0.55  # of all frames are told in one memory; requests for the others are the absent ones


@cache
def written() -> tuple[Fillers, list[Frame], dict[str, tuple[str, ...]]]:
    lists = read_lists(*sorted(DATA.glob("lists*.txt")))
    return lists, read_frames(DATA / "agents.txt"), read_sections(DATA / "talk_agents.txt")


def agent_pools(memories: int, seed: int) -> list[Pool]:
    """So many memories of one user and one assistant, of 10 to 40 sessions each; the same for the same seed."""
    return [
        Memory(f"agent-{seed}-{number}", random.Random(f"agent/{seed}/{number}")).pool for number in range(memories)
    ]


class Memory:
    """One user's sessions with an agent, as they grow."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.rng, self.pool = rng, Pool(name, [])
        self.lists, frames, self.talk = written()
        self.now = datetime(2023, 1, 1, tzinfo=UTC) + timedelta(days=rng.randrange(700))
        self.session = 0
        told = rng.sample(frames, round(len(frames) * TOLD_SHARE))
        sessions = rng.randint(10, 40)
        by_session: list[list[Frame]] = [[] for _ in range(sessions)]
        for frame in told:
            rng.choice(by_session).append(frame)
        for frames_here in by_session:
            self.one_session(frames_here)
        for frame in frames:
            if frame not in told:
                self.ask(frame, self.voice(), None)
        for template in rng.sample(self.talk["errand"], 5):
            self.pool.asks.append(Ask("agent.absent", user(self.voice().say(template)), group=name))
        rng.shuffle(self.pool.asks)

    def voice(self) -> Voice:
        return Voice(self.rng, self.lists, {})

    def one_session(self, frames: list[Frame]) -> None:
        """Work talk, with what is to be remembered said in between."""
        self.session += 1
        self.now = (self.now + timedelta(days=self.rng.randint(1, 9))).replace(hour=self.rng.randint(8, 21))
        for frame in frames:
            for _ in range(self.rng.randrange(3)):
                self.work()
            self.tell(frame)
        for _ in range(self.rng.randint(1, 3)):
            self.work()

    def say(self, speaker: str, text: str) -> int:
        self.now += timedelta(seconds=self.rng.randint(20, 400))
        self.pool.rows.append(Row(text, f"session {self.session}", speaker, "", self.now.timestamp()))
        return len(self.pool.rows) - 1

    def work(self) -> None:
        words = self.voice()
        for place, text in enumerate(self.rng.choice(self.talk["work"]).split(" // ")):
            self.say(("user", "assistant")[place % 2], words.say(text))

    def tell(self, frame: Frame) -> None:
        """The memory, by the user or by the agent, and what the other says to it."""
        words = self.voice()
        by_agent = bool(frame["d"]) and self.rng.random() < 0.6
        text = words.say(self.rng.choice(frame["d"] if by_agent else frame["s"]))
        if not by_agent and self.rng.random() < 0.25:
            aside = words.say(self.rng.choice(self.rng.choice(self.talk["work"]).split(" // ")[:1]))
            text = f"{aside} {text}" if self.rng.random() < 0.5 else f"{text} {aside}"
        gold = self.say("assistant" if by_agent else "user", text)
        if self.rng.random() < 0.8:
            self.say("user" if by_agent else "assistant", words.say(self.rng.choice(frame["e"])))
        self.ask(frame, words, gold)

    def ask(self, frame: Frame, words: Voice, gold: int | None) -> None:
        """Up to three later moments at which this memory matters; where it was never told, one."""
        kind = f"agent.{frame.topic}" if gold is not None else "agent.absent"
        found = frozenset() if gold is None else frozenset({gold})
        requests = [user(words.say(text)) for text in frame["q"]]
        calls = [tool_call(words.fill(text)) for text in frame["p"]]
        chosen = self.rng.sample(requests + calls, min(3 if gold is not None else 1, len(requests + calls)))
        self.pool.asks += [Ask(kind, focus, gold=found, group=self.pool.name) for focus in chosen]


def tool_call(text: str) -> Focus:
    """ "Bash: git push" as a call about to be made."""
    name, _, args = text.partition(": ")
    return Focus(tool_name=name, tool_args=args)
