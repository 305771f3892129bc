"""One hook run as its host runs it: the very line, request or plugin that stands in the host's settings.

Claude Code starts a command itself, or posts; Codex asks the user's shell, Gemini and Copilot ask bash; OpenCode loads
the plugin into itself, which Node stands in for here.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .samples import Step

MOST_SECONDS = 5.0  # no installed timeout is longer
CALL_PLUGIN = """
import { pathToFileURL } from "node:url"
const [file, event, payload] = process.argv.slice(1)
const { directory, input, output } = JSON.parse(payload)
const { Recalld } = await import(pathToFileURL(file).href)
const hooks = await Recalld({ directory })
if (event in hooks) await hooks[event](input, output)
else await hooks.event(input)
const part = output?.parts?.[1]?.text ?? output?.output?.slice("done\\n\\n".length) ?? ""
process.stdout.write(part)
"""  # what the plugin added to the parts of a message, or to a tool's result


class NoDelivery(Exception):
    """The hook could not be run, or did not end as it must; says why."""


def deliver(host: str, handler: Mapping[str, Any], step: Step, cwd: Path, env: Mapping[str, str]) -> bytes:
    """What the host would get from this hook at this event. Raises NoDelivery."""
    payload = json.dumps(step.payload).encode()
    if handler.get("type") == "http":
        return _post(handler, payload)
    return _run(_command(host, handler, env), payload, cwd, env, host)


def deliver_by_plugin(plugin: Path, step: Step, cwd: Path, env: Mapping[str, str]) -> bytes:
    """What OpenCode's plugin adds. Raises NoDelivery."""
    node = shutil.which("node", path=env.get("PATH")) or shutil.which("bun", path=env.get("PATH"))
    if node is None:
        raise NoDelivery("neither node nor bun is on PATH, so the plugin can't be tried outside OpenCode")
    flags = ["--input-type=module"] if os.path.basename(node) == "node" else []
    command = [node, *flags, "-e", CALL_PLUGIN, "--", str(plugin), step.event, json.dumps(step.payload)]
    return _run(command, b"", cwd, env, "opencode")


def _command(host: str, handler: Mapping[str, Any], env: Mapping[str, str]) -> Sequence[str]:
    line = str(handler.get("command", handler.get("bash", "")))
    if isinstance(args := handler.get("args"), list):
        return [line, *map(str, args)]
    match host:
        case "codex":
            return [env.get("SHELL") or "sh", "-lc", line]
        case "claude-code":
            return ["sh", "-c", line]
    return ["bash", "-c", line]


def _run(command: Sequence[str], payload: bytes, cwd: Path, env: Mapping[str, str], host: str) -> bytes:
    try:
        ended = subprocess.run(
            command, input=payload, env=env, cwd=cwd, capture_output=True, timeout=MOST_SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise NoDelivery(f"{error.filename} is not there") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoDelivery(f"it did not run to its end: {error}") from error
    if ended.returncode != 0:
        said = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        raise NoDelivery(f"it ended with {ended.returncode}{': ' + said[-1] if said else ''}")
    return ended.stdout


def _post(handler: Mapping[str, Any], payload: bytes) -> bytes:
    """Straight to this machine, whatever proxy is set, as Claude Code does."""
    parts = urlsplit(str(handler["url"]))
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=MOST_SECONDS)
    headers = {"Content-Type": "application/json", **handler.get("headers", {})}
    try:
        connection.request("POST", parts.path, payload, headers)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise NoDelivery(f"nothing answers at {parts.scheme}://{parts.netloc}: {error}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise NoDelivery(f"{parts.scheme}://{parts.netloc} answered {response.status} {response.reason}")
    return body
