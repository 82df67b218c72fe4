"""What connections cause goes with them, and a test would see what did not."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

import pytest

from kbroker.observe.live_objects import OF_CONNECTIONS, stayed
from kbroker.testing import ApiKey, Broker, PlainBroker
from kbroker.testing.process import watchers
from tests.fuzz.mutate import framed
from tests.support import nothing_stays
from tests.support.servers import log_tail
from tests.system import process_facts

PARTITIONS = 3

# A broker that keeps each cold request for ever: one that is neither answered nor dropped.
KEEPS = """
import sys
from kbroker.handlers.registry import Registry
kept = []
Registry.dispatch = lambda self, services, request: kept.append(request)
from kbroker.testing.run import main
sys.exit(main(sys.argv[1:]))
"""


class Keeping(Broker):
    def program(self) -> list[str]:
        return ["-c", KEEPS, *super().program()[2:]]


def fetch_frame(topic: str, partitions: int, wait_ms: int) -> bytes:
    body = struct.pack(">hhih", 1, 4, 1, -1)
    body += struct.pack(">iiiib", -1, wait_ms, 1, 1 << 20, 0)
    body += struct.pack(">ih", 1, len(topic)) + topic.encode() + struct.pack(">i", partitions)
    return framed(body + b"".join(struct.pack(">iqi", p, 0, 1 << 16) for p in range(partitions)))


def connect(broker: PlainBroker) -> socket.socket:
    host, _, port = broker.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.002)


def test_a_long_poll_is_counted_and_goes() -> None:
    with Broker(topics={"orders": PARTITIONS}) as broker:
        assert stayed(broker.live_objects()) == {}
        with connect(broker) as peer:
            peer.sendall(fetch_frame("orders", PARTITIONS, wait_ms=60_000))
            waiting = {
                "connections": 1,
                "requests": 1,
                "frame_copies": 1,
                "parked_requests": 1,
                "watches": PARTITIONS,
            }
            until(lambda: stayed(broker.live_objects()) == waiting, "it was never parked")
        assert nothing_stays.left(broker, 20) == {}


def test_every_kind_is_reported() -> None:
    with Broker() as broker:
        counts = broker.live_objects()
        assert set(OF_CONNECTIONS) <= set(counts)
        assert all(count >= 0 for count in counts.values())


def test_a_leak_is_found_in_a_live_broker_and_at_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Keeping().start()
    try:
        with connect(broker) as peer:
            peer.sendall(framed(struct.pack(">hhih", ApiKey.LIST_GROUPS, 0, 1, -1)))
            until(lambda: broker.live_objects()["requests"] == 1, "it has not come")
        found = nothing_stays.left(broker, 0.2)
        assert found["requests"] == found["connections"] == 1
        with pytest.raises(AssertionError, match="connections are gone, and these stay"):
            monkeypatch.setattr(nothing_stays, "GOES_S", 1.0)
            nothing_stays.WATCHER.stopping(broker)
        assert watchers
        with pytest.raises(AssertionError, match=r"1 connections, 1 requests"):
            broker.stop()
    finally:
        print(log_tail(broker.log_text()))
        broker.close()


def test_ending_all_connections_opens_no_files() -> None:
    with Broker() as broker:
        before = process_facts.open_files(broker.pid)
        for _ in range(20):
            broker.drop_connections()
        # Each had left some 15; the broker itself may open a few after its ready line.
        assert process_facts.open_files(broker.pid) < before + 20
