"""What the daemon and its worker processes say to each other over a pipe: length-prefixed msgpack, typed.

Three workers, one program: the `live` one encodes queries and must answer in milliseconds; the `bulk` one parses files
and encodes passages at low priority, so that indexing yields to recalls by the scheduler's own means; the `learn` one
takes a step of the query adapter for each lesson, and is there only while there are lessons. All are exec'd, die with
the daemon, and are restarted when they die; a request that was under way then fails, and costs itself only.
A frame is a little-endian u32 length and that many bytes of one tagged map. Arrays travel as raw little-endian bytes.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from recalld_daemon.adapters.settings import OnlineSettings

FRAME_LIMIT = 64 * 1024 * 1024  # bytes; a batch of 256 passages with token vectors is about 3 MB


class ToWorker(Struct, frozen=True, kw_only=True, tag_field="kind"):
    id: int


class Load(ToWorker, frozen=True, kw_only=True, tag="load"):
    """First request: load the encoder. Answered by any number of `progress`, then `loaded` or `failed`."""

    role: Literal["live", "bulk"]
    model: str  # "default", a sentence-transformers name, or a path
    query_prompt: str | None  # None: the model's own
    passage_prompt: str | None
    cache_dir: str  # measured runtime, exported graphs, token projection
    token_dims: int
    allow_download: bool
    threads: int
    cross_encoder: str = "none"  # for the live role: "none", "default", a name or a path


class EncodeQuery(ToWorker, frozen=True, kw_only=True, tag="encode_query"):
    text: str


class EncodePassages(ToWorker, frozen=True, kw_only=True, tag="encode_passages"):
    texts: list[str]


class Rerank(ToWorker, frozen=True, kw_only=True, tag="rerank"):
    """Score passages, best ranked first, against a query until the time is used up. Queries are encoded in between."""

    query: str
    texts: list[str]
    budget_ms: float  # from when the worker takes it up


class ParseFile(ToWorker, frozen=True, kw_only=True, tag="parse_file"):
    """Parse from `cursor` (bytes; 0: from the start). Answered by `parsed` frames, the last with done=True.

    The first frame comes by itself, each further one only when `parse_more` asks for it: a slow reader holds
    the parser back, and frames of a long file never stand in the pipe before the answer to another request.
    """

    path: str
    source_kind: str  # markdown | text | claude-code
    cursor: int


class ParseMore(ToWorker, frozen=True, kw_only=True, tag="parse_more"):
    """Send the next `parsed` frame of the ParseFile with this id. Ignored when that one is over."""


class ParseStop(ToWorker, frozen=True, kw_only=True, tag="parse_stop"):
    """Nobody reads on: drop the parser of the ParseFile with this id. Not answered."""


class LearnOpen(ToWorker, frozen=True, kw_only=True, tag="learn_open"):
    """Begin to learn, or go on: before the first step, and whenever the version or a setting is another one. Answered
    by `learn_opened`. A state is gone on from under its own key only."""

    promoted: bytes  # the version's f_Q, as `Adapter.to_bytes`
    settings: OnlineSettings
    key: str  # every setting that shapes what is learned
    state: bytes = b""  # as the last `learn_stepped` gave it; empty: none


class LearnStep(ToWorker, frozen=True, kw_only=True, tag="learn_step"):
    """One lesson (`adapters.pairs.Pair`). Vectors are float32 of d dims, one after the other. Answered by
    `learn_stepped`."""

    key: str
    query: bytes  # (d,)
    gold: bytes  # (d,)
    negatives: bytes  # (k, d)
    subject: bytes  # (d,); empty: none
    weight: float
    at: float  # epoch seconds


class FromWorker(Struct, frozen=True, kw_only=True, tag_field="kind"):
    id: int


class Progress(FromWorker, frozen=True, kw_only=True, tag="progress"):
    phase: str  # "loading weights", "exporting", "measuring runtimes", ...
    done: int = 0
    total: int = 0


class Loaded(FromWorker, frozen=True, kw_only=True, tag="loaded"):
    fingerprint: str  # names weights, pooling, prompts, dtype and runtime of queries and of passages, token projection
    model: str
    runtime: str  # e.g. "onnx-int8"
    dims: int
    token_dims: int
    cross_encoder: str = ""  # its name and runtime; "": there is none
    cross_encoder_problem: str = ""  # why there is none, where one was configured


class QueryEncoded(FromWorker, frozen=True, kw_only=True, tag="query_encoded"):
    vector: bytes  # float32 (d,)
    tokens: bytes  # float32 (Tq, token_dims)


class Reranked(FromWorker, frozen=True, kw_only=True, tag="reranked"):
    scores: bytes  # float32 (n,), in the order of the texts; nan: not reached in time


class PassagesEncoded(FromWorker, frozen=True, kw_only=True, tag="passages_encoded"):
    vectors: bytes  # float16 (n, d)
    tokens: list[bytes]  # n times int8 (T, token_dims)
    starts: list[bytes]  # n times uint16 (T,)
    ends: list[bytes]  # n times uint16 (T,)


class ParsedSubject(Struct, frozen=True, array_like=True):
    kind: str  # person | project | path | symbol | tool | topic
    name: str
    aliases: tuple[str, ...] = ()


class ParsedWhen(Struct, frozen=True, array_like=True):
    start: float  # epoch seconds, half open
    end: float
    grain: str
    said: str


class ParsedPassage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    start: int  # bytes of the file, half open
    end: int
    text: str
    codec: str
    heading: str = ""
    speaker: str = ""
    written_at: float | None = None
    facts: list[str] = []
    subjects: list[ParsedSubject] = []
    whens: list[ParsedWhen] = []
    recipe: str = ""  # who extracted them; "": nobody has yet


class FileProblem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    line: int  # from 1; 0: the whole file
    text: str  # what is wrong, and what was done about it


class Parsed(FromWorker, frozen=True, kw_only=True, tag="parsed"):
    passages: list[ParsedPassage]
    problems: list[FileProblem] = []
    done: bool = False
    cursor: int = 0  # where to go on when the file grows (done only): the start of the first unfinished line or block
    project: str = ""  # the project's directory as the source itself names it (a transcript's cwd), if it does
    append_only: bool = False  # a later parse from `cursor` extends this one; else it replaces it


class LearnOpened(FromWorker, frozen=True, kw_only=True, tag="learn_opened"):
    """Steps may be asked for."""


class LearnStepped(FromWorker, frozen=True, kw_only=True, tag="learn_stepped"):
    """What one lesson made of the adapter; see `adapters.online.Step`."""

    adapter: bytes  # as `Adapter.to_bytes`
    state: bytes  # what to open with next time
    loss: float
    drift: float  # mean distance of f(q) from the promoted version's
    ms: float  # the step's own time, in the worker
    steps: int  # taken since the version was promoted
    held: bool  # kept for the validation slice, and not learned from
    reverted: str  # why the adapter is the promoted one again; "": it isn't
    held_mrr: float  # of the slice, with the adapter
    promoted_mrr: float  # of the slice, with the promoted one
    held_pairs: int  # in the slice


class Failed(FromWorker, frozen=True, kw_only=True, tag="failed"):
    text: str


Request = Load | EncodeQuery | Rerank | EncodePassages | ParseFile | ParseMore | ParseStop | LearnOpen | LearnStep
Reply = Progress | Loaded | QueryEncoded | Reranked | PassagesEncoded | Parsed | LearnOpened | LearnStepped | Failed

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode

LENGTH_BYTES = 4  # the u32 before each frame


class FrameTooLarge(Exception):
    """A frame over FRAME_LIMIT: refused before it is written, or, by its header, before memory is spent on it."""


def pack_frame(message: ToWorker | FromWorker) -> bytes:
    """The bytes of one frame, length first. Raises FrameTooLarge."""
    body = encode(message)
    if len(body) > FRAME_LIMIT:
        what = type(message).__name__
        raise FrameTooLarge(f"{what}: {len(body)} bytes are over the frame limit of {FRAME_LIMIT}")
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


class FrameReader:
    """Bytes in, whole frames out; knows no file descriptor, so both sides of the pipe use it."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray) -> list[bytes]:
        """The bodies that are complete now. Raises FrameTooLarge as soon as a length says so."""
        self._buffer += data
        bodies: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= LENGTH_BYTES:
            body = start + LENGTH_BYTES
            length = int.from_bytes(self._buffer[start:body], "little")
            if length > FRAME_LIMIT:
                raise FrameTooLarge(f"the peer announces {length} bytes; the frame limit is {FRAME_LIMIT}")
            if len(self._buffer) - body < length:
                break
            bodies.append(bytes(self._buffer[body : body + length]))
            start = body + length
        del self._buffer[:start]
        return bodies
