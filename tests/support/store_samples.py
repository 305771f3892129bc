"""What the tests of store and index share: small passages and files, and deterministic vectors for embedded texts."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.recall.types import GLOBAL_SCOPE
from recalld_daemon.store import Reader, Writer
from recalld_daemon.worker_wire import ParsedPassage

DIMS, TOKEN_DIMS = 16, 4


def passage(
    text: str, start: int = 0, *, heading: str = "", speaker: str = "", at: float | None = None
) -> ParsedPassage:
    end = start + len(text.encode("utf-8", "surrogatepass"))
    return ParsedPassage(
        start=start, end=end, text=text, codec="utf-8", heading=heading, speaker=speaker, written_at=at
    )


def passages(texts: Sequence[str], start: int = 0) -> list[ParsedPassage]:
    """The texts one after the other, a line break between them."""
    found = []
    for text in texts:
        found.append(passage(text, start))
        start = found[-1].end + 1
    return found


def put_file(
    writer: Writer, path: str, texts: Sequence[str], *, scope: int = GLOBAL_SCOPE, mtime: float = 1e9
) -> tuple[list[int], list[int]]:
    """One pass over a file that holds these texts; returns the ids to learn and the ids that are gone."""
    shown = "/".join(PurePath(path).parts[-2:])
    with writer.transaction():
        source = writer.begin_source(
            path, shown_path=shown, kind="markdown", scope=scope, mtime_ns=int(mtime * 1e9), size=1, inode=1
        )
        new = writer.add_passages(source, passages(texts))
        gone = writer.finish_source(source, cursor=sum(len(text) + 1 for text in texts))
    return new, gone


def vector_of(text: str, dims: int = DIMS) -> NDArray[np.float16]:
    """(dims,) a unit vector that only depends on the text."""
    seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
    vector = np.random.default_rng(seed).normal(size=dims)
    return (vector / np.linalg.norm(vector)).astype(np.float16)


def encode_missing(writer: Writer, reader: Reader, encoder: int, snapshot: int = 0, limit: int = 1_000) -> list[int]:
    """Give vectors to what has none: one token per word of the embedded text. Returns the ids that have them now."""
    missing = reader.missing_vectors(encoder, snapshot, limit)
    if not missing:
        return []
    spans = [_word_spans(text) for _, text in missing]
    return writer.put_vectors(
        encoder,
        snapshot,
        [hash for hash, _ in missing],
        np.stack([vector_of(text) for _, text in missing]),
        [np.full((len(own), TOKEN_DIMS), len(own), np.int8).tobytes() for own in spans],
        [np.array([start for start, _ in own], np.uint16).tobytes() for own in spans],
        [np.array([end for _, end in own], np.uint16).tobytes() for own in spans],
    )


def _word_spans(text: str) -> list[tuple[int, int]]:
    spans, at = [], 0
    for word in text.split():
        at = text.index(word, at)
        spans.append((at, at + len(word)))
        at += len(word)
    return spans
