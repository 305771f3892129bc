"""The catalogue on disk: one directory per saved state, and a manifest that names the valid one, as for vectors."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from recalld_daemon.index.cards import CARD, CardTable
from recalld_daemon.index.saved import checksum, sync_directory, write_synced
from recalld_daemon.index.words import WordIndex
from recalld_daemon.index.words_segment import ROW, Segment
from recalld_daemon.index.words_terms import RECIPE

FORMAT = 1  # another kind of bytes, other weights or other traits: counted up, and the catalogue is built anew
MANIFEST = "manifest.json"
SPEAKERS = "speakers.json"
COLUMNS = {
    "cards": CARD, "ids": np.dtype("<i8"), "rows": ROW, "vocabulary": np.dtype("<u8"), "starts": np.dtype("<i8"),
    "owners": np.dtype("<i4"), "counts": np.dtype("u1"),
}  # fmt: skip
_OURS = re.compile(r"state-\d+(\.tmp)?|manifest\.json(\.tmp)?")

log = logging.getLogger(__name__)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """checksums: file name within the state's directory -> blake2b-16, hex."""

    format: int
    recipe: str  # of the terms
    number: int
    checksums: dict[str, str]


def write_saved(directory: Path, number: int, words: WordIndex, cards: CardTable) -> int:
    """Write state `number` and swap it in; returns the number. Raises OSError; the last state then stays."""
    final = directory / f"state-{number}"
    temporary = final.with_suffix(".tmp")
    for leftover in (temporary, final):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary.mkdir(mode=0o700)
    files = _files(words, cards)
    for name, data in files.items():
        write_synced(temporary / name, data)
    sync_directory(temporary)
    temporary.rename(final)
    manifest = Manifest(
        format=FORMAT, recipe=RECIPE, number=number, checksums={name: checksum(data) for name, data in files.items()}
    )
    write_synced(directory / f"{MANIFEST}.tmp", msgspec.json.encode(manifest))
    (directory / f"{MANIFEST}.tmp").rename(directory / MANIFEST)
    sync_directory(directory)
    sweep(directory, number)
    return number


def read_saved(directory: Path, words: WordIndex, cards: CardTable) -> tuple[str, int]:
    """Fill both from the saved state; returns why that can't be done, or "", and the state's number."""
    try:
        manifest = msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError:
        sweep(directory, 0)
        return "nothing is saved", 0
    except (OSError, msgspec.DecodeError) as error:
        return f"{directory / MANIFEST} can't be read ({error})", 0
    sweep(directory, manifest.number)
    return _take(directory / f"state-{manifest.number}", manifest, words, cards), manifest.number


def sweep(directory: Path, number: int) -> None:
    """Delete what is not of state `number`: leftovers of a process that was killed. Other files are not touched."""
    kept = {MANIFEST, f"state-{number}"} if number else set()
    for entry in directory.iterdir():
        if entry.name in kept or not _OURS.fullmatch(entry.name):
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _files(words: WordIndex, cards: CardTable) -> dict[str, bytes]:
    files = {"cards": cards.rows().tobytes(), SPEAKERS: msgspec.json.encode(cards.speakers_by_number())}
    segment = words.whole()
    if segment is not None:
        files |= {
            "ids": segment.ids.tobytes(), "rows": segment.rows.tobytes(), "vocabulary": segment.vocabulary.tobytes(),
            "starts": segment.starts.tobytes(), "owners": segment.owners.tobytes(),
            "counts": segment.counts.tobytes(),
        }  # fmt: skip
    return files


def _take(state: Path, manifest: Manifest, words: WordIndex, cards: CardTable) -> str:
    if (manifest.format, manifest.recipe) != (FORMAT, RECIPE):
        return f"it is of format {manifest.format} ({manifest.recipe}), not {FORMAT} ({RECIPE})"
    try:
        files = {name: (state / name).read_bytes() for name in manifest.checksums}
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    for name, data in files.items():
        if checksum(data) != manifest.checksums[name]:
            return f"{state / name} is torn"
    columns: dict[str, Any] = {
        name: np.frombuffer(files[name], kind) for name, kind in COLUMNS.items() if name in files
    }
    if not np.array_equal(columns["cards"]["id"], columns.get("ids", np.empty(0, np.int64))):
        return f"{state}: words and cards are of different passages"
    if "ids" in columns:
        alive = np.ones(len(columns["ids"]), np.bool_)
        words.restore(Segment(alive=alive, **{name: column for name, column in columns.items() if name != "cards"}))
    cards.restore(columns["cards"], msgspec.json.decode(files[SPEAKERS], type=list[str]))
    return ""
