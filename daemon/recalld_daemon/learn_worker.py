"""The daemon's handle on the process that learns: there while there are lessons, and gone after a quiet while.

It is started by the first lesson, since torch takes 2 s and some 200 MB that nobody should pay who never says what
helped. It keeps nothing that its answers do not carry, so each life, and each step after one that failed, is opened
with the last state that was given out: a step that fails costs itself and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import trio

from recalld_daemon.adapters.pairs import Pair
from recalld_daemon.adapters.settings import OnlineSettings
from recalld_daemon.recall.types import EncoderUnavailable, Float32
from recalld_daemon.worker_link import Link, RequestFailed
from recalld_daemon.worker_process import FIRST_BACKOFF_SECONDS, WorkerProcess, only_reply
from recalld_daemon.worker_state import ModelChoice, WorkerState
from recalld_daemon.worker_wire import FrameTooLarge, LearnOpen, LearnOpened, LearnStep, LearnStepped


class StepFailed(Exception):
    """This lesson was not learned; the next one may be. str() says why."""


class StateRefused(StepFailed):
    """The state that was to be gone on from can't be."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What learning goes on from; see LearnOpen."""

    promoted: bytes
    settings: OnlineSettings
    key: str
    state: bytes = b""


class LearnWorker(WorkerProcess):
    """Takes steps, one at a time. Its process is there from the first `step` to `rest`, and again from the next."""

    role = "learn"

    def __init__(
        self,
        choice: ModelChoice,
        *,
        on_change: Callable[[WorkerState], None] = lambda state: None,
        command: Sequence[str] = (),
        hang_seconds: float | None = None,
        first_backoff_seconds: float = FIRST_BACKOFF_SECONDS,
    ) -> None:
        super().__init__(
            choice, on_change=on_change, command=command, hang_seconds=hang_seconds,
            first_backoff_seconds=first_backoff_seconds,
        )  # fmt: skip
        self.state.phase = "resting"
        self._wanted = trio.Event()
        self._lives = 0  # begun
        self._life = trio.CancelScope()
        self._opened = ""  # the key of what this life has open

    async def step(self, opening: Opening, pair: Pair) -> LearnStepped:
        """Learn from one pair, going on from `opening`. Waits for the process, and while it is restarted.

        Raises StepFailed; StateRefused, where it would do without the state. Not to be called twice at once: each step
        goes on from the one before.
        """
        link = await self._link_for_work()
        opened, self._opened = self._opened, ""  # unless all goes well it is opened anew next time
        try:
            if opened != opening.key:
                await self._open(link, opening)
            stepped = await only_reply(link, step_request(link.new_id(), pair), LearnStepped)
        except (EncoderUnavailable, RequestFailed, FrameTooLarge) as error:
            raise StepFailed(str(error)) from None
        self._opened = opening.key
        return stepped

    async def _open(self, link: Link, opening: Opening) -> None:
        request = LearnOpen(
            id=link.new_id(), promoted=opening.promoted, settings=opening.settings, key=opening.key,
            state=opening.state,
        )  # fmt: skip
        try:
            await only_reply(link, request, LearnOpened)
        except RequestFailed as error:
            if opening.state:
                raise StateRefused(str(error)) from None
            raise

    def distrust(self) -> None:
        """What the last step made can't be used: the next one goes on from its opening, not from there."""
        self._opened = ""

    def rest(self) -> None:
        """Let the process go, with its memory; the next step starts it again."""
        self._link = None
        self._life.cancel()

    async def _link_for_work(self) -> Link:
        """Waits for the next life where this one is ending. Raises StepFailed where that can't begin."""
        self._wanted.set()
        lives = self._lives
        while (link := self._link) is None or link.lost:
            failed = self.state.phase == "restarting" and self._lives > lives
            if failed or self.state.phase == "stopped":
                raise StepFailed(f"learn worker {self.state.phase}: {self.state.detail}")
            await self._changed.wait()
        return link

    async def _until_wanted(self) -> None:
        await self._wanted.wait()
        self._wanted = trio.Event()
        self._lives += 1

    async def _serve(self, link: Link) -> bool:
        self._opened = ""
        self._enter("ready", "")
        with trio.CancelScope() as self._life:
            await link.run()
        return self._life.cancelled_caught


def step_request(id: int, pair: Pair) -> LearnStep:
    """The request that carries this lesson."""
    return LearnStep(
        id=id, key=pair.key, query=_bytes(pair.query), gold=_bytes(pair.gold), negatives=_bytes(pair.negatives),
        subject=b"" if pair.subject is None else _bytes(pair.subject), weight=pair.weight, at=pair.at,
    )  # fmt: skip


def _bytes(array: Float32) -> bytes:
    return np.ascontiguousarray(array, np.float32).tobytes()
