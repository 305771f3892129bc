"""What is remembered, for `status` and for systemd's line: read off an open `Memory`, changing nothing."""

from __future__ import annotations

from recalld_daemon.events import Scalar
from recalld_daemon.memory import Memory
from recalld_daemon.workers import WorkerState


def topic_of(memory: Memory) -> dict[str, Scalar]:
    """`state`: starting, indexing, embedding, or ready; or what it waits for."""
    progress = memory.ingest.progress() if memory.ingest is not None else {}
    state = memory.index.state() if memory.index is not None else None
    known = memory.catalogue.state() if memory.catalogue is not None else None
    return {
        "state": state_of(memory), "files_done": progress.get("files_done", 0),
        "files_total": progress.get("files_total", 0), "embedded": state.passages if state else 0,
        "unembeddable": progress.get("passages_unembeddable", 0),
        "version": memory.learned.version, "snapshot": memory.learned.vectors, "preparing": memory.preparing,
        "kinds": ", ".join(sorted(set(state.kinds.values()))) if state else "",
        "memory_mb": round(state.memory_bytes / 1e6, 1) if state else 0.0,
        "token_mb": round(state.token_bytes / 1e6, 1) if state else 0.0,
        "unsaved": state.unsaved if state else 0,
        "catalogued": known.passages if known else 0, "speakers": known.speakers if known else 0,
        "catalogue_mb": round(known.memory_bytes / 1e6, 1) if known else 0.0,
    }  # fmt: skip


def state_of(memory: Memory) -> str:
    if memory.ingest is None:
        return "starting"
    if memory.write_ahead.held:
        return "waiting for a reader of the store"
    if memory.ingest.paused:
        return f"paused: {memory.ingest.paused}"
    progress = memory.ingest.progress()
    if not progress["idle"]:
        return "indexing"
    if memory.index is None:
        return memory.opening or "waiting for the model"
    return "ready" if progress["all_embedded"] else "embedding"


def line_of(memory: Memory, live: WorkerState) -> str:
    """One line for systemd's STATUS and the log."""
    model = "model ready" if live.phase == "ready" else f"model {live.phase}: {live.detail}".rstrip(": ")
    topic = topic_of(memory)
    files = f"files {topic['files_done']}/{topic['files_total']}"
    waiting = f", {memory.backlog} passages to embed" if topic["state"] == "embedding" else ""
    return f"{model}; {topic['state']}; {files}{waiting}"
