"""Houses whose encoder was tuned in-domain on conversations other than the house's own. Nothing of it ships.

Fitting the ranker on features of an encoder that had seen the same questions would teach it to trust that encoder more
than it deserves. So lessons are made as judging is done: each conversation is remembered and searched with an encoder
tuned on others.

Cross-validation: conversation i has E(-i), tuned on all others, for its lessons as well as when it is judged, and the
ranker that is judged on c is fitted on the lessons of i != c. As in any stacking, the E(-i) behind those lessons have
seen c's questions; E(-c), which searches c, has not, and neither have the ranker's labels. With conversations of their
own to fit on, all is clean: those are halved, each half's lessons are made with the encoder tuned on the other half,
and what is judged is searched with an encoder tuned on all of them.

Each tuning starts from the artefact that ships (`training.encoder`). Encodings of tuned encoders are not kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eval_pools import ADVERSARIAL, Judged
from house_encoders import Encoders, Kept
from judging import Court, convened, tell
from pool_types import Pool

from recalld_daemon.ingest.keeping import Keeping
from recalld_daemon.ingest.ports import Space
from recalld_daemon.recall.types import QueryEncoding

if TYPE_CHECKING:
    from training.encoder import Tuner
    from training.encoder_trained import TrainedEncoder

BATCH = 256  # passages
FEWEST = 2  # conversations: each needs another one to tune on


class TunedEncoders(Encoders):
    """One encoder as it was just tuned, for queries and passages alike."""

    def __init__(self, encoder: TrainedEncoder) -> None:
        self.live = self.bulk = encoder  # type: ignore[assignment]
        self._queries: dict[str, QueryEncoding] = {}

    def fill(self, keeping: Keeping, space: Space, name: str) -> None:
        while missing := keeping.missing(BATCH):
            hashes = [hash for hash, _ in missing]
            kept = Kept({})
            kept.add(hashes, self.bulk.encode_passages([text for _, text in missing]))
            keeping.put(space, hashes, kept.frame(hashes))


@dataclass(slots=True)
class Tuning:
    """Tunes encoders on conversations. seconds: of one tuning at most; took: what each took."""

    seconds: float
    took: list[float] = field(default_factory=list)
    _tuner: Tuner | None = None

    def on(self, others: Sequence[Judged]) -> TunedEncoders:
        """The shipped encoder after the questions of these conversations."""
        from training.encoder import Tuner  # torch: only where something is tuned

        self._tuner = self._tuner or Tuner()
        pools = [lesson_pool(judged) for judged in others]
        self._tuner.courses(pools, complete=True)  # read once for all folds; not counted as tuning
        began = time.monotonic()
        encoder = self._tuner.fine_tune(pools, seconds=self.seconds)
        self.took.append(round(time.monotonic() - began, 1))
        return TunedEncoders(encoder)


def lesson_pool(judged: Judged) -> Pool:
    """The conversation with the questions that have an answer: what misleads is none."""
    pool = judged.pool
    return Pool(pool.name, pool.rows, [ask for ask in pool.asks if ask.gold and ask.kind != ADVERSARIAL])


@contextmanager
def cross_tuned(pools: Sequence[Judged], tuning: Tuning) -> Iterator[Iterator[Court]]:
    """Each conversation in a house whose encoder was tuned on all the others, one after the other as it gets ready."""
    with ExitStack() as open_ones:

        def courts() -> Iterator[Court]:
            for judged in pools:
                others = [other for other in pools if other is not judged]
                yield from _convene(open_ones, [judged], others, tuning)

        yield courts()


@contextmanager
def tuned_on(
    others: Sequence[Judged], pools: Sequence[Judged], tuning: Tuning
) -> Iterator[tuple[list[Court], list[Court]]]:
    """(teachers, courts): halves of `others`, each by the encoder of the other half, and `pools` by that of both."""
    left, right = others[::2], others[1::2]
    with ExitStack() as open_ones:
        teachers = [
            *_convene(open_ones, left, right, tuning),
            *_convene(open_ones, right, left, tuning),
        ]
        yield teachers, _convene(open_ones, pools, others, tuning)


def _convene(open_ones: ExitStack, pools: Sequence[Judged], others: Sequence[Judged], tuning: Tuning) -> list[Court]:
    tell(f"{', '.join(judged.pool.name for judged in pools)}: tuning an encoder on {len(others)} other conversations")
    return open_ones.enter_context(convened(pools, tuning.on(others)))
