"""What was extracted is announced by whoever keeps store and index equal: learnt, embedded, moved, forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from recalld_daemon.extract.passages import extracted
from recalld_daemon.index import Extracts
from recalld_daemon.ingest.compare import Difference
from recalld_daemon.ingest.keeping import Keeping, Pass
from recalld_daemon.ingest.ports import Space
from recalld_daemon.recall.types import View
from recalld_daemon.store import open_reader, open_writer
from recalld_daemon.watchers.tree import FileStat
from recalld_daemon.worker_wire import Parsed, ParsedPassage, PassagesEncoded
from store_samples import DIMS, TOKEN_DIMS, passage, vector_of

MAY_8 = 1_683_554_400.0


class House:
    def __init__(self, directory: Path) -> None:
        self.writer, self.reader = open_writer(directory / "x.db"), open_reader(directory / "x.db")
        self.extracts = Extracts(self.reader)
        self.keeping = Keeping(self.writer, self.reader)
        encoder = self.writer.encoder_id("test", dims=DIMS, token_dims=TOKEN_DIMS)
        self.keeping.space = Space(encoder, 0)
        self.keeping.extracts = self.extracts
        self.extracts.attach(encoder, 0)

    def read(self, path: str, *texts: str, move_to: str = "") -> None:
        cut = [passage(text, n * 200, speaker="Ana", at=MAY_8 + n) for n, text in enumerate(texts)]
        found = [item for item in extracted(cut, path) if isinstance(item, ParsedPassage)]
        under_way = Pass(FileStat(path, 1, 1, 1), path[1:], "claude-code", append=False, move_to=move_to)
        self.keeping.take(under_way, Parsed(id=0, passages=found, done=True, cursor=1_000))

    def embed(self) -> None:
        assert self.keeping.space is not None
        while missing := self.keeping.missing(3):
            n = len(missing)
            token, place = np.zeros((1, TOKEN_DIMS), np.int8).tobytes(), np.zeros(1, np.uint16).tobytes()
            vectors = np.stack([vector_of(text) for _, text in missing]).tobytes()
            frame = PassagesEncoded(id=0, vectors=vectors, tokens=[token] * n, starts=[place] * n, ends=[place] * n)
            self.keeping.put(self.keeping.space, [hash for hash, _ in missing], frame)

    def near(self, fact: str, view: View = View(scopes=None)) -> list[int]:  # noqa: B008  a frozen value
        hits = self.extracts.facts.by_vector(vector_of(fact).astype(np.float32), view, 5)
        return [int(id) for id, score in zip(hits.ids, hits.scores, strict=True) if score > 0.99]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.reader.close()
    house.writer.close()


KAYAK = "Ana bought a red kayak (8 May 2023)"


def test_facts_are_known_with_the_file_and_near_once_they_are_embedded(house: House) -> None:
    house.read("/a", "I bought a red kayak.", "I planted olive trees with Ottoline.", "Ottoline waters olive trees.")
    state = house.extracts.state()
    assert (state.facts, state.fact_vectors) == (3, 0)
    assert house.near(KAYAK) == []
    house.embed()
    assert house.near(KAYAK) == [1]
    assert house.extracts.state().fact_vectors == 3
    assert len(house.extracts.subjects.near(vector_of("Ottoline").astype(np.float32), 1)[0]) == 1


def test_what_was_embedded_before_is_near_at_once(house: House) -> None:
    house.read("/a", "I bought a red kayak.")
    house.embed()
    house.keeping.remove("/a")
    assert house.near(KAYAK) == []
    house.read("/b", "I bought a red kayak.")
    assert house.near(KAYAK) == [2]


def test_a_file_that_moves_to_a_project_takes_its_facts_along(house: House) -> None:
    house.read("/a", "I bought a red kayak.")
    house.embed()
    house.read("/a", "I bought a red kayak.", move_to="/p")
    (scope,) = house.reader.scope_ids(["/p"])
    assert house.near(KAYAK, View()) == []
    assert house.near(KAYAK, View(scopes=(scope,))) == [1]


def test_what_goes_is_forgotten(house: House) -> None:
    house.read("/a", "I bought a red kayak.", "I met Ottoline in Bergen.")
    house.read("/b", "I saw Ottoline in Bergen again.")
    house.embed()
    house.keeping.apply(Difference(gone=["/a"]), ())
    assert house.near(KAYAK) == []
    assert house.extracts.subjects.links.passages.tolist() == [3, 3, 3]
    house.keeping.remove("/b")
    state = house.extracts.state()
    assert (state.facts, state.fact_vectors, state.subjects, state.times) == (0, 0, 0, 0)
