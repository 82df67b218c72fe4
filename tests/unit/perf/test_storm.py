"""The reconnect storm: clients come in, those that are turned away come again, figures."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from kbroker.testing import Broker
from perf.storm import Measured, percentile_ms, verdict
from perf.storm_clients import PASSWORD, USER, Refused, Storm
from tests.support.certificates import Authority, client_context

CLIENTS = 30
WAIT_S = 60


def test_all_come_in_and_stay() -> None:
    with Broker(users={USER: PASSWORD}, tls=True, in_process=True) as broker:
        context = ssl.create_default_context(cafile=str(broker.authority_path))
        host, _, port = broker.bootstrap.rpartition(":")
        storm = Storm((host, int(port)), context, CLIENTS)
        assert 0 < storm.run(WAIT_S) < WAIT_S
        assert len(storm.done_s) == storm.attempts == CLIENTS and not storm.failures
        storm.close()


def test_a_connection_that_ends_is_made_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        storm = Storm(server.getsockname()[:2], client_context(authority), 2)

        def end_all() -> None:
            for _ in range(6):
                server.accept()[0].close()

        thread = threading.Thread(target=end_all, daemon=True)
        thread.start()
        with pytest.raises(TimeoutError, match="0 of 2"):
            storm.run(0.5)
        storm.close()
        server.shutdown(socket.SHUT_RDWR)
    assert storm.attempts > 2 and sum(storm.failures.values()) > 2


def test_a_wrong_password_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perf.storm_clients.PASSWORD", "another")
    with Broker(users={USER: PASSWORD}, tls=True, in_process=True) as broker:
        context = ssl.create_default_context(cafile=str(broker.authority_path))
        host, _, port = broker.bootstrap.rpartition(":")
        storm = Storm((host, int(port)), context, 1)
        with pytest.raises(Refused):
            storm.run(WAIT_S)
        storm.close()


def measured(broker: str, storm: int, took_s: float, p99_ms: float) -> Measured:
    return Measured(broker, storm, 10, took_s, 10, 1.0, 1.0, 2.0, p99_ms, 50.0, 0.0, {})


def test_the_first_storm_does_not_count() -> None:
    found = [
        measured("kbroker", 0, 100.0, 50.0),
        measured("kafka", 0, 1.0, 50.0),
        measured("kbroker", 1, 6.0, 3.0),
        measured("kafka", 1, 10.0, 8.0),
    ]
    assert verdict(found) == [
        "time, kbroker / Apache Kafka: 0.60 (bar 0.7)",
        "kafka: p99 of those that are there x 4.0 (bar 2.0)",
        "kbroker: p99 of those that are there x 1.5 (bar 2.0)",
    ]


def test_the_99th_of_the_requests_of_a_time() -> None:
    found = [(at, at * 1_000_000) for at in range(200)]
    assert percentile_ms(found, 0, 100) == 99.0
    with pytest.raises(ValueError, match="nothing was sent"):
        percentile_ms(found, 300, 400)
