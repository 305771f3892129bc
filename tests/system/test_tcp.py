"""Over TCP, as a user sets it up: keys made by `recalld keys`, a daemon and a client configured with them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from recalld_client import Session
from recalld_daemon.__main__ import main
from recalld_daemon.keys import read_clients, read_secret
from recalld_protocol.endpoints import EndpointError, endpoints
from running import running


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_keys_are_made_once_and_are_private(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", str(tmp_path / "k"), "--client", "laptop"]) == 0
    secret = read_secret(tmp_path / "k" / "daemon.secret")
    assert main(["keys", str(tmp_path / "k"), "--client", "phone"]) == 0
    assert main(["keys", str(tmp_path / "k"), "--client", "phone"]) == 1  # nothing is overwritten
    assert "phone.keys" in capsys.readouterr().err
    assert read_secret(tmp_path / "k" / "daemon.secret") == secret
    assert len(read_clients(tmp_path / "k" / "clients")) == 2
    assert [path for path in (tmp_path / "k").iterdir() if path.stat().st_mode & 0o077] == []


def test_tcp_without_keys_is_refused_by_the_client(tmp_path: Path) -> None:
    with pytest.raises(EndpointError, match="only spoken encrypted"):
        endpoints({"RECALLD_TCP": "tcp://127.0.0.1:1"})
    open_file = tmp_path / "open.keys"
    open_file.write_text("daemon x\n")
    open_file.chmod(0o644)
    with pytest.raises(EndpointError, match="chmod 600"):
        endpoints({"RECALLD_TCP": "tcp://127.0.0.1:1", "RECALLD_TCP_KEYS": str(open_file)})
    open_file.chmod(0o600)
    with pytest.raises(EndpointError, match="needs a line `daemon KEY` with 40 characters"):
        endpoints({"RECALLD_TCP": "tcp://127.0.0.1:1", "RECALLD_TCP_KEYS": str(open_file)})


@pytest.mark.models
def test_a_listed_client_is_served_and_another_is_not(tmp_path: Path, model_cache: Path) -> None:
    keys, port = tmp_path / "k", free_port()
    main(["keys", str(keys), "--client", "laptop"])
    main(["keys", str(tmp_path / "other"), "--client", "stranger"])
    config = tmp_path / "config.toml"
    config.write_text(
        f'[tcp]\naddress = "tcp://127.0.0.1:{port}"\n'
        f'secret_file = "{keys}/daemon.secret"\nclients_file = "{keys}/clients"\n'
    )
    with running(tmp_path / "home", model_cache, flags=["--config", str(config)]):
        for file, served in ((keys / "laptop.keys", True), (tmp_path / "other" / "stranger.keys", False)):
            where = endpoints({"RECALLD_TCP": f"tcp://127.0.0.1:{port}", "RECALLD_TCP_KEYS": str(file)})
            with Session("far", cwd="/", endpoints=where) as session:
                assert session.connect(10.0 if served else 1.0) is served
                kept = session.remember(
                    "gulls nest on crane four", scope="global", wait_seconds=10.0 if served else 0.0
                )
                assert bool(kept) is served
