"""Cross-encoders: the same scores as the library's, the time kept, and what is not reached left without a score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import small_cross
from recalld_daemon.models.files import ModelError, find_folder
from recalld_daemon.models.reranker import (
    BATCH,
    SMOOTHING,
    WINDOW,
    Reranker,
    RerankerSettings,
    load_reranker,
    scores_of,
)
from recalld_daemon.models.reranker_default import HEAD, Learned, bare_module, base_hash, save_learned
from recalld_daemon.models.reranker_files import RerankerFiles, open_reranker_files, positive_label
from recalld_daemon.models.reranker_runtimes import PAIR_LIMIT, Pair, open_pair_model
from recalld_daemon.models.reranker_torch import FirstToken, TorchPairs, load_module
from recalld_daemon.models.runtimes import LIBRARY, TORCH_FP32

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the libraries' own

FILES = RerankerFiles("made", Path("/nonexistent"), "0" * 16, True, 1, 0, 512)


class MadePairs:
    """A pair model of which a token costs its share of time; a text is so many tokens long as it has characters."""

    name = "made"

    def __init__(self) -> None:
        self.now = 0.0
        self.token_seconds = 0.001
        self.batches: list[list[str]] = []

    def clock(self) -> float:
        return self.now

    def pairs(self, query: str, texts: Sequence[str]) -> list[Pair]:
        blank = {text: np.zeros(len(text), np.int64) for text in texts}
        return [Pair(query, text, blank[text], blank[text]) for text in texts]

    def logits(self, batch: Sequence[Pair]) -> np.ndarray:
        self.now += self.token_seconds * len(batch) * max(len(pair) for pair in batch)
        self.batches.append([pair.text for pair in batch])
        return np.array([[float(len(pair.query) * 100 + len(pair.text))] for pair in batch], np.float32)


def made() -> tuple[Reranker, MadePairs]:
    model = MadePairs()
    reranker = Reranker(FILES, model, model.clock)
    model.batches.clear()
    return reranker, model


def run(texts: list[str], budget_seconds: float) -> tuple[list[float], list[list[str]], float]:
    """The scores, the batches and the seconds of one rerank."""
    reranker, model = made()
    began = model.now
    reranking = reranker.begin("q", texts, budget_seconds)
    while reranking.step():
        pass
    return reranking.scores.tolist(), model.batches, model.now - began


def test_with_time_enough_all_are_scored_in_the_order_asked() -> None:
    texts = ["x" * length for length in (5, 1, 9, 3, 7, 2, 8, 4, 6, 10, 5)]
    scores, batches, _ = run(texts, 10.0)
    assert scores == [100.0 + len(text) for text in texts]
    assert max(map(len, batches)) == BATCH


def test_batches_hold_like_lengths_of_neighbours_in_rank() -> None:
    texts = ["x" * length for length in (5, 1, 9, 3, 7, 2, 8, 4, 6, 10, 5)]
    _, batches, _ = run(texts, 10.0)
    lengths = [[len(text) for text in batch] for batch in batches]
    assert WINDOW == 8
    assert lengths == [[1, 2, 3, 4], [5, 7, 8, 9], [5, 6, 10]]


@pytest.mark.parametrize("batches", [0, 1, 2, 3])
def test_the_time_is_kept_and_the_rest_has_no_score(batches: int) -> None:
    texts = ["x" * 10] * 20  # a batch of four takes 40 ms
    scores, done, seconds = run(texts, 0.0401 * batches)
    assert len(done) == batches
    assert seconds <= 0.0401 * batches
    assert np.isnan(scores).tolist() == [at >= BATCH * batches for at in range(20)]


def test_a_rest_of_time_is_used_for_as_many_as_fit() -> None:
    scores, done, seconds = run(["x" * 10] * 20, 0.0401 + 0.0201)
    assert [len(batch) for batch in done] == [4, 2]
    assert seconds <= 0.0602
    assert np.isnan(scores).sum() == 14


def test_no_time_and_no_texts_cost_nothing() -> None:
    assert run([], 1.0) == ([], [], 0.0)
    scores, done, seconds = run(["x"] * 3, 0.0)
    assert np.isnan(scores).all()
    assert (done, seconds) == ([], 0.0)


def test_what_others_took_in_between_counts_as_time() -> None:
    reranker, model = made()
    reranking = reranker.begin("q", ["x" * 10] * 20, 0.1)
    assert reranking.step()
    model.now += 0.05  # a query's encoding, say
    while reranking.step():
        pass
    assert np.isnan(reranking.scores).sum() == 20 - 4 - 1


def test_the_cost_of_a_token_is_measured_at_the_start_and_followed() -> None:
    reranker, model = made()
    assert reranker.token_seconds == pytest.approx(0.001)
    model.token_seconds = 0.002
    reranker.score(model.pairs("q", ["x" * 10] * 2))
    assert reranker.token_seconds == pytest.approx(0.001 + SMOOTHING * 0.001)


def test_one_label_is_its_logit_and_several_are_log_odds() -> None:
    one = np.array([[2.5], [-3.0]], np.float32)
    assert scores_of(one, 0).tolist() == [2.5, -3.0]
    three = np.array([[0.1, 1.2, -0.4], [3.0, -1.0, 0.0]], np.float32)
    probabilities = np.exp(three) / np.exp(three).sum(axis=1, keepdims=True)
    wanted = np.log(probabilities[:, 1] / (1 - probabilities[:, 1]))
    np.testing.assert_allclose(scores_of(three, 1), wanted, rtol=1e-5)


def test_the_label_that_is_wanted() -> None:
    assert positive_label({}, 1) == 0
    assert positive_label({"0": "LABEL_0", "1": "LABEL_1"}, 2) == 1
    assert positive_label({"0": "Entailment", "1": "neutral", "2": "contradiction"}, 3) == 0
    assert positive_label({"0": "irrelevant", "1": "relevant"}, 2) == 1


def loaded(model: Path, cache: Path, said: list[str] | None = None) -> Reranker:
    def progress(phase: str, done: int, total: int) -> None:
        if said is not None:
            said.append(phase)

    return load_reranker(RerankerSettings(cache, str(model)), progress)


def all_scores(reranker: Reranker) -> np.ndarray:
    reranking = reranker.begin(small_cross.QUERY, small_cross.TEXTS, 1e9)
    while reranking.step():
        pass
    return reranking.scores


def test_a_named_model_scores_as_the_library_does(tmp_path: Path) -> None:
    model = small_cross.build(tmp_path)
    said: list[str] = []
    reranker = loaded(model, tmp_path / "cache", said)
    right = small_cross.predict(model, small_cross.QUERY, small_cross.TEXTS)
    assert right.std() > 0.1  # else anything would agree
    assert np.corrcoef(all_scores(reranker), right)[0, 1] > 0.98  # int8, perhaps
    assert np.argmax(all_scores(reranker)) == np.argmax(right)
    assert "exporting the cross-encoder" in said
    again: list[str] = []
    assert loaded(model, tmp_path / "cache", again).runtime == reranker.runtime
    assert again == ["looking for the cross-encoder", "loading the cross-encoder"]


@pytest.mark.parametrize("runtime", [TORCH_FP32, LIBRARY])
@pytest.mark.parametrize("labels", [1, 2])
def test_every_runtime_has_the_library_s_logits(tmp_path: Path, runtime: str, labels: int) -> None:
    model = small_cross.build(tmp_path, labels=labels)
    files = open_reranker_files(str(model), tmp_path / "cache", allow_download=False)
    assert (files.plain, files.labels, files.positive) == (True, labels, labels - 1)
    runs = open_pair_model(runtime, files, tmp_path / "cache", 1)
    logits = runs.logits(runs.pairs(small_cross.QUERY, small_cross.TEXTS))
    right = small_cross.predict(model, small_cross.QUERY, small_cross.TEXTS).reshape(-1, labels)
    np.testing.assert_allclose(logits, right, atol=1e-4)


def test_a_model_with_two_labels_gives_their_difference(tmp_path: Path) -> None:
    model = small_cross.build(tmp_path, labels=2, names={0: "relevant", 1: "other"})
    right = small_cross.predict(model, small_cross.QUERY, small_cross.TEXTS)
    wanted = right[:, 0] - right[:, 1]
    assert wanted.std() > 0.1
    assert np.corrcoef(all_scores(loaded(model, tmp_path / "cache")), wanted)[0, 1] > 0.98


def test_the_last_layer_for_one_token_is_the_whole_model(tmp_path: Path) -> None:
    files = open_reranker_files(str(small_cross.build(tmp_path)), tmp_path / "cache", allow_download=False)
    module = load_module(files)
    pairs = open_pair_model(TORCH_FP32, files, tmp_path / "cache", 1)
    batch = pairs.pairs(small_cross.QUERY, small_cross.TEXTS)
    whole = pairs.logits(batch)
    from recalld_daemon.models.reranker_runtimes import arrays

    with torch.inference_mode():
        short = FirstToken(module)(**{name: torch.from_numpy(array) for name, array in arrays(batch).items()})
    np.testing.assert_allclose(short.numpy(), whole, atol=1e-5)


def test_long_texts_and_broken_ones_are_taken(tmp_path: Path) -> None:
    files = open_reranker_files(str(small_cross.build(tmp_path)), tmp_path / "cache", allow_download=False)
    runs = open_pair_model(TORCH_FP32, files, tmp_path / "cache", 1)
    pairs = runs.pairs("a\ud83d", ["the port " * 5000, "", "\udcff"])
    assert len(pairs[0]) == min(PAIR_LIMIT, files.max_tokens)
    assert np.isfinite(runs.logits(pairs)).all()


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such directory"):
        open_reranker_files(str(tmp_path / "nowhere"), tmp_path, allow_download=False)
    with pytest.raises(ModelError, match=r"cross-encoder/some-name.*allow_download"):
        open_reranker_files("some-name", tmp_path, allow_download=False)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    with pytest.raises(ModelError, match="readable cross-encoder"):
        open_reranker_files(str(tmp_path / "broken"), tmp_path, allow_download=False)


@pytest.mark.models
def test_what_was_learned_is_kept_as_small_differences(tmp_path: Path) -> None:
    packaged = find_folder("default", allow_download=False)
    torch.manual_seed(9)
    module = bare_module(packaged, 1).eval()
    before = {name: value.numpy().copy() for name, value in module.state_dict().items()}
    with torch.no_grad():
        for name, value in module.named_parameters():
            if "layer" in name or name.startswith(HEAD):
                value += 0.01 * torch.randn_like(value)
    now = {name: value.numpy() for name, value in module.state_dict().items()}
    moved = {name: now[name] - before[name] for name in now if "layer" in name}
    whole = {name: now[name] for name in now if name.startswith(HEAD)}
    path = tmp_path / "mine.safetensors"
    save_learned(Learned(1, base_hash(packaged), moved, whole), path)
    assert path.stat().st_size < 1.2 * sum(value.size for value in moved.values())  # a byte each, and no words

    files = open_reranker_files(str(path), tmp_path / "cache", allow_download=False)
    assert (files.name, files.labels, files.plain) == ("mine", 1, True)
    pairs = open_pair_model(TORCH_FP32, files, tmp_path / "cache", 1)
    batch = pairs.pairs("where is the key?", ["The key is in the vault.", "Soup for lunch.", "a " * 200])
    rebuilt = pairs.logits(batch)
    right = TorchPairs(TORCH_FP32, module, files, 1).logits(batch)
    untouched = TorchPairs(TORCH_FP32, bare_module(packaged, 1).eval(), files, 1).logits(batch)
    assert np.abs(rebuilt - right).max() < 0.05 * np.abs(untouched - right).max()


@pytest.mark.models
def test_differences_to_another_encoder_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_learned(Learned(1, "0" * 16, {}, {}), path)
    files = open_reranker_files(str(path), tmp_path / "cache", allow_download=False)
    with pytest.raises(ModelError, match="belongs to encoder 0000000000000000"):
        load_module(files)
    with pytest.raises(ModelError, match="no such file"):
        open_reranker_files(str(tmp_path / "none.safetensors"), tmp_path, allow_download=False)
