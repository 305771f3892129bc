"""Why this, or why nothing: an answer's candidates as rows for `recallctl why`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recalld_daemon.recall.snippet import neutral
from recalld_daemon.recall.types import Candidate, Passage
from recalld_protocol.messages import WhyCandidate

ROW_LIMIT = 20  # as many as a `why` message holds
TEXT_LIMIT = 200  # characters of a passage that are enough to recognise it
VERDICT_LIMIT = 300


def rows_of(
    candidates: Sequence[Candidate], passages: Sequence[Passage], impressions: Mapping[int, str] | None = None
) -> list[WhyCandidate]:
    """The first ROW_LIMIT candidates, in order, with each lane's rank and score and each gate's verdict.

    `passages` need not hold all: a candidate whose passage is missing is named by its number. `impressions` says under
    which id a passage was shown. Late interaction's and the cross-encoder's scores are listed as lanes of their own,
    their rank the final one.
    """
    known = {passage.id: passage for passage in passages}
    shown = impressions or {}
    return [
        _row(rank, candidate, known.get(candidate.passage), shown.get(candidate.passage, ""))
        for rank, candidate in enumerate(candidates[:ROW_LIMIT], start=1)
    ]


def _row(rank: int, candidate: Candidate, passage: Passage | None, impression: str) -> WhyCandidate:
    lanes = dict(candidate.lanes)
    if candidate.late is not None:
        lanes["late"] = (rank, candidate.late)
    if candidate.cross is not None:
        lanes["cross"] = (rank, candidate.cross)
    return WhyCandidate(
        path=passage.shown_path if passage else f"passage {candidate.passage}",
        start=passage.start if passage else 0,
        end=passage.end if passage else 0,
        text=neutral(passage.text[: 2 * TEXT_LIMIT])[:TEXT_LIMIT] if passage else "",
        fused_rank=rank,
        probability=candidate.probability,
        lanes=lanes,
        gates={gate: neutral(verdict)[:VERDICT_LIMIT] for gate, verdict in candidate.gates.items()},
        impression=impression,
    )
