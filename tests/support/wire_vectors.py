"""The test vectors of `protocol/vectors/`: made here from the README's golden messages and the types' own limits.

`python tests/support/wire_vectors.py --write` rewrites the files. What is expected of a frame follows from the
specification and is never asked of the decoder under test; `tests/protocol/test_wire_vectors.py` asks that afterwards.
A frame is a list of parts, each hex or {"repeat": hex, "times": n}, since some are long only to pass a limit; likewise
a text in a message may be {"$repeat": text, "$times": n}. What the bytes of a JSON number are, its field's type says.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from recalld_protocol import shape, wire
from wire_spec import DIRECTIONS, MESSAGES, goldens

VECTORS = Path(__file__).parents[2] / "protocol" / "vectors"
LIMITS = {
    "agent": (wire.AGENT_FRAME_LIMIT, wire.AGENT_VALUE_LIMIT),
    "daemon": (wire.DAEMON_FRAME_LIMIT, wire.DAEMON_VALUE_LIMIT),
    "events": (wire.DAEMON_FRAME_LIMIT, wire.DAEMON_VALUE_LIMIT),
}
NOBODY = {"of": "", "session": "", "re": 0}  # what is told where kind, session or id can't be read
Row = dict[str, Any]
Part = bytes | tuple[bytes, int]  # bytes, or bytes and how often

BAD_FLOATS = {"is NaN": math.nan, "is infinity": math.inf, "is minus one": -1.0, "is 1e300": 1e300}  # of 0 to 10^11

pack = msgspec.msgpack.encode


def files() -> dict[str, str]:
    """File name -> its text."""
    return {f"{way}.json": _text({"direction": way, **_vectors(way)}) for way in DIRECTIONS}


def frame_of(parts: Sequence[str | dict[str, Any]]) -> bytes:
    """The bytes that a vector's parts are."""
    return b"".join(
        bytes.fromhex(part) if isinstance(part, str) else bytes.fromhex(part["repeat"]) * part["times"]
        for part in parts
    )


def plain(value: Any) -> Any:
    """A vector's message with its repetitions written out."""
    if isinstance(value, dict):
        if value.keys() == {"$repeat", "$times"}:
            return value["$repeat"] * value["$times"]
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def _vectors(way: str) -> Row:
    kinds = [kind for kind, cls in MESSAGES.items() if cls in DIRECTIONS[way]]
    valid = [row for kind in kinds for row in _valid_of(kind)] + list(_other_writings(kinds[-1]))
    invalid = [row for kind in kinds for row in _invalid_of(kind)] + list(_broken(way, kinds))
    return {"valid": valid, "invalid": invalid}


# ---------------------------------------------------------------- valid


def _valid_of(kind: str) -> Iterator[Row]:
    golden = next(golden for golden in goldens() if golden.kind == kind)
    yield _valid(f"{kind}: the README's", [golden.frame], golden.reading)
    for name, values in (("least", _least), ("every field", _full)):
        message = {"kind": kind} | values(MESSAGES[kind])
        yield _valid(f"{kind}: {name}", [_frame(kind, message)], message)
    for field in _fields(MESSAGES[kind]):
        if isinstance(field.type, inspect.StrType) and field.type.max_length and field.encode_name not in ("session",):
            least = {"kind": kind} | _least(MESSAGES[kind])
            most = field.type.max_length
            at_limit = least | {field.encode_name: {"$repeat": "é", "$times": most}}
            parts = _around(plain(least), field.encode_name, "é", most)
            yield _valid(f"{kind}: {field.encode_name} of {most} characters", parts, at_limit, encodes=False)


