"""Messenger style: what one would write in a sentence or three comes as short lines, careless, with emoji."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.chats.telling import Line

SHORT = {
    r"\byou are\b": "ur", r"\byou're\b": "ur", r"\byour\b": "ur", r"\byou\b": "u",
    r"\bare\b": "r", r"\bplease\b": "pls", r"\bthanks\b": "thx", r"\bthank you\b": "ty",
    r"\bpeople\b": "ppl", r"\bbecause\b": "cuz", r"\bthough\b": "tho", r"\btonight\b": "2nite",
    r"\btomorrow\b": "tmrw", r"\bgoing to\b": "gonna", r"\bwant to\b": "wanna", r"\band\b": "n",
    r"\breally\b": "rly", r"\bsomething\b": "smth", r"\bprobably\b": "prob", r"\bbefore\b": "b4",
    r"\bwith\b": "w", r"\byesterday\b": "yday", r"\bthe weekend\b": "the wknd", r"\bweekend\b": "wknd",
    r"\bI don't know\b": "idk", r"\bto be honest\b": "tbh", r"\bhonestly\b": "ngl", r"\bright now\b": "rn",
    r"\bfavourite\b": "fav", r"\bvery\b": "v", r"\bsee you\b": "cya", r"\boh my god\b": "omg",
    r"\bHaha\b": "lol", r"\bminutes\b": "mins", r"\bgreat\b": "gr8", r"\bbirthday\b": "bday",
    r"\bmonths\b": "mths", r"\bgot to\b": "gotta", r"\blast night\b": "last nite",
}  # fmt: skip
EMOJI = [
    "😂",
    "🤣",
    "😭",
    "🥲",
    "🙌",
    "🔥",
    "❤️",
    "😅",
    "🥰",
    "👀",
    "💀",
    "🎉",
    "😍",
    "🙈",
    "✨",
    "😴",
    "🤔",
    "👍",
    "😬",
    "🫠",
    "💪",
    "🤯",
    ":)",
    ";)",
    ":D",
    "xD",
    "<3",
    "!!",
    "lol",
    "haha",
    "lmao",
]


def messy_lines(lines: list[Line], rng: random.Random) -> list[tuple[int, str, list[Line]]]:
    """Each line as the messages that it is sent in. What was marked stays marked on every piece of its sentence."""
    abbreviating = rng.uniform(0.15, 0.6)
    out: list[tuple[int, str, list[Line]]] = []
    for line in lines:
        photo = re.search(r"\s*(\[a photo of .*\])$", line.text)
        text = line.text[: photo.start()] if photo else line.text
        said = [careless(piece, rng, abbreviating) for piece in pieces(text, rng)] if text else []
        out += [(line.speaker, piece, [line]) for piece in [*said, *([photo[1]] if photo else [])]]
    return out


def pieces(text: str, rng: random.Random) -> list[str]:
    """One to three messages, cut at the ends of sentences and sometimes at a comma."""
    if rng.random() < 0.45:
        return [text]
    parts = re.split(r"(?<=[.!?]) ", text)
    cut: list[str] = []
    for part in parts:
        halves = (
            re.split(r", (?=and |but |so |which |with |because )|: ", part, maxsplit=1)
            if rng.random() < 0.4
            else [part]
        )
        cut += halves if all(len(half.split()) > 2 for half in halves) else [part]
    return cut


def careless(text: str, rng: random.Random, abbreviating: float) -> str:
    for long, short in SHORT.items():
        if rng.random() < abbreviating:
            text = re.sub(long, short, text, flags=re.IGNORECASE)
    if rng.random() < 0.7:
        text = text.rstrip(".")
    if rng.random() < 0.6:
        text = text[0].lower() + text[1:] if text else text
    if rng.random() < 0.4:
        text = text.lower()
    if rng.random() < 0.35:
        text = text.replace("'", "")
    if rng.random() < 0.25:
        text = mistyped(text, rng)
    if rng.random() < 0.3:
        text += " " + rng.choice(EMOJI)
    return text


def mistyped(text: str, rng: random.Random) -> str:
    """One long word with two letters swapped, one lost or one doubled."""
    words = text.split(" ")
    long = [place for place, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    if not long:
        return text
    place = rng.choice(long)
    word, at = words[place], rng.randrange(1, len(words[place]) - 2)
    swapped, lost, doubled = (
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        word[:at] + word[at + 1 :],
        word[:at] + word[at:][0] + word[at:],
    )
    words[place] = rng.choice([swapped, lost, doubled])
    return " ".join(words)
