"""A long conversation of two friends: who tells what in which session, and the small talk around it.

Each session is a run of exchanges: one tells of a thing, the other echoes it and asks on, the first answers. What is
told is kept with the rows that tell it; greetings, echoes, recaps and small talk are rows that answer nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from training.chats import calendar
from training.chats.grammar import Fillers, FollowUp, Frame, Voice, unaddressed
from training.chats.messy import messy_lines
from training.chats.people import Person, voice
from training.chats.style import Style
from training.pools import Row

TURNS_PER_LINE = {False: 0.68, True: 1.55}  # measured: lines are merged into turns, or cut into messages
NAMED = 0.3  # of the turns that might call the other by name do
LONGEST_TURN = 48  # words; what one says in a row is one turn up to here


@dataclass(slots=True)
class Grammar:
    """All that is written by hand."""

    lists: Fillers
    frames: list[Frame]
    talk: dict[str, tuple[str, ...]]
    style: dict[str, tuple[str, ...]]
    lexicon: list[tuple[str, str]]  # a questioner's words, and a teller's


@dataclass(slots=True)
class Answered:
    """A follow-up that was asked and answered."""

    follow: FollowUp
    rows: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Told:
    """One thing told. rows: the turns that tell it; day: when it happens; dated: the words say when."""

    teller: int
    frame: Frame
    voice: Voice
    day: datetime
    session: int
    dated: bool
    rows: list[int] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)


@dataclass(slots=True)
class Line:
    """Something said in one breath. mark: where its rows' indexes are to be kept."""

    speaker: int
    text: str
    mark: list[int] | None = None


