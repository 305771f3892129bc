"""The token projection: unit length, eight bits, and the same bits again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from recalld_daemon.models import projection
from recalld_daemon.models.pooling import unit_rows
from recalld_daemon.models.sample import PATTERNS, sample_texts
from recalld_daemon.recall.types import TOKEN_SCALE, Float32

RANDOM = np.random.default_rng(7)


def some_tokens(count: int = 2000, width: int = 96) -> Float32:
    """Rows of which most lies in few directions, as in an encoder's."""
    strengths = 1.0 / (1.0 + np.arange(width))
    return (RANDOM.standard_normal((count, width)) * strengths).astype(np.float32)


def test_projected_tokens_have_unit_length() -> None:
    tokens = some_tokens()
    units = projection.fit(tokens, 64).unit(tokens)
    assert units.shape == (2000, 64)
    np.testing.assert_allclose(np.linalg.norm(units, axis=1), 1.0, atol=1e-5)


def test_similarities_survive_the_projection_and_the_packing() -> None:
    tokens = some_tokens()
    fitted = projection.fit(tokens, 64)
    full, packed = unit_rows(tokens), fitted.packed(tokens).astype(np.float32) / TOKEN_SCALE
    assert np.abs(full[:200] @ full[200:].T - packed[:200] @ packed[200:].T).max() < 0.06
    assert (np.abs(fitted.unit(tokens)) > 0.5).mean() < 0.001  # what eight bits would cut


def test_the_axes_are_orthonormal_after_the_turn() -> None:
    matrix = projection.fit(some_tokens(), 64).matrix
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(64), atol=1e-5)


def test_the_same_tokens_give_the_same_projection_and_others_another() -> None:
    tokens = some_tokens()
    assert projection.fit(tokens, 64).hash == projection.fit(tokens.copy(), 64).hash
    assert projection.fit(tokens, 64).hash != projection.fit(some_tokens(), 64).hash
    assert projection.fit(tokens, 64).hash != projection.fit(tokens, 32).hash


def test_an_encoder_narrower_than_the_projection_keeps_its_width() -> None:
    assert projection.fit(some_tokens(width=32), 64).dims == 32


def test_null_rows_stay_null() -> None:
    assert not projection.fit(some_tokens(), 64).packed(np.zeros((1, 96), np.float32)).any()


def test_saved_and_loaded(tmp_path: Path) -> None:
    fitted = projection.fit(some_tokens(), 64)
    projection.save(fitted, tmp_path / "anything")
    assert projection.load(tmp_path / "anything").hash == fitted.hash


def test_the_sample_never_changes() -> None:
    texts = sample_texts()
    assert len(set(texts)) == len(texts) == 14 * len(PATTERNS)
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    assert digest[:16] == "67a065260cda0958", "a new sample is a new projection, for which all is embedded again"
