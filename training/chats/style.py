"""How one person speaks: favourite words among those that say the same, habits at the start and the end of a turn.

Two people who are told to say the same line say it differently, so that a learner does not learn the lines by heart.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

LONG = {"I'm": "I am", "it's": "it is", "It's": "It is", "I've": "I have", "don't": "do not", "can't": "cannot"}
LONG |= {"that's": "that is", "That's": "That is", "you're": "you are", "I'd": "I would", "didn't": "did not"}
LONG |= {"We're": "We are", "wasn't": "was not", "couldn't": "could not", "There's": "There is", "doesn't": "does not"}


class Style:
    """One speaker's habits, drawn once."""

    def __init__(self, rng: random.Random, same: Sequence[str], openers: Sequence[str], closers: Sequence[str]) -> None:
        self.rng = rng
        self.openers, self.closers = rng.sample(openers, 4), rng.sample(closers, 4)
        self.opening, self.closing = rng.uniform(0, 0.15), rng.uniform(0, 0.1)
        self.stiff, self.loud = (
            rng.uniform(0, 0.5),
            rng.uniform(0.3, 1),
        )  # contractions spelt out; exclamation marks kept
        self.words: dict[str, list[str]] = {}
        for group in same:
            words = group.split(" = ")
            favourites = rng.sample(words, min(len(words), 2))
            self.words[words[0]] = favourites

    def spoken(self, text: str) -> str:
        """The line in this speaker's words."""
        for word, favourites in self.words.items():
            if word in text:
                text = re.sub(rf"(?<![\w']){re.escape(word)}(?![\w'])", self.rng.choice(favourites), text, count=1)
        for short, long in LONG.items():
            if short in text and self.rng.random() < self.stiff:
                text = re.sub(rf"\b{short}\b(?! \w+ing\?)", long, text)
        if "!" in text and self.rng.random() > self.loud:
            text = re.sub(r"!(?=\s|$)", ".", text)
        if self.rng.random() < self.opening and len(text.split()) > 3 and COMMON.match(text):
            text = f"{self.rng.choice(self.openers)} {text if text.split()[0] in OWN else text[0].lower() + text[1:]}"
        if self.rng.random() < self.closing and text[-1] in ".!":
            text = f"{text} {self.rng.choice(self.closers)}"
        return text


OWN = ("I", "I'm", "I've", "I'd")
# First words after which an opener may stand; a name keeps its capital.
COMMON = re.compile(
    r"(i|i'm|i've|i'd|we|we've|last|the|an?|it|you|my|there|that|this|they|our|what|how|no|not|so|if|when|at|on|two|three"
    r"|yesterday)\s",
    re.IGNORECASE,
)
