"""The index against brute force: scopes, dates, removals, both kinds of FAISS index, changes during searches."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from recalld_daemon.index import DenseLane, FaissIndex
from recalld_daemon.index.scope_index import BLOCK_ROWS, ROW, SQ8_FROM, ScopeIndex
from recalld_daemon.index.token_file import TokenFile
from recalld_daemon.recall.types import Float32, Lane, Query, QueryEncoding, View
from recalld_daemon.store import EncoderRecord, VectorBatch

DIMS, WIDTH = 32, 4
ENCODER = EncoderRecord(1, "test", "model", "runtime", DIMS, WIDTH)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[FaissIndex]:
    index = FaissIndex(tmp_path, ENCODER, 0)
    yield index
    index.close()


def unit(rng: np.random.Generator, n: int, dims: int = DIMS) -> Float32:
    vectors = rng.normal(size=(n, dims)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def batch(ids: Sequence[int], vectors: Float32, scope: int = 1, dates: Sequence[float] | None = None) -> VectorBatch:
    """Passage n has n % 5 tokens, each with the values n % 100."""
    counts = [id % 5 for id in ids]
    return VectorBatch(
        ids=np.array(ids, np.int64),
        scopes=np.full(len(ids), scope, np.int64),
        written_at=np.array(dates if dates is not None else ids, np.float64),
        marks=np.array(ids, np.int64),
        vectors=vectors.astype(np.float16),
        tokens=[np.full((count, WIDTH), id % 100, np.int8).tobytes() for id, count in zip(ids, counts, strict=True)],
        starts=[np.arange(count, dtype=np.uint16) for count in counts],
        ends=[np.arange(1, count + 1, dtype=np.uint16) for count in counts],
    )


def nearest(vectors: Float32, query: Float32, limit: int, allowed: np.ndarray | None = None) -> list[int]:
    """Ids (from 1) by exact cosine, of the float16 vectors that the index was given."""
    scores = vectors.astype(np.float16).astype(np.float32) @ query
    if allowed is not None:
        scores = np.where(allowed, scores, -2)
    return (np.argsort(-scores)[:limit] + 1).tolist()


@pytest.mark.parametrize("n", [1, 10, BLOCK_ROWS, BLOCK_ROWS + 1, 5_000])
def test_search_equals_brute_force(index: FaissIndex, n: int) -> None:
    rng = np.random.default_rng(n)
    vectors, queries = unit(rng, n), unit(rng, 5)
    for at in range(0, n, 700):
        index.add(batch(range(at + 1, min(at + 700, n) + 1), vectors[at : at + 700]))
    for query in queries:
        hits = index.search(query, View(), 10)
        assert hits.ids.tolist() == nearest(vectors, query, 10)
        assert hits.scores == pytest.approx(np.sort(vectors @ query)[::-1][:10], abs=2e-3)


def test_p014_a_session_sees_its_scope_and_the_global_one(index: FaissIndex) -> None:
    vectors = unit(np.random.default_rng(0), 30)
    for scope in (1, 2, 3):
        index.add(batch(range(scope * 10 - 9, scope * 10 + 1), vectors[scope * 10 - 10 : scope * 10], scope))
    seen = {view: set(index.search(vectors[0], View(view), 30).ids.tolist()) for view in ((1,), (1, 3), (), (9,), None)}
    assert seen == {
        (1,): set(range(1, 11)),
        (1, 3): {*range(1, 11), *range(21, 31)},
        (): set(),
        (9,): set(),
        None: set(range(1, 31)),
    }
    assert index.search(vectors[0], View((1, 1)), 30).ids.tolist().count(1) == 1


@pytest.mark.parametrize("n", [20, 3_000])
def test_as_of_hides_what_was_written_then_or_later(index: FaissIndex, n: int) -> None:
    vectors = unit(np.random.default_rng(1), n)
    index.add(batch(range(1, n + 1), vectors))  # written at 1, 2, 3, ...
    allowed = np.arange(1, n + 1) < n // 2
    assert index.search(vectors[-1], View(as_of=n // 2), 9).ids.tolist() == nearest(vectors, vectors[-1], 9, allowed)
    assert index.search(vectors[0], View(as_of=1.0), 10).ids.tolist() == []
    assert len(index.search(vectors[0], View(as_of=4.0), 10).ids) == 3  # fewer than asked for: no fillers


@pytest.mark.parametrize("n", [100, 5_000])
def test_what_is_removed_is_not_found_before_and_after_a_merge(index: FaissIndex, n: int) -> None:
    vectors = unit(np.random.default_rng(2), n)
    index.add(batch(range(1, n + 1), vectors))
    allowed = np.arange(1, n + 1) % 3 != 0
    index.remove([*range(3, n + 1, 3), 10**9])
    for _ in range(2):
        hits = index.search(vectors[2], View(), 20)
        assert hits.ids.tolist() == nearest(vectors, vectors[2], 20, allowed)
        index.save()
    index.remove(range(1, n + 1))
    assert (index.search(vectors[0], View(), 5).ids.tolist(), index.state().passages, index.scopes) == ([], 0, {})


def test_adding_a_known_passage_replaces_it_even_in_another_scope(index: FaissIndex) -> None:
    vectors = unit(np.random.default_rng(3), 3)
    index.add(batch([1, 2], vectors[:2]))
    index.add(batch([2], vectors[2:], scope=7, dates=[5.0]))
    assert index.search(vectors[2], View((1,)), 5).ids.tolist() == [1]
    hits = index.search(vectors[2], View((7,)), 5)
    assert hits.ids.tolist() == [2]
    assert hits.scores[0] == pytest.approx(1, abs=1e-3)
    assert index.state().scopes == {1: 1, 7: 1}


def test_a_query_of_another_width_is_refused(index: FaissIndex) -> None:
    with pytest.raises(ValueError, match="32 dimensions"):
        index.search(np.ones(8, np.float32), View(), 5)


def test_from_some_size_on_a_byte_per_dimension_finds_the_same() -> None:
    """R@10 against exact search; 0.98 is the floor the design sets. Measured: 0.98-0.99 on crowded vectors."""
    rng = np.random.default_rng(4)
    dims, n = 128, SQ8_FROM + 3_000
    centres = unit(rng, 200, dims)

    def crowded(count: int) -> Float32:
        vectors = centres[rng.integers(200, size=count)] + 0.8 * unit(rng, count, dims)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    vectors, queries = crowded(n), crowded(100)
    scope = ScopeIndex.empty(dims)
    rows = np.zeros(n, ROW)
    rows["id"] = np.arange(1, n + 1)
    for at in range(0, n, 4_000):
        scope = scope.with_rows(rows[at : at + 4_000], vectors[at : at + 4_000])
    assert (scope.kind, len(scope)) == ("sq8", n)
    assert scope.memory_bytes < n * dims * 2
    found = [set(scope.search(query, 10, None)[0].tolist()) for query in queries]
    exact = np.argsort(-(queries @ vectors.T), axis=1)[:, :10] + 1
    assert np.mean([len(set(own) & ids) / 10 for own, ids in zip(exact.tolist(), found, strict=True)]) >= 0.98
    fewer = scope.without(np.arange(1, n + 1, 2)).merged()
    assert (fewer.kind, len(fewer)) == ("sq8", n // 2)
    assert all(id % 2 == 0 for id in fewer.search(queries[0], 50, None)[0])


def test_tokens_come_in_the_order_asked_for(index: FaissIndex) -> None:
    index.add(batch(range(1, 50), unit(np.random.default_rng(5), 49)))
    block = index.tokens([9, 5, 777, 2])
    assert block.lengths.tolist() == [4, 0, 0, 2]
    assert block.vectors.tolist() == [[9] * WIDTH] * 4 + [[2] * WIDTH] * 2
    assert (block.starts.tolist(), block.ends.tolist()) == ([0, 1, 2, 3, 0, 1], [1, 2, 3, 4, 1, 2])
    empty = index.tokens([])
    assert (empty.vectors.shape, empty.starts.shape, empty.lengths.shape) == ((0, WIDTH), (0,), (0,))


def test_token_files_grow_and_lose_their_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recalld_daemon.index.token_file.GROW_ROWS", 64)
    tokens = TokenFile(tmp_path, 0, WIDTH)
    for id in range(100):
        span = np.arange(6, dtype=np.uint16).reshape(3, 2) + id
        tokens.append([id], [np.full((3, WIDTH), id, np.int8).tobytes()], [span])
    early = tokens.block([1])
    tokens.remove(range(0, 100, 2))
    dense = tokens.compacted(tmp_path)
    assert (tokens.rows, tokens.dead_rows, dense.rows, dense.dead_rows) == (300, 150, 150, 0)
    tokens.unlink()
    assert dense.block([99, 1, 0]).vectors[:, 0].tolist() == [99] * 3 + [1] * 3
    assert dense.block([1]).starts.tolist() == early.starts.tolist() == [1, 3, 5]
    dense.close()


def test_searches_go_on_while_others_add_and_remove(index: FaissIndex) -> None:
    """Passage 1 is never touched: every search must find it, with its tokens, whatever goes on."""
    vectors = unit(np.random.default_rng(6), 4_001)
    index.add(batch([1], vectors[:1]))
    wrong: list[object] = []
    done = threading.Event()

    def search() -> None:
        while not done.is_set():
            hits = index.search(vectors[0], View(), 3)
            if hits.ids[0] != 1 or index.tokens([1]).vectors.tolist() != [[1] * WIDTH]:
                wrong.append(hits)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for at in range(2, 4_000, 250):
        index.add(batch(range(at, at + 250), vectors[at - 1 : at + 249]))
        index.remove(range(at, at + 100))
        index.save()
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert index.state().passages == 1 + 16 * 150


def test_the_dense_lane_is_a_lane(index: FaissIndex) -> None:
    vectors = unit(np.random.default_rng(7), 5)
    index.add(batch(range(1, 6), vectors))
    lane: Lane = DenseLane(index)
    assert (lane.name, lane.needs_encoding) == ("dense", True)
    query = Query("text", ("text",), "k")
    hits = lane.search(query, QueryEncoding(vectors[3], np.zeros((1, WIDTH), np.float32)), View(), 2)
    assert hits.ids[0] == 4
    with pytest.raises(ValueError, match="encoding"):
        lane.search(query, None, View(), 2)


def test_vectors_are_given_back_as_they_lie(tmp_path: Path) -> None:
    """In the block, in an exact base, in bytes; of the living only, in the order asked for."""
    rng = np.random.default_rng(5)
    for n, near in ((100, 1e-3), (BLOCK_ROWS + 100, 1e-3), (SQ8_FROM + 10, 0.02)):
        (tmp_path / str(n)).mkdir()
        index = FaissIndex(tmp_path / str(n), ENCODER, 0)
        vectors = unit(rng, n)
        index.add(batch(range(1, n + 1), vectors))
        index.add(batch([n + 1, n + 2], vectors[:2], scope=2))
        index.remove([5, n])
        found = index.vectors_of(np.array([n + 2, 5, 1, n, 3, 10**6]))
        assert np.isnan(found[[1, 3, 5]]).all()
        assert np.abs(found[[0, 2, 4]] - vectors[[1, 0, 2]]).max() < near
        index.close()
