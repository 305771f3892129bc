"""What a hook costs a host at a boundary: command and HTTP, the daemon idle, recalling, loading, stopped and absent.

    python tests/bench/hooks.py [--repetitions 300] [--model-cache DIR] [--json FILE]

A daemon of its own over a few notes, and the payloads that real hosts sent. A command is timed from start to end, by
turns with a bare `python3 -I -S -c pass` that is handed the same standard input, so that the machine's moods meet
both; ratios are of medians. *Idle* means that the payload tells nothing new, so nothing is recalled: what is left is
the transport. *Recalling* means that each payload holds a call not heard of, whose recall the hook waits for
(`hook_wait_seconds`, 30 ms, at most); *raced* that the call's start was told 50 ms before, as hosts with a hook at the
tool's start do. `http_added_ms_p95` is the larger of the two ways to connect, kept alive and fresh; *echo* is the same
request, by turns, to a process that answers without looking at it: what loopback and HTTP cost anyway. The targets:
command_ratio <= 1.4, http_added_ms_p95 <= 10, absent_ms_p95 and stopped_ms_p95 <= 150.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import psutil
from bench_tools import keep, quantile, table

from hook_payloads import batch, claude, recorded, recorded_batch
from recalld_client.hosts.hook_command import hook_command
from recalld_daemon.demo.private import PrivateDaemon, private_daemon, wait_until_indexed
from recalld_protocol.hook_http import HttpHook, make_http_hook

BARE = [sys.executable, "-I", "-S", "-c", "pass"]
BOUNDARY = {  # a boundary of each host that runs commands, and whether the command names it
    "claude-code": ("PostToolBatch", False),
    "codex": ("PostToolUse", False),
    "copilot": ("postToolUse", True),
    "gemini": ("AfterTool", False),
}
SERVED_SECONDS = 30.0
TOOL_SECONDS = 0.05
NOTES = 40
Times = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=300, help="of each command and request (%(default)s)")
    parser.add_argument("--model-cache", type=Path, help="where the encoder is prepared, or will be")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    flags = ["--model-cache", str(arguments.model_cache)] if arguments.model_cache else []
    with tempfile.TemporaryDirectory(prefix="rb-") as scratch:
        result = measure(Path(scratch), flags, arguments.repetitions)
    print()
    table([["figure", "value"], *[[name, value] for name, value in result.items()]])
    keep(result, arguments.json)


def measure(scratch: Path, flags: list[str], n: int) -> dict[str, Any]:
    write_notes(scratch / "notes")
    with private_daemon([scratch / "notes"], scratch / "home", flags) as daemon:
        env = {**os.environ, "RECALLD_RUNTIME_DIR": str(Path(daemon.endpoints.hooks).parent)}
        served = make_http_hook(env)
        loading = while_loading(daemon, scratch, env)
        wait_until_indexed(daemon, lambda line: print(f"\r{line:80}", end="", flush=True))
        front = until_served(daemon)
        idle = commands(scratch, env, n)
        http_idle = {**beside_an_echo(served, n), "fresh": fresh(served, n)}
        recalling = {
            "command": recalling_command(scratch, env, n),
            "http": kept_alive(served, n, new_call),
            "http raced": raced(served, n),
        }
        rss = {"front": psutil.Process(front).memory_info().rss / 1e6}
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            stopped = commands(scratch, env, max(3, n // 10), hosts=["claude-code"])
            stopped_http = kept_alive(served, max(3, n // 10), same)
        finally:
            daemon.process.send_signal(signal.SIGCONT)
    (scratch / "nobody").mkdir(mode=0o700)
    absent = commands(scratch, {**env, "RECALLD_RUNTIME_DIR": str(scratch / "nobody")}, n, hosts=["claude-code"])
    bare = idle["bare"]
    return {
        "command_ratio": ratio(idle["claude-code"], bare),
        "http_added_ms_p95": max(p95(http_idle["kept alive"]), p95(http_idle["fresh"])),
        "absent_ms_p95": p95(absent["claude-code"]),
        "stopped_ms_p95": p95(stopped["claude-code"]),
        "bare_ms_p50": p50(bare),
        "bare_ms_p95": p95(bare),
        **{f"command_ms_p50 {host}": p50(times) for host, times in idle.items() if host != "bare"},
        **{f"command_ratio {host}": ratio(times, bare) for host, times in idle.items() if host != "bare"},
        **{f"http_ms_{name} {how}": of(times) for how, times in http_idle.items() for name, of in BOTH.items()},
        **{f"recalling_ms_{name} {how}": of(times) for how, times in recalling.items() for name, of in BOTH.items()},
        "absent_ratio": ratio(absent["claude-code"], absent["bare"]),
        "absent_http_ms_p95": p95(refused(served, n)),
        "stopped_http_ms_p95": p95(stopped_http),
        "loading_ms_p95": p95(loading),
        "loading_hooks": len(loading),
        "front_mb": round(rss["front"], 1),
        "repetitions": n,
    }


def write_notes(directory: Path) -> None:
    directory.mkdir()
    for n in range(NOTES):
        (directory / f"pier-{n}.md").write_text(
            f"# Pier {n}\n\nThe crane at pier {n} is serviced by crew {n * 7 % 13} every {n % 5 + 2} weeks, and its "
            f"hook block number {n * 37} may lift {n % 9 + 3} tons when the wind is below {n % 4 + 5}.\n"
        )


# ---------------------------------------------------------------- commands


def run_ms(command: list[str], payload: Path, env: Mapping[str, str]) -> float:
    """From its start to its end, its output read: what a host waits for."""
    reading, writing = os.pipe()
    actions = [(os.POSIX_SPAWN_OPEN, 0, str(payload), os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, writing, 1)]
    began = time.perf_counter()
    pid = os.posix_spawn(command[0], command, env, file_actions=actions)
    os.close(writing)
    while os.read(reading, 65_536):
        continue
    _, status = os.waitpid(pid, 0)
    ms = (time.perf_counter() - began) * 1000
    os.close(reading)
    if status:
        raise RuntimeError(f"{command} ended with {os.waitstatus_to_exitcode(status)}")
    return ms


def commands(scratch: Path, env: Mapping[str, str], n: int, hosts: Iterable[str] = BOUNDARY) -> Times:
    """Each host's hook and the bare interpreter, by turns; ms."""
    hooks = {host: boundary_of(host, scratch) for host in hosts}
    times: Times = {"bare": [], **{host: [] for host in hooks}}
    for payload, command in hooks.values():
        run_ms(command, payload, env)  # tells what it has to tell
    for _ in range(n):
        for host, (payload, command) in hooks.items():
            times[host].append(run_ms(command, payload, env))
            times["bare"].append(run_ms(BARE, payload, env))
    return times


