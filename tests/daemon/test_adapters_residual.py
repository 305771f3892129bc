"""The module that is learned computes what the daemon applies; Adam here is torch's; time in interests runs one way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lessons_made import DIMS, one_shift, units
from recalld_daemon.adapters.adam import Adam
from recalld_daemon.adapters.interests import interests_before
from recalld_daemon.adapters.residual import Residual, tensor
from recalld_daemon.recall.adapter import Adapter, gelu, unit
from recalld_daemon.recall.types import Float32

seeds = st.integers(0, 2**32 - 1)


def learned(seed: int, dims: int = DIMS, hidden: int = 8, alpha: float = 0.3, size: float = 0.5) -> Adapter:
    rng = np.random.default_rng(seed)
    shapes = ((hidden, dims), (hidden,), (dims, hidden), (dims,))
    return Adapter(*(size * rng.normal(size=shape).astype(np.float32) for shape in shapes), alpha)


@given(seeds, st.integers(1, 40), st.integers(1, 40), st.floats(0.0, 2.0), st.floats(0.01, 3.0))
def test_both_forms_agree(seed: int, dims: int, hidden: int, alpha: float, size: float) -> None:
    adapter = learned(seed, dims, hidden, alpha, size)
    x = units(np.random.default_rng(seed + 1), 5, dims)
    with torch.no_grad():
        by_torch = Residual(adapter)(tensor(x)).numpy()
    hidden = gelu(x @ adapter.w1.T + adapter.b1)
    raw = x + alpha * (hidden @ adapter.w2.T + adapter.b2)
    terms = np.abs(x) + alpha * (np.abs(hidden) @ np.abs(adapter.w2).T + np.abs(adapter.b2))
    cancelled = np.linalg.norm(terms, axis=1) / np.linalg.norm(raw, axis=1)  # where it is much, rounding is all
    np.testing.assert_array_less(np.abs(by_torch - adapter.apply(x)).max(axis=1), 1e-5 * np.maximum(1.0, cancelled / 4))


@given(seeds)
def test_there_and_back_is_the_same_adapter(seed: int) -> None:
    adapter = learned(seed)
    back = Residual(adapter).to_adapter()
    for part in ("w1", "b1", "w2", "b2"):
        np.testing.assert_array_equal(getattr(back, part), getattr(adapter, part))
    assert back.alpha == adapter.alpha


@given(seeds, st.floats(0.1, 10.0))
def test_on_day_one_it_is_the_identity(seed: int, length: float) -> None:
    x = np.float32(length) * units(np.random.default_rng(seed), 7, DIMS)
    born = Adapter.born(DIMS, seed=seed)
    with torch.no_grad():
        np.testing.assert_allclose(Residual(born)(tensor(x)).numpy(), unit(x), atol=1e-6)
    np.testing.assert_allclose(born.apply(x), unit(x), atol=1e-6)


def test_parameters_are_one_flat_tensor_and_so_are_gradients() -> None:
    module = Residual(learned(0))
    module(tensor(units(np.random.default_rng(1), 3, DIMS))).sum().backward()
    whole = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    assert torch.equal(whole, module.flat_gradient)
    with torch.no_grad():
        module.flat.zero_()
    assert not any(p.any() for p in module.parameters())


def test_dropout_only_while_training_and_by_its_own_chance() -> None:
    module, x = Residual(learned(0), dropout=0.5), tensor(units(np.random.default_rng(1), 3, DIMS))
    plain = Residual(learned(0))(x)
    assert torch.equal(module.eval()(x), plain)
    module.train()
    module.chance.manual_seed(7)
    first = module(x)
    torch.manual_seed(0)  # nobody else's
    torch.rand(9)
    module.chance.manual_seed(7)
    assert torch.equal(module(x), first)
    assert not torch.equal(first, plain)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_steps_as_the_library_does(decay: float) -> None:
    ours, theirs = Residual(learned(3)), Residual(learned(3))
    adam = Adam([ours], 1e-2, decay)
    library = torch.optim.AdamW(theirs.parameters(), lr=1e-2, weight_decay=decay)
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, to = tensor(units(rng, 4, DIMS)), tensor(units(rng, 4, DIMS))
        for module in (ours, theirs):
            module.flat_gradient.zero_()
            (-(module(x) * to).sum()).backward()
        assert adam.step()
        library.step()
        torch.testing.assert_close(ours.flat, theirs.flat, atol=2e-6, rtol=1e-4)


def test_a_gradient_that_is_no_number_changes_nothing() -> None:
    module = Residual(learned(3))
    adam, before = Adam([module], 1e-2), module.flat.clone()
    module.flat_gradient[5] = float("nan")
    assert not adam.step()
    assert torch.equal(module.flat, before)
    assert adam.steps == 0
    assert not adam.means[0].any()


def test_a_long_gradient_is_clipped() -> None:
    module = Residual(learned(3))
    adam = Adam([module], 1e-2)
    module.flat_gradient.fill_(1000.0)
    adam.step(most_gradient=2.0)
    assert float(adam.means[0].norm()) == pytest.approx(0.2, rel=1e-4)  # a tenth of the clipped gradient


# ---------------------------------------------------------------- interests


def naive_interests(pairs_at: list[float], used: Float32, share: float) -> Float32:
    found = []
    for at in pairs_at:
        mean = np.zeros(used.shape[1])
        for n in np.argsort(pairs_at, kind="stable"):
            if pairs_at[n] < at:
                mean = (1 - share) * mean + share * used[n]
        found.append(mean)
    return np.array(found, np.float32)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_interests_are_those_before_each_query(at: list[int]) -> None:
    made = replace(one_shift(len(at)), at=np.array(at, np.float64))
    before = interests_before(made, 0.1, 0.5)
    used = np.stack([made.memories[gold[0]] for gold in made.gold])
    np.testing.assert_allclose(before.slow, naive_interests([float(t) for t in at], used, 0.1), atol=1e-6)
    np.testing.assert_allclose(before.fast, naive_interests([float(t) for t in at], used, 0.5), atol=1e-6)


@given(st.lists(st.integers(0, 6), min_size=2, max_size=12), st.data())
def test_interests_never_look_ahead(at: list[int], data: st.DataObject) -> None:
    """What is used at or after a moment changes nothing that was before or at it."""
    made = replace(one_shift(len(at)), at=np.array(at, np.float64))
    n = data.draw(st.integers(0, len(at) - 1))
    other = list(made.gold)
    other[n] = (other[n] + 1) % len(made.memories)
    was, now = (
        interests_before(made, half_life_seconds=3.0),
        interests_before(replace(made, gold=other), half_life_seconds=3.0),
    )
    earlier = made.at <= made.at[n]
    np.testing.assert_array_equal(was.slow[earlier], now.slow[earlier])
    np.testing.assert_array_equal(was.fast[earlier], now.fast[earlier])


def test_the_focus_fades_by_its_half_life() -> None:
    made = replace(one_shift(3), at=np.array([0.0, 1.0, 11.0]))
    steady, fading = interests_before(made), interests_before(made, half_life_seconds=10.0)
    np.testing.assert_allclose(fading.fast[1], steady.fast[1] * 0.5**0.1, rtol=1e-5)
    np.testing.assert_array_equal(fading.slow, steady.slow)
