"""The tuning of the encoder: what it minimises, what it learns from, and that it comes back out of its artefact."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training.encoder_fit import Recipe, fit, step
from training.encoder_judge import judge
from training.encoder_lessons import Course, Reader, bm25, initial_projection
from training.encoder_lora import TunedModel, one_thread
from training.encoder_loss import info_nce, max_sims
from training.encoder_trained import TrainedEncoder
from training.permissive import chunks, unrepeated
from training.pools import Ask, Pool, Row, user

from recalld_daemon.models import tuned
from recalld_daemon.models.runtimes import TORCH_FP32
from recalld_daemon.models.runtimes.torch_model import TorchModel
from recalld_daemon.recall.late import max_sim
from recalld_daemon.recall.types import TokenBlock

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the libraries' own
KINDS = ["key", "port", "index", "deploy", "search", "query", "passage", "first"]


def small_pool() -> Pool:
    """Two people, eight things; what one moved is asked for, and the other's echo repeats the question's words."""
    rows, asks = [], []
    for at, kind in enumerate(KINDS):
        rows += [Row(f"the {kind} moved", "s", "a", written_at=1.7e9), Row(f"what when the {kind} ?", "s", "b")]
        asks.append(Ask("made", user(f"what {kind} moved when ?"), frozenset({2 * at})))
    return Pool("chat-made", rows, asks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import small_models

    return small_models.build(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def course(folder: Path) -> Course:
    return Reader(folder, max_tokens=64).course(small_pool())


def small_model(folder: Path, seed: int = 0) -> TunedModel:
    return TunedModel(folder, initial_projection(Reader(folder, max_tokens=64)), rank=4, seed=seed)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_max_sims_are_those_of_late_interaction(tokens: int, passages: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, passages)
    packed = [np.clip(np.rint(254 * 0.3 * rng.standard_normal((n, 8))), -127, 127).astype(np.int8) for n in lengths]
    query = rng.standard_normal((tokens, 8)).astype(np.float32)
    none = np.zeros(0, np.uint16)
    right = max_sim(query, TokenBlock(np.concatenate(packed), none, none, lengths))
    wide, kept = np.zeros((passages, 6, 8), np.float32), np.zeros((passages, 6), dtype=bool)
    for at, own in enumerate(packed):
        wide[at, : len(own)], kept[at, : len(own)] = own / 254.0, True
    mine = max_sims(
        torch.from_numpy(query)[None],
        torch.ones(1, tokens, dtype=torch.bool),
        torch.from_numpy(wide),
        torch.from_numpy(kept),
    )
    np.testing.assert_allclose(mine[0].numpy(), right, atol=1e-5)


def test_what_also_answers_is_no_negative() -> None:
    scores = torch.tensor([[0.5, 0.9]])
    none, second = torch.tensor([[False, False]]), torch.tensor([[False, True]])
    gold = torch.tensor([0])
    assert float(info_nce(scores, gold, none, 0.05)) > 5
    assert float(info_nce(scores, gold, second, 0.05)) < 1e-6


def test_before_the_first_step_the_model_is_the_frozen_one(folder: Path) -> None:
    model, frozen = small_model(folder), TorchModel(TORCH_FP32, folder, 1)
    ids, mask = torch.arange(5, 29).reshape(2, 12), torch.ones(2, 12, dtype=torch.int64)
    with torch.inference_mode():
        pooled, _ = model(ids, mask)
    hidden = frozen.run(ids.numpy(), mask.numpy(), is_query=False, prompt_tokens=0).tokens.mean(axis=1)
    right = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
    assert np.einsum("nd,nd->n", pooled.numpy(), right).min() > 0.999  # bf16 against fp32


def test_a_tiny_training_lowers_its_loss_and_comes_back_out_of_its_artefact(
    folder: Path, course: Course, tmp_path: Path
) -> None:
    model = small_model(folder)
    recipe = Recipe(rank=4, epochs=25, batch=8, rate=5e-3, projection_rate=5e-3, warm_up=0.0)
    with one_thread():
        losses = fit(model, [course], recipe, lambda line: None)
    assert len(losses) == 25
    assert np.mean(losses[-3:]) < 0.7 * np.mean(losses[:3])
    before, after = (
        judge(TrainedEncoder(each, folder, 64), [small_pool()])["chat"] for each in (small_model(folder), model)
    )
    assert after.late_mrr > before.late_mrr
    tuned.save(model.tuning(), tmp_path / "made.safetensors")
    again = tuned.load(tmp_path / "made.safetensors")
    assert set(again.deltas) == set(model.tuning().deltas)
    tuned.write_merged(folder, again, tmp_path / "merged")
    merged = TorchModel(TORCH_FP32, tmp_path / "merged", 1)
    ids, mask = torch.arange(5, 17)[None], torch.ones(1, 12, dtype=torch.int64)
    with torch.inference_mode():
        pooled, tokens = model(ids, mask)
    hidden = merged.run(ids.numpy(), mask.numpy(), is_query=False, prompt_tokens=0).tokens[0]
    mean = hidden.mean(axis=0)
    assert float(pooled[0].numpy() @ mean / np.linalg.norm(mean)) > 0.999
    projected = hidden @ again.projection
    projected /= np.linalg.norm(projected, axis=1, keepdims=True)
    assert np.einsum("td,td->t", projected, tokens[0].numpy()).min() > 0.99


def test_a_training_can_go_on_from_what_was_learned(folder: Path, course: Course) -> None:
    model = small_model(folder)
    with one_thread():
        fit(model, [course], Recipe(rank=4, epochs=3, batch=8), lambda line: None)
    other = small_model(folder, seed=1)
    other.start_from(model.tuning())
    for name, (up, down) in model.tuning().deltas.items():
        np.testing.assert_array_equal(other.tuning().deltas[name][0], up)
        np.testing.assert_array_equal(other.tuning().deltas[name][1], down)
    with pytest.raises(ValueError, match="rank 4, not 2"):
        TunedModel(folder, model.tuning().projection, rank=2).start_from(model.tuning())


def test_what_is_learned_can_be_kept_in_part(folder: Path, course: Course) -> None:
    model, first = small_model(folder), small_model(folder)
    with one_thread():
        fit(model, [course], Recipe(rank=4, epochs=3, batch=8), lambda line: None)
    learned = model.tuning()
    model.keep(1.0)
    np.testing.assert_array_equal(model.tuning().projection, learned.projection)
    model.keep(0.5)
    for name, (up, _) in learned.deltas.items():
        np.testing.assert_allclose(model.tuning().deltas[name][0], up / 2, atol=1e-4)
    middle = (learned.projection + first.tuning().projection) / 2
    np.testing.assert_allclose(model.tuning().projection, middle, atol=1e-3)
    model.keep(0.0)
    assert not any(up.any() for up, _ in model.tuning().deltas.values())


def test_no_negative_of_a_batch_answers_the_query(folder: Path, course: Course) -> None:
    """All of the pool's answers stand in one batch; a query that any passage answers then has nothing to lose."""
    everything = frozenset(range(len(course.passages)))
    lessons = [type(lesson)(lesson.query, lesson.gold, everything, lesson.near) for lesson in course.lessons]
    with torch.inference_mode():
        late, pooled, _ = step(small_model(folder), [course] * len(lessons), lessons, Recipe(), random.Random(0))
    assert float(late) < 1e-6
    assert float(pooled) < 1e-6


