"""Which encoding a text file has, decided once per file from its head: by its BOM, else UTF-8, else Windows-1252.

UTF-8 with a few bad bytes stays UTF-8 (they are replaced and counted). What is neither is reported and not indexed:
a guess among the hundred legacy encodings would show the user garbage.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

HEAD_BYTES = 256 * 1024  # looked at; what differs only after that is replaced and counted
CONTROL_SHARE = 0.02  # of a text's bytes; compressed data and executables have 0.1 and more
WESTERN_SHARE = 0.5  # of what is no space is beyond ASCII; German 0.02, French 0.05; Cyrillic above 0.8
ODD_SHARE = 0.3  # of the signs beyond ASCII stand where no Western text puts them

_CONTROLS = bytes(c for c in range(32) if c not in b"\t\n\r\f\x1b")
_UNDEFINED_1252 = b"\x81\x8d\x8f\x90\x9d"
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, ""),  # before UTF-16 LE, whose BOM it begins with
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True)
class Encoding:
    codec: str  # "" : not to be indexed, for the reason in `problem`
    bom: int = 0  # bytes of the file before the text
    problem: str = ""


def tell_encoding(head: bytes) -> Encoding:
    """The encoding of a file that begins with `head` (up to HEAD_BYTES of it)."""
    for bom, codec in _BOMS:
        if head.startswith(bom):
            return Encoding(codec, len(bom)) if codec else Encoding("", problem="UTF-32 is not supported: not indexed")
    if head and _share(head, _CONTROLS) > CONTROL_SHARE:
        return Encoding("", problem="looks binary: not indexed")
    good, bad = _utf8_sequences(head)
    if bad <= good:
        return Encoding("utf-8")
    letters = sum(1 for byte in head if byte not in b" \t\r\n")
    high = sum(1 for byte in head if byte >= 0x80)
    if _share(head, _UNDEFINED_1252) == 0 and high <= WESTERN_SHARE * letters and _is_western(head):
        return Encoding("cp1252", problem="not UTF-8: read as Windows-1252")
    return Encoding("", problem="neither UTF-8, UTF-16 nor Windows-1252: not indexed; save it as UTF-8")


def _share(head: bytes, of: bytes) -> float:
    return (len(head) - len(head.translate(None, of))) / max(1, len(head))


def _utf8_sequences(head: bytes) -> tuple[int, int]:
    """(characters of more than one byte, invalid spots); what the head's end cuts counts as neither."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
    bad = text.count("\ufffd") - head.count(b"\xef\xbf\xbd")
    return sum(1 for c in text if c >= "\x80") - text.count("\ufffd"), bad


def _is_western(head: bytes) -> bool:
    """Letters and typographic signs where they stand in Western text: seldom two in a row, no capital inside a word."""
    text = head.decode("cp1252", "replace")
    signs = [(before, c) for before, c in zip(" " + text, text, strict=False) if c >= "\x80"]
    return sum(_is_odd(before, c) for before, c in signs) <= ODD_SHARE * len(signs)


def _is_odd(before: str, c: str) -> bool:
    if c in "¤¦¨¬¯¶¸¹¼½¾Ð×Þðþ÷ƒˆ†‡‰":
        return True
    return c.isalpha() and ((before >= "\x80" and before.isalpha()) or (c.isupper() and before.islower()))
