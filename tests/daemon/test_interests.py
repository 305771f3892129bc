"""The daemon's interests: uses from the log, the focus from queries after their recalls, kept over a restart."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
import trio.testing

from log_house import DAY, DIMS, NOON, LogHouse
from recalld_daemon.interests import SLOW, InterestWatch, bytes_of, focus_key, slow_key
from recalld_daemon.journal import Note
from recalld_daemon.learned import PLAIN
from recalld_daemon.lessons import Ground
from recalld_daemon.recall.adapter import unit
from recalld_daemon.recall.types import Float32, QueryEncoding
from recalld_daemon.recall.usefulness import Interests, Weights
from recalld_daemon.store.rows import StateRecord

A, B = np.eye(DIMS, dtype=np.float32)[:2]


@dataclass
class Clock:
    now: float = NOON + 10

    def __call__(self) -> float:
        return self.now


class TwoWords:
    """Encodes "a" and all else; f_Q has made something else of the vector."""

    async def encode_query(self, text: str) -> QueryEncoding:
        await trio.lowlevel.checkpoint()
        frozen: Float32 = A if text == "a" else B
        return QueryEncoding(unit(A + B), np.empty((0, 4), np.float32), plain=frozen)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[LogHouse]:
    with LogHouse(tmp_path) as house:
        yield house


def ground_of(house: LogHouse, fingerprint: str = "made 1") -> Ground:
    return Ground(house.encoder, fingerprint, DIMS)


def on_trio(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**given: Any) -> None:
        trio.run(partial(test, **given))

    return run


async def begun(house: LogHouse, clock: Clock | None = None) -> InterestWatch:
    watch = InterestWatch(house.reader, clock or Clock())
    watch.stand_on(ground_of(house))
    await watch.refresh()
    return watch


def known(watch: InterestWatch) -> Interests:
    assert watch.now is not None
    return watch.now


@on_trio
async def test_uses_are_counted_as_they_are_labelled(house: LogHouse) -> None:
    ids = house.remember("/n.md", [f"note number {n}" for n in range(8)])
    shown = [(ids[0], "used acted"), (ids[1], "ignored"), (ids[2], "used bad"), (ids[3], "bad good")]
    house.asked("where", [*shown, (ids[4], "used", "withheld"), (ids[5], "good", "withheld"), (ids[6], "unknown")])
    counts = known(await begun(house)).counts
    assert counts.ids.tolist() == [ids[0], ids[3], ids[5]]
    assert counts.amounts == pytest.approx([1.0, 2.0, 6**0.5], rel=1e-4)  # by rank: 1st, 4th, 6th


@on_trio
async def test_the_focus_moves_after_the_recall_by_the_encoders_own_vector(house: LogHouse) -> None:
    watch = await begun(house)
    await watch.hears(TwoWords()).encode_query("a")
    assert not known(watch).fast.any()
    watch.ended("a")
    watch.ended("a")
    watch.ended("never encoded")
    assert known(watch).fast == pytest.approx(0.1 * A)


@on_trio
async def test_a_restart_goes_on_with_the_focus_faded_by_the_time_between(house: LogHouse) -> None:
    clock, notes = Clock(), list[Note]()
    watch = await begun(house, clock)
    await watch.hears(TwoWords()).encode_query("a")
    watch.ended("a")
    watch.keep(notes.append)
    watch.keep(notes.append)
    assert len(notes) == 1  # the second time nothing has moved
    notes[0](house.writer)
    clock.now += 2 * DAY
    again = await begun(house, clock)
    assert known(again).focus(clock.now) == pytest.approx(0.05 * A)
    assert known(again).fast_at == known(watch).fast_at


@on_trio
async def test_a_focus_of_other_settings_or_another_encoder_is_not_gone_on_from(house: LogHouse) -> None:
    other = focus_key(ground_of(house), Weights(fast_days=5.0))
    house.writer.put_state(StateRecord("interests", house.encoder, other, bytes_of(A), NOON))
    assert not known(await begun(house)).fast.any()
    right = focus_key(ground_of(house), Weights())
    house.writer.put_state(StateRecord("interests", house.encoder, right, bytes_of(A), NOON))
    watch = await begun(house)
    assert known(watch).fast.tolist() == A.tolist()
    watch.stand_on(ground_of(house, "another"))
    assert watch.current() is None


@pytest.mark.parametrize(
    "data",
    [b"broken", bytes_of(A[:3]), bytes_of(7 * A), bytes_of(A * np.float32(np.nan))],
    ids=["no", "narrow", "long", "nan"],
)
@on_trio
async def test_a_state_that_cannot_be_used_costs_itself_only(house: LogHouse, data: bytes) -> None:
    key = focus_key(ground_of(house), Weights())
    house.writer.put_state(StateRecord("interests", house.encoder, key, data, NOON))
    assert not known(await begun(house)).fast.any()


@on_trio
async def test_the_long_term_interests_are_the_nights_and_no_version_resets_them(house: LogHouse) -> None:
    ground = ground_of(house)
    house.writer.put_state(StateRecord(SLOW, house.encoder, slow_key(ground), bytes_of(B), NOON))
    watch = await begun(house)
    await watch.hears(TwoWords()).encode_query("a")
    watch.ended("a")
    watch.stand_on(replace(ground, learned=replace(PLAIN, version=3, usefulness=Weights(fast_days=1.0).to_bytes())))
    await watch.refresh()
    assert known(watch).slow.tolist() == B.tolist()
    assert known(watch).fast.any()


@on_trio
async def test_it_is_read_when_the_encoder_is_known_and_again(house: LogHouse) -> None:
    ids = house.remember("/n.md", ["a note"])
    watch = InterestWatch(house.reader, Clock())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.serve, lambda note: None)
        await trio.testing.wait_all_tasks_blocked()
        assert watch.current() is None
        watch.stand_on(ground_of(house))
        while watch.current() is None:
            await trio.lowlevel.checkpoint()
        house.asked("where", [(ids[0], "used")])
        await watch.refresh()
        nursery.cancel_scope.cancel()
    assert known(watch).counts.ids.tolist() == ids


@on_trio
async def test_what_was_used_moves_the_focus_once_also_over_a_restart(house: LogHouse) -> None:
    ids = house.remember("/n.md", ["a note"])
    (vector,) = unit(house.reader.plain_vectors(ids, house.encoder)[1])
    house.asked("where", [(ids[0], "used")], at=NOON)
    clock, notes = Clock(), list[Note]()
    watch = await begun(house, clock)
    await watch.refresh()
    assert known(watch).fast == pytest.approx(0.1 * vector, abs=1e-3)
    watch.keep(notes.append)
    notes[0](house.writer)
    again = await begun(house, clock)
    assert known(again).fast.tolist() == known(watch).fast.tolist()
    house.asked("where else", [(ids[0], "acted")], at=NOON + 5)
    await again.refresh()
    assert known(again).fast == pytest.approx(0.19 * vector, abs=1e-3)