class Conversation:
    """Two people, their rows and what they told."""

    def __init__(self, grammar: Grammar, people: tuple[Person, Person], rng: random.Random, messy: bool) -> None:
        self.grammar, self.people, self.rng, self.messy = grammar, people, rng, messy
        self.rows: list[Row] = []
        self.told: list[Told] = []
        self.lines: list[Line] = []
        self.spoken: Counter[str] = Counter()
        self.used: Counter[tuple[int, str]] = Counter()
        self.now = datetime(2021, 1, 1, tzinfo=UTC) + timedelta(days=rng.randrange(1400))
        self.session = 0
        ways = grammar.style
        self.styles = [Style(rng, ways["same"], ways["opener"], ways["closer"]) for _ in people]
        self.by_topic: dict[str, list[Frame]] = {}
        for frame in grammar.frames:
            self.by_topic.setdefault(frame.topic, []).append(frame)

    def live(self) -> None:
        """All sessions: 15 to 30 over 4 to 12 months."""
        sessions = self.rng.randint(15, 30)
        turns = self.rng.randint(480 if self.messy else 300, 700) / sessions
        spread = self.rng.randint(120, 360) / sessions  # days between two sessions, on average
        for _ in range(sessions):
            self.session += 1
            self.now = self.now.replace(hour=self.rng.randint(7, 22), minute=self.rng.randrange(60))
            self.one_session(turns * self.rng.uniform(0.5, 1.5) / TURNS_PER_LINE[self.messy])
            self.write_down()
            self.now += timedelta(days=max(1, round(spread * self.rng.uniform(0.4, 1.6))))

    def one_session(self, lines: float) -> None:
        """Greetings, then exchanges until about so many lines are said."""
        first = teller = self.rng.randrange(2)
        self.greet(first)
        while len(self.lines) < lines or len(self.lines) < 5:
            teller = 1 - teller if self.rng.random() < 0.7 else self.rng.randrange(2)
            if self.rng.random() < 0.3:
                self.small_talk(1 - teller)
            if self.rng.random() < 0.2:
                self.recap(1 - teller)
            self.exchange(teller)
        if self.rng.random() < 0.85:
            self.part(self.rng.randrange(2))

    def generic(self, section: str, speaker: int, **fixed: str) -> str:
        words = voice(self.rng, self.grammar.lists, self.people[speaker], self.people[1 - speaker])
        day, when = calendar.past(self.rng, self.now)
        fixed = {"when": when, "month": calendar.MONTHS[day.month - 1]} | fixed
        words.bound |= {name: (text,) for name, text in fixed.items()}
        return words.say(self.called(self.fresh(self.grammar.talk[section])))

    def say(self, speaker: int, text: str, mark: list[int] | None = None) -> None:
        self.lines.append(Line(speaker, text if text.startswith("[") else self.styles[speaker].spoken(text), mark))

    def aside(self, speaker: int, chance: float) -> None:
        """A remark that nobody asked for and nobody will ask for: it makes a reaction as long as a statement."""
        if self.rng.random() < (chance / 3 if self.messy else chance):
            self.say(speaker, self.generic("aside", speaker))

    def called(self, template: str) -> str:
        """What one says to the other, mostly without the name."""
        return template if self.rng.random() < NAMED else unaddressed(template)

    def fresh(self, templates: Sequence[str]) -> str:
        """One of those that were heard least often in this conversation."""
        least = min(self.spoken[template] for template in templates)
        chosen = self.rng.choice([template for template in templates if self.spoken[template] == least])
        self.spoken[chosen] += 1
        return chosen

    def greet(self, first: int) -> None:
        style = "messy." if self.messy else ""
        self.say(first, self.generic(style + "hello", first))
        self.say(1 - first, self.generic(style + "hello.back", 1 - first))
        self.aside(1 - first, 0.5)

    def part(self, first: int) -> None:
        style = "messy." if self.messy else ""
        self.say(first, self.generic(style + "bye", first))
        self.aside(first, 0.3)
        self.say(1 - first, self.generic(style + "bye.back", 1 - first))

    def small_talk(self, first: int) -> None:
        """A short dialogue about nothing that anybody will ask for; it has dates, numbers and names too."""
        day, when = calendar.past(self.rng, self.now)
        words = voice(self.rng, self.grammar.lists, self.people[first], self.people[1 - first], when)
        words.bound["month"] = (calendar.MONTHS[day.month - 1],)
        for place, text in enumerate(self.fresh(self.grammar.talk["dialogue"]).split(" // ")):
            self.say(first ^ (place % 2), words.say(text))

    def recap(self, asker: int) -> None:
        """The asker repeats what the other once told; what comes back adds nothing that is asked for."""
        teller = 1 - asker
        old = [told for told in self.told if told.teller == teller and told.frame["g"] and told.session < self.session]
        if not old:
            return
        told = self.rng.choice(old)
        gist = told.voice.say(self.rng.choice(told.frame["g"]), "your")
        gist = gist[0].lower() + gist[1:]
        ago = f"back in {calendar.MONTHS[told.day.month - 1]}" if (self.now - told.day).days > 45 else "the other day"
        mood = ".sad" if told.frame.sad else ""
        self.say(asker, self.generic("recap" + mood, asker, gist=gist, ago=ago))
        later = [told.voice.say(text) for text in told.frame["u"]] or [self.generic("recap.back" + mood, teller)]
        self.say(teller, self.rng.choice(later))
        if self.rng.random() < 0.6:
            self.say(asker, self.generic("react" + mood, asker))
            self.aside(asker, 0.5)

    def next_frame(self, teller: int) -> Frame:
        """A frame of the teller's own topics that is not used up."""
        for _ in range(200):
            frame = self.rng.choice(self.by_topic[self.rng.choice(self.people[teller].topics)])
            if self.used[teller, frame.name] < frame.times:
                self.used[teller, frame.name] += 1
                return frame
        spare = [frame for frame in self.grammar.frames if self.used[teller, frame.name] < frame.times]
        frame = self.rng.choice(spare)
        self.used[teller, frame.name] += 1
        return frame

    def begin(self, teller: int, frame: Frame) -> Told:
        day, when = (calendar.future if frame.tense == "future" else calendar.past)(self.rng, self.now)
        words = voice(self.rng, self.grammar.lists, self.people[teller], self.people[1 - teller], when)
        return Told(teller, frame, words, day, self.session, dated=False)

    def exchange(self, teller: int) -> None:
        """One tells, the other echoes and asks on."""
        rng, other, frame = self.rng, 1 - teller, self.next_frame(teller)
        told = self.begin(teller, frame)
        for same in self.told:  # two races, never the same one twice
            if same.teller == teller and same.frame is frame:
                told.voice.avoid(same.voice)
        if frame.elliptic and rng.random() < 0.3:
            question, template = rng.choice(frame.elliptic)
            self.say(other, told.voice.say(question, "your"))
        else:
            template = self.fresh(frame["s"])
            if rng.random() < 0.25:
                self.say(teller, self.generic("lead.sad" if frame.sad else "lead", teller))
        text = told.voice.say(template)
        told.dated = "{when}" in template.lower()
        self.say(teller, text, told.rows)
        self.told.append(told)
        self.details(told)
        self.answer_back(told)

    def details(self, told: Told) -> None:
        chance = 0.5
        for text in self.rng.sample(told.frame["d"], len(told.frame["d"])):
            if self.rng.random() < chance and not self.spoken[text]:
                self.spoken[text] += 1
                self.say(told.teller, told.voice.say(text))
                chance /= 3
        if told.frame["p"] and self.rng.random() < 0.3:
            caption = told.voice.say(self.rng.choice(told.frame["p"]))
            self.say(told.teller, f"[a photo of {caption[0].lower() + caption[1:]}]", told.rows)

    def answer_back(self, told: Told) -> None:
        rng, teller, other = self.rng, told.teller, 1 - told.teller
        mood = ".sad" if told.frame.sad else ""
        heard = told.frame["e"] and rng.random() < 0.85
        echo = told.voice.say(self.called(self.fresh(told.frame["e"])), "your") if heard else ""
        self.say(other, echo or self.generic("react" + mood, other))
        self.aside(other, 0.45)
        number = rng.choices((0, 1, 2), (15, 50, 35))[0]
        for follow in rng.sample(told.frame.follow, min(number, len(told.frame.follow))):
            answered = Answered(follow)
            self.say(other, told.voice.say(follow.question, "your"))
            self.say(teller, told.voice.say(self.fresh(follow.answers)), answered.rows)
            told.answers.append(answered)
            if rng.random() < 0.2:
                self.say(teller, self.generic("feel" + mood, teller))
            if rng.random() < 0.7:
                self.say(other, self.generic("react" + mood, other))
                self.aside(other, 0.55)
        if number == 0 and rng.random() < 0.7:
            question, answer = self.generic("ask" + mood, other).split(" >> ")
            self.say(other, question)
            self.say(teller, answer)

    def write_down(self) -> None:
        """The session's lines as rows, with a time each."""
        lines = (
            messy_lines(self.lines, self.rng) if self.messy else [(one.speaker, one.text, [one]) for one in self.lines]
        )
        turns: list[tuple[int, str, list[Line]]] = []
        for speaker, text, parts in lines:
            whole = f"{turns[-1][1]} {text}" if turns else ""
            if not self.messy and turns and turns[-1][0] == speaker and len(whole.split()) <= LONGEST_TURN:
                turns[-1] = (speaker, whole, turns[-1][2] + parts)
            else:
                turns.append((speaker, text, parts))
        clock = self.now
        for speaker, text, parts in turns:
            for part in parts:
                if part.mark is not None:
                    part.mark.append(len(self.rows))
            name = self.people[speaker].name
            self.rows.append(Row(text, f"session {self.session}", name, "", clock.timestamp()))
            clock += timedelta(seconds=self.rng.randint(5, 60) if self.messy else self.rng.randint(40, 200))
        self.lines = []
