"""f_K over batches: the same as the daemon's numpy at either precision, within what is kept as float16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recalld_daemon.adapters import project
from recalld_daemon.adapters.project import ROWS, Precision, Projector
from recalld_daemon.recall.adapter import Adapter, unit
from recalld_daemon.recall.types import Float32
from recalld_daemon.sleep.building import WIDEST


def key(dims: int = 384, size: float = 0.2) -> Adapter:
    rng = np.random.default_rng(1)
    born = Adapter.born(dims)
    w2, b2 = (rng.normal(size=part.shape).astype(np.float32) * np.float32(size) for part in (born.w2, born.b2))
    return replace(born, w2=w2, b2=(0.1 * b2).astype(np.float32))


def rows(n: int, dims: int = 384) -> Float32:
    return unit(np.random.default_rng(2).normal(size=(n, dims)).astype(np.float32))


@pytest.mark.parametrize(("precision", "within"), [("float32", 1e-3), ("bfloat16", WIDEST)])
@pytest.mark.parametrize("count", [1, ROWS - 1, ROWS, 2 * ROWS + 7])
def test_it_is_the_daemons_own_adapter(precision: Precision, within: float, count: int) -> None:
    vectors, f_k = rows(count), key()
    exact = f_k.apply(vectors)
    found = Projector(f_k, precision)(vectors)
    assert (found.dtype, found.shape) == (np.float16, vectors.shape)
    assert np.linalg.norm(exact - vectors, axis=1).mean() > 0.2  # it does move
    assert np.linalg.norm(found.astype(np.float32) - exact, axis=1).max() < within


def test_stored_rows_are_taken_as_they_are_and_not_written_into() -> None:
    vectors = rows(10).astype(np.float16)
    before = vectors.copy()
    found = Projector(key(), "float32")(vectors)
    np.testing.assert_array_equal(vectors, before)
    np.testing.assert_array_equal(found, Projector(key(), "float32")(vectors.astype(np.float32)))


def test_a_newborn_key_moves_nothing() -> None:
    vectors = rows(5)
    found = Projector(Adapter.born(384), "bfloat16")(vectors)
    np.testing.assert_allclose(found.astype(np.float32), vectors, atol=1e-3)


def test_no_rows_are_no_trouble() -> None:
    assert Projector(key(), "float32")(np.empty((0, 384), np.float32)).shape == (0, 384)


def test_the_faster_precision_is_chosen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def fastest(weights: object, sample: Float32) -> Precision:
        asked.append(len(sample))
        return "bfloat16"

    monkeypatch.setattr(project, "fastest", fastest)
    projector = Projector(key())
    assert projector.how == "not measured yet"
    for _ in range(2):
        projector(rows(3_000))
    assert (projector.how, asked) == ("bfloat16", [ROWS])


def test_it_is_measured_here_too() -> None:
    projector = Projector(key())
    projector(rows(16))
    assert projector.how in ("float32", "bfloat16")
