"""The grammar of made-up talk: frames of things that happen to people, written by hand, and the words that fill them.

A data file is plain text. A line `# pets` opens a topic, `@ adopt past x2 tags=pet,home` a frame of it: something
that a person may tell (tense past, future or state; xN: may happen N times to one person). The lines of a frame:

    s  what its teller says, in the first person          l  the other's question >> an answer that is elliptic alone
    e  what the other says back, full of the same words   f  a follow-up >> answers ?? what may be asked of the answer
    v  what was done, in a questioner's words (base form) q  a question; t  one about time; o  one that needs inference
    g  the same told back in the second person (a recap)  d  details around it; p  a photo; u  what became of it later

Alternatives stand in lines of their own or between ` | `. `<a/b/>` is a choice, `{place}` a filler of that list,
`{place2}` another one, `{place~}` the same filler in other words, `{Place}` with a capital. A frame's fillers are drawn
once, so what is told, echoed and asked agree.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

DATA = Path(__file__).parent / "data"
OTHER_WORDS = 0.1  # of the fillers marked ~: real questioners mostly repeat the noun; calibrated by a BM25's R@10
CHOICE = re.compile(r"<([^<>]*)>")
SLOT = re.compile(r"\{(\w+?)(~?)\}")
AN = re.compile(
    r"\b([Aa]) (?=(?:[aeio]|un(?!i)|u[^nsrk ]|hour|honest|8|11\b|18\b)(?!ne\b|uro))"
)  # "an old", "a one-off"

Filler = tuple[str, ...]  # the words themselves, then other words for them
Fillers = Mapping[str, tuple[Filler, ...]]


@dataclass(frozen=True, slots=True)
class FollowUp:
    """What the other asks next, the teller's answers, and the questions that these answer."""

    question: str
    answers: tuple[str, ...]
    asks: tuple[str, ...]


@dataclass(slots=True)
class Frame:
    """One thing that may happen to a person, in all its wordings."""

    topic: str
    name: str
    tense: str = "past"
    times: int = 1
    sad: bool = False
    tags: frozenset[str] = frozenset()
    lines: dict[str, list[str]] = field(default_factory=dict)
    elliptic: list[tuple[str, str]] = field(default_factory=list)
    follow: list[FollowUp] = field(default_factory=list)

    def __getitem__(self, kind: str) -> list[str]:
        return self.lines.get(kind, [])


def alternatives(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(" | ") if part.strip())


