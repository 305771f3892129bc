"""Messages as JSON: every field by its name, also those at their default, so that a script can rely on the keys.

What belongs to the transport (`id`, `re`) is left out, and so is `session`, except of an event. Numbers that JSON
does not have (a NaN) become null.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from recalld_protocol.messages import Event, Message


def document(message: Message) -> dict[str, Any]:
    """`{"kind": ..., <every field>}`, in the order of the type's definition."""
    hidden = {"id", "re"} if isinstance(message, Event) else {"id", "re", "session"}
    return {"kind": message.__struct_config__.tag} | {
        name: _plain(part) for name, part in msgspec.structs.asdict(message).items() if name not in hidden
    }


def _plain(part: Any) -> Any:
    if isinstance(part, msgspec.Struct):
        return {name: _plain(inner) for name, inner in msgspec.structs.asdict(part).items()}
    if isinstance(part, dict):
        return {name: _plain(inner) for name, inner in part.items()}
    if isinstance(part, list | tuple):
        return [_plain(inner) for inner in part]
    return None if isinstance(part, float) and not math.isfinite(part) else part
