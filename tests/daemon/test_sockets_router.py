"""The request socket: right answers to the right peers, and peers that are slow, gone, foreign or hostile."""

from __future__ import annotations

import os
import socket as unix
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import zmq

from recalld_daemon.sockets import Sockets, TcpBinding
from recalld_protocol.endpoints import EVENTS_SOCKET, REQUEST_SOCKET, socket_path
from recalld_protocol.errors import EndpointError
from recalld_protocol.wire import AGENT_FRAME_LIMIT
from zmq_peers import body, nothing_arrives, run, serving

DEALERS, ROUNDS = 50, 40


async def echo(sockets: Sockets, answers: int) -> None:
    """Each answer from a task of its own, in whatever order they come to run."""

    async def answer(identity: bytes, frame: bytes) -> None:
        await trio.lowlevel.checkpoint()
        assert sockets.router.send_nowait(identity, b"re:" + frame)

    async with trio.open_nursery() as nursery:
        for _ in range(answers):
            with trio.CancelScope() as scope:
                scope.cancel()  # a cancelled receive between any two loses nothing
                await sockets.router.receive()
            got = await sockets.router.receive()
            assert got.peer_uid == os.getuid()
            nursery.start_soon(answer, got.identity, got.frame)


def test_fifty_dealers_each_get_all_their_own_answers(tmp_path):
    async def check() -> None:
        async with serving(tmp_path) as (where, sockets, made):

            async def ask(name: int) -> None:
                dealer = made.dealer(where.request)
                for number in range(ROUNDS):
                    await dealer.send(f"{name}/{number}".encode())
                expected = {f"re:{name}/{number}".encode() for number in range(ROUNDS)}
                assert {await body(dealer) for _ in range(ROUNDS)} == expected

            async with trio.open_nursery() as nursery:
                nursery.start_soon(echo, sockets, DEALERS * ROUNDS)
                for name in range(DEALERS):
                    nursery.start_soon(ask, name)

    run(check)


def test_an_unknown_or_vanished_identity_is_no_error(tmp_path):
    async def check() -> None:
        async with serving(tmp_path) as (where, sockets, made):
            assert not sockets.router.send_nowait(b"nobody", b"x")
            dealer = made.dealer(where.request)
            await dealer.send(b"hi")
            identity = (await sockets.router.receive()).identity
            dealer.close()
            while sockets.router.send_nowait(identity, b"x"):
                await trio.lowlevel.checkpoint()

    run(check)


def test_a_peer_that_does_not_read_is_told_nothing_more_and_blocks_nobody(tmp_path):
    async def check() -> None:
        async with serving(tmp_path) as (where, sockets, made):
            deaf = made.dealer(where.request, RCVHWM=1)
            await deaf.send(b"hi")
            identity = (await sockets.router.receive()).identity
            sent = 0
            while sockets.router.send_nowait(identity, bytes(100_000)):
                sent += 1
                await trio.lowlevel.checkpoint()
            assert sent < 5_000
            other = made.dealer(where.request)
            await other.send(b"hello")
            got = await sockets.router.receive()
            assert sockets.router.send_nowait(got.identity, b"welcome")
            assert await body(other) == b"welcome"

    run(check)


def test_messages_of_other_than_one_frame_are_dropped_and_counted(tmp_path):
    async def check() -> None:
        async with serving(tmp_path) as (where, sockets, made):
            dealer = made.dealer(where.request)
            await dealer.send(b"", b"as a REQ socket would")
            await dealer.send(*[bytes(1000)] * 500)
            await dealer.send(b"proper")
            assert (await sockets.router.receive()).frame == b"proper"
            assert sockets.router.dropped == 2

    run(check)


def test_an_oversize_frame_costs_the_connection_and_the_peer_comes_back(tmp_path):
    async def check() -> None:
        async with serving(tmp_path) as (where, sockets, made):
            dealer = made.dealer(where.request, ROUTING_ID=b"big")
            await dealer.send(bytes(AGENT_FRAME_LIMIT))
            assert len((await sockets.router.receive()).frame) == AGENT_FRAME_LIMIT
            await dealer.send(bytes(AGENT_FRAME_LIMIT + 1))
            received: list[bytes] = []

            async def receive() -> None:
                received.append((await sockets.router.receive()).frame)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                while not received:  # what is sent into the closing connection is lost with it
                    dealer.send_nowait(b"again")
                    await trio.lowlevel.checkpoint()
            assert received == [b"again"]

    run(check)


def test_p048_another_users_process_is_refused(tmp_path):
    """The rule names another uid than ours, so we are the foreigner."""

    async def check() -> None:
        async with serving(tmp_path, uid=os.getuid() + 1) as (where, sockets, made):
            dealer = made.raw(zmq.DEALER)
            failures = made.adopt(dealer.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH))
            dealer.connect(where.request)
            stranger = made.adopt(dealer)
            await stranger.send(b"let me in")
            await failures.receive(most=2)
            await nothing_arrives(sockets)

    run(check)


