"""Listeners with TLS: what the log says of connections that fail."""

from __future__ import annotations

import logging
from pathlib import Path
from unittest.mock import Mock

import pytest

from kbroker.config import BrokerConfig
from kbroker.net._tls_transport import ENDED
from kbroker.server.tls_listeners import TlsListeners
from tests.support.certificates import Authority

FAILED = "OUT: TLS failed for"


@pytest.fixture
def listeners(tmp_path: Path) -> TlsListeners:
    store = tmp_path / "store.pem"
    store.write_bytes(Authority(tmp_path).issue("broker").both)
    config = BrokerConfig.load(
        overrides=[
            "listeners=IN://127.0.0.1:1,OUT://127.0.0.1:2",
            "listener.security.protocol.map=IN:PLAINTEXT,OUT:SSL",
            "inter.broker.listener.name=IN",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={store}",
        ]
    )
    made = TlsListeners()
    made.transport_of(config.security_of("OUT"))
    return made


def fail(listeners: TlsListeners, *failures: tuple[str, str, int, str]) -> None:
    transport, security = listeners._transports["OUT"]
    assert transport.take_failures() == []
    listeners._transports["OUT"] = Mock(take_failures=lambda: list(failures)), security


def test_each_kind_of_failure_is_a_line(
    listeners: TlsListeners, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fail(
        listeners,
        ("wrong version number", "", 7, "10.0.0.1"),
        ("certificate verify failed", "certificate has expired", 1, "::1"),
        (ENDED, "", 100, "10.0.0.2"),
    )
    listeners.tell()
    assert [record.message for record in caplog.records] == [
        f"{FAILED} 7 connections, the last one from 10.0.0.1: wrong version number: the client does"
        " not speak TLS -> set its security.protocol to SSL",
        f"{FAILED} 1 connection, the last one from ::1: certificate verify failed (certificate has"
        " expired)",
    ]


def test_only_listeners_with_tls_are_looked_at(listeners: TlsListeners) -> None:
    scheduler = Mock()
    TlsListeners().schedule(scheduler)
    scheduler.schedule.assert_not_called()
    listeners.schedule(scheduler)
    assert scheduler.schedule.call_args.args[:2] == ("TLS", listeners.tell)
