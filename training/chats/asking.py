"""Questions about a conversation, asked afterwards by somebody who names the speaker and uses other words.

A question is asked only where it has one answer: two things told in the same frame by the same person must differ in
what the question names, else it names the month, else it is not asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import combinations

from training.chats import calendar
from training.chats.grammar import Frame, slots, tidy
from training.chats.people import voice
from training.chats.telling import Conversation, Told
from training.pools import Ask, user

SHARES = {"chat.single": 0.48, "chat.temporal": 0.19, "chat.multi": 0.17, "chat.open": 0.06, "chat.absent": 0.10}
TAKEN_OVER = 0.9  # of the words that could be; calibrated, with OTHER_WORDS, by a BM25's R@10
NEAREST = 0.9  # of the questions are the one, of all ways to ask, that shares most words with the answer
PEOPLE = frozenset({"p", "o", "when", "P", "O"})


def all_asks(talk: Conversation, group: str) -> list[Ask]:
    """120 to 200 questions of all kinds, in the shares above."""
    rng = talk.rng
    share = 0.85 if talk.messy else 0.65  # of what is told may be asked for; messengers tell less
    half = {id(told) for told in talk.told if rng.random() < share}
    asked = [told for told in talk.told if id(told) in half]
    supply = {
        "chat.single": list(singles(talk, asked)),
        "chat.temporal": list(temporals(talk, asked)) + list(windows(talk)),
        "chat.multi": list(multis(talk)),
        "chat.open": list(opens(talk, asked)),
        "chat.absent": list(absents(talk)),
    }
    once = {}
    for kind, made in supply.items():
        rng.shuffle(made)
        once[kind] = list({taken_over(talk, text, gold): gold for text, gold in made}.items())
    total = min(rng.randint(120, 200), *(int(len(made) / SHARES[kind] * 1.05) for kind, made in once.items()))
    return [
        Ask(kind, user(text), gold=frozenset(gold), group=group)
        for kind, made in once.items()
        for text, gold in made[: round(total * SHARES[kind])]
    ]


Made = tuple[str, list[int]]


def like(talk: Conversation, told: Told, template: str) -> list[Told]:
    """What else the same person told in this frame that the question, as written, would mean as well."""
    named = {slot for slot in slots(template) if slot not in PEOPLE and slot not in talk.people[0].around}
    others = [one for one in talk.told if one is not told and one.teller == told.teller and one.frame is told.frame]
    return [one for one in others if all(one.voice.bound.get(slot) == told.voice.bound.get(slot) for slot in named)]


def plain(talk: Conversation, told: Told, template: str) -> str | None:
    """The question, with the month where only that tells two things apart; None where nothing does."""
    others = like(talk, told, template)
    text = told.voice.say(template, "their")
    if not others:
        return text
    months = [(one.day.year, one.day.month) for one in [told, *others]]
    if not text.endswith("?") or months.count(months[0]) > 1 or told.frame.tense == "state":
        return None
    return f"{text[:-1]} in {calendar.month(told.day, talk.rng, talk.rng.random() < 0.5)}?"


def phrased(talk: Conversation, told: Told, templates: Sequence[str], gold: list[int]) -> str | None:
    """One of several ways to ask: mostly the one that is nearest to what was said, as most questioners do."""
    made = [text for template in templates for _ in range(2) if (text := plain(talk, told, template))]
    if not made or talk.rng.random() >= NEAREST:
        return talk.rng.choice(made) if made else None
    return max((taken_over(talk, text, gold) for text in made), key=lambda text: shared_words(talk, text, gold))


def shared_words(talk: Conversation, text: str, gold: list[int]) -> int:
    heard = re.findall(r"\w+", " ".join(talk.rows[row].text for row in gold).lower())
    return len({word for word in re.findall(r"\w+", text.lower()) if len(word) > 3} & set(heard))


def singles(talk: Conversation, asked: list[Told]) -> Iterator[Made]:
    """What, where, who, why and how."""
    rng = talk.rng
    for told in asked:
        templates = rng.sample(told.frame["q"], len(told.frame["q"]))
        for some in (templates, templates[::2]):
            if text := phrased(talk, told, some, told.rows):
                yield text, told.rows
        for answered in told.answers:
            templates = [ask for ask in answered.follow.asks if not ask.startswith("t:")]
            if templates and rng.random() < 0.35 and (text := plain(talk, told, rng.choice(templates))):
                yield text, answered.rows


def temporals(talk: Conversation, asked: list[Told]) -> Iterator[Made]:
    """When, in which month, for how long."""
    rng = talk.rng
    for told in asked:
        if told.frame["t"] and (text := plain(talk, told, rng.choice(told.frame["t"]))):
            yield text, told.rows
        for answered in told.answers:
            templates = [ask[2:].strip() for ask in answered.follow.asks if ask.startswith("t:")]
            if templates and (text := plain(talk, told, rng.choice(templates))):
                yield text, answered.rows
        if not told.dated or not told.frame["v"]:
            continue
        way = "when.future" if told.frame.tense == "future" else "when.past"
        verbs = [text for text in told.frame["v"] if not like(talk, told, text)]
        templates = [rng.choice(talk.grammar.talk[way]).replace("{do}", done) for done in verbs]
        if told.frame.tense == "past":
            gists = [third(text) for text in told.frame["g"] if not like(talk, told, text)]
            templates += [rng.choice(talk.grammar.talk["when.gist"]).replace("{G}", gist) for gist in gists]
        if vague(told):
            templates = [text for text in templates if not re.search(r"\b(date|day|exactly)\b", text)]
        if templates and (text := phrased(talk, told, templates, told.rows)):
            yield text, told.rows


def vague(told: Told) -> bool:
    """Whether "last month" or the like was said, from which no day can be told."""
    return bool(re.search(r"month|week\b|weeks|fortnight|few|couple|other day", told.voice.bound["when"][0]))


def third(gist: str) -> str:
    """ "you were at a festival" of a third person."""
    gist = re.sub(r"^you're", "{P} is", gist)
    gist = re.sub(r"^you were", "{P} was", gist)
    return re.sub(r"\byou\b", "they", re.sub(r"\byour\b", "their", re.sub(r"^you ", "{P} ", gist)))


def windows(talk: Conversation) -> Iterator[Made]:
    """What somebody did at some time: every dated thing of theirs that falls into it."""
    rng = talk.rng
    for told in talk.told:
        if not told.dated or told.frame.tense != "past" or vague(told):
            continue
        person, name, written = talk.people[told.teller].name, calendar.MONTHS, calendar.date(told.day, rng)
        after = told.day + timedelta(days=rng.randint(1, 6))
        text, first, last = rng.choice(
            [
                (f"What did {person} do on {written}?", told.day, told.day),
                (f"What was {person} up to around {written}?", told.day - timedelta(2), told.day + timedelta(2)),
                (
                    f"What happened to {person} in the week before {calendar.date(after, rng)}?",
                    after - timedelta(7),
                    after,
                ),
                (f"What was going on with {person} in {part(told.day)} {name[told.day.month - 1]}?", *thirds(told.day)),
            ]
        )
        gold = [one for one in talk.told if within(one, told.teller, first, last)]
        if len(gold) <= 3:
            yield text, [row for one in gold for row in one.rows]


def within(told: Told, teller: int, first: datetime, last: datetime) -> bool:
    return told.teller == teller and told.frame.tense == "past" and first.date() <= told.day.date() <= last.date()


def part(day: datetime) -> str:
    return ("early", "mid", "late")[min(2, (day.day - 1) // 10)]


def thirds(day: datetime) -> tuple[datetime, datetime]:
    start = 1 + 10 * min(2, (day.day - 1) // 10)
    first = day.replace(day=start)
    return first, first + timedelta(days=9 if start < 21 else 10)


def multis(talk: Conversation) -> Iterator[Made]:
    """What somebody did of one sort over the months: all the turns that tell it. And which of two came first."""
    rng, kinds = talk.rng, {key[4:] for key in talk.grammar.talk if key.startswith("tag.")}
    for tag in sorted(kinds):
        both: list[list[int]] = []
        for teller in (0, 1):
            gold = [row for told in of_tag(talk, tag, teller) for row in told.rows]
            both.append(gold)
            if 2 <= len(gold) <= 6:
                templates = talk.grammar.talk["tag." + tag]
                for _ in range(min(2, len(templates))):
                    texts = [named(talk, template, teller) for template in templates]
                    yield (
                        max(rng.sample(texts, min(2, len(texts))), key=lambda text: shared_words(talk, text, gold)),
                        gold,
                    )
        shared = talk.grammar.talk.get("both." + tag)
        if shared and all(both) and len(both[0] + both[1]) <= 6:
            yield named(talk, rng.choice(shared), rng.randrange(2)), both[0] + both[1]
    yield from firsts(talk)
    yield from agains(talk)


def agains(talk: Conversation) -> Iterator[Made]:
    """A question that several things answer which one person told in one frame: all of them are gold."""
    seen: set[tuple[int, str]] = set()
    for told in talk.told:
        key = (told.teller, told.frame.name)
        templates = [text for text in told.frame["q"] if len(like(talk, told, text)) in (1, 2)]
        if key not in seen and templates:
            seen.add(key)
            template = talk.rng.choice(templates)
            gold = [row for one in [told, *like(talk, told, template)] for row in one.rows]
            if len(gold) <= 6:
                yield told.voice.say(template, "their"), gold


def of_tag(talk: Conversation, tag: str, teller: int) -> list[Told]:
    return [told for told in talk.told if told.teller == teller and tag in told.frame.tags]


def firsts(talk: Conversation) -> Iterator[Made]:
    rng = talk.rng
    happened = [told for told in talk.told if told.frame.tense == "past" and told.frame["v"]]
    pairs = [(a, b) for a, b in combinations(happened, 2) if a.teller == b.teller and abs((a.day - b.day).days) > 20]
    for one, two in rng.sample(pairs, min(12, len(pairs))):
        done = [rng.choice(one.frame["v"]), rng.choice(two.frame["v"])]
        if one.frame is two.frame or like(talk, one, done[0]) or like(talk, two, done[1]):
            continue
        first, second = (lower(told.voice.say(text, "their")) for told, text in zip((one, two), done, strict=True))
        person = talk.people[one.teller].name
        template = rng.choice(talk.grammar.talk["first"])
        yield template.replace("{P}", person).replace("{a}", first).replace("{b}", second), one.rows + two.rows


def lower(text: str) -> str:
    return text[0].lower() + text[1:]


def named(talk: Conversation, template: str, teller: int) -> str:
    return voice(talk.rng, talk.grammar.lists, talk.people[teller], talk.people[1 - teller]).say(template, "their")


def opens(talk: Conversation, asked: list[Told]) -> Iterator[Made]:
    """What one would guess from what was told: from one thing, or from all of a sort."""
    for section, templates in talk.grammar.talk.items():
        for teller in (0, 1):
            gold = [row for told in of_tag(talk, section[5:], teller) for row in told.rows]
            if section.startswith("open.") and 1 <= len(gold) <= 6:
                yield named(talk, talk.rng.choice(templates), teller), gold
    for told in asked:
        for template in told.frame["o"][:]:
            yield told.voice.say(template, "their"), told.rows


def taken_over(talk: Conversation, text: str, gold: list[int]) -> str:
    """The question with some of its words replaced by those that were used when the thing was told, or asked for."""
    near = {row for place in gold for row in (place - 1, place) if row >= 0}
    heard = " ".join(talk.rows[row].text for row in near).lower()
    for asked, told in talk.grammar.lexicon:
        stems = [word[:5] for word in told.split() if len(word) > 3]
        if asked in text and any(stem in heard for stem in stems) and talk.rng.random() < TAKEN_OVER:
            text = re.sub(rf"\b{re.escape(asked)}\b", told, text, count=1)
    return tidy(text)


def absents(talk: Conversation) -> Iterator[Made]:
    """Questions about somebody who never told such a thing: the other did, or nobody."""
    rng = talk.rng
    for told in rng.sample(talk.told, len(talk.told) // 2):
        other = 1 - told.teller
        if frames_of(talk, other, told.frame) or not askable(told.frame):
            continue
        template = rng.choice(askable(told.frame))
        words = voice(rng, talk.grammar.lists, talk.people[other], talk.people[told.teller])
        words.bound = told.voice.bound | {key: words.bound[key] for key in ("P", "O", *talk.people[other].around)}
        yield words.say(template, "their"), []
    heard = {told.frame.name for told in talk.told}
    unheard = [frame for frame in talk.grammar.frames if frame.name not in heard and askable(frame)]
    for frame in rng.sample(unheard, min(12, len(unheard))):
        nobody = rng.randrange(2)
        if not frames_of(talk, nobody, frame):
            yield named(talk, rng.choice(askable(frame)), nobody), []


def askable(frame: Frame) -> list[str]:
    follow = [ask for one in frame.follow for ask in one.asks if not ask.startswith("t:")]
    return frame["q"] + follow


def frames_of(talk: Conversation, teller: int, frame: Frame) -> list[Told]:
    """What this person told that is near enough to answer a question about `frame`."""
    return [told for told in talk.told if told.teller == teller and told.frame.topic == frame.topic]