def written(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip() and not line.startswith("//"):
            yield number, line.rstrip()


def read_lists(*paths: Path) -> dict[str, tuple[Filler, ...]]:
    """Lists of fillers: `[name]`, then one filler a line or several between ` | `, other words for it after ` = `."""
    lists: dict[str, list[Filler]] = {}
    name = ""
    for path in paths:
        for _, line in written(path):
            if line.startswith("["):
                name = line.strip("[] ")
                lists.setdefault(name, [])
                continue
            lists[name] += [tuple(form.strip() for form in item.split(" = ")) for item in alternatives(line)]
    return {name: tuple(items) for name, items in lists.items()}


def read_sections(*paths: Path) -> dict[str, tuple[str, ...]]:
    """Lines by the `[section]` that they stand in."""
    sections: dict[str, list[str]] = {}
    name = ""
    for path in paths:
        for _, line in written(path):
            if line.startswith("["):
                name = line.strip("[] ")
            else:
                sections.setdefault(name, []).extend(alternatives(line))
    return {name: tuple(lines) for name, lines in sections.items()}


def opened(topic: str, words: list[str]) -> Frame:
    frame = Frame(topic, words[0])
    for word in words[1:]:
        if word.startswith("tags="):
            frame.tags = frozenset(word[5:].split(","))
        elif re.fullmatch(r"x\d", word):
            frame.times = int(word[1:])
        elif word == "sad":
            frame.sad = True
        elif word in ("past", "future", "state"):
            frame.tense = word
        else:
            raise ValueError(f"frame {words[0]}: {word!r} is no tense, count, tag or mood")
    return frame


def read_frames(*paths: Path) -> list[Frame]:
    """All frames of the files. Raises ValueError with file and line where one cannot be read."""
    frames: list[Frame] = []
    topic = ""
    for path in paths:
        for number, line in written(path):
            kind, _, rest = line.partition(" ")
            if kind == "#":
                topic = rest.strip()
            elif kind == "@":
                frames.append(opened(topic, rest.split()))
            else:
                try:
                    add_line(frames[-1], kind, rest)
                except (ValueError, IndexError) as error:
                    raise ValueError(f"{path.name}:{number}: {line!r}: {error}") from error
    return frames


def add_line(frame: Frame, kind: str, rest: str) -> None:
    if kind == "f":
        question, answers = rest.split(" >> ")
        said, _, asked = answers.partition(" ?? ")
        frame.follow.append(FollowUp(question.strip(), alternatives(said), alternatives(asked)))
    elif kind == "l":
        question, answers = rest.split(" >> ")
        frame.elliptic += [(question.strip(), answer) for answer in alternatives(answers)]
    elif kind in "sevqtogdpu" and len(kind) == 1:
        frame.lines.setdefault(kind, []).extend(alternatives(rest))
    else:
        raise ValueError("no such kind of line")


class Voice:
    """Renders templates with one set of fillers: drawn when first needed, then kept."""

    def __init__(self, rng: random.Random, lists: Fillers, fixed: Mapping[str, str]) -> None:
        self.rng, self.lists = rng, lists
        self.bound: dict[str, Filler] = {name: (text,) for name, text in fixed.items()}
        self.shunned: dict[str, list[Filler]] = {}
        self.whose = "my"

    def avoid(self, other: Voice) -> None:
        """Draw no filler that `other` has."""
        for name, filler in other.bound.items():
            self.shunned.setdefault(name.rstrip("0123456789"), []).append(filler)

    def filler(self, name: str) -> Filler:
        if name not in self.bound:
            base = name.rstrip("0123456789")
            base = name if name in self.lists else base if base in self.lists else "name"
            taken = [words for other, words in self.bound.items() if other.rstrip("0123456789") == base]
            taken += self.shunned.get(base, [])
            free = [words for words in self.lists[base] if words not in taken]
            self.bound[name] = self.rng.choice(free or self.lists[base])
        return self.bound[name]

    def slot(self, match: re.Match[str]) -> str:
        name, other_words = match[1], bool(match[2])
        low = name if name in self.bound else name[0].lower() + name[1:]
        filler = self.filler(low)
        other_words = other_words and len(filler) > 1 and self.rng.random() < OTHER_WORDS
        text = self.rng.choice(filler[1:]) if other_words else filler[0]
        text = SLOT.sub(self.slot, seen_by(text, self.whose))
        return text[0].upper() + text[1:] if low != name else text

    def say(self, template: str, whose: str = "my") -> str:
        """The template filled, "a" before a vowel as "an", sentences capitalised.

        whose: "my" the teller speaks, "your" the other, "their" somebody who asks about it; fillers follow.
        """
        return tidy(self.fill(template, whose))

    def fill(self, template: str, whose: str = "my") -> str:
        """The template with its choices made and slots filled, and nothing else done to it."""
        self.whose = whose
        while CHOICE.search(template):
            template = CHOICE.sub(lambda match: self.rng.choice(match[1].split("/")), template)
        return SLOT.sub(self.slot, template)


def seen_by(filler: str, whose: str) -> str:
    """A filler in the mouth of somebody else: "my sister" as "your sister" or "their sister"."""
    if whose == "my":
        return filler
    return re.sub(r"\b([Mm]y|[Oo]ur)\b", lambda match: whose.title() if match[1][0].isupper() else whose, filler)


def tidy(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r" ([,.!?;])", r"\1", text)
    text = re.sub(r"\b(since|from|until|for) on\b", r"\1", text)  # "since on Tuesday"
    text = AN.sub(lambda match: match[1] + "n ", text)
    return re.sub(r"(^|[.!?] )([a-z])", lambda match: match[1] + match[2].upper(), text)


def unaddressed(template: str) -> str:
    """The template without the vocatives, since friends do not call each other by name in each turn."""
    template = re.sub(r"(?<![.!?]),? \{[PO]\}(?=[.!?,])", "", template)
    return re.sub(r"(^|[.!?] )\{[PO]\}[,!] ", r"\1", template)


def slots(template: str) -> frozenset[str]:
    return frozenset(match[1][0].lower() + match[1][1:] for match in SLOT.finditer(template))
