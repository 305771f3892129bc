"""Made-up notes through the packaged encoder, for focus.py: the same things are noted of twelve undertakings.

A question names the thing and not the undertaking ("what is the budget?"), as somebody at work on it would ask.
"""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np
from focus import PER_TOPIC, World

from recalld_daemon.models.encoder import Encoder, EncoderSettings, load_encoder
from recalld_daemon.recall.types import Float32

UNDERTAKINGS = (
    "kitchen renovation", "web shop migration", "school theatre play", "beehive project", "tax return",
    "mountain hut trip", "piano restoration", "hospital scheduling software", "community garden", "podcast on railways",
    "marathon training", "grandmother's memoir",
)  # fmt: skip
THINGS = (
    "budget", "deadline", "first supplier", "contact person", "open question", "meeting place", "password hint",
    "next step", "biggest risk", "agreed colour", "opening hours", "insurance", "delivery date", "checklist",
    "backup plan", "invoice number", "seating order", "tool list", "photo archive", "weather rule", "weekly slot",
    "spare key", "parking spot", "emergency number", "naming rule", "draft text", "translation", "sponsor", "permit",
    "transport", "storage room", "cleaning duty", "menu", "music", "test run", "repair history", "warranty",
    "feedback round", "closing date", "thank-you list",
)  # fmt: skip
SAYINGS = (
    "The {thing} of the {what}: {who} wrote it down on {day}.",
    "For the {what} we settled the {thing} with {who} on {day}.",
    "{who} says the {thing} for the {what} was changed on {day}.",
)
ASKING = (
    "what was the {thing} again?",
    "did we settle the {thing}?",
    "who knows about the {thing}?",
    "look up the {thing}",
)
PEOPLE, DAYS = ("Ana", "Bo", "Chen", "Dele", "Edda", "Farid"), ("Monday", "Tuesday", "Thursday", "the 3rd", "the 21st")


@lru_cache(maxsize=1)
def encoder() -> Encoder:
    return load_encoder(EncoderSettings(Path(tempfile.gettempdir()) / "mc"), "live", lambda *told: None)


@lru_cache(maxsize=10_000)
def encoded(text: str) -> Float32:
    return np.asarray(encoder().encode_query(text)[0], np.float32)


def texts(seed: int) -> World:
    rng = np.random.default_rng(seed)
    assert len(THINGS) == PER_TOPIC
    notes = [
        str(rng.choice(SAYINGS)).format(thing=thing, what=what, who=rng.choice(PEOPLE), day=rng.choice(DAYS))
        for what in UNDERTAKINGS
        for thing in THINGS
    ]

    def query(gold: int, rng: np.random.Generator) -> Float32:
        return encoded(str(rng.choice(ASKING)).format(thing=THINGS[gold % PER_TOPIC]))

    return World(np.stack([encoded(note) for note in notes]), np.repeat(np.arange(len(UNDERTAKINGS)), PER_TOPIC), query)
