"""What passed the gate and is withheld all the same, at random: without it nobody can say what showing was worth.

The lot is drawn by a hash of session and passage: the same at every stage of every recall, on either side of a restart,
and independent of how good the passage looks. Pure.
"""

from __future__ import annotations

from hashlib import blake2b

WITHHELD = "withheld at random, to learn what showing is worth ([learning] withheld_share)"
_HIGHEST = float(2**64)


def is_withheld(session: str, passage: int, share: float) -> bool:
    """Whether this passage is withheld from this session. share: of what passes the gate, 0 to 1.

    >>> sum(is_withheld("s-7f3a", passage, 0.03) for passage in range(10_000))
    304
    """
    if share <= 0.0:
        return False
    lot = blake2b(f"{passage} {session}".encode(), digest_size=8).digest()
    return int.from_bytes(lot, "big") < share * _HIGHEST
