"""TCP: encrypted or not at all, and only for known keys."""

from __future__ import annotations

import pytest
import zmq

from recalld_daemon.sockets import TcpBinding
from recalld_protocol.errors import EndpointError
from zmq_peers import Peers, body, nothing_arrives, run, serving

DAEMON_PUBLIC, DAEMON_SECRET = zmq.curve_keypair()
FRIEND_PUBLIC, FRIEND_SECRET = zmq.curve_keypair()
STRANGER_PUBLIC, STRANGER_SECRET = zmq.curve_keypair()
TCP = TcpBinding("tcp://127.0.0.1:*", DAEMON_SECRET, frozenset([FRIEND_PUBLIC]))

FRIEND = {"CURVE_SERVERKEY": DAEMON_PUBLIC, "CURVE_PUBLICKEY": FRIEND_PUBLIC, "CURVE_SECRETKEY": FRIEND_SECRET}
STRANGER = {**FRIEND, "CURVE_PUBLICKEY": STRANGER_PUBLIC, "CURVE_SECRETKEY": STRANGER_SECRET}
FOOLED = {**FRIEND, "CURVE_SERVERKEY": STRANGER_PUBLIC}
REFUSALS = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED


async def turned_away(made: Peers, address: str, options: dict[str, bytes]) -> None:
    """Returns once libzmq has told that the handshake came to nothing."""
    dealer = made.raw(zmq.DEALER, **options)
    monitor = made.adopt(dealer.get_monitor_socket(REFUSALS))
    dealer.connect(address)
    await made.adopt(dealer).send(b"let me in")
    await monitor.receive(most=2)


def test_a_known_key_is_served_and_unix_peers_still_are(tmp_path):
    async def check() -> None:
        async with serving(tmp_path, TCP) as (where, sockets, made):
            assert sockets.tcp_address
            far, near = made.dealer(sockets.tcp_address, **FRIEND), made.dealer(where.request)
            for dealer, is_far in ((far, True), (near, False)):
                await dealer.send(b"hi")
                got = await sockets.router.receive()
                assert (got.peer_uid is None) == is_far
                assert sockets.router.send_nowait(got.identity, b"welcome")
                assert await body(dealer) == b"welcome"

    run(check)


@pytest.mark.parametrize("options", [STRANGER, FOOLED, {}], ids=["unknown key", "wrong server key", "no encryption"])
def test_who_lacks_a_known_key_is_turned_away_and_nothing_is_delivered(tmp_path, options):
    async def check() -> None:
        async with serving(tmp_path, TCP) as (_, sockets, made):
            assert sockets.tcp_address
            await turned_away(made, sockets.tcp_address, options)
            friend = made.dealer(sockets.tcp_address, **FRIEND)
            await friend.send(b"me")
            assert (await sockets.router.receive()).frame == b"me"
            await nothing_arrives(sockets)

    run(check)


@pytest.mark.parametrize(
    ("tcp", "complaint"),
    [
        (TcpBinding(TCP.address, b"short", TCP.client_keys), "the daemon's secret key must be 40"),
        (TcpBinding(TCP.address, DAEMON_SECRET, frozenset([b"~" * 40])), "a client's public key must be 40"),
        (TcpBinding(TCP.address, DAEMON_SECRET, frozenset()), "no client key"),
        (TcpBinding("ipc:///x", DAEMON_SECRET, TCP.client_keys), "a TCP address reads"),
    ],
)
def test_bad_keys_are_told_before_anything_is_served(tmp_path, tcp, complaint):
    async def check() -> None:
        with pytest.raises(EndpointError, match=complaint):
            async with serving(tmp_path, tcp):
                pass

    run(check)
    assert list(tmp_path.iterdir()) == []
