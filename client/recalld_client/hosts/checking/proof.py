"""Whether a memory truly reaches the agent: one is planted, asked for through the installed hook, and removed.

It belongs to the project of a temporary directory, so no session of the user's ever sees it. That nothing came is no
fault at once: a share of what would be shown is withheld at random, and a recall that is late is shown at the next
boundary. So each memory has several boundaries to arrive at, and there are several memories.
"""

from __future__ import annotations

import random
import tempfile
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from recalld_protocol.messages import Forget, Forgotten, FromAgent, Hits, Message, Remember, Remembered, Search

from .contract import Breach, context_of
from .delivery import NoDelivery
from .samples import Step, end, steps

MEMORIES = 4  # 3 % are withheld: all four, once in a million
TOOL_CALLS = 3  # boundaries after the turn's own
PAUSE_SECONDS = (0.0, 0.2, 0.6, 1.5)  # before each boundary: what slipped has arrived by then, on a busy machine too
FIND_TRIES, FIND_PAUSE_SECONDS = 40, 0.25  # until a new memory has its vector; a model that is loading takes longest
CONSONANTS, VOWELS = "bdfklmnrstv", "aeiou"  # a nonce that can be spoken: no secret, so nothing redacts it
MEMORY = "The crane at the {nonce} quay may lift at most {tonnes} tonnes in a gale."
QUESTION = "How much may the crane at the {nonce} quay lift in a gale?"


class Asks(Protocol):
    """The daemon, asked: raises a fault of its own where it does not answer."""

    def __call__(self, message: FromAgent, answer: type[Message], /) -> Message: ...


@dataclass(frozen=True, slots=True)
class Proof:
    """`arrived`: a snippet came out of the hook. Else `why`, and what to do about it."""

    arrived: bool
    why: str = ""
    remedy: str = ""
    boundary: int = 0  # at which it arrived, from 1
    memories: int = 0  # that were planted


def prove(
    host: str,
    events: Collection[str],
    run: Callable[[Step, Path], bytes],
    ask: Asks,
    sleep: Callable[[float], None],
    rng: random.Random,
) -> Proof:
    """`run`: the hook of this step, in that directory. Raises what `ask` raises; what was planted is removed anyhow."""
    with tempfile.TemporaryDirectory(prefix="recalld-doctor-") as directory:
        cwd = Path(directory)
        for planted in range(1, MEMORIES + 1):
            nonce = "".join(rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(4))
            memory = _plant(nonce, rng.randint(11, 98), cwd, ask)
            try:
                _wait_until_found(nonce, cwd, ask, sleep)
                boundary = _asked(host, events, nonce, cwd, run, sleep)
            except (NoDelivery, Breach) as error:
                return Proof(False, str(error), _remedy(error), memories=planted)
            finally:
                ask(Forget(path=memory), Forgotten)
            if boundary:
                return Proof(True, boundary=boundary, memories=planted)
    return Proof(
        False, f"{MEMORIES} memories were asked for at {TOOL_CALLS + 1} boundaries each, and none arrived",
        "see `recallctl tail` while you run this again, and `recallctl why` of what it shows", memories=MEMORIES,
    )  # fmt: skip


def _plant(nonce: str, tonnes: int, cwd: Path, ask: Asks) -> str:
    text = MEMORY.format(nonce=nonce, tonnes=tonnes)
    planted = ask(Remember(text=text, cwd=str(cwd), scope="project", key=uuid.uuid4().hex), Remembered)
    assert isinstance(planted, Remembered)
    return planted.memory


def _wait_until_found(nonce: str, cwd: Path, ask: Asks, sleep: Callable[[float], None]) -> None:
    """Until a search finds it by its meaning as well, or for long enough."""
    for _ in range(FIND_TRIES):
        found = ask(Search(query=QUESTION.format(nonce=nonce), cwd=str(cwd), limit=1), Hits)
        assert isinstance(found, Hits)
        if any(nonce in hit.text and "dense" in hit.lanes for hit in found.hits):
            return
        sleep(FIND_PAUSE_SECONDS)


def _asked(
    host: str,
    events: Collection[str],
    nonce: str,
    cwd: Path,
    run: Callable[[Step, Path], bytes],
    sleep: Callable[[float], None],
) -> int:
    """The boundary at which the memory arrived; 0: at none. Raises NoDelivery, Breach."""
    session, arrived = f"recalld-doctor-{uuid.uuid4().hex}", 0
    asked = steps(host, session, str(cwd), QUESTION.format(nonce=nonce), TOOL_CALLS, events)
    for number, step in enumerate(asked, 1):
        sleep(PAUSE_SECONDS[number - 1])
        if nonce in context_of(host, step.event, run(step, cwd)):
            arrived = number
            break
    with suppress(NoDelivery):  # it is proven by then; a session that is not closed ends by itself
        run(end(host, session, str(cwd)), cwd)
    return arrived


def _remedy(error: Exception) -> str:
    if isinstance(error, Breach):
        return "make what prints it silent where there is no terminal, or install again if it is recalld's own answer"
    return "run `recallctl install` again, and start the daemon if it does not run"
