"""What does not hold up the end of a broker: bounds of time, alone on the machine."""

from __future__ import annotations

import signal
import socket
import time

import pytest

from kbroker.testing.plain import PlainBroker as Broker
from tests.clients.adapters import Admin, Confluent
from tests.support.alone import delay
from tests.system.test_admin import address, get

pytestmark = [pytest.mark.client, pytest.mark.alone]

STOP_S_MAX = 2.0


def test_open_connections_of_the_admin_port(broker: Broker) -> None:
    get(broker, "/healthz")
    with socket.create_connection(address(broker)) as silent:
        silent.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in silent.recv(1024)
        started = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - started < STOP_S_MAX * delay()


def test_a_parked_fetch(broker: Broker) -> None:
    Admin(broker.bootstrap).create("t")
    with Confluent(broker.bootstrap).consumer("t", wait_ms_max=60_000) as consumer:
        assert consumer.poll(1.0) == []  # by then its fetch waits at the broker
        started = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - started < STOP_S_MAX * delay()


def test_a_second_signal_ends_it_at_once(broker: Broker) -> None:
    broker.signal(signal.SIGSTOP)  # so that both are there when it looks
    broker.signal(signal.SIGTERM)
    broker.signal(signal.SIGINT)
    broker.signal(signal.SIGCONT)
    killed = {-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT}
    assert broker.wait(STOP_S_MAX * delay()) in killed