def boundary_of(host: str, scratch: Path) -> tuple[Path, list[str]]:
    """A real payload of that host's boundary, in a file, and the command that takes it."""
    event, named = BOUNDARY[host]
    payload = next(body for given, body in recorded(host) if event in (given, json.loads(body).get("hook_event_name")))
    (scratch / host).write_bytes(payload)
    return scratch / host, hook_command(host, event if named else "")


def recalling_command(scratch: Path, env: Mapping[str, str], n: int) -> list[float]:
    times = []
    for number in range(n):
        (scratch / "new").write_bytes(new_call(number, "command"))
        times.append(run_ms(hook_command("claude-code"), scratch / "new", env))
    return times


def while_loading(daemon: PrivateDaemon, scratch: Path, env: Mapping[str, str]) -> list[float]:
    payload, command = boundary_of("claude-code", scratch)
    times = []
    while (status := daemon.status()) is None or status.topics["models"]["state"] in ("starting", "loading"):
        times.append(run_ms(command, payload, env))
    return times


# ---------------------------------------------------------------- HTTP


def same(number: int) -> bytes:
    return recorded_batch()


def new_call(number: int, session: str = "recalling") -> bytes:
    text = f"crane-log --pier {number % NOTES} --crew {number} # which hook block may lift how many tons at this pier?"
    return batch((f"{session}-{number}", text), session=session)


