"""Forgetting for good: what is deleted otherwise leaves traces that nobody reads but a thief, and here none may stay.

A forgetting has two parts. First all rows go, in one transaction or, where they are many, source by source behind a
note that says what is still to go: passages, facts, subjects, the impressions of them, their texts in the
explanations of recalls, and what the log's questions quote of them. Then the file is purged, which needs no memory of
the text, so that whoever starts next can end it: vectors that nobody needs, words that stand in older segments of the
full-text index, free pages. `secure_delete` overwrites what is deleted; a database that was written before it was on
is written anew once. The log is cut by whoever calls (`checkpoint`), and the index files are `index`'s own.

A subject that others have too keeps its place but not a name or alias that only the forgotten passages gave it: then
its other passages are extracted from again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from recalld_daemon.extract.passages import piece_of, with_extracted
from recalld_daemon.extract.subjects import fold as fold_name
from recalld_daemon.extract.subjects import path_aliases, person
from recalld_daemon.recall.quotes import Quotes, QuoteSearch
from recalld_daemon.store.lexical import fold
from recalld_daemon.store.log_writes import LogWrites
from recalld_daemon.store.memory_writes import MemoryWrites
from recalld_daemon.store.vector_writes import VectorWrites
from recalld_daemon.worker_wire import ParsedPassage

MERGED_PAGES = 1_000  # of the full-text index per transaction: 4 MB written, some 50 ms
READ_AT_ONCE = 500  # passages

Without = Callable[[bytes, frozenset[str], Quotes], bytes]  # an explanation; paths as shown; -> without what is theirs

_SOURCES = "SELECT id FROM sources WHERE path IN (SELECT value FROM json_each(?))"
_FIELDS = f"""SELECT f.text, f.heading, f.speaker, f.path, f.parts FROM passages p JOIN passage_fields f ON f.id = p.id
    WHERE p.source IN ({_SOURCES})"""
_IMPRESSIONS = f"""SELECT id FROM impressions WHERE path IN (SELECT value FROM json_each(:names))
    OR passage IN (SELECT p.id FROM passages p WHERE p.source IN ({_SOURCES.replace("?", ":paths")}))"""
_SUBJECTS = """SELECT DISTINCT l.subject FROM passage_subjects l JOIN passages p ON p.id = l.passage
    JOIN sources s ON s.id = p.source WHERE s.path = ? ORDER BY l.subject"""
_PASSAGES = """SELECT id, start, "end", text, codec, heading, speaker, written_at, dated FROM passages
    WHERE id IN (SELECT value FROM json_each(?))"""


@dataclass(frozen=True, slots=True)
class LogGone:
    """What left the log: impressions, and what questions quoted."""

    impressions: list[str]
    quotes: Quotes
    masked: int  # questions
    explanations: int  # that told of it


@dataclass(frozen=True, slots=True)
class SourcesGone:
    """passages: that are gone; renamed: others, whose subjects have other names now, to be learnt again."""

    passages: list[int]
    renamed: list[int]


class ForgetWrites(MemoryWrites, VectorWrites, LogWrites):
    """The part of the writer that forgets for good."""

    # ------------------------------------------------------------ rows

    def forget_log(self, paths: Sequence[str], names: Sequence[str], without: Without, said: Iterable[str]) -> LogGone:
        """Take sources out of the log; before their passages go, whose texts say what is quoted.

        names: under which they are shown, now or before; said: texts that are not in the log and may come into it.
        """
        with self.transaction(durable=True):
            keys = {"paths": json.dumps(list(paths)), "names": json.dumps(list(names))}
            shown = [str(id) for id in self._column(_IMPRESSIONS, keys)]
            marks = (json.dumps(shown),)
            self._run("DELETE FROM feedback WHERE impression IN (SELECT value FROM json_each(?))", marks)
            self._run("DELETE FROM impressions WHERE id IN (SELECT value FROM json_each(?))", marks)
            quotes = self._quotes(paths, said)
            masked, explanations = self._rewrite(frozenset(names), quotes, without)
            if paths or shown or explanations:
                self._owe(names)
        return LogGone(shown, quotes, masked, explanations)

    def mask_log(self, names: frozenset[str], quotes: Quotes, without: Without) -> None:
        """Once more, for what came into the log meanwhile."""
        with self.transaction(durable=True):
            self._rewrite(names, quotes, without)

    def forget_sources(self, paths: Sequence[str]) -> SourcesGone:
        """Take sources and what hangs on them out of all tables but the log; vectors go with `drop_unneeded`."""
        gone: list[int] = []
        renamed: set[int] = set()
        with self.transaction(durable=True):
            for path in paths:
                had = self._column(_SUBJECTS, (path,))
                gone += self.remove_source(path)
                renamed |= self._named_anew(had)
            self._owe(paths)
        return SourcesGone(gone, sorted(renamed.difference(gone)))

    def _quotes(self, paths: Sequence[str], said: Iterable[str]) -> Quotes:
        search = QuoteSearch([*self._column("SELECT query FROM recalls"), *said], fold)
        for fields in self._run(_FIELDS, (json.dumps(list(paths)),)):
            search.add(*fields)
        return search.quotes(lambda word: self._one("SELECT doc FROM passages_terms WHERE term = ?", (word,)) or 0)

    def _rewrite(self, names: frozenset[str], quotes: Quotes, without: Without) -> tuple[int, int]:
        """(questions masked, explanations changed)."""
        marks = [name.encode() for name in names]
        last, masked, explanations = 0, 0, 0
        sql = "SELECT number, cause, query, explain FROM recalls WHERE number > ? ORDER BY number LIMIT ?"
        while rows := self._run(sql, (last, READ_AT_ONCE)).fetchall():
            last = rows[-1][0]
            for number, cause, query, explain in rows:
                asked, by = quotes.mask(query), quotes.mask(cause)
                told = any(mark in explain for mark in marks)
                if not told and (asked, by) == (query, cause):
                    continue
                new = without(explain, names, quotes)
                masked, explanations = masked + (asked != query), explanations + told
                self._run(
                    "UPDATE recalls SET cause = ?, query = ?, explain = ? WHERE number = ?", (by, asked, new, number)
                )
        return masked, explanations

    def _named_anew(self, subjects: Sequence[int]) -> set[int]:
        """Of subjects that lost a passage: those whose name or alias no other one holds go, and are extracted again."""
        changed: set[int] = set()
        for subject in subjects:
            row = self._run("SELECT kind, name FROM subjects WHERE id = ?", (subject,)).fetchone()
            if row is None or self._still_called(subject, *row):
                continue
            ids = self._column("SELECT passage FROM passage_subjects WHERE subject = ?", (subject,))
            self._run("DELETE FROM subjects WHERE id = ?", (subject,))
            self._extract_again(ids)
            changed.update(ids)
        return changed

    def _still_called(self, subject: int, kind: str, name: str) -> bool:
        """Whether the passages that it has hold its name and its aliases."""
        wanted = {name.lower(), *self._column("SELECT alias FROM subject_aliases WHERE subject = ?", (subject,))}
        implied = {"person": person(name).aliases, "path": path_aliases(name), "symbol": (name.lower(),)}.get(kind, ())
        wanted = (wanted - set(implied)) | {name.lower()}
        if kind == "symbol":
            wanted -= {fold_name(part) for part in name.replace("::", ".").split(".")}
        sql = """SELECT p.heading || ' ' || p.speaker || ' ' || p.text FROM passage_subjects l
            JOIN passages p ON p.id = l.passage WHERE l.subject = ?"""
        for (text,) in self._run(sql, (subject,)):
            flat = " ".join(text.split()).lower()
            wanted = {one for one in wanted if one not in flat}
            if not wanted:
                return True
        return False

    def _extract_again(self, ids: Sequence[int]) -> None:
        for at in range(0, len(ids), READ_AT_ONCE):
            rows = self._run(_PASSAGES, (json.dumps(list(ids[at : at + READ_AT_ONCE])),)).fetchall()
            marks = json.dumps([row[0] for row in rows])
            self._run("UPDATE passages SET recipe = -1 WHERE id IN (SELECT value FROM json_each(?))", (marks,))
            found = [
                ParsedPassage(start=s, end=e, text=t, codec=c, heading=h, speaker=who, written_at=w if dated else None)
                for _, s, e, t, c, h, who, w, dated in rows
            ]
            self._keep_extracted([row[0] for row in rows], [with_extracted(p, piece_of(p)) for p in found])
        self._changed = True

    # ------------------------------------------------------------ what is still to go

    def note_forgetting(self, path: str, sources: Sequence[str], names: Sequence[str]) -> None:
        """Should the process end before `forgotten`: these are to be forgotten, and `path` is followed no more."""
        with self.transaction(durable=True):
            owed = self.forgetting() | {path: (list(sources), list(names))}
            self._run("INSERT OR REPLACE INTO meta VALUES ('forgetting', ?)", (json.dumps(owed),))

    def forgetting(self) -> dict[str, tuple[list[str], list[str]]]:
        """path -> (sources, names), of what was noted and is not `forgotten` yet."""
        found = self._one("SELECT value FROM meta WHERE key = 'forgetting'")
        return {path: (sources, names) for path, (sources, names) in json.loads(found or "{}").items()}

    def forgotten(self, path: str) -> None:
        """All rows of it are gone."""
        with self.transaction(durable=True):
            owed = {other: what for other, what in self.forgetting().items() if other != path}
            self._run("INSERT OR REPLACE INTO meta VALUES ('forgetting', ?)", (json.dumps(owed),))
            if not owed:
                self._run("DELETE FROM meta WHERE key = 'forgetting'")

    def resume_forgetting(self, without: Without) -> int:
        """What an earlier process had begun; at start, before anything reads. Returns how many passages went."""
        gone = 0
        for path, (sources, names) in self.forgetting().items():
            with self.transaction():
                self._run("DELETE FROM followed WHERE path = ?", (path,))
            self.forget_log(sources, names, without, ())
            for source in sources:
                gone += len(self.forget_sources([source]).passages)
            self.forgotten(path)
        return gone

    # ------------------------------------------------------------ the file

    def purge_owed(self) -> set[str]:
        """What was forgotten and has left traces in the files that are still to be purged."""
        return set(json.loads(self._one("SELECT value FROM meta WHERE key = 'purge'") or "[]"))

    def purge_steps(self) -> Iterator[str]:
        """Purge the database step by step, each a short turn of the writer; what is done is named.

        The caller cuts the log, sees to the index files, and then calls `purged`.
        """
        while self.drop_unneeded():
            yield "vectors"
        first, busy = True, True
        while busy:
            busy, first = self._merge_words(first) or first, False
            yield "words"
        if self._one("SELECT 1 FROM meta WHERE key = 'scrubbed'") is None:
            self._write_anew()
            yield "pages"

    def purged(self) -> None:
        """Nothing is owed any more."""
        with self.transaction():
            self._run("DELETE FROM meta WHERE key = 'purge'")

    def _owe(self, paths: Iterable[str]) -> None:
        owed = json.dumps(sorted(self.purge_owed().union(paths)))
        self._run("INSERT OR REPLACE INTO meta VALUES ('purge', ?)", (owed,))

    def _merge_words(self, first: bool) -> bool:
        """Some of the way to one segment, in which no deleted word is left; False: it is one."""
        with self.transaction():
            before = self._db.total_changes
            pages = -MERGED_PAGES if first else MERGED_PAGES
            self._run("INSERT INTO passages_fts(passages_fts, rank) VALUES ('merge', ?)", (pages,))
            return self._db.total_changes - before >= 2  # SQLite's own sign that nothing was left to do

    def _write_anew(self) -> None:
        """Every page: what was deleted before deletes were secure is gone with the old ones. 10 s per GB, once."""
        with self._exclusive():
            self._db.execute("VACUUM")
        with self.transaction():
            self._run("INSERT OR REPLACE INTO meta VALUES ('scrubbed', 1)")
