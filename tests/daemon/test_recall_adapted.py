"""f_Q on a query's way: applied as it is now, and never in the way of plain search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
import trio
from hypothesis import given
from hypothesis import strategies as st

from recalld_daemon.recall.adapted import AdaptedEncoder, adapted
from recalld_daemon.recall.adapter import Adapter, AdapterUnreadable, unit
from recalld_daemon.recall.types import EncoderUnavailable, QueryEncoding

PLAIN = QueryEncoding(unit(np.arange(1, 9, dtype=np.float32)), np.ones((3, 2), np.float32))
LEARNED = replace(Adapter.born(8, hidden=4), b2=np.linspace(-1, 1, 8, dtype=np.float32))


class Fixed:
    async def encode_query(self, text: str) -> QueryEncoding:
        if text == "loading":
            raise EncoderUnavailable("loading")
        return PLAIN


def test_the_adapter_of_this_moment_is_applied() -> None:
    adapters: list[Adapter | None] = [None, Adapter.born(8), LEARNED]
    encoder = AdaptedEncoder(Fixed(), lambda: adapters.pop(0))
    plain, born, learned = (trio.run(encoder.encode_query, "q") for _ in range(3))
    assert plain is PLAIN
    assert born is PLAIN  # day one is plain search, bit for bit
    np.testing.assert_array_equal(learned.vector, LEARNED.apply(PLAIN.vector))
    np.testing.assert_array_equal(learned.frozen, PLAIN.vector)
    assert learned.tokens is PLAIN.tokens
    with pytest.raises(EncoderUnavailable):
        trio.run(AdaptedEncoder(Fixed(), lambda: None).encode_query, "loading")


@pytest.mark.parametrize(
    "broken",
    [
        replace(Adapter.born(9), b2=np.ones(9, np.float32)),
        replace(LEARNED, b2=np.full(8, np.nan, np.float32)),
        replace(LEARNED, w1=np.full((4, 8), np.inf, np.float32)),
        replace(LEARNED, b2=np.full(8, 1e30, np.float32)),  # its length is more than a number can be: all is nought
    ],
    ids=["another width", "not a number", "without bounds", "overflow"],
)
@pytest.mark.filterwarnings("ignore:(invalid value|overflow):RuntimeWarning")
def test_a_broken_adapter_leaves_the_plain_vector(broken: Adapter) -> None:
    assert adapted(PLAIN, broken) is PLAIN


@given(st.integers(0, 2**63), st.integers(0, 7))
def test_a_bit_that_has_changed_on_disk_is_noticed(place: int, bit: int) -> None:
    data = bytearray(LEARNED.to_bytes())
    assert Adapter.from_bytes(bytes(data)).to_bytes() == data
    values = 8 + int.from_bytes(data[:8], "little")
    data[values + place % (len(data) - values)] ^= 1 << bit
    with pytest.raises(AdapterUnreadable, match="not those that were written"):
        Adapter.from_bytes(bytes(data))


def test_an_adapter_without_a_checksum_is_read() -> None:
    parts = safetensors.numpy.load(LEARNED.to_bytes())
    del parts["check"]
    again = Adapter.from_bytes(safetensors.numpy.save(parts))
    np.testing.assert_array_equal(again.b2, LEARNED.b2)
