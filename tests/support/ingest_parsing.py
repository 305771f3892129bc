"""Parse a file and check on the way what must hold of every parse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from recalld_daemon.ingest.offsets import decode_span
from recalld_daemon.ingest.parse import BATCH_PASSAGES, kind_of, parse_file
from recalld_daemon.worker_wire import FileProblem, ParsedPassage


@dataclass(frozen=True)
class Outcome:
    passages: list[ParsedPassage]
    problems: list[FileProblem]
    cursor: int
    project: str
    append_only: bool

    @property
    def texts(self) -> list[str]:
        return [passage.text for passage in self.passages]

    @property
    def all_text(self) -> str:
        return "\n".join(self.texts)


def parse(path: Path, cursor: int = 0) -> Outcome:
    """Every passage's bytes decode to its text, in order and without overlap; only the last batch is done."""
    kind = kind_of(str(path))
    assert kind is not None
    batches = list(parse_file(str(path), kind, cursor))
    assert [batch.done for batch in batches] == [False] * (len(batches) - 1) + [True]
    assert all(len(batch.passages) <= BATCH_PASSAGES for batch in batches)
    passages = [passage for batch in batches for passage in batch.passages]
    at = 0
    with path.open("rb") as file:
        for passage in passages:
            assert at <= passage.start < passage.end
            file.seek(passage.start)
            assert decode_span(file.read(passage.end - passage.start), passage.codec) == passage.text
            at = passage.end
    problems = [problem for batch in batches for problem in batch.problems]
    last = batches[-1]
    return Outcome(passages, problems, last.cursor, last.project, last.append_only)
