"""Two friends: invented names, and around each the same few people, places and animals in all that they tell."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from training.chats.grammar import Fillers, Voice

# What stays the same for one person over the whole conversation: slot -> the list that it is drawn from.
KEPT = {
    "friend": "name",
    "sis": "name",
    "bro": "name",
    "partner": "name",
    "kid": "name",
    "boss": "name",
    "home": "town",
}
KEPT |= {"workmate": "name", "neighbour": "name", "petname": "petname", "job": "job", "firm": "firm", "aunt": "name"}


@dataclass(slots=True)
class Person:
    name: str
    topics: list[str] = field(default_factory=list)
    around: dict[str, str] = field(default_factory=dict)  # slot -> who or what it is for this person


def two_people(rng: random.Random, lists: Fillers, topics: list[str]) -> tuple[Person, Person]:
    """Two friends with interests of their own and some that they share."""
    names = rng.sample([filler[0] for filler in lists["name"]], 2 + 2 * len(KEPT))
    shared = rng.sample(topics, max(4, len(topics) // 5))
    rest = [topic for topic in topics if topic not in shared]
    rng.shuffle(rest)
    take = max(4, len(rest) // 4)
    people = []
    for place in range(2):
        around = {}
        for slot, source in KEPT.items():
            around[slot] = names.pop() if source == "name" else rng.choice(lists[source])[0]
        people.append(Person(names.pop(), shared + rest[place * take : (place + 1) * take], around))
    return people[0], people[1]


def voice(rng: random.Random, lists: Fillers, teller: Person, other: Person, when: str = "") -> Voice:
    """How `teller` speaks to `other`: {P} is the teller, {O} the other, {when} the day that is spoken of."""
    fixed = {"P": teller.name, "O": other.name, "when": when} | teller.around
    return Voice(rng, lists, fixed)
