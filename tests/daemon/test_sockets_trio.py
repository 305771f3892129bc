"""Our ZeroMQ on trio: no message is lost or doubled, whatever is cancelled, however many tasks share a socket."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing
import zmq

from recalld_daemon.sockets import TrioSocket
from zmq_peers import Peers, body, peers, run

MESSAGES = 5_000


def pair(made: Peers, first: int, second: int, address: str, **options: int) -> tuple[TrioSocket, TrioSocket]:
    bound = made.raw(first, **options)
    bound.bind(address)
    connected = made.raw(second, **options)
    connected.connect(address)
    return made.adopt(bound), made.adopt(connected)


async def impatient(socket: TrioSocket, rng: random.Random) -> bytes | None:
    with trio.move_on_after(rng.random() * 0.0006):
        return await body(socket)
    return None


@pytest.mark.parametrize("receivers", [1, 4])
def test_no_message_is_lost_or_doubled_when_receivers_are_cancelled(tmp_path, receivers):
    seen: list[int] = []
    cancelled = 0

    async def check() -> None:
        with peers() as made:
            sink, source = pair(made, zmq.PULL, zmq.PUSH, f"ipc://{tmp_path}/s", SNDHWM=100, RCVHWM=100)

            async def receive(rng: random.Random) -> None:
                nonlocal cancelled
                while len(seen) < MESSAGES:
                    got = await impatient(sink, rng)
                    if got is None:
                        cancelled += 1
                    else:
                        seen.append(int(got))

            async with trio.open_nursery() as nursery:
                for seed in range(receivers):
                    nursery.start_soon(receive, random.Random(seed))
                for number in range(MESSAGES):
                    await source.send(b"%d" % number)

    run(check)
    assert sorted(seen) == list(range(MESSAGES))
    assert cancelled > 0
    if receivers == 1:
        assert seen == list(range(MESSAGES))


def test_a_cancelled_send_was_not_sent(tmp_path):
    async def check() -> None:
        with peers() as made:
            sink, source = pair(made, zmq.PULL, zmq.PUSH, f"ipc://{tmp_path}/s", SNDHWM=10, RCVHWM=10)
            rng = random.Random(7)
            sent: list[bytes] = []
            got: list[bytes] = []

            async def receive() -> None:
                while (frame := await body(sink)) != b"end":
                    got.append(frame)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                for number in range(2_000):
                    with trio.move_on_after(rng.random() * 0.0001):
                        await source.send(b"%d" % number)
                        sent.append(b"%d" % number)
                await source.send(b"end")
            assert got == sent
            assert len(sent) > 0

    run(check)


def test_sends_of_other_tasks_do_not_swallow_the_edge_a_receiver_waits_for(tmp_path):
    """The trap: both directions on one socket; a send processes the command that announces an arrival."""

    async def check() -> None:
        with peers() as made:
            left, right = pair(made, zmq.DEALER, zmq.DEALER, f"ipc://{tmp_path}/s")
            got = {left: 0, right: 0}

            async def send(socket: TrioSocket) -> None:
                for number in range(1_000):
                    await socket.send(b"%d" % number)

            async def receive(socket: TrioSocket) -> None:
                while got[socket] < 1_000:
                    assert int(await body(socket)) == got[socket]
                    got[socket] += 1

            async with trio.open_nursery() as nursery:
                for socket in (left, right):
                    nursery.start_soon(receive, socket)
                    nursery.start_soon(send, socket)

    run(check)


def test_closing_wakes_all_who_wait(tmp_path):
    async def check() -> None:
        with peers() as made:
            socket = made.raw(zmq.PULL)
            socket.bind(f"ipc://{tmp_path}/s")
            waiting = made.adopt(socket)
            woken = 0

            async def receive() -> None:
                nonlocal woken
                with pytest.raises(trio.ClosedResourceError):
                    await waiting.receive()
                woken += 1

            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(receive)
                await trio.testing.wait_all_tasks_blocked()
                waiting.close()
            assert woken == 3
            with pytest.raises(trio.ClosedResourceError):
                waiting.send_nowait(b"x")

    run(check)


def test_frames_past_the_wanted_ones_are_counted_and_dropped(tmp_path):
    async def check() -> None:
        with peers() as made:
            sink, source = pair(made, zmq.PULL, zmq.PUSH, f"ipc://{tmp_path}/s")
            await source.send(*[b"x"] * 1_000)
            await source.send(b"next")
            frames, count = await sink.receive(most=2)
            assert ([frame.bytes for frame in frames], count) == ([b"x", b"x"], 1_000)
            assert await body(sink) == b"next"

    run(check)
