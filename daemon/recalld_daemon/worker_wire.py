"""What the daemon and its worker processes say to each other over a pipe: length-prefixed msgpack, typed.

Two workers, one program: the `live` one encodes queries and must answer in milliseconds; the `bulk` one parses files
and encodes passages at low priority, so that indexing yields to recalls by the scheduler's own means. Both are exec'd,
die with the daemon, and are restarted when they die; a request that was under way then fails, and costs silence only.
A frame is a little-endian u32 length and that many bytes of one tagged map. Arrays travel as raw little-endian bytes.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

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


class EncodeQuery(ToWorker, frozen=True, kw_only=True, tag="encode_query"):
    text: str


class EncodePassages(ToWorker, frozen=True, kw_only=True, tag="encode_passages"):
    texts: list[str]


class ParseFile(ToWorker, frozen=True, kw_only=True, tag="parse_file"):
    """Parse from `cursor` (bytes; 0: from the start). Answered by `parsed` frames, the last with done=True."""

    path: str
    source_kind: str  # markdown | text | claude-code
    cursor: int


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


class QueryEncoded(FromWorker, frozen=True, kw_only=True, tag="query_encoded"):
    vector: bytes  # float32 (d,)
    tokens: bytes  # float32 (Tq, token_dims)


class PassagesEncoded(FromWorker, frozen=True, kw_only=True, tag="passages_encoded"):
    vectors: bytes  # float16 (n, d)
    tokens: list[bytes]  # n times int8 (T, token_dims)
    starts: list[bytes]  # n times uint16 (T,)
    ends: list[bytes]  # n times uint16 (T,)


class ParsedPassage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    start: int  # bytes of the file, half open
    end: int
    text: str
    codec: str
    heading: str = ""
    speaker: str = ""
    written_at: float | None = None


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


class Failed(FromWorker, frozen=True, kw_only=True, tag="failed"):
    text: str


Request = Load | EncodeQuery | EncodePassages | ParseFile
Reply = Progress | Loaded | QueryEncoded | PassagesEncoded | Parsed | Failed

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
