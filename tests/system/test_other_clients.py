"""Clients that know nothing but `protocol/README.md`: its bytes over a bare socket, and one in JavaScript."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recalld_daemon.demo.private import PrivateDaemon, wait_until_indexed
from recalld_protocol.messages import Remember, Remembered
from running import running
from wire_example import FOUND, block_of, frames
from wire_vectors import VECTORS

HERE = Path(__file__).parents[1] / "protocol" / "other_client"
WAIT = 60.0


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, model_cache: Path) -> Iterator[PrivateDaemon]:
    with running(tmp_path_factory.mktemp("home"), model_cache) as private:
        assert isinstance(private.link.request(Remember(text=FOUND, scope="global"), WAIT), Remembered)
        wait_until_indexed(private, lambda line: None, poll_seconds=0.02)
        yield private


# ---------------------------------------------------------------- the README's bytes, and a decoder of forty lines


class Bare:
    """ZMTP over a Unix stream, as the worked example has it: no ZeroMQ, no msgpack library."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(WAIT)
        self._socket.connect(path)
        opening = block_of("zmtp-client")
        self._socket.sendall(opening[:64])
        greeting = self._bytes(64)
        assert (greeting[0], greeting[9], greeting[10]) == (0xFF, 0x7F, 3)
        self._socket.sendall(opening[64:])
        flags, ready = self._frame()
        assert flags == 0x04
        assert ready.startswith(b"\x05READY")

    def send(self, frame: bytes) -> None:
        size = bytes([0, len(frame)]) if len(frame) < 256 else b"\x02" + len(frame).to_bytes(8, "big")
        self._socket.sendall(size + frame)

    def receive(self, *kinds: str) -> dict[str, Any]:
        while True:
            flags, frame = self._frame()
            if flags & 0x04:
                continue
            message, end = read(frame, 0)
            assert end == len(frame)
            if message["kind"] in kinds:
                return dict(message)

    def close(self) -> None:
        self._socket.close()

    def _frame(self) -> tuple[int, bytes]:
        flags = self._bytes(1)[0]
        return flags, self._bytes(int.from_bytes(self._bytes(8 if flags & 0x02 else 1), "big"))

    def _bytes(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            part = self._socket.recv(count - len(received))
            assert part, "the daemon hung up"
            received += part
        return received


def read(data: bytes, at: int) -> tuple[Any, int]:
    """The msgpack value at `at`, and where it ends."""
    head, at = data[at], at + 1
    if head < 0x80 or head >= 0xE0:
        return (head if head < 0x80 else head - 256), at
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head], at
    numbers = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
               0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}  # fmt: skip
    if head in numbers:
        end = at + struct.calcsize(numbers[head])
        return struct.unpack(numbers[head], data[at:end])[0], end
    lengths = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
    if head in lengths:
        count, at = int.from_bytes(data[at : at + lengths[head]], "big"), at + lengths[head]
    else:
        count = head & (0x1F if head >= 0xA0 else 0x0F)
    if 0xA0 <= head < 0xC0 or 0xD9 <= head <= 0xDB:
        return data[at : at + count].decode(), at + count
    values = []
    for _ in range(count * (2 if head < 0x90 or head >= 0xDE else 1)):
        value, at = read(data, at)
        values.append(value)
    if 0x90 <= head < 0xA0 or head in (0xDC, 0xDD):
        return values, at
    return dict(zip(values[::2], values[1::2], strict=True)), at


def test_the_readmes_bytes_are_a_session(daemon: PrivateDaemon) -> None:
    said = {read(frame, 0)[0]["kind"]: frame for who, frame in frames() if who == "client"}
    bare = Bare(daemon.endpoints.request.removeprefix("ipc://"))
    bare.send(said["hello"])
    welcome = bare.receive("welcome")
    assert (welcome["re"], welcome["version"], welcome["session"]) == (1, 1, "s-7f3a")
    bare.send(said["turn"])
    assert bare.receive("settled")["turn"] == 1
    bare.send(said["tool_started"])
    inject = bare.receive("inject")
    assert inject["calls"] == ["c-1"]
    assert [snippet["text"] for snippet in inject["snippets"]] == [FOUND]
    assert bare.receive("settled")["outcome"] == "ready"
    bare.send(said["tool_ended"])
    ours, theirs = read(said["boundary"], 0)[0]["taken"][0].encode(), inject["snippets"][0]["id"].encode()
    taken = said["boundary"].replace(bytes([0xA0 + len(ours)]) + ours, bytes([0xA0 + len(theirs)]) + theirs)
    bare.send(taken)
    bare.send(said["bye"])
    bare.close()
    status = daemon.status()
    while status is None or status.topics["log"]["impressions"] != 1:
        status = daemon.status()
    assert status.topics["races"]["won"] == 1
    assert status.topics["sessions"]["open"] == 0


def test_the_readmes_hook_is_taken(daemon: PrivateDaemon) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hook:
        hook.settimeout(WAIT)
        hook.connect(daemon.endpoints.hooks)
        hook.sendall(block_of("hook"))
        printed = b""
        while part := hook.recv(4096):
            printed += part
    status = daemon.status()
    assert status is not None
    hooks = status.topics["hooks"]
    assert (hooks["requests"], hooks["refused"]) == (1, 0)
    assert not printed or FOUND in printed.decode()


# ---------------------------------------------------------------- JavaScript


@pytest.fixture(scope="module")
def node() -> list[str]:
    """The command that runs the client, its two packages installed once into a cache."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if not found or not npm:
        pytest.skip("the client in JavaScript: no node or npm on PATH")
    wanted = (HERE / "package.json").read_text()
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = Path(os.environ.get("RECALLD_TEST_HOSTS") or users / "recalld-tests") / "other-client"
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "package.json").exists() or (place / "package.json").read_text() != wanted:
        (place / "package.json").write_text(wanted)
        shutil.rmtree(place / "node_modules", ignore_errors=True)
    if not (place / "node_modules" / "zeromq").is_dir():
        made = subprocess.run(
            [npm, "install", "--prefix", str(place), "--no-audit", "--no-fund"], capture_output=True, text=True
        )
        if made.returncode:
            pytest.skip(
                f"the client in JavaScript: npm can't install zeromq and @msgpack/msgpack: {made.stderr[-300:]}"
            )
    shutil.copy(HERE / "client.mjs", place)
    return [found, str(place / "client.mjs")]


def test_a_client_in_javascript_that_knows_the_readme_alone(daemon: PrivateDaemon, node: list[str]) -> None:
    path = daemon.endpoints.request.removeprefix("ipc://")
    done = subprocess.run([*node, path, str(VECTORS)], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["welcome"]["version"], told["welcome"]["re"]) == (1, 1)
    assert told["remembered"]["memory"].startswith("memory:")
    assert (told["problem"]["code"], told["problem"]["of"]) == ("unknown_kind", "dream")
    assert told["settled"]["outcome"] == "ready"
    assert FOUND in [snippet["text"] for snippet in told["snippets"]]
    assert told["why"]["recall"] == told["settled"]["recall"]
    assert told["forgotten"]["path"] == told["remembered"]["memory"]
    assert told["pong"]["pid"] == daemon.process.pid
    assert told["vectors"]["tried"] == sum(
        len(json.loads(path.read_text(encoding="utf-8"))["valid"]) for path in VECTORS.glob("*.json")
    )
    assert told["vectors"]["wrong"] == []