def test_hard_negatives_are_never_answers_and_hold_the_neighbours_where_labels_are_complete(folder: Path) -> None:
    reader, pool = Reader(folder, max_tokens=64), small_pool()
    complete, other = reader.course(pool, complete=True), reader.course(pool, complete=False)
    for at, lesson in enumerate(complete.lessons):
        near = set(lesson.near.tolist())
        assert not near & pool.asks[at].gold
        assert 2 * at + 1 in near  # the echo that follows the answer
    for lesson in other.lessons:
        scores = other.before_passages.astype(np.float32) @ other.before_queries[lesson.query].astype(np.float32)
        assert all(scores[row] < 0.951 * scores[lesson.gold].max() for row in lesson.near)


def test_bm25_prefers_the_rarer_word_and_the_shorter_text() -> None:
    texts = ["the key", "the port", "the key and the port and much more beside it", "the the the"]
    scores = bm25(texts, ["key", "the unknown"])
    assert scores[0].argmax() == 0
    assert scores[0, 1] == scores[0, 3] == 0
    assert scores[0, 0] > scores[0, 2] > 0
    assert scores[1].max() < scores[0].max()


def test_repeated_passages_are_one_and_their_answers_move() -> None:
    rows = [Row("a", "s"), Row("a", "t"), Row("b", "t"), Row("a", "u"), Row("c", "u")]
    pool = unrepeated(Pool("made", rows, [Ask("x", user("?"), frozenset({3, 4}), frozenset({1, 2}))]))
    assert [row.text for row in pool.rows] == ["a", "b", "c"]
    assert (pool.asks[0].gold, pool.asks[0].hidden) == (frozenset({0, 2}), frozenset({0, 1}))


@given(st.lists(st.integers(1, 200), min_size=1, max_size=8))
def test_chunks_keep_every_word_of_paragraphs_that_are_not_too_long(lengths: list[int]) -> None:
    text = "\n\n".join("word " * length for length in lengths)
    found = chunks(text)
    assert sum(len(chunk.split()) for chunk in found) == sum(min(length, 150) for length in lengths)
    assert all(len(chunk.split()) <= 150 for chunk in found)