def _other_writings(kind: str) -> Iterator[Row]:
    """Frames that we would not write, and that say the same. Of the direction's last kind."""
    message = {"kind": kind} | plain(_least(MESSAGES[kind]))
    body, count, name = _pairs(message), len(message), pack(kind)
    nested = b"\x91" * (shape.DEPTH_LIMIT - 2) + b"\x90"
    variants = {
        "map 16": b"\xde" + count.to_bytes(2, "big") + body,
        "map 32": b"\xdf" + count.to_bytes(4, "big") + body,
        "kind last": _map(count) + _pairs({k: v for k, v in message.items() if k != "kind"}) + _pairs({"kind": kind}),
        "keys as str 8": _map(count) + body.replace(pack("kind"), b"\xd9\x04kind", 1),
        "kind as str 16": _map(count) + body.replace(name, b"\xda\x00" + bytes([len(kind)]) + kind.encode(), 1),
        "kind as str 32": _map(count) + body.replace(name, b"\xdb\0\0\0" + bytes([len(kind)]) + kind.encode(), 1),
        "id as uint 64": _map(count + 1) + body + pack("id") + b"\xcf" + (7).to_bytes(8, "big"),
        "id as int 64": _map(count + 1) + body + pack("id") + b"\xd3" + (7).to_bytes(8, "big"),
        "an unknown field": _map(count + 1) + body + pack("later") + pack({"a": [1, None, 2.5]}),
        "an unknown extension": _map(count + 1) + body + pack("later") + b"\xd4\x05\x00",
        "an unknown timestamp": _map(count + 1) + body + pack("later") + b"\xd6\xff" + bytes(4),
        "unknown bytes": _map(count + 1) + body + pack("later") + pack(b"\x00\xff"),
        "an unknown text that is no UTF-8": _map(count + 1) + body + pack("later") + b"\xa1\xff",
        "an unknown NaN": _map(count + 1) + body + pack("later") + b"\xcb" + struct.pack(">d", math.nan),
        f"nested {shape.DEPTH_LIMIT} deep": _map(count + 1) + body + pack("later") + nested,
    }  # fmt: skip
    for variant, frame in variants.items():
        said = message | ({"id": 7} if variant.startswith("id ") else {})
        yield _valid(f"written otherwise: {variant}", [frame], said, encodes=False)


# ---------------------------------------------------------------- invalid


def _invalid_of(kind: str) -> Iterator[Row]:
    """What each field may not be. `re` is told wherever the id can be read."""
    cls = MESSAGES[kind]
    least = {"kind": kind, "session": "s-1", "id": 9} | plain(_least(cls))
    for field in _fields(cls):
        name = field.encode_name
        told = NOBODY if name in ("session", "id") else {"of": kind, "session": "s-1", "re": 9}
        if field.required:
            without = {key: value for key, value in least.items() if key != name}
            yield _invalid(f"{kind}: {name} is missing", [_frame(kind, without)], "malformed", told)
        wrong = {key: value for key, value in least.items() if key != name}
        for what, value, code in _wrong(field.type):
            tail = value if isinstance(value, list) else [value]
            head = _map(len(wrong) + 1) + _pairs(wrong) + pack(name)
            yield _invalid(f"{kind}: {name} {what}", [head, *tail], code, told)


def _wrong(kind: inspect.Type) -> Iterator[tuple[str, bytes | list[Part], str]]:
    """(what, msgpack of a value that the type does not take, the code)."""
    accepted = _accepted(kind)
    for name, value in {
        "is nil": None,
        "is a boolean": True,
        "is a text": "x",
        "is a list": [],
        "is a map": {},
    }.items():
        if name.rpartition(" ")[2] not in accepted:
            yield name, pack(value), "malformed"
    match kind:
        case inspect.StrType():
            yield "is bytes", pack(b"x"), "malformed"
            yield "is an extension", b"\xd4\x01\x01", "malformed"
            yield "is a timestamp", b"\xd6\xff" + bytes(4), "malformed"
            yield "is no UTF-8", b"\xa2\xff\xfe", "malformed"
            if kind.min_length:
                yield "is empty", pack(""), "malformed"
            if kind.max_length:
                yield f"has {kind.max_length + 1} characters", _long("x", kind.max_length + 1), "limit"
        case inspect.IntType():
            yield "is a float", pack(1.0), "malformed"
            if kind.ge is not None:
                yield f"is {kind.ge - 1}", pack(int(kind.ge) - 1), "malformed"
            if kind.le is not None:
                yield f"is {int(kind.le) + 1}", pack(int(kind.le) + 1), "malformed"
        case inspect.FloatType() if kind.le is not None:
            for name, number in BAD_FLOATS.items():
                yield name, b"\xcb" + struct.pack(">d", number), "malformed"
        case inspect.UnionType():
            floats = [one for one in kind.types if isinstance(one, inspect.FloatType)]
            yield from (row for one in floats for row in _wrong(one) if row[0] in BAD_FLOATS)
        case inspect.LiteralType():
            yield "is another word", pack("another"), "malformed"
        case inspect.ListType():
            if kind.max_length and kind.max_length <= 1_000:
                item = pack(plain(_value(kind.item_type, False)))
                yield (
                    f"has {kind.max_length + 1} entries",
                    [_array(kind.max_length + 1), (item, kind.max_length + 1)],
                    "limit",
                )
            if kind.min_length:
                yield "is empty", pack([]), "malformed"


