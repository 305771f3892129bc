"""From the vectors of a text's tokens to the vector of the text: mean or first token, unit length."""

from __future__ import annotations

from typing import cast

import numpy as np

from recalld_daemon.recall.types import Float32, Int64

TINY = 1e-12  # keeps a null vector null instead of nan


def unit_rows(rows: Float32) -> Float32:
    """Each row at length 1; null rows stay null. (n, d) -> (n, d)

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))[:, None]
    return cast(Float32, (rows / np.maximum(norms, TINY)).astype(np.float32))


def pool(hidden: Float32, mask: Int64, pooling: str) -> Float32:
    """hidden: (b, t, d), mask: (b, t) of 0 and 1 -> (b, d), unit rows. pooling: "mean" over the mask, or "cls".

    >>> hidden = np.array([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]]], np.float32)
    >>> pool(hidden, np.array([[1, 1, 0]]), "mean").round(3).tolist()
    [[0.7070000171661377, 0.7070000171661377]]
    """
    if pooling == "cls":
        return unit_rows(hidden[:, 0])
    weights = mask.astype(np.float32)
    sums = np.einsum("btd,bt->bd", hidden, weights)
    return unit_rows(sums / np.maximum(weights.sum(axis=1), 1.0)[:, None])
