"""The backlog when the space to embed into comes late: what was chosen before is not lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing

from recalld_daemon.ingest.embedding import Embedding
from recalld_daemon.ingest.ports import Space
from recalld_daemon.ingest.turns import Turns


@dataclass
class AttachedMeanwhile:
    """A store whose space is set while the backlog is read: it has a text as soon as it is asked."""

    space: Space | None = None
    kept: list[bytes] = field(default_factory=list)

    def missing(self, limit: int) -> list[tuple[bytes, str]]:
        return [] if self.kept else [(b"hash", "text")]

    def put(self, space: Space, hashes: Sequence[bytes], encoded: object) -> int:
        self.kept += hashes
        return len(hashes)


class Ready:
    """Files that are all read, and a worker that is there."""

    async def wait_idle(self) -> None:
        await trio.lowlevel.checkpoint()

    async def wait_ready(self) -> None:
        await trio.lowlevel.checkpoint()

    async def encode_passages(self, texts: Sequence[str]) -> None:
        await trio.lowlevel.checkpoint()


async def turn(work: Callable[[], int]) -> int:
    await trio.lowlevel.checkpoint()
    return work()


def test_a_space_that_is_attached_while_the_backlog_is_read_gets_all_of_it() -> None:
    async def main() -> None:
        keeping, ready = AttachedMeanwhile(), Ready()
        parts: Any = (keeping, ready, Turns(), ready, turn, trio.lowlevel.checkpoint, lambda what, **data: None)
        embedding = Embedding(*parts)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(embedding.run)
            await trio.testing.wait_all_tasks_blocked()
            keeping.space = Space(1, 0)
            embedding.wake()
            with trio.fail_after(30):
                await embedding.wait_idle()
            nursery.cancel_scope.cancel()
        assert keeping.kept == [b"hash"]
        assert embedding.embedded == 1

    trio.run(main)
