"""The exact index in memory against the one on FAISS, in the frozen space and in a projected one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from log_house import DIMS, NOON, LogHouse
from recalld_daemon.index import FaissIndex, open_index
from recalld_daemon.index import matrix as module
from recalld_daemon.index.matrix import MatrixIndex, StoredTokens, open_matrix
from recalld_daemon.recall.adapter import Adapter
from recalld_daemon.recall.types import GLOBAL_SCOPE, View
from store_samples import passage

WORDS = ["port", "deploy", "staging", "key", "moved", "friday", "red", "blue", "green", "lamp", "window", "door"]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[LogHouse]:
    with LogHouse(tmp_path / "home") as house:
        for number in range(6):
            texts = [f"{WORDS[(number + n) % 12]} {WORDS[n % 12]} number {number * 10 + n}" for n in range(8)]
            rows = [passage(text, 100 * n, at=NOON - 100 * n - number) for n, text in enumerate(texts)]
            house.remember(f"/{number}.md", rows, scope="project" if number > 3 else "")
        yield house


def pair(house: LogHouse, tmp_path: Path) -> tuple[MatrixIndex, FaissIndex]:
    record = house.reader.encoder(house.encoder)
    assert record is not None
    return open_matrix(house.reader, record), open_index(tmp_path / "index", house.reader, house.encoder)


VIEWS = [View(scopes=None), View(), View((GLOBAL_SCOPE, 2)), View((2,), NOON - 250), View((77,)), View(None, 0.0)]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("wide", [True, False])
def test_it_finds_what_faiss_finds(
    house: LogHouse, tmp_path: Path, view: View, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WIDE_BYTES", 1 << 30 if wide else 0)
    monkeypatch.setattr(module, "ROWS", 16)  # more than one block
    exact, faiss = pair(house, tmp_path)
    for text in ("the port moved", "blue lamp number 12", "deploy friday"):
        vector, _ = house.live.encode_query(text)
        found, wanted = exact.search(vector, view, 7), faiss.search(vector, view, 7)
        assert found.ids.tolist() == wanted.ids.tolist()
        assert found.scores == pytest.approx(wanted.scores, abs=1e-5)
    faiss.close()


def test_it_scores_and_reads_tokens_as_faiss_does(house: LogHouse, tmp_path: Path) -> None:
    exact, faiss = pair(house, tmp_path)
    ids = np.array([3, 999_999, 1, 30], np.int64)
    vector, _ = house.live.encode_query("the port moved")
    assert exact.score(vector, ids) == pytest.approx(faiss.score(vector, ids), abs=1e-5, nan_ok=True)
    for found, wanted in zip(_columns(exact.tokens(ids.tolist())), _columns(faiss.tokens(ids.tolist())), strict=True):
        assert np.array_equal(found, wanted)
    assert exact.state().scopes == faiss.state().scopes
    assert np.isnan(exact.vectors_of(ids)[1]).all()
    assert exact.vectors_of(ids)[0] @ vector == pytest.approx(exact.score(vector, ids)[0], abs=1e-5)
    faiss.close()


def test_projected_it_holds_what_a_snapshot_would(house: LogHouse, tmp_path: Path) -> None:
    exact, faiss = pair(house, tmp_path)
    faiss.close()
    born = Adapter.born(DIMS, hidden=8)
    key = Adapter(born.w1, born.b1, np.random.default_rng(1).normal(size=born.w2.shape).astype(np.float32), born.b2)
    version = house.writer.begin_version(house.encoder, at=NOON, vectors=None, why="f_K")
    for hashes, vectors in house.reader.walk_vectors(house.encoder):
        house.writer.put_projected(house.encoder, version, hashes, key.apply(vectors).astype(np.float16))
    stored = open_index(tmp_path / "other", house.reader, house.encoder, version)
    vector, _ = house.live.encode_query("blue lamp")
    ahead = exact.projected(key.apply)
    found, wanted = ahead.search(vector, View(None), 9), stored.search(vector, View(None), 9)
    assert found.ids.tolist() == wanted.ids.tolist()
    assert found.scores == pytest.approx(wanted.scores, abs=1e-5)
    assert found.ids.tolist() != exact.search(vector, View(None), 9).ids.tolist()
    assert ahead.tokens([1]).lengths.tolist() == exact.tokens([1]).lengths.tolist() != [0]
    stored.close()


def test_what_the_user_is_after_is_added_to_the_cosine(house: LogHouse, tmp_path: Path) -> None:
    exact, faiss = pair(house, tmp_path)
    faiss.close()
    vector, wanted = house.live.encode_query("the port moved")[0], 3 * house.live.encode_query("blue lamp")[0]
    values = exact.projected(lambda rows: -rows)
    found = exact.search_with(vector, values, wanted, VIEWS[3], 5)
    every = exact.search(vector, VIEWS[3], 100).ids
    sums = exact.score(vector, every) - exact.score(wanted, every)
    order = np.argsort(-sums, kind="stable")[:5]
    assert found.ids.tolist() == every[order].tolist()
    assert found.scores == pytest.approx(sums[order], abs=1e-5)


def test_tokens_are_kept_up_to_a_bound(house: LogHouse) -> None:
    record = house.reader.encoder(house.encoder)
    assert record is not None
    tokens = StoredTokens(house.reader, record, kept=3)
    whole = StoredTokens(house.reader, record)
    for ids in ([1, 2, 3, 4, 5], [5, 1], [9, 9]):
        assert np.array_equal(tokens.block(ids).vectors, whole.block(ids).vectors)
        assert len(tokens._kept) <= 3


def test_an_empty_store_and_what_may_not_be_done(tmp_path: Path) -> None:
    with LogHouse(tmp_path) as house:
        record = house.reader.encoder(house.encoder)
        assert record is not None
        index = open_matrix(house.reader, record)
        vector, _ = house.live.encode_query("anything")
        assert len(index.search(vector, View(None), 5).ids) == 0
        assert index.tokens([1, 2]).lengths.tolist() == [0, 0]
        for change in (index.remove, index.add):
            with pytest.raises(TypeError, match="read-only"):
                change([1])  # type: ignore[operator]
        index.save()
        index.close()


def _columns(block: object) -> list[np.ndarray]:
    return [getattr(block, name) for name in ("vectors", "starts", "ends", "lengths")]
