"""The admission rule, as libzmq asks for it."""

from __future__ import annotations

import doctest

import pytest

from recalld_daemon import peers
from recalld_daemon.peers import Admission, uid_in

KEY = bytes(range(32))
RULE = Admission(uid=1000, keys=frozenset([KEY]))


def asked(mechanism: bytes, *credentials: bytes, address: bytes = b"localhost:1000:1000:42") -> list[bytes]:
    return [b"1.0", b"7", b"recalld", address, b"", mechanism, *credentials]


def check(request: list[bytes], status: bytes, user: bytes) -> None:
    answer = RULE.answer(request)
    assert answer[:3] == [b"1.0", request[1] if len(request) > 1 else b"", status]
    assert answer[4] == user
    assert len(answer) == 6


def test_our_own_processes_and_known_keys_are_let_in():
    check(asked(b"NULL"), b"200", b"uid:1000")
    check(asked(b"NULL", address=b":1000:1000:42"), b"200", b"uid:1000")
    check(asked(b"CURVE", KEY, address=b"10.0.0.7"), b"200", b"curve:" + KEY.hex().encode())


@pytest.mark.parametrize(
    "request_",
    [
        asked(b"NULL", address=b"localhost:0:0:1"),
        asked(b"NULL", address=b"localhost:1001:1000:42"),
        asked(b"NULL", address=b"localhost:11000:1000:42"),
        asked(b"NULL", address=b"10.0.0.7"),
        asked(b"NULL", address=b""),
        asked(b"NULL", b"credentials it should not have"),
        asked(b"CURVE", bytes(32), address=b"10.0.0.7"),
        asked(b"CURVE", address=b"10.0.0.7"),
        asked(b"PLAIN", b"user", b"password"),
        [b"2.0", *asked(b"NULL")[1:]],
        [*asked(b"NULL")[:2], b"elsewhere", *asked(b"NULL")[3:]],
        [],
        [b"1.0"],
    ],
)
def test_all_else_is_refused(request_):
    check(request_, b"400", b"")


def test_an_ip_address_holds_no_uid():
    assert uid_in(b"127.0.0.1") is None
    assert uid_in(b"::1") is None
    assert uid_in(b"fe80::1:1000:1000:42") is None


def test_the_examples_in_the_code_are_true():
    assert doctest.testmod(peers).failed == 0
