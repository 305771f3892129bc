"""Dense scores of any passage, against the vectors themselves, in both kinds of index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recalld_daemon.index import DenseLane, FaissIndex, scope_index
from recalld_daemon.index.saved import load, read_manifest
from recalld_daemon.recall.types import Float32, Query, QueryEncoding, Scorer, View
from recalld_daemon.store import EncoderRecord, VectorBatch

DIMS, WIDTH = 16, 4
ENCODER = EncoderRecord(1, "test", "model", "runtime", DIMS, WIDTH)
QUERY = Query("text", ("text",), "k")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[FaissIndex]:
    index = FaissIndex(tmp_path, ENCODER, 0)
    yield index
    index.close()


def unit(seed: int, n: int) -> Float32:
    vectors = np.random.default_rng(seed).normal(size=(n, DIMS))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)


def batch(ids: Sequence[int], vectors: Float32, scope: int = 1) -> VectorBatch:
    n = len(ids)
    return VectorBatch(
        ids=np.array(ids, np.int64),
        scopes=np.full(n, scope, np.int64),
        written_at=np.zeros(n),
        marks=np.array(ids, np.int64),
        vectors=vectors.astype(np.float16),
        tokens=[bytes(WIDTH)] * n,
        starts=[np.zeros(1, np.uint16)] * n,
        ends=[np.ones(1, np.uint16)] * n,
    )


change = st.tuples(st.sampled_from(["add", "remove", "merge"]), st.lists(st.integers(1, 12), max_size=6, unique=True))


@given(st.lists(st.tuples(change, st.integers(1, 3)), max_size=10))
@settings(max_examples=60, deadline=None)
def test_any_passage_is_scored_whatever_happened_before(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[tuple[str, list[int]], int]]
) -> None:
    index = FaissIndex(tmp_path_factory.mktemp("index"), ENCODER, 0)
    there: dict[int, Float32] = {}
    for n, ((what, ids), scope) in enumerate(changes):
        if what == "add" and ids:
            vectors = unit(n, len(ids))
            index.add(batch(ids, vectors, scope))
            there.update(zip(ids, vectors, strict=True))
        elif what == "remove":
            index.remove(ids)
            there = {id: vector for id, vector in there.items() if id not in ids}
        else:
            index.scopes = {id: held.merged() for id, held in index.scopes.items()}
    query = unit(99, 1)[0]
    scores = index.score(query, np.arange(14))
    index.close()
    wanted = [float(there[id] @ query) if id in there else float("nan") for id in range(14)]
    assert scores.tolist() == pytest.approx(wanted, abs=1e-5, nan_ok=True)


def test_the_lane_scores_what_search_found_alike_in_bytes_too(
    index: FaissIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scope_index, "SQ8_FROM", 100)
    vectors = unit(1, 400)
    index.add(batch(range(1, 301), vectors[:300]))
    index.scopes = {id: held.merged() for id, held in index.scopes.items()}
    index.add(batch(range(301, 401), vectors[300:]))
    assert index.state().kinds == {1: "sq8"}
    lane = DenseLane(index)
    scorer: Scorer = lane
    encoding = QueryEncoding(vectors[7], np.zeros((1, WIDTH), np.float32))
    hits = lane.search(QUERY, encoding, View(), 50)
    assert scorer.score(QUERY, encoding, hits.ids).tolist() == pytest.approx(hits.scores.tolist(), abs=1e-6)
    everything = scorer.score(QUERY, encoding, np.arange(402))
    assert np.isnan(everything[[0, 401]]).all()
    assert everything[1:401].tolist() == pytest.approx((vectors @ vectors[7]).tolist(), abs=0.03)
    with pytest.raises(ValueError, match="encoding"):
        lane.score(QUERY, None, hits.ids)


def test_a_loaded_index_scores_the_same(index: FaissIndex, tmp_path: Path) -> None:
    vectors = unit(2, 50)
    index.add(batch(range(50, 0, -1), vectors))
    index.save()
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    other = FaissIndex(tmp_path, ENCODER, 0, manifest.token_number)
    assert load(other, manifest) == ""
    ids = np.array([50, 1, 99, 17])
    assert other.score(vectors[0], ids).tolist() == pytest.approx(index.score(vectors[0], ids).tolist(), nan_ok=True)
    assert other.score(vectors[0], ids)[0] == pytest.approx(1, abs=1e-3)
    other.close()
