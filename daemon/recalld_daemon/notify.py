"""sd_notify: one datagram per state change to the socket that systemd names in $NOTIFY_SOCKET; silence elsewhere.

The watchdog is fed by the loop that answers sockets, and by nothing else: a hung loop must be seen as hung.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class Notifier:
    """`environ` is read once; without NOTIFY_SOCKET every call is a no-op. Never raises: systemd may have gone."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        mine = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environ.get("WATCHDOG_USEC", "")
        self.watchdog_seconds = int(microseconds) / 1e6 if mine and microseconds.isdigit() else 0.0

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=draining")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            try:
                sock.sendto(text.encode(), self._address)
            except OSError:
                return
