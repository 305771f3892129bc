"""One life of one worker process, as the daemon sees it: requests out, replies in, and who waits for which.

Writing never waits: what the pipe does not take at once is kept and flushed by a task of its own, so that a cancelled
request can never leave half a frame behind. A request that nobody waits for any more still counts as owed, and its
answer is dropped when it comes. A worker that owes an answer and says nothing for too long is declared hung.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import trio

from recalld_daemon.recall.types import EncoderUnavailable
from recalld_daemon.worker_wire import (
    FrameReader,
    FrameTooLarge,
    LearnOpen,
    Load,
    Parsed,
    ParseMore,
    ParseStop,
    Progress,
    Reply,
    Request,
    decode_reply,
    pack_frame,
)

READ_BYTES = 65_536  # a pipe's capacity on Linux: more never comes at once
OWED_LIMIT = 256  # answers a worker may owe; beyond, it is so late that asking it more would only cost memory
TICKS_TO_HANG = 4  # looks without any frame before it counts as hung: a daemon that was itself stopped is not misled


class RequestFailed(Exception):
    """The worker answered that it could not do this one thing; it goes on working. str() says why."""


@dataclass(slots=True)
class _Owed:
    """What the worker owes for one request."""

    waiter: trio.MemorySendChannel[Reply] | None  # None: nobody waits any more
    loading: bool  # loads, and the first import of torch, may take long
    due: bool = True  # a frame must come now; False between two frames of a parse


class Link:
    """The pipe to a worker that runs. Made for one process and thrown away with it.

    `process` must have been opened with both stdin and stdout as pipes. `hang_seconds` bounds the silence of a
    worker that owes an answer, `load_seconds` the silence of one that is loading its model.
    """

    def __init__(self, process: trio.Process, *, hang_seconds: float, load_seconds: float) -> None:
        assert isinstance(process.stdin, trio.lowlevel.FdStream)
        assert process.stdout is not None
        self._fd = process.stdin.fileno()
        self._replies = process.stdout
        self._hang_seconds = hang_seconds
        self._load_seconds = load_seconds
        self._unsent = bytearray()
        self._wake_flush = trio.Event()
        self._owed: dict[int, _Owed] = {}
        self._next_id = 0
        self._heard = False
        self.lost = ""  # why there is no worker any more; "": there is one

    def new_id(self) -> int:
        """An id that no request of this link had."""
        self._next_id += 1
        return self._next_id

    def ask(self, request: Request) -> trio.MemoryReceiveChannel[Reply]:
        """Send a request; its replies come through the channel, which ends when the worker is lost.

        Raises EncoderUnavailable when there is no worker or it owes too much, FrameTooLarge.
        """
        if len(self._owed) >= OWED_LIMIT:
            raise EncoderUnavailable(f"the worker owes {len(self._owed)} answers")
        frame = pack_frame(request)
        send, receive = trio.open_memory_channel[Reply](math.inf)  # bounded by the worker: see ParseMore
        self._heard = self._heard or not self._owed  # the clock of a hang starts now
        self._owed[request.id] = _Owed(send, isinstance(request, Load | LearnOpen))
        self._write(frame)
        return receive

    def forget(self, request_id: int) -> None:
        """Nobody waits for this one any more; the reply that is owed is dropped when it comes."""
        if owed := self._owed.get(request_id):
            owed.waiter = None

    def ask_more(self, request_id: int) -> None:
        """Ask for the next frame of a parse. Raises EncoderUnavailable when there is no worker."""
        if owed := self._owed.get(request_id):
            owed.due = True
            self._write(pack_frame(ParseMore(id=request_id)))

    def stop(self, request_id: int) -> None:
        """Give up a parse that is not done; nothing when it is, or when there is no worker."""
        if self._owed.pop(request_id, None) is not None:
            with suppress(EncoderUnavailable):
                self._write(pack_frame(ParseStop(id=request_id)))

    async def run(self) -> None:
        """Carry frames both ways until the worker is lost; then `lost` says why and every waiter is told."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._flush)
                nursery.start_soon(self._watch_for_hang, nursery.cancel_scope)
                await self._read()
                nursery.cancel_scope.cancel()
        finally:
            self._lose("the worker ended")

    def _write(self, frame: bytes) -> None:
        if self.lost:
            raise EncoderUnavailable(self.lost)
        sent = 0
        if not self._unsent:
            try:
                sent = os.write(self._fd, frame)
            except BlockingIOError:
                pass
            except OSError as error:
                self._lose(f"the worker's pipe is closed: {error.strerror}")
                raise EncoderUnavailable(self.lost) from None
        if sent < len(frame):
            self._unsent += frame[sent:]
            self._wake_flush.set()

    async def _flush(self) -> None:
        while True:
            await self._wake_flush.wait()
            self._wake_flush = trio.Event()
            while self._unsent:
                await trio.lowlevel.wait_writable(self._fd)
                try:
                    del self._unsent[: os.write(self._fd, self._unsent)]
                except BlockingIOError:
                    continue
                except OSError:
                    return  # the reader sees the end as well, and tells

    async def _read(self) -> None:
        reader = FrameReader()
        while data := await self._replies.receive_some(READ_BYTES):
            self._heard = True
            try:
                for body in reader.feed(data):
                    self._deliver(decode_reply(body))
            except (FrameTooLarge, msgspec.MsgspecError) as error:
                return self._lose(f"the worker sent what is no frame: {error}")
        return None

    def _deliver(self, reply: Reply) -> None:
        owed = self._owed.get(reply.id)
        if owed is None:
            return
        if isinstance(reply, Parsed) and not reply.done:
            owed.due = False
        elif not isinstance(reply, Progress):
            del self._owed[reply.id]
        if owed.waiter is not None:
            owed.waiter.send_nowait(reply)

    async def _watch_for_hang(self, scope: trio.CancelScope) -> None:
        tick = self._hang_seconds / TICKS_TO_HANG
        silent = 0
        while silent * tick < self._patience():
            await trio.sleep(tick)
            waiting = any(owed.due for owed in self._owed.values()) and not self._heard
            silent = silent + 1 if waiting else 0
            self._heard = False
        self._lose(f"the worker gave no answer for {silent * tick:g} s")
        scope.cancel()

    def _patience(self) -> float:
        """Seconds of silence after which the worker counts as hung, as long as it owes what it owes now."""
        loading = any(owed.loading for owed in self._owed.values())
        return self._load_seconds if loading else self._hang_seconds

    def _lose(self, why: str) -> None:
        self.lost = self.lost or why
        owed, self._owed = self._owed, {}
        for each in owed.values():
            if each.waiter is not None:
                each.waiter.close()
