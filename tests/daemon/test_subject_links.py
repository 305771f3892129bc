"""Links between passages and subjects: whatever is added and taken away, they say what a plain set of pairs says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recalld_daemon.index.subject_table import SubjectTable
from recalld_daemon.recall.types import View
from recalld_daemon.store.extraction_reads import LinkRows, SubjectRow

Pair = tuple[int, int]  # passage, subject
PAIRS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), max_size=12)
STEPS = st.lists(st.tuples(PAIRS, st.lists(st.integers(1, 9), max_size=3)), max_size=6)


def rows_of(pairs: list[Pair]) -> LinkRows:
    passages = np.array([passage for passage, _ in pairs], np.int64)
    subjects = np.array([subject for _, subject in pairs], np.int64)
    return LinkRows(passages, subjects, passages % 3 + 1, passages * 10.0)


@given(STEPS)
def test_links_are_a_set_of_pairs(steps: list[tuple[list[Pair], list[int]]]) -> None:
    table, expected = SubjectTable(), set[Pair]()
    for added, removed in steps:
        subjects = sorted({subject for _, subject in added})
        rows = [SubjectRow(id, "topic", f"name {id}", (f"name {id}",), b"") for id in table.unknown(subjects)]
        table.add(rows, [rows_of(added), rows_of(added[:3])])
        table.remove(removed)
        expected = {pair for pair in expected | set(added) if pair[0] not in removed}
        links = table.links
        assert set(zip(links.passages.tolist(), links.subjects.tolist(), strict=True)) == expected
        assert len(links.keys) == len(links.by_passage) == len(expected)
        assert len(table) == len({subject for _, subject in expected})
        found, owners = links.subjects_of(np.arange(1, 10))
        assert set(zip((owners + 1).tolist(), found.tolist(), strict=True)) == expected
        for subject in range(1, 6):
            view = View(scopes=(1, 3), as_of=60.0)
            wanted = {p for p, s in expected if s == subject and p % 3 + 1 in (1, 3) and p < 6}
            assert set(links.seen(links.rows_of_subject(subject), view).tolist()) == wanted
            named = [subject] if any(s == subject for _, s in expected) else []
            assert table.named(f"about the name {subject}") == named
