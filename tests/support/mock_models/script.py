"""What a scripted model answers: for each conversation, told apart by words in it, a list of steps in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call, by the host's own name of the tool."""

    name: str
    args: Mapping[str, Any]


Step = Sequence[Say | Call]


@dataclass(slots=True)
class Script:
    """`conversations`: words that only that conversation's requests hold -> its steps; the first that fits is taken.

    A main conversation comes before those of its subagents: it holds their prompts, and they do not hold its own.
    After the last step the model says `END`.
    """

    conversations: Mapping[str, Sequence[Step]]
    told: dict[str, int] = field(default_factory=dict)

    def next(self, body: str) -> tuple[str, int, Step]:
        """The conversation's words, the number of this step in it, and the step. "": none of ours (a title, say)."""
        for words, steps in self.conversations.items():
            if words in body:
                number = self.told.get(words, 0)
                self.told[words] = number + 1
                return words, number, steps[number] if number < len(steps) else END
        return "", 0, [Say("{}")]


END: Step = [Say("That is all.")]