def post_ms(connection: http.client.HTTPConnection, served: HttpHook, payload: bytes) -> float:
    began = time.perf_counter()
    connection.request("POST", "/hooks/claude-code", payload, {"Authorization": f"Bearer {served.token}"})
    response = connection.getresponse()
    response.read()
    if response.status != 200:
        raise RuntimeError(f"answered {response.status}")
    return (time.perf_counter() - began) * 1000


def connected(served: HttpHook) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=SERVED_SECONDS)
    connection.connect()
    assert connection.sock is not None
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def kept_alive(served: HttpHook, n: int, payload: Callable[[int], bytes]) -> list[float]:
    connection = connected(served)
    post_ms(connection, served, payload(-1))
    times = [post_ms(connection, served, payload(number)) for number in range(n)]
    connection.close()
    return times


ECHO = (
    "import socket\n"
    "listening = socket.create_server(('127.0.0.1', 0))\n"
    "print(listening.getsockname()[1], flush=True)\n"
    "peer, _ = listening.accept()\n"
    "peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n"
    "while data := peer.recv(1 << 20):\n"
    "    if data.endswith(b'}'): peer.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n')\n"
)


def beside_an_echo(served: HttpHook, n: int) -> Times:
    """The front and the echo, by turns, each on a connection that stays open."""
    with subprocess.Popen([*BARE[:-1], ECHO], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        echo = HttpHook(int(process.stdout.readline()), served.token)
        ours, theirs = connected(served), connected(echo)
        times: Times = {"kept alive": [], "echo": []}
        for number in range(n):
            times["kept alive"].append(post_ms(ours, served, same(number)))
            times["echo"].append(post_ms(theirs, echo, same(number)))
        ours.close()
        theirs.close()
    return times


def fresh(served: HttpHook, n: int) -> list[float]:
    """Each on a connection of its own, whose making is part of it."""
    times = []
    for number in range(n):
        began = time.perf_counter()
        connection = connected(served)
        post_ms(connection, served, same(number))
        times.append((time.perf_counter() - began) * 1000)
        connection.close()
    return times


def raced(served: HttpHook, n: int) -> list[float]:
    """Only the boundary is timed; the tool runs between its start's hook and it."""
    connection, times = connected(served), []
    for number in range(n):
        ending = json.loads(new_call(number, "raced"))
        (call,) = ending["tool_calls"]
        post_ms(connection, served, claude("PreToolUse", "raced", **call))
        time.sleep(TOOL_SECONDS)
        times.append(post_ms(connection, served, json.dumps(ending).encode()))
    connection.close()
    return times


def refused(served: HttpHook, n: int) -> list[float]:
    """Nobody listens: what a host sees when the daemon, and so the front, is not there."""
    times = []
    for _ in range(n):
        began = time.perf_counter()
        try:
            connected(served).close()
        except ConnectionRefusedError:
            times.append((time.perf_counter() - began) * 1000)
    return times


def until_served(daemon: PrivateDaemon) -> int:
    """The pid of the process that serves HTTP, once it does."""
    deadline = time.monotonic() + SERVED_SECONDS
    while time.monotonic() < deadline:
        status = daemon.status()
        if status is not None and status.topics["hooks"]["http"] == "serving":
            return int(status.topics["hooks"]["http_pid"] or 0)
        time.sleep(0.05)
    raise RuntimeError("HTTP hooks are not served")


# ---------------------------------------------------------------- figures


def p50(times: list[float]) -> float:
    return round(quantile(times, 0.5), 2)


def p95(times: list[float]) -> float:
    return round(quantile(times, 0.95), 2)


def ratio(times: list[float], bare: list[float]) -> float:
    return round(statistics.median(times) / statistics.median(bare), 3)


BOTH: dict[str, Callable[[list[float]], float]] = {"p50": p50, "p95": p95}


if __name__ == "__main__":
    main()
