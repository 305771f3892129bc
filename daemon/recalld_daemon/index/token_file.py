"""Token vectors of passages, in two append-only files that are mapped: what late interaction reads is a copy of slices.

`tokens` holds int8 rows (t,), `spans` their uint16 (start, end); row n of one belongs to row n of the other. Bytes are
written with pwrite, so a full disk is an OSError and never a bus error, and the map reaches only over what the file
has. A passage that goes leaves a hole; `compacted` writes a new pair without holes.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from recalld_daemon.recall.types import TokenBlock

GROW_ROWS = 262_144  # rows by which the files grow (sparsely) at least: 16 MB at 64 dims
SCRUB_ROWS = 16_384  # rows overwritten at a time: 1 MB at 64 dims
TAIL_ROWS = 16_384  # rows whose checksum is kept: a torn write is at the end
SPAN = np.dtype("<u2")


class Place(NamedTuple):
    first: int  # row
    length: int  # rows


class TokenFile:
    """One thread appends and removes, any number read. Raises OSError when the disk fails; then nothing was added."""

    def __init__(self, directory: Path, number: int, width: int) -> None:
        self.number = number
        self.width = width  # t, values per row
        self.rows = 0
        self.dead_rows = 0
        self.places: dict[int, Place] = {}
        self._paths = [directory / name for name in names_of(number)]
        self._fds = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for path in self._paths]
        self._room = -1
        self._reserve(0)

    @property
    def used_bytes(self) -> int:
        return self.rows * (self.width + 2 * SPAN.itemsize)

    def restore(self, places: dict[int, Place], rows: int, checksum: int) -> bool:
        """Take over a saved state; False when the files do not hold it. Rows past it are forgotten."""
        sizes = [os.fstat(fd).st_size for fd in self._fds]
        if sizes[0] < rows * self.width or sizes[1] < rows * 2 * SPAN.itemsize:
            return False
        self._reserve(rows)
        self.rows, self.places = rows, places
        self.dead_rows = rows - sum(place.length for place in places.values())
        return self.checksum() == checksum

    def append(self, ids: Iterable[int], tokens: Sequence[bytes], spans: Sequence[NDArray[np.uint16]]) -> None:
        """Add passages; tokens: n times int8 (T, t) as bytes; spans: n times (T, 2) start and end characters."""
        counts = [len(span) for span in spans]
        self._reserve(self.rows + sum(counts))
        _write(self._fds[0], b"".join(tokens), self.rows * self.width)
        _write(self._fds[1], b"".join(span.astype(SPAN).tobytes() for span in spans), self.rows * 2 * SPAN.itemsize)
        for id, count in zip(ids, counts, strict=True):
            self.places[id] = Place(self.rows, count)
            self.rows += count

    def remove(self, ids: Iterable[int]) -> None:
        for id in ids:
            if place := self.places.pop(id, None):
                self.dead_rows += place.length

    def block(self, ids: Sequence[int]) -> TokenBlock:
        """The token vectors of some passages, in that order; unknown ones have none."""
        nowhere = Place(0, 0)
        places = [self.places.get(int(id), nowhere) for id in ids]
        tokens, spans = self._tokens, self._spans  # of one moment, and no older than the places
        picked = np.concatenate([spans[first : first + count] for first, count in places] or [spans[:0]])
        return TokenBlock(
            vectors=np.concatenate([tokens[first : first + count] for first, count in places] or [tokens[:0]]),
            starts=picked[:, 0],
            ends=picked[:, 1],
            lengths=np.array([count for _, count in places], dtype=np.int64),
        )

    def compacted(self, directory: Path) -> TokenFile:
        """A new pair of files with the living rows only."""
        other = TokenFile(directory, self.number + 1, self.width)
        ids = sorted(self.places, key=lambda id: self.places[id])
        for at in range(0, len(ids), 1_000):
            batch = ids[at : at + 1_000]
            slices = [slice(place.first, place.first + place.length) for place in map(self.places.__getitem__, batch)]
            other.append(batch, [self._tokens[s].tobytes() for s in slices], [self._spans[s] for s in slices])
        return other

    def scrub(self) -> None:
        """Overwrite with zeros what belongs to no passage: holes, and what was appended and is not counted."""
        at = 0
        for first, length in [*sorted(self.places.values()), Place(self.rows, 0)]:
            for fd, width in self._columns:
                for row in range(at, first, SCRUB_ROWS):
                    _write(fd, bytes((min(first, row + SCRUB_ROWS) - row) * width), row * width)
            at = max(at, first + length)
        for fd, width in self._columns:  # nobody looks beyond the last row, so the file may be short for a moment
            size = os.fstat(fd).st_size
            os.ftruncate(fd, self.rows * width)
            os.ftruncate(fd, size)

    @property
    def _columns(self) -> list[tuple[int, int]]:
        """Each file and its bytes per row."""
        return list(zip(self._fds, (self.width, 2 * SPAN.itemsize), strict=True))

    def checksum(self) -> int:
        """Of the last rows; what was written before them was synced with an earlier save."""
        tail = slice(max(0, self.rows - TAIL_ROWS), self.rows)
        return crc32(self._spans[tail].tobytes(), crc32(self._tokens[tail].tobytes()))

    def sync(self) -> None:
        for fd in self._fds:
            os.fsync(fd)

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def unlink(self) -> None:
        self.close()
        for path in self._paths:
            path.unlink(missing_ok=True)

    def _reserve(self, rows: int) -> None:
        """Room for so many rows, mapped. Readers keep the map they have."""
        if rows <= self._room:
            return
        room = (rows // GROW_ROWS + 1) * GROW_ROWS
        for fd, width in zip(self._fds, (self.width, 2 * SPAN.itemsize), strict=True):
            os.ftruncate(fd, max(room * width, os.fstat(fd).st_size))
        maps = [mmap.mmap(fd, 0, access=mmap.ACCESS_READ) for fd in self._fds]
        self._tokens = np.frombuffer(maps[0], np.int8, room * self.width).reshape(room, self.width)
        self._spans = np.frombuffer(maps[1], SPAN, room * 2).reshape(room, 2)
        self._room = room


def names_of(number: int) -> tuple[str, str]:
    return f"tokens-{number}.bin", f"spans-{number}.bin"


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
