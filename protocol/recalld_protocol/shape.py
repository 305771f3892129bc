"""How deep and how many: a walk over a msgpack frame that builds nothing.

Typed decoding bounds every field it knows, but skips the unknown ones at any depth, down to the interpreter's own
recursion limit, which is neither stated nor the same everywhere. So a frame is measured first. Most frames need no
walk: one with no more bytes than values are allowed, and no more container headers than levels, can't pass either
limit.
"""

from __future__ import annotations

from .errors import LimitExceeded

DEPTH_LIMIT = 16  # levels, the top map being the first; our deepest message (`why`) has 5, the rest is for later kinds

_HEADERS = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])  # fixmap, fixarray, array16/32, map16/32
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # bin, str: bytes of the length that follows
_SIZED_EXT = {0xC7: 1, 0xC8: 2, 0xC9: 4}  # the same for ext, whose type byte follows the length
_FIXED: dict[int, int] = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8} | {
    0xD4 + power: 1 + 2**power
    for power in range(5)  # float, uint, int; fixext with its type byte
}


def _whole(head: int) -> int:
    """Bytes of a value whose length its first byte tells; 0: a container, or the length follows."""
    if 0xA0 <= head < 0xC0:  # fixstr
        return 1 + (head & 31)
    if head in _HEADERS or head in _SIZED or head in _SIZED_EXT:
        return 0
    return 1 + _FIXED.get(head, 0)  # 1 alone: small integers, nil, booleans


_WHOLE = [_whole(head) for head in range(256)]


def check_shape(frame: bytes, values: int) -> None:
    """Refuse a frame nested deeper than DEPTH_LIMIT, or of more than `values` values (keys and containers count).

    Looks at no more than `values` values and keeps one integer per level. Says nothing about frames that end too
    early or hold reserved bytes: the decoder does.

    Raises: LimitExceeded.
    """
    if len(frame) <= values and len(frame) - len(frame.translate(None, _HEADERS)) <= DEPTH_LIMIT:
        return
    at, left = 0, 1  # left: values still to come at this level
    outer: list[int] = []  # the same for the levels around it
    for _ in range(values):
        while not left:
            if not outer:
                return  # the top value is complete; trailing bytes are the decoder's complaint
            left = outer.pop()
        if at >= len(frame):
            return
        left -= 1
        if whole := _WHOLE[frame[at]]:
            at += whole
            continue
        at, children = _enter(frame, at)
        if children >= 0:
            if len(outer) >= DEPTH_LIMIT:
                raise LimitExceeded(f"the frame is nested deeper than {DEPTH_LIMIT} levels: flatten it")
            outer.append(left)
            left = children
    if at < len(frame) and (left or any(outer)):
        raise LimitExceeded(f"the frame holds more than {values} values: send fewer")


def _enter(frame: bytes, at: int) -> tuple[int, int]:
    """The container or sized value at `at`: (where the next value starts, values inside it; -1: no container)."""
    head = frame[at]
    at += 1
    if head < 0xA0:  # fixmap, fixarray
        return at, (head & 15) * (2 if head < 0x90 else 1)
    if head >= 0xDC:  # array16, array32, map16, map32
        width = 2 if head in (0xDC, 0xDE) else 4
        return at + width, _length(frame, at, width) * (2 if head >= 0xDE else 1)
    if head in _SIZED:
        return at + _SIZED[head] + _length(frame, at, _SIZED[head]), -1
    return at + _SIZED_EXT[head] + 1 + _length(frame, at, _SIZED_EXT[head]), -1


def _length(frame: bytes, at: int, width: int) -> int:
    return int.from_bytes(frame[at : at + width], "big")