def _broken(way: str, kinds: Sequence[str]) -> Iterator[Row]:
    """Frames that are refused whatever their kind."""
    kind, (size, values) = kinds[-1], LIMITS[way]
    message = {"kind": kind, "id": 9} | plain(_least(MESSAGES[kind]))
    body, count = _pairs(message), len(message)
    unknown = _map(count + 1) + body + pack("later")
    stranger = next(
        name for other in DIRECTIONS if other != way for name, c in MESSAGES.items() if c in DIRECTIONS[other]
    )
    rows: list[tuple[str, list[Part], str, Row]] = [
        ("nothing", [b""], "malformed", {}),
        ("no map", [pack([1, 2])], "malformed", {}),
        ("a number", [b"\x01"], "malformed", {}),
        ("a reserved byte", [b"\xc1"], "malformed", {}),
        ("no kind", [pack({"id": 9})], "malformed", {}),
        ("a kind that is a number", [pack({"kind": 5, "id": 9})], "malformed", {}),
        ("cut off", [(_map(count) + body)[:-1]], "malformed", {}),
        ("a byte that follows", [_map(count) + body + b"\xc0"], "malformed", {}),
        ("a map that follows", [(_map(count) + body) * 2], "malformed", {}),
        ("a key that is a number", [_map(count + 1) + b"\x01\x01" + body], "malformed", {}),
        ("an unknown kind", [pack({"kind": "dream", "id": 9, "session": "s-1"})], "unknown_kind",
         {"of": "dream", "session": "s-1", "re": 9}),
        ("a kind that travels another way", [pack({"kind": stranger, "id": 9})], "unknown_kind",
         {"of": stranger, "session": "", "re": 9}),
        ("a list that never ends", [unknown + b"\xdd\xff\xff\xff\xff"], "malformed", {}),
        ("a text that never ends", [unknown + b"\xdb\xff\xff\xff\xff"], "malformed", {}),
        (f"nested {shape.DEPTH_LIMIT + 1} deep", [unknown, (b"\x91", shape.DEPTH_LIMIT - 1), b"\x90"], "limit", {}),
        ("nested 10,000 deep", [unknown, (b"\x91", 10_000), b"\x90"], "limit", {}),
        (f"more than {values} values", [unknown, _array(values + 1), (b"\x01", values + 1)], "limit", {}),
        (f"{size + 1} bytes", [(b"\x00", size + 1)], "limit", {}),
    ]  # fmt: skip
    for name, parts, code, about in rows:
        yield _invalid(name, parts, code, about or NOBODY)
    if len(kinds) > 1:
        frame = _map(count + 1) + body + _pairs({"kind": kinds[0]})
        yield _invalid("a second, other kind", [frame], "malformed", {"of": kinds[0], "session": "", "re": 9})


# ---------------------------------------------------------------- values by type


def _fields(cls: type[msgspec.Struct]) -> Sequence[inspect.Field]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return info.fields


def _least(cls: type[msgspec.Struct]) -> Row:
    return {field.encode_name: _value(field.type, False) for field in _fields(cls) if field.required}


def _full(cls: type[msgspec.Struct]) -> Row:
    found = {field.encode_name: _value(field.type, True) for field in _fields(cls)}
    for field in _fields(cls):
        value = found[field.encode_name]
        if field.default is not msgspec.NODEFAULT and value == field.default:  # else it would be left out
            found[field.encode_name] = (not value) if isinstance(value, bool) else _other(field.type, value)
    return found


