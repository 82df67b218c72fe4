"""A peer of the admin port that does not go on is left, whatever it has begun."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from kbroker.admin import server
from kbroker.cli.start import serve_admin
from kbroker.config import BrokerConfig
from kbroker.server.broker import Broker

TIMEOUT_S = 0.5


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHo"])
def test_a_request_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Neither one that does not begin nor one that does not end."""
    monkeypatch.setattr(server, "ADMIN_REQUEST_TIMEOUT_S", TIMEOUT_S)
    values = [
        f"log.dirs={tmp_path}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "admin.listeners=http://127.0.0.1:0",
    ]
    broker = Broker(BrokerConfig.load(None, {}, values), tmp_path, serve_admin=serve_admin)
    broker.start()
    try:
        host, _, port = broker._admin.url.removeprefix("http://").rpartition(":")
        began = time.monotonic()
        with socket.create_connection((host, int(port)), timeout=60) as slow:
            slow.sendall(sent)
            try:
                assert slow.recv(1) == b""
            except ConnectionResetError:
                pass
        assert time.monotonic() - began >= TIMEOUT_S
    finally:
        assert broker.stop()
