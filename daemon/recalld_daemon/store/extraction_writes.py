"""What was extracted from passages: facts, subjects with their aliases, times; and by which recipe.

All of it hangs on its passage and goes with it. A subject lives as long as one passage has it: what is forgotten leaves
no name behind. A passage found again by the same recipe keeps what it has; by another one it is given anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from recalld_daemon.extract.interface import SUBJECT_KINDS, Recipe, Subject
from recalld_daemon.extract.passages import piece_of, with_extracted
from recalld_daemon.extract.subjects import fold, key_of
from recalld_daemon.store.texts import clean, line_hash
from recalld_daemon.store.transactions import Transactions
from recalld_daemon.worker_wire import ParsedPassage, ParsedSubject

_TABLES = ("facts", "passage_subjects", "passage_whens")
_SHARED = """UPDATE subjects SET shared = 1 WHERE shared = 0 AND id IN (SELECT value FROM json_each(?))
    AND (SELECT count(*) FROM (SELECT 1 FROM passage_subjects l WHERE l.subject = subjects.id LIMIT 2)) = 2"""
_FULL_NAME = """SELECT a.subject FROM subject_aliases a JOIN subjects s ON s.id = a.subject
    WHERE a.alias = ? AND s.kind = 'person'"""
_UNUSED = """DELETE FROM subjects WHERE id IN (SELECT value FROM json_each(?))
    AND NOT EXISTS (SELECT 1 FROM passage_subjects l WHERE l.subject = subjects.id)"""


_MEMORIES = """SELECT p.id, p.start, p."end", p.text, p.codec, p.heading, p.written_at
    FROM passages p JOIN sources s ON s.id = p.source WHERE s.kind = 'memory' AND p.recipe <> ?"""


class ExtractionWrites(Transactions):
    """The part of the writer that keeps what was extracted."""

    def _keep_extracted(self, ids: Sequence[int], batch: Sequence[ParsedPassage]) -> set[int]:
        """Keep what a batch's passages brought; ids: theirs, in order. Returns those whose rows have changed."""
        marks = json.dumps(list(set(ids)))
        made = dict(self._run("SELECT id, recipe FROM passages WHERE id IN (SELECT value FROM json_each(?))", (marks,)))
        recipes = {name: self._recipe(name) for name in {passage.recipe for passage in batch} if name}
        todo = {
            id: passage
            for id, passage in zip(ids, batch, strict=True)
            if passage.recipe and made[id] != recipes[passage.recipe]
        }
        if not todo:
            return set()
        again = [id for id in todo if made[id]]
        self._forget_links(again)
        for table in _TABLES if again else ():
            self._run(f"DELETE FROM {table} WHERE passage IN (SELECT value FROM json_each(?))", (json.dumps(again),))
        self._put(todo)
        self._db.executemany(
            "UPDATE passages SET recipe = ? WHERE id = ?", [(recipes[p.recipe], id) for id, p in todo.items()]
        )
        self._drop_unused()
        return set(todo)

    def _drop_extracted(self, ids: Sequence[int]) -> None:
        """Before passages go: facts, links and times go with them by themselves, subjects nobody else has here."""
        self._forget_links(ids)
        marks = json.dumps(list(ids))
        self._run("DELETE FROM passage_subjects WHERE passage IN (SELECT value FROM json_each(?))", (marks,))
        self._drop_unused()

    def adopt_recipe(self, recipe: Recipe) -> int:
        """Extract by this recipe from now on; at start, before files are looked at. Returns how many sources change.

        Files that were extracted from by another one are marked to be read again, memories are extracted from here.
        Looks at all passages when the recipe is another one than at the last start, else at one row.
        """
        with self.transaction():
            if self._one("SELECT value FROM meta WHERE key = 'recipe'") == recipe.name:
                return 0
            current = self._recipe(recipe.name)
            stale = self._column("SELECT DISTINCT source FROM passages WHERE recipe <> ?", (current,))
            self._run(
                """UPDATE sources SET cursor = 0, mtime_ns = -1 WHERE kind <> 'memory' AND state = 'ok'
                AND id IN (SELECT value FROM json_each(?))""",
                (json.dumps(stale),),
            )
            rows = self._run(_MEMORIES, (current,)).fetchall()
            ids = [row[0] for row in rows]
            found = [
                ParsedPassage(start=s, end=e, text=t, codec=c, heading=h, written_at=w) for _, s, e, t, c, h, w in rows
            ]
            self._keep_extracted(ids, [with_extracted(p, piece_of(p), recipe) for p in found])
            self._run("INSERT OR REPLACE INTO meta VALUES ('recipe', ?)", (recipe.name,))
        return len(stale)

    def _put(self, todo: dict[int, ParsedPassage]) -> None:
        subjects = self._subject_ids([subject for passage in todo.values() for subject in passage.subjects])
        self._db.executemany(
            "INSERT INTO facts(passage, hash, text, made_by) VALUES (?, ?, ?, ?)",
            (
                (id, line_hash(text), text, _maker(passage.recipe, "facts"))
                for id, passage in todo.items()
                for text in map(clean, passage.facts)
            ),
        )
        self._db.executemany(
            "INSERT OR IGNORE INTO passage_subjects(passage, subject) VALUES (?, ?)",
            ((id, subjects[_key(s)]) for id, passage in todo.items() for s in passage.subjects if _key(s) in subjects),
        )
        self._db.executemany(
            'INSERT OR IGNORE INTO passage_whens(passage, start, "end", grain, said) VALUES (?, ?, ?, ?, ?)',
            ((id, w.start, w.end, w.grain, clean(w.said)) for id, passage in todo.items() for w in passage.whens),
        )
        self._run(_SHARED, (json.dumps(sorted(set(subjects.values()))),))

    def _subject_ids(self, subjects: Iterable[ParsedSubject]) -> dict[str, int]:
        """key -> id; new ones are made. A first name alone means the only one known who bears it."""
        wanted = {key: s for s in subjects if s.kind in SUBJECT_KINDS and (key := _key(s)).partition(":")[2]}
        sql = "SELECT key, id FROM subjects WHERE key IN (SELECT value FROM json_each(?))"
        known: dict[str, int] = dict(self._run(sql, (json.dumps(list(wanted)),)).fetchall())
        for key, subject in wanted.items():
            if key not in known:
                known[key] = self._namesake(subject, key) or self._new(subject, key)
        self._db.executemany(
            "INSERT OR IGNORE INTO subject_aliases(alias, subject) VALUES (?, ?)",
            ((clean(alias), known[key]) for key, subject in wanted.items() for alias in subject.aliases if alias),
        )
        return known

    def _namesake(self, subject: ParsedSubject, key: str) -> int | None:
        if subject.kind != "person" or " " in subject.name:
            return None
        bearers = self._column(_FULL_NAME, (fold(subject.name),))
        return int(bearers[0]) if len(bearers) == 1 else None

    def _new(self, subject: ParsedSubject, key: str) -> int:
        name = clean(subject.name)
        sql = "INSERT INTO subjects(kind, name, key, hash) VALUES (?, ?, ?, ?)"
        return int(self._run(sql, (subject.kind, name, key, line_hash(name))).lastrowid or 0)

    def _recipe(self, name: str) -> int:
        self._run("INSERT OR IGNORE INTO recipes(name) VALUES (?)", (name,))
        return int(self._one("SELECT id FROM recipes WHERE name = ?", (name,)))

    def _forget_links(self, ids: Sequence[int]) -> None:
        """Remember which subjects may be left without a passage."""
        sql = "SELECT DISTINCT subject FROM passage_subjects WHERE passage IN (SELECT value FROM json_each(?))"
        self._loosened = self._column(sql, (json.dumps(list(ids)),)) if ids else []

    def _drop_unused(self) -> None:
        if self._loosened:
            self._run(_UNUSED, (json.dumps(self._loosened),))
        self._loosened = []

    _loosened: list[int] = []  # noqa: RUF012  replaced, never changed


def _key(subject: ParsedSubject) -> str:
    return key_of(Subject(subject.kind, clean(subject.name)))  # type: ignore[arg-type]


def _maker(recipe: str, kind: str) -> str:
    """Who made one kind, by a recipe's name.

    >>> _maker("facts=rules-1 subjects=rules-1 whens=rules-1", "facts")
    'rules-1'
    """
    makers = dict(part.split("=", 1) for part in recipe.split() if "=" in part)
    return makers.get(kind, recipe)
