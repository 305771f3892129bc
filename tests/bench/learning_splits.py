"""Which questions are learned from and which are held out, and, inside of what is learned from, the same once more.

Questions of one text stand on one side, whatever conversation asks them, and with a question all its pairs: a held-out
pair whose question was learned from would be no test. Each fold's training part is divided again into what an inner fit
learns from, what says when it stops, and what the promotion rule is judged by; held-out questions see none of that.

random: tenths by question. Only the first REPORTED of them are held out for the report; settings are chosen on
others (--tries), so no reported figure of this split helped to choose anything. chrono: of each conversation the
newest. conversation: each as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recalld_daemon.recall.types import Float64, Int64

SEED = 20260104
TENTHS = 10
REPORTED = 4  # of the tenths; settings are chosen on others
NEWEST = 0.2  # of a conversation's questions that are held out by time
STOPS, JUDGES = 0.10, 0.20  # of a training part, inside


@dataclass(frozen=True, slots=True)
class Fold:
    """Rows of the questions. train = fitted + stops + judges; held is apart."""

    train: Int64
    held: Int64
    fitted: Int64
    stops: Int64
    judges: Int64


def random_folds(names: Sequence[str], tenths: Sequence[int] = range(REPORTED), seed: int = SEED) -> list[Fold]:
    """One fold for each of those tenths, the rest learned from."""
    parts = _drawn(names, np.arange(len(names)), TENTHS, seed)
    folds = []
    for tenth in tenths:
        train = np.sort(np.concatenate([part for n, part in enumerate(parts) if n != tenth]))
        pieces = _drawn(names, train, round(1 / STOPS), seed + 1 + tenth)
        judged = round(JUDGES / STOPS)
        folds.append(_fold(train, parts[tenth], pieces[0], np.concatenate(pieces[1 : 1 + judged])))
    return folds


def chrono_folds(names: Sequence[str], at: Float64, groups: Int64, newest: float = NEWEST) -> list[Fold]:
    """One fold: of each conversation the newest share is held out; inside, the newest judge and those before stop."""
    rows = np.arange(len(names))
    train, held = _by_time(rows, at, groups, newest)
    train = _without_texts_of(names, train, held)
    rest, judges = _by_time(train, at, groups, JUDGES)
    _, stops = _by_time(rest, at, groups, STOPS / (1 - JUDGES))
    return [_fold(train, held, stops, judges)]


def conversation_folds(names: Sequence[str], groups: Int64) -> list[Fold]:
    """One fold per conversation; inside, the next one judges and the one after it stops.

    Of fewer than four there is not enough for all parts: what judges then stops as well.
    """
    distinct = np.unique(groups).tolist()
    folds = []
    for place, group in enumerate(distinct):
        held = np.flatnonzero(groups == group)
        train = _without_texts_of(names, np.flatnonzero(groups != group), held)
        following = [distinct[(place + n) % len(distinct)] for n in range(1, len(distinct))]
        judges = train[groups[train] == following[0]]
        stops = train[groups[train] == following[1]] if len(following) > 2 else judges[::2]
        folds.append(_fold(train, held, stops, np.setdiff1d(judges, stops)))
    return folds


def time_order(at: Float64, groups: Int64) -> Int64:
    """All rows in the order in which they would have been asked; of one moment in the file's."""
    order: Int64 = np.lexsort((np.arange(len(at)), groups, at))
    return order


def _fold(train: Int64, held: Int64, stops: Int64, judges: Int64) -> Fold:
    inside = np.union1d(stops, judges)
    return Fold(np.sort(train), np.sort(held), np.setdiff1d(train, inside), np.sort(stops), np.sort(judges))


def _drawn(names: Sequence[str], rows: Int64, parts: int, seed: int) -> list[Int64]:
    """The rows in so many parts of about the same number of texts, drawn by text."""
    texts = np.array([names[row] for row in rows.tolist()], object)
    distinct = np.unique(texts.astype(str))
    order = np.random.default_rng(seed).permutation(len(distinct))
    part_of = {str(distinct[place]): n % parts for n, place in enumerate(order.tolist())}
    own = np.array([part_of[str(text)] for text in texts], np.int64)
    return [rows[own == part] for part in range(parts)]


def _by_time(rows: Int64, at: Float64, groups: Int64, share: float) -> tuple[Int64, Int64]:
    """(earlier, newest) of each group's rows."""
    earlier, newest = [], []
    for group in np.unique(groups[rows]).tolist():
        own = rows[groups[rows] == group]
        own = own[np.argsort(at[own], kind="stable")]
        cut = len(own) - max(1, round(share * len(own)))
        earlier.append(own[:cut])
        newest.append(own[cut:])
    return np.sort(np.concatenate(earlier)), np.sort(np.concatenate(newest))


def _without_texts_of(names: Sequence[str], rows: Int64, others: Int64) -> Int64:
    """Those rows whose text is none of the others'."""
    known = {names[other] for other in others.tolist()}
    return rows[[names[row] not in known for row in rows.tolist()]]