NOBODY = 65534
FOREIGN_PROBE = f"""
import os, sys, zmq
socket = zmq.Context().socket(zmq.DEALER)
monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_SUCCEEDED)
os.setgroups([])
os.setuid({NOBODY})
socket.connect(sys.argv[1])
print(int.from_bytes(monitor.recv_multipart()[0][:2], "little"))
socket.context.destroy(0)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_p048_a_second_uid_is_refused_even_where_the_files_let_it_through():
    async def check(directory: Path) -> None:
        async with serving(directory) as (where, sockets, made):
            directory.chmod(0o755)
            socket_path(where.request).chmod(0o666)
            probe = await trio.run_process([sys.executable, "-c", FOREIGN_PROBE, where.request], capture_stdout=True)
            assert int(probe.stdout) == zmq.EVENT_HANDSHAKE_FAILED_AUTH
            friend = made.dealer(where.request)
            await friend.send(b"me")
            assert (await sockets.router.receive()).frame == b"me"

    with tempfile.TemporaryDirectory() as directory:  # tmp_path lies in a directory that others can't enter
        run(check, Path(directory))


def test_a_peer_without_a_handshake_delivers_nothing(tmp_path):
    """ZMTP 1 has none: without an admission rule libzmq takes such bytes for a message."""

    async def check() -> None:
        async with serving(tmp_path) as (where, sockets, made):
            old = await trio.open_unix_socket(str(socket_path(where.request)))
            async with old:
                await old.send_all(b"\x01\x00" + b"\x06\x00hello")
                assert (await read_to_end(old)) is not None
            friend = made.dealer(where.request)
            await friend.send(b"me")
            assert (await sockets.router.receive()).frame == b"me"

    run(check)


async def read_to_end(stream: trio.SocketStream) -> bytes:
    got = b""
    try:
        async for chunk in stream:
            got += chunk
    except trio.BrokenResourceError:
        pass  # reset: an end as well
    return got


def test_socket_files_are_private_and_go_away(tmp_path):
    async def check() -> None:
        async with serving(tmp_path):
            for name in (REQUEST_SOCKET, EVENTS_SOCKET):
                assert stat.S_IMODE((tmp_path / name).lstat().st_mode) == 0o600

    umask = os.umask(0o022)
    try:
        run(check)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(umask)
    assert list(tmp_path.iterdir()) == []


def test_a_dead_daemons_socket_file_is_replaced_anything_else_is_not(tmp_path):
    async def check() -> None:
        with unix.socket(unix.AF_UNIX) as left_behind:
            left_behind.bind(str(tmp_path / REQUEST_SOCKET))
        async with serving(tmp_path) as (where, sockets, made):
            dealer = made.dealer(where.request)
            await dealer.send(b"hi")
            assert (await sockets.router.receive()).frame == b"hi"
        (tmp_path / EVENTS_SOCKET).write_text("notes")
        with pytest.raises(EndpointError, match=r"pub\.sock is in the way"):
            async with serving(tmp_path):
                pass
        assert (tmp_path / EVENTS_SOCKET).read_text() == "notes"
        assert not (tmp_path / REQUEST_SOCKET).exists()

    run(check)


def test_a_successors_socket_file_is_left_alone(tmp_path):
    async def check() -> None:
        async with serving(tmp_path):
            (tmp_path / REQUEST_SOCKET).unlink()
            (tmp_path / REQUEST_SOCKET).write_text("another's")

    run(check)
    assert (tmp_path / REQUEST_SOCKET).read_text() == "another's"


def descriptors() -> dict[int, bool]:
    """Each open descriptor, and whether a child would inherit it."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own
            found[int(name)] = os.get_inheritable(int(name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_no_descriptor_leaks_and_no_child_inherits_one(tmp_path):
    async def check() -> None:
        before = descriptors()
        async with serving(tmp_path) as (where, sockets, made):
            dealer = made.dealer(where.request)
            await dealer.send(b"hi")
            await sockets.router.receive()
            ours = {fd: inheritable for fd, inheritable in descriptors().items() if fd not in before}
            assert len(ours) > 5
            assert not any(ours.values())
        assert descriptors() == before

    run(check)
    run(check)


def test_closing_does_not_wait_for_peers_with_unread_answers(tmp_path):
    async def check() -> None:
        async with serving(tmp_path) as (where, sockets, made):
            deaf = made.dealer(where.request, RCVHWM=1)
            await deaf.send(b"hi")
            identity = (await sockets.router.receive()).identity
            while sockets.router.send_nowait(identity, bytes(100_000)):
                await trio.lowlevel.checkpoint()

    run(check)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "tcp://nowhere.invalid:99999"])
def test_an_address_that_cannot_be_bound_is_named(tmp_path, address):
    public, secret = zmq.curve_keypair()

    async def check() -> None:
        with pytest.raises(EndpointError, match=address):
            async with serving(tmp_path, TcpBinding(address, secret, frozenset([public]))):
                pass

    run(check)
    assert list(tmp_path.iterdir()) == []
