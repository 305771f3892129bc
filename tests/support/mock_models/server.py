"""The stand-ins' one socket: a loopback HTTP server in a thread that answers by the script and keeps what was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mock_models.dialects import JSON, answer
from mock_models.script import Say, Script

HEARD = b'{"data": [], "models": []}'  # to whatever is asked besides: a list of models, a start-up check


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for the model's next step. conversation: the script's words for it, "" where it is none of ours."""

    conversation: str
    path: str
    body: dict[str, Any]

    @property
    def text(self) -> str:
        return json.dumps(self.body, ensure_ascii=False)


@dataclass(slots=True)
class MockModel:
    script: Script
    url: str = ""
    asked: list[Asked] = field(default_factory=list)  # in the order of arrival
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, conversation: str) -> list[Asked]:
        return [one for one in self.asked if one.conversation == conversation]

    def reply(self, path: str, raw: bytes) -> tuple[str, bytes]:
        try:
            body: dict[str, Any] = json.loads(raw or b"{}")
        except ValueError:
            return JSON, b"{}"  # telemetry in a form of its own
        with self._lock:
            talk = _is_talk(path, body)
            words, number, step = (
                self.script.next(json.dumps(body, ensure_ascii=False)) if talk else ("", 0, [Say("{}")])
            )
            self.asked.append(Asked(words, path, body))
            place = [*self.script.conversations, ""].index(words)
            return answer(path, body, step, f"{place}_{number:03d}")

    @contextmanager
    def serving(self) -> Iterator[MockModel]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _is_talk(path: str, body: dict[str, Any]) -> bool:
    """A request of the agent's own: it brings its tools, which one for a title or a probe does not."""
    return bool(body.get("tools")) and "count_tokens" not in path and "countTokens" not in path


def _handler(model: MockModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._send(JSON, HEARD)

        do_HEAD = do_GET

        def do_POST(self) -> None:
            kind, body = model.reply(self.path, self.rfile.read(int(self.headers.get("content-length") or 0)))
            self._send(kind, body)

        def _send(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return Handler