def _other(kind: inspect.Type, value: Any) -> Any:
    return sorted(kind.values, key=str)[-1] if isinstance(kind, inspect.LiteralType) else value - 1


def _value(kind: inspect.Type, full: bool) -> Any:
    """A value that the type takes; full: none that could be a default, and every field of parts."""
    match kind:
        case inspect.StrType():
            return "Größe 😀" if full else "x" * (kind.min_length or 0)
        case inspect.IntType():
            return max(int(kind.ge or 0), min(70_000, int(kind.le or 70_000))) if full else int(kind.ge or 0)
        case inspect.FloatType():
            return 1772409600.25 if full else 0.0
        case inspect.BoolType():
            return full
        case inspect.LiteralType():
            return sorted(kind.values)[0]
        case inspect.ListType():
            return [_value(kind.item_type, full)] * (2 if full and (kind.max_length or 2) > 1 else kind.min_length or 0)
        case inspect.DictType():
            return {"k": _value(kind.value_type, full)} if full else {}
        case inspect.TupleType():
            return [_value(one, full) for one in kind.item_types]
        case inspect.UnionType():
            return _value(next(one for one in kind.types if not isinstance(one, inspect.NoneType)), full)
        case inspect.StructType():
            return (_full if full else _least)(kind.cls)
    raise AssertionError(kind)


def _accepted(kind: inspect.Type) -> set[str]:
    match kind:
        case inspect.StrType() | inspect.LiteralType():
            return {"text"}
        case inspect.BoolType():
            return {"boolean"}
        case inspect.NoneType():
            return {"nil"}
        case inspect.ListType() | inspect.TupleType():
            return {"list"}
        case inspect.DictType() | inspect.StructType():
            return {"map"}
        case inspect.UnionType():
            return set().union(*map(_accepted, kind.types))
    return set()


# ---------------------------------------------------------------- bytes


def _frame(kind: str, message: Row) -> bytes:
    """As we write it: fields in the order of their table, defaults left out, floats in 64 bits."""
    try:
        return wire.encode(msgspec.convert(plain(message), MESSAGES[kind]))
    except (msgspec.ValidationError, wire.WireError):
        return _map(len(message)) + _pairs(plain(message))


def _pairs(message: Row) -> bytes:
    return b"".join(pack(key) + pack(value) for key, value in message.items())


def _map(count: int) -> bytes:
    assert count < 16
    return bytes([0x80 + count])


def _array(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")


def _long(text: str, times: int) -> list[Part]:
    return [b"\xdb" + (len(text.encode()) * times).to_bytes(4, "big"), (text.encode(), times)]


def _around(message: Row, name: str, text: str, times: int) -> list[Part]:
    others = {key: value for key, value in message.items() if key != name}
    return [_map(len(others) + 1) + _pairs(others) + pack(name), *_long(text, times)]


# ---------------------------------------------------------------- rows


def _valid(name: str, parts: Sequence[Part], message: Row, encodes: bool = True) -> Row:
    """encodes: our encoder makes just these bytes of the message."""
    return {"name": name, "frame": _parts(parts), "message": message, "encodes": encodes}


def _invalid(name: str, parts: Sequence[Part], code: str, told: Row) -> Row:
    return {"name": name, "frame": _parts(parts), "problem": {"code": code, **told}}


def _parts(parts: Sequence[Part]) -> list[str | dict[str, Any]]:
    return [p.hex() if isinstance(p, bytes) else {"repeat": p[0].hex(), "times": p[1]} for p in parts]


def _text(vectors: Row) -> str:
    """One vector a line, so that a change shows as a line."""
    lines = [f'  "direction": {json.dumps(vectors["direction"])}']
    for name in ("valid", "invalid"):
        rows = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in vectors[name])
        lines.append(f'  "{name}": [\n{rows}\n  ]')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(argv: Sequence[str]) -> int:
    if list(argv) != ["--write"]:
        print(__doc__)
        return 2
    VECTORS.mkdir(exist_ok=True)
    for name, text in files().items():
        (VECTORS / name).write_text(text, encoding="utf-8")
        print(f"{VECTORS / name}: {len(text):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
