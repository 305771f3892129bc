"""Opening the catalogue: take what was saved, then make it agree with the store, passage by passage.

The store is the truth: ids, marks, dates, scopes and places are compared with it. What is absent, torn or of another
format is built anew from the store's texts, in some seconds at 100,000 passages, while the store's own full-text search
answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np

from recalld_daemon.index.catalogue import BATCH, Catalogue
from recalld_daemon.store.reader import Reader

Progress = Callable[[int, int], None]  # passages learnt so far, passages to learn

log = logging.getLogger(__name__)


def open_catalogue(directory: Path, reader: Reader, progress: Progress | None = None) -> Catalogue:
    """The catalogue, equal to what the store holds. `directory` is made (0700) and is ours alone.

    Raises OSError when the directory can't be used, StoreError.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    catalogue = Catalogue(directory, reader)
    if reason := catalogue.restore():
        log.info("%s: the catalogue is built from the store: %s", directory, reason)
    agree(catalogue, reader, progress or (lambda done, total: None))
    return catalogue


def agree(catalogue: Catalogue, reader: Reader, progress: Progress = lambda done, total: None) -> None:
    """Forget what the store no longer has, learn what is missing or has changed. Saves when much was learnt."""
    wanted = reader.passage_facts()
    catalogue.forget(np.setdiff1d(catalogue.cards.rows()["id"], wanted.ids).tolist())
    missing, moved = catalogue.unlike(wanted)
    for at in range(0, len(missing), BATCH):
        progress(at, len(missing))
        catalogue.add(reader.passage_batch(missing[at : at + BATCH].tolist()))
    if len(moved):
        catalogue.place(wanted)
    progress(len(missing), len(missing))
    if len(missing) > BATCH:
        catalogue.save()
