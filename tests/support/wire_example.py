"""The worked example of `protocol/README.md`: one session, each byte explained. Made here, and read back.

`python tests/support/wire_example.py --write` puts it between the README's two marks. Bytes stand first on their line,
in pairs; what they are follows after two spaces or more. So a reader of another language, and a test, take the bytes
from the README itself.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recalld_protocol import messages as m
from recalld_protocol import wire
from wire_spec import README

BEGIN, END = "<!-- worked example: tests/support/wire_example.py --write -->", "<!-- /worked example -->"
WIDTH = 56  # columns of bytes; a text's own stand on lines of their own
PER_LINE = 16

SESSION = "s-7f3a"
SNIPPET = "6a1e90c2.1.2-17"
FOUND = "never tag berth_booking before CI is green on the release branch"


@dataclass(frozen=True)
class Step:
    """who: "client" or "daemon"; why: the sentence above it."""

    who: str
    why: str
    message: m.AnyMessage


STEPS = (
    Step("client", "The client opens its session. It counts its messages by `id`.",
         m.Hello(session=SESSION, id=1, versions=[1], client="example 1", host="my-agent", cwd="/home/ada/shop")),
    Step("daemon", "The daemon is there: protocol version 1, and what the client must know to keep to its rules.",
         m.Welcome(session=SESSION, re=1, version=1, epoch="6a1e90c2", daemon="0.1.0", pid=4242, boundary_tokens=240)),
    Step("client", "The user says something. Nothing is waited for.",
         m.Turn(session=SESSION, id=2, turn=1, text="we ship today")),
    Step("daemon", "Nothing came to mind. (Whether and when this comes is the daemon's affair.)",
         m.Settled(session=SESSION, recall="6a1e90c2.1.1", turn=1, outcome="silent", stage="late",
                   reason="nothing is probable enough", ms=9.5)),
    Step("client", "The agent calls a tool, and works on.",
         m.ToolStarted(session=SESSION, id=3, call="c-1", name="bash",
                       args="git tag berth_booking on the release branch")),
    Step("daemon", "While the tool runs, something came to mind; it lies in the client's buffer until the boundary.",
         m.Inject(session=SESSION, recall="6a1e90c2.1.2", stage="late", turn=1, boundary=0, calls=["c-1"], ms=12.25,
                  snippets=[m.Snippet(id=SNIPPET, text=FOUND, path="memory:17", start=0, end=64, date="2026-03-02",
                                      probability=0.75)])),
    Step("daemon", "Nothing more comes of it: who waits at the boundary need not wait any longer.",
         m.Settled(session=SESSION, recall="6a1e90c2.1.2", calls=["c-1"], outcome="ready", stage="late", ms=12.5)),
    Step("client", "The tool has ended; the next boundary is that recall's own.",
         m.ToolEnded(session=SESSION, id=4, call="c-1", result="v1.4")),
    Step("client", "The boundary: the client has put the snippet into the agent's context, and says so.",
         m.Boundary(session=SESSION, id=5, number=1, turn=1, taken=[SNIPPET])),
    Step("client", "The session is over. Nothing answers it.", m.Bye(session=SESSION, id=6)),
)  # fmt: skip


def section() -> str:
    """The README's text between the marks."""
    parts = []
    for number, step in enumerate(STEPS, 1):
        frame = wire.encode(step.message)
        kind = str(step.message.__struct_config__.tag)
        parts.append(f"{number}. **{step.who}**, `{kind}`, {len(frame)} bytes. {step.why}\n")
        lines = "\n".join(f"{bytes_.hex(' '):{WIDTH}}{told}".rstrip() for bytes_, told in annotated(frame))
        parts.append(f"```frame-{step.who}\n{lines}\n```\n")
    return "\n".join(parts)


def frames(text: str | None = None) -> list[tuple[str, bytes]]:
    """(who, bytes) of each frame in the README, read as a person would."""
    found = re.findall(r"```frame-(client|daemon)\n(.+?)```", text or README.read_text(encoding="utf-8"), re.DOTALL)
    return [(who, bytes_in(block)) for who, block in found]


def block_of(name: str) -> bytes:
    """The bytes of the one block of this name."""
    (block,) = re.findall(rf"```{name}\n(.+?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return bytes_in(block)


def bytes_in(block: str) -> bytes:
    """The bytes that begin each line."""
    return b"".join(
        bytes.fromhex(match[1]) for match in re.finditer(r"^((?:[0-9a-f]{2} ?)+)(?: |$)", block, re.MULTILINE)
    )


def annotated(frame: bytes) -> list[tuple[bytes, str]]:
    """The frame in pieces, each with what it is."""
    pieces: list[tuple[bytes, str]] = []
    end = _value(frame, 0, 0, pieces)
    assert end == len(frame)
    return pieces


def _value(frame: bytes, at: int, depth: int, pieces: list[tuple[bytes, str]]) -> int:
    head, indent = frame[at], "  " * depth
    if 0x80 <= head < 0xA0:
        many, is_map = head & 15, head < 0x90
        pieces.append((frame[at : at + 1], f"{indent}{'map' if is_map else 'list'} of {many}"))
        at += 1
        for _ in range(many * (2 if is_map else 1)):
            at = _value(frame, at, depth + 1, pieces)
        return at
    if 0xA0 <= head < 0xC0 or head == 0xD9:
        width = 2 if head == 0xD9 else 1
        size = frame[at + 1] if head == 0xD9 else head & 31
        text = frame[at + width : at + width + size]
        pieces += _lines(frame[at : at + width], text, f'{indent}"{text.decode()}"')
        return at + width + size
    size, told = _number(frame, at)
    pieces.append((frame[at : at + size], f"{indent}{told}"))
    return at + size


def _lines(head: bytes, text: bytes, told: str) -> Iterator[tuple[bytes, str]]:
    whole = head + text
    for first in range(0, len(whole), PER_LINE):
        yield whole[first : first + PER_LINE], told if not first else ""


def _number(frame: bytes, at: int) -> tuple[int, str]:
    head = frame[at]
    if head < 0x80:
        return 1, str(head)
    if head in (0xC2, 0xC3):
        return 1, "false" if head == 0xC2 else "true"
    if head in (0xCC, 0xCD, 0xCE):
        size = {0xCC: 1, 0xCD: 2, 0xCE: 4}[head]
        return 1 + size, f"{int.from_bytes(frame[at + 1 : at + 1 + size], 'big')}, as uint {8 * size}"
    if head == 0xCB:
        return 9, f"{struct.unpack('>d', frame[at + 1 : at + 9])[0]}, as float 64"
    raise AssertionError(f"the example has a value that needs words here: {head:#x}")


def main(argv: Sequence[str]) -> int:
    if list(argv) != ["--write"]:
        print(__doc__)
        return 2
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    README.write_text(f"{before}{BEGIN}\n\n{section()}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
