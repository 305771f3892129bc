"""Whatever the order of passes, renames, removals and crashes: the store agrees with a dict of texts."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from recalld_daemon.recall.types import View
from recalld_daemon.store import open_reader, open_writer
from store_samples import DIMS, TOKEN_DIMS, encode_missing, passages, put_file

WORDS = ("alder", "birch", "cedar", "dogwood", "elm")
PATHS = st.sampled_from(["/a/1.md", "/a/2.md", "/b/1.md", "/b/c/3.md"])
LISTS = st.lists(st.sampled_from(WORDS), max_size=6)


class StoreAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        path = Path(self.directory.name) / "x.db"
        self.writer, self.reader = open_writer(path), open_reader(path)
        self.encoder = self.writer.encoder_id("test", dims=DIMS, token_dims=TOKEN_DIMS)
        self.files: dict[str, list[str]] = {}
        self.ids_seen: dict[int, str] = {}
        self.cut_off: set[str] = set()

    @rule(path=PATHS, texts=LISTS)
    def a_file_is_written(self, path: str, texts: list[str]) -> None:
        before = {p.id: p.text for p in self.reader.passages(self.reader.passage_ids(path))}
        _, gone = put_file(self.writer, path, texts)
        kept = set(before) - set(gone)
        for word in WORDS:  # as many passages of a text as both versions have keep their ids
            assert sum(before[id] == word for id in kept) == min(list(before.values()).count(word), texts.count(word))
        self.files[path] = texts
        self.cut_off.discard(path)

    @rule(path=PATHS, texts=LISTS, append=st.booleans())
    def a_pass_is_cut_off(self, path: str, texts: list[str], append: bool) -> None:
        source = self.writer.begin_source(path, shown_path=path[1:], kind="markdown", append=append)
        self.writer.add_passages(source, passages(texts, start=1_000))
        self.files.setdefault(path, [])
        self.cut_off.add(path)

    @rule(path=PATHS, texts=LISTS)
    def a_file_grows(self, path: str, texts: list[str]) -> None:
        if path not in self.files or path in self.cut_off:
            return
        start = self.reader.source(path).cursor
        with self.writer.transaction():
            source = self.writer.begin_source(path, shown_path=path[1:], kind="markdown", append=True)
            ids = self.writer.add_passages(source, passages(texts, start))
            assert self.writer.finish_source(source, cursor=start + sum(len(t) + 1 for t in texts)) == []
        assert len(ids) == len(texts)
        self.files[path] = self.files[path] + texts

    @rule(path=PATHS)
    def a_file_is_deleted(self, path: str) -> None:
        self.writer.remove_source(path)
        self.files.pop(path, None)
        self.cut_off.discard(path)

    @rule(old=PATHS, new=PATHS)
    def a_file_moves(self, old: str, new: str) -> None:
        ids = self.reader.passage_ids(old)
        self.writer.rename_source(old, new)
        if old in self.files and old != new:
            self.files[new] = self.files.pop(old)
            self.cut_off = (self.cut_off - {old, new}) | ({new} if old in self.cut_off else set())
            assert self.reader.passage_ids(new) == ids

    @rule()
    def a_directory_moves(self) -> None:
        self.writer.rename_under("/b/c", "/a/c")
        if "/b/c/3.md" in self.files:
            self.files["/a/c/3.md"] = self.files.pop("/b/c/3.md")
            self.cut_off = {"/a/c/3.md" if path == "/b/c/3.md" else path for path in self.cut_off} - {
                path for path in ("/a/c/3.md",) if "/b/c/3.md" not in self.cut_off
            }

    @rule(limit=st.integers(1, 4))
    def some_passages_are_encoded(self, limit: int) -> None:
        encode_missing(self.writer, self.reader, self.encoder, limit=limit)

    @rule()
    def the_store_is_pruned(self) -> None:
        self.writer.prune()
        assert self.reader.count_missing(self.encoder, 0) == self.passages - len(
            self.reader.encoded(self.encoder, 0).ids
        )

    @property
    def passages(self) -> int:
        return self.reader.counts()["passages"]

    @invariant()
    def the_database_is_sound(self) -> None:
        assert self.writer.check() == []

    @invariant()
    def each_file_holds_its_texts_in_order(self) -> None:
        assert {source.path for source in self.reader.sources()} == set(self.files)
        assert {source.path for source in self.reader.sources(state="indexing")} == self.cut_off
        for path in set(self.files) - self.cut_off:
            held = self.reader.passages(self.reader.passage_ids(path))
            assert [p.text for p in held] == self.files[path]
            assert [p.start for p in held] == sorted(p.start for p in held)

    @invariant()
    def an_id_never_comes_to_mean_another_text(self) -> None:
        for source in self.reader.sources():
            for p in self.reader.passages(self.reader.passage_ids(source.path)):
                assert self.ids_seen.setdefault(p.id, p.text) == p.text

    @invariant()
    def full_text_search_finds_what_is_there_and_nothing_else(self) -> None:
        for word in WORDS[:2]:
            held = [
                p.id
                for source in self.reader.sources()
                for p in self.reader.passages(self.reader.passage_ids(source.path))
                if p.text == word
            ]
            assert sorted(self.reader.lexical([word], View(), 1_000).ids.tolist()) == sorted(held)

    @invariant()
    def what_is_missing_is_what_has_no_vectors(self) -> None:
        encoded = set(self.reader.encoded(self.encoder, 0).ids.tolist())
        assert self.reader.count_missing(self.encoder, 0) == self.passages - len(encoded)

    def teardown(self) -> None:
        self.reader.close()
        self.writer.close()
        self.directory.cleanup()


TestStoreAgainstModel = StoreAgainstModel.TestCase
TestStoreAgainstModel.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
