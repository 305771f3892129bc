"""One pass over some texts, batch by batch: each text's own vector, and its tokens' vectors."""

from __future__ import annotations

from collections.abc import Sequence

from recalld_daemon.models.pooling import pool, unit_rows
from recalld_daemon.models.runtimes import Runtime
from recalld_daemon.models.tokens import BATCH, TokenizedText, batches
from recalld_daemon.recall.types import Float32


def hidden_states(
    runtime: Runtime,
    texts: Sequence[TokenizedText],
    pooling: str,
    *,
    batch: int = BATCH,
    is_query: bool = False,
    prompt_tokens: int = 0,
) -> list[tuple[Float32, Float32]]:
    """For each text, in order, its vector (d,), unit length, and the vectors of all its tokens (t, h)."""
    found: dict[int, tuple[Float32, Float32]] = {}
    for positions, ids, mask in batches(texts, batch):
        hidden = runtime.run(ids, mask, is_query=is_query, prompt_tokens=prompt_tokens)
        pooled = pool(hidden.tokens, mask, pooling) if hidden.pooled is None else unit_rows(hidden.pooled)
        for row, position in enumerate(positions):
            found[position] = pooled[row], hidden.tokens[row, : len(texts[position].ids)]
    return [found[position] for position in range(len(texts))]
