"""Memories, vectors and the log: idempotent where a client may resend, bounded where nothing needs them any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recalld_daemon.recall.types import View
from recalld_daemon.store import (
    ImpressionRecord,
    NoSuchRow,
    Reader,
    RecallRecord,
    SessionRecord,
    StoreError,
    Writer,
    embedded_text,
    open_reader,
    open_writer,
)
from store_samples import DIMS, TOKEN_DIMS, encode_missing, passage, put_file, vector_of

SHOWN = ImpressionRecord("i1", "r1", "s1", 7, "/a.md", 3, 9, "words", 1, 0.8, 0.9, "late", "won", 2, 50.0)
RECALL = RecallRecord("r1", "s1", "turn 1", "what is the port", 40.0, "ready", "", "late", 9.5, b"explained")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with open_writer(tmp_path / "recalld.db") as writer:
        yield writer
        assert writer.check() == []


@pytest.fixture
def reader(writer: Writer) -> Iterator[Reader]:
    with open_reader(writer.path) as reader:
        yield reader


@pytest.fixture
def encoder(writer: Writer) -> int:
    return writer.encoder_id("test", dims=DIMS, token_dims=TOKEN_DIMS)


# ---------------------------------------------------------------- memories


def test_a_memory_is_found_and_kept_whole(writer: Writer, reader: Reader) -> None:
    path, ids = writer.remember("the port moved to 9090", at=60.0, title="Ports")
    assert path == "memory:1"
    assert reader.lexical(["9090"], View(), 5).ids.tolist() == ids
    kept = reader.passages(ids)[0]
    assert (kept.path, kept.kind, kept.heading, kept.written_at, kept.start, kept.end) == (
        path,
        "memory",
        "Ports",
        60.0,
        0,
        22,
    )
    assert reader.memory_text(path) == "the port moved to 9090"


def test_a_resent_memory_counts_once(writer: Writer, reader: Reader) -> None:
    first, _ = writer.remember("one", at=1.0, key="k")
    assert writer.remember("one", at=2.0, key="k") == (first, [])
    assert writer.remember("one", at=2.0)[0] != first  # without a key it is a second one
    assert reader.counts()["memories"] == 2


def test_a_long_memory_may_come_in_pieces(writer: Writer, reader: Reader) -> None:
    path, ids = writer.remember(
        "first part. second part.", at=1.0, passages=[passage("first part."), passage("second part.", 12)]
    )
    assert [p.text for p in reader.passages(ids)] == ["first part.", "second part."]
    assert reader.memory_text(path) == "first part. second part."


def test_a_forgotten_memorys_name_is_not_used_again(writer: Writer, reader: Reader) -> None:
    path, ids = writer.remember("secret", at=1.0, key="k")
    assert writer.remove_source(path) == ids
    assert reader.memory_text(path) is None
    assert writer.remember("other", at=2.0, key="k")[0] == "memory:2"


# ---------------------------------------------------------------- vectors


def test_an_unchanged_passage_is_never_embedded_again(writer: Writer, reader: Reader, encoder: int) -> None:
    put_file(writer, "/a.md", ["alpha", "beta"])
    assert [text for _, text in reader.missing_vectors(encoder, 0, 10)] == ["beta", "alpha"]  # newest first
    encode_missing(writer, reader, encoder)
    put_file(writer, "/a.md", ["new", "beta", "alpha"])
    writer.rename_source("/a.md", "/b.md")
    put_file(writer, "/copy.md", ["beta"])
    assert [text for _, text in reader.missing_vectors(encoder, 0, 10)] == ["new"]
    assert reader.count_missing(encoder, 0) == 1
    learnt = reader.vectors_for(reader.passage_ids("/copy.md"), encoder, 0)
    assert np.array_equal(learnt.vectors[0], vector_of("beta"))


def test_what_is_missing_stays_right_while_files_come_and_go(writer: Writer, reader: Reader, encoder: int) -> None:
    """The reader remembers between which ids all have vectors; it must not forget those above, below and between."""
    put_file(writer, "/a.md", [f"a{n}" for n in range(6)])
    assert len(encode_missing(writer, reader, encoder, limit=2)) == 2
    put_file(writer, "/b.md", ["b0", "b1", "a0"])
    assert [text for _, text in reader.missing_vectors(encoder, 0, 3)] == ["a0", "b1", "b0"]
    writer.remove_source("/b.md")
    assert reader.count_missing(encoder, 0) == 4
    while encode_missing(writer, reader, encoder, limit=3):
        pass
    put_file(writer, "/c.md", ["c0"])
    assert reader.count_missing(encoder, 0) == 1
    encode_missing(writer, reader, encoder)
    assert reader.encoded(encoder, 0).ids.tolist() == [*reader.passage_ids("/a.md"), *reader.passage_ids("/c.md")]


def test_the_same_text_twice_is_embedded_once_and_learnt_twice(writer: Writer, reader: Reader, encoder: int) -> None:
    put_file(writer, "/a.md", ["same"])
    put_file(writer, "/b.md", ["same"])
    assert len(reader.missing_vectors(encoder, 0, 10)) == 1
    assert sorted(encode_missing(writer, reader, encoder)) == [1, 2]


def test_token_offsets_come_back_relative_to_the_passages_own_text(
    writer: Writer, reader: Reader, encoder: int
) -> None:
    source = writer.begin_source("/a.md", shown_path="a.md", kind="markdown")
    ids = writer.add_passages(source, [passage("ship it", heading="On Friday", speaker="Ada")])
    writer.finish_source(source, cursor=7)
    encode_missing(writer, reader, encoder)
    assert embedded_text("On Friday", "Ada", "ship it") == "On Friday\nAda: ship it"
    learnt = reader.vectors_for(ids, encoder, 0)
    assert (learnt.starts[0].tolist(), learnt.ends[0].tolist()) == ([0, 0, 0, 0, 5], [0, 0, 0, 4, 7])


def test_encoders_and_snapshots_never_mix(writer: Writer, reader: Reader, encoder: int) -> None:
    put_file(writer, "/a.md", ["one"])
    encode_missing(writer, reader, encoder)
    other = writer.encoder_id("another", dims=DIMS, token_dims=TOKEN_DIMS)
    assert writer.encoder_id("test", dims=DIMS, token_dims=TOKEN_DIMS) == encoder != other
    writer.add_snapshot(encoder, 1, at=9.0)
    assert [reader.count_missing(*space) for space in ((encoder, 0), (encoder, 1), (other, 0))] == [0, 1, 1]
    writer.set_live(encoder, 1)
    assert reader.live_snapshot() == (encoder, 1)
    with pytest.raises(StoreError, match="live: set another one"):
        writer.drop_snapshot(encoder, 1)
    writer.drop_snapshot(other, 0)
    assert reader.encoder(other) is None
    with pytest.raises(StoreError, match=r"was 16 wide .* and is now 8"):
        writer.encoder_id("test", dims=8, token_dims=TOKEN_DIMS)


def test_vectors_of_another_shape_are_refused(writer: Writer, encoder: int) -> None:
    good = np.zeros((1, DIMS), np.float16)
    with pytest.raises(ValueError, match="need vectors of shape"):
        writer.put_vectors(encoder, 0, [b"h" * 16], good[:, :5], [b""], [b""], [b""])
    with pytest.raises(ValueError, match="token vectors of 3 bytes"):
        writer.put_vectors(encoder, 0, [b"h" * 16], good, [b"abc"], [b"\0\0"], [b"\1\0"])
    with pytest.raises(StoreError, match="no encoder 77"):
        writer.put_vectors(77, 0, [b"h" * 16], good, [b""], [b""], [b""])
    with pytest.raises(NoSuchRow):
        writer.put_vectors(encoder, 5, [b"h" * 16], good, [b""], [b""], [b""])


def test_prune_drops_vectors_that_no_passage_needs(writer: Writer, reader: Reader, encoder: int) -> None:
    put_file(writer, "/a.md", ["stays", "goes"])
    encode_missing(writer, reader, encoder)
    put_file(writer, "/a.md", ["stays"])
    assert writer.prune() == 1
    assert writer.prune() == 0
    put_file(writer, "/b.md", ["goes"])
    assert [text for _, text in reader.missing_vectors(encoder, 0, 10)] == ["goes"]


# ---------------------------------------------------------------- the log


def test_a_session_goes_on_where_it_was(writer: Writer, reader: Reader) -> None:
    writer.touch_session(SessionRecord("s1", host="demo", opened_at=10.0, last_seen_at=10.0))
    writer.touch_session(SessionRecord("s1", host="demo", opened_at=99.0, last_seen_at=99.0, boundary=4, won=1))
    assert reader.session("s1") == SessionRecord(
        "s1", host="demo", opened_at=10.0, last_seen_at=99.0, boundary=4, won=1
    )
    writer.touch_session(SessionRecord("s2", last_seen_at=50.0))
    assert [session.id for session in reader.sessions()] == ["s1", "s2"]
    assert reader.session("unknown") is None


def test_recalls_and_impressions_come_back_as_they_were_logged(writer: Writer, reader: Reader) -> None:
    writer.touch_session(SessionRecord("s1"))
    writer.record_recall(RECALL)
    second = replace(SHOWN, id="i2", passage=8, rank=2, outcome="withheld")
    writer.record_impressions([second, SHOWN])
    assert reader.recall("r1") == RECALL
    assert reader.recalls("s1") == [RECALL]
    assert reader.impressions("r1") == [SHOWN, second]
    assert reader.impression("i1") == SHOWN
    assert reader.delivered_passages("s1") == {7}
    writer.record_impressions([replace(second, outcome="slipped")])
    assert reader.delivered_passages("s1") == {7, 8}


def test_what_refers_to_nothing_is_refused(writer: Writer) -> None:
    with pytest.raises(NoSuchRow):
        writer.record_recall(RECALL)
    with pytest.raises(NoSuchRow):
        writer.record_impressions([SHOWN])
    with pytest.raises(NoSuchRow):
        writer.record_feedback("i1", "good", at=1.0)
    with pytest.raises(StoreError, match="CHECK constraint"):
        writer.record_feedback("i1", "splendid", at=1.0)
    writer.record_recall(replace(RECALL, session=None))  # a plain search belongs to no session


def test_resent_feedback_counts_once(writer: Writer, reader: Reader) -> None:
    writer.record_recall(replace(RECALL, session=None))
    writer.record_impressions([SHOWN])
    sent = [("good", "k1"), ("good", "k1"), ("used", ""), ("used", ""), ("bad", "")]
    assert [writer.record_feedback("i1", verdict, at=1.0, key=key) for verdict, key in sent] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert [verdict.verdict for verdict in reader.feedback("i1")] == ["good", "used", "bad"]


def test_what_is_unknown_is_no_judgement_and_goes_with_its_recall(writer: Writer, reader: Reader) -> None:
    writer.touch_session(SessionRecord("s1"))
    for n in range(4):
        writer.record_recall(replace(RECALL, id=f"r{n}"))
        writer.record_impressions([replace(SHOWN, id=f"i{n}", recall=f"r{n}")])
        writer.record_feedback(f"i{n}", "unknown", at=1.0)
    writer.record_feedback("i1", "good", at=2.0)
    assert writer.prune(recalls_kept=1) == 2
    assert [recall.id for recall in reader.recalls("s1")] == ["r3", "r1"]
    assert [row.verdict for row in reader.feedback("i1")] == ["good"]
    assert [row.verdict for row in reader.feedback("i3")] == ["unknown"]
    assert writer.check() == []


def test_the_log_is_bounded_but_what_was_judged_stays(writer: Writer, reader: Reader) -> None:
    writer.touch_session(SessionRecord("old", last_seen_at=1.0))
    writer.touch_session(SessionRecord("s1", last_seen_at=2.0))
    for n in range(10):
        writer.record_recall(replace(RECALL, id=f"r{n}"))
        writer.record_impressions([replace(SHOWN, id=f"i{n}", recall=f"r{n}")])
    writer.record_feedback("i2", "good", at=1.0)
    assert writer.prune(recalls_kept=3, sessions_kept=1) == 6
    assert [recall.id for recall in reader.recalls("s1")] == ["r9", "r8", "r7", "r2"]
    assert (reader.impression("i0"), reader.impression("i2") is None) == (None, False)
    assert [session.id for session in reader.sessions()] == ["s1"]
