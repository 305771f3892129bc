"""What Codex says of our hooks: it runs none that its user has not reviewed, and does not say so when it does not.

Its app server (`codex app-server`, JSON lines over pipes) lists hooks with what it thinks of each. Asked this way, no
guess about its files is needed. It is given a few seconds, and no answer is no fault of the hooks.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

PATIENCE_SECONDS = 5.0
ASKED = 2  # the request's id
Trust = Literal["trusted", "untrusted", "disabled", "unknown"]


def trust_of(program: str, settings: Path, cwd: Path, env: Mapping[str, str]) -> Trust:
    """Of the hooks in that file: the worst of theirs. "unknown": Codex did not say, or does not see them."""
    said = _listed(program, cwd, env)
    hooks = [hook for hook in said if hook.get("sourcePath") == str(settings)]
    if not hooks:
        return "unknown"
    if any(hook.get("enabled") is False for hook in hooks):
        return "disabled"
    return "trusted" if all(hook.get("trustStatus") in ("trusted", "managed") for hook in hooks) else "untrusted"


def _listed(program: str, cwd: Path, env: Mapping[str, str]) -> list[dict[str, Any]]:
    requests: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "recallctl", "version": "0"}}},
        {"method": "initialized"},
        {"id": ASKED, "method": "hooks/list", "params": {"cwds": [str(cwd)]}},
    ]
    for answer in _spoken([program, "app-server"], requests, cwd, env):
        if answer.get("id") == ASKED:
            found = answer.get("result", {}).get("data", [])
            return [hook for place in found for hook in place.get("hooks", [])]
    return []


def _spoken(
    command: list[str], requests: list[dict[str, Any]], cwd: Path, env: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Its answers to these, as they come. It is ended when the last is in, or its time is over."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=cwd,
            env={**env, "RECALLD_OFF": "1"},
        )  # fmt: skip
    except OSError:
        return
    with process:
        timer = _killed_after(process)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
            process.stdin.flush()
            for line in process.stdout:
                try:
                    answer = json.loads(line)
                except ValueError:
                    continue
                if isinstance(answer, dict):
                    yield answer
        except BrokenPipeError:
            return
        finally:
            timer.cancel()
            process.kill()


def _killed_after(process: subprocess.Popen[bytes]) -> threading.Timer:
    timer = threading.Timer(PATIENCE_SECONDS, process.kill)
    timer.daemon = True
    timer.start()
    return timer
