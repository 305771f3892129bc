"""The event socket: nothing is made that nobody listens for, and a slow listener holds up nobody."""

from __future__ import annotations

import os

import pytest
import trio
import zmq

from recalld_daemon.sockets import EVENT_QUEUE, EventPublisher, TrioSocket
from zmq_peers import run, serving


async def until(events: EventPublisher, topic: str, wanted: bool) -> None:
    while events.wanted(topic) != wanted:
        await trio.lowlevel.checkpoint()


async def event(socket: TrioSocket) -> tuple[bytes, bytes]:
    (topic, body), count = await socket.receive(most=2)
    assert count == 2
    return topic.bytes, body.bytes


def test_wanted_follows_subscriptions_by_prefix(tmp_path):
    async def check() -> None:
        async with serving(tmp_path) as (where, sockets, made):
            events = sockets.events
            assert not events.wanted("recall.settled")
            first = made.subscriber(where.events, b"recall.")
            second = made.subscriber(where.events, b"recall.")
            await until(events, "recall.settled", True)
            assert not events.wanted("ingest.file")
            events.publish_nowait("ingest.file", b"unheard")
            events.publish_nowait("recall.settled", b"1")
            assert await event(first) == (b"recall.settled", b"1")
            first.close()
            everything = made.subscriber(where.events)
            await until(events, "ingest.file", True)
            second.close()
            everything.close()
            await until(events, "recall.settled", False)
            assert not events.wanted("ingest.file")

    run(check)


def test_a_slow_subscriber_misses_the_newest_and_blocks_nobody(tmp_path):
    async def check() -> None:
        async with serving(tmp_path) as (where, sockets, made):
            slow = made.subscriber(where.events, b"a", RCVHWM=10)
            await until(sockets.events, "a", True)
            total = 20 * EVENT_QUEUE
            for number in range(total):
                sockets.events.publish_nowait("a", b"%d" % number)
            quick = made.subscriber(where.events, b"b")
            await until(sockets.events, "b", True)
            sockets.events.publish_nowait("b", b"here")
            assert await event(quick) == (b"b", b"here")
            assert [await event(slow) for _ in range(3)] == [(b"a", b"0"), (b"a", b"1"), (b"a", b"2")]

    run(check)


def test_what_is_no_subscription_is_ignored(tmp_path):
    async def check() -> None:
        async with serving(tmp_path) as (where, sockets, made):
            raw = made.raw(zmq.XSUB)
            raw.connect(where.events)
            odd = made.adopt(raw)
            await odd.send(b"\x07hello")
            await odd.send(b"\x01x", b"second frame")
            await odd.send(b"\x01good")
            await until(sockets.events, "good", True)
            assert not sockets.events.wanted("hello")

    run(check)


def test_p048_events_are_kept_from_other_users(tmp_path):
    async def check() -> None:
        async with serving(tmp_path, uid=os.getuid() + 1) as (where, sockets, made):
            raw = made.raw(zmq.SUB)
            refusals = made.adopt(raw.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH))
            raw.connect(where.events)
            raw.setsockopt(zmq.SUBSCRIBE, b"")
            made.adopt(raw)
            await refusals.receive(most=2)
            assert not sockets.events.wanted("recall.settled")

    run(check)


def test_an_exception_in_the_body_leaves_nothing_behind(tmp_path):
    async def check() -> None:
        async with serving(tmp_path):
            raise KeyError("the daemon's own")

    with pytest.RaisesGroup(KeyError):
        run(check)
    assert list(tmp_path.iterdir()) == []
