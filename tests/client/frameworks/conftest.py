"""Sessions that open within these tests wait for the scripted daemon's welcome, however loaded the machine is."""

from __future__ import annotations

import pytest

from recalld_client import handshake, session
from recalld_client.link import Link
from scripted_recalls import PATIENCE_SECONDS


@pytest.fixture(autouse=True)
def patient_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no daemon's socket file is, nothing is waited for, as ever."""
    opened = Link.open

    def open_patiently(self: Link, wait_seconds: float = PATIENCE_SECONDS) -> bool:
        return opened(self, wait_seconds)

    monkeypatch.setattr(Link, "open", open_patiently)
    monkeypatch.setattr(session, "CONNECT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(handshake, "PATIENCE_SECONDS", PATIENCE_SECONDS)  # nor is a slow thread a silent daemon
