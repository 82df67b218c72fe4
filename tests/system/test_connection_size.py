"""What ten thousand connections cost: fresh ones, and those whose JoinGroup waits for the others.

    pytest tests/system/test_connection_size.py -s        prints the bytes of each

Resident memory of the broker; the kernel's share of a socket is not in it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from kbroker.testing.plain import PlainBroker as Broker
from perf.idle import open_idle, raise_file_limit
from tests.support.group_members import SUBSCRIPTION, wait_for_coordinator
from tests.system import process_facts
from tests.system.conftest import MakeBroker
from tests.system.test_hostile import answer, connect, eventually, framed

pytestmark = pytest.mark.client

CONNECTIONS = 10_000
FIRST = 500  # what a broker allocates for its first clients is not counted
FRESH_BYTES_MAX = 1024
WAITING_BYTES_MAX = 2048  # beside its connection, of which a fresh one takes some 300 to 500
JOIN_GROUP, HEARTBEAT = 11, 12
PRODUCE_BYTES = 60_000
SETTINGS = {
    "socket.listen.backlog.size": 4096,
    "group.initial.rebalance.delay.ms": 600_000,
    "connections.max.idle.ms": 600_000,
}


def text(content: bytes) -> bytes:
    return struct.pack(">h", len(content)) + content


def join_group(group: bytes) -> bytes:
    """Version 3 takes a member that has no id yet."""
    protocol = text(b"range") + struct.pack(">i", len(SUBSCRIPTION)) + SUBSCRIPTION
    body = text(group) + struct.pack(">ii", 300_000, 300_000) + text(b"") + text(b"consumer")
    return framed(JOIN_GROUP, 3, 7, body + struct.pack(">i", 1) + protocol)


def address(broker: Broker) -> tuple[str, int]:
    host, _, port = broker.bootstrap.rpartition(":")
    return host, int(port)


@contextmanager
def opened(broker: Broker, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        connections = open_idle(*address(broker), count)
        for each in connections:
            stack.callback(each.close)
        yield connections


def wait_in(group: bytes, connections: list[socket.socket]) -> None:
    for each in connections:
        each.sendall(join_group(group))


def members_in(broker: Broker, group: bytes) -> int:
    with connect(broker) as connection:  # DescribeGroups 0
        connection.sendall(framed(15, 0, 7, struct.pack(">i", 1) + text(group)))
        return answer(connection).count(b"/127.0.0.1")


def test_fresh_connections(make_broker: MakeBroker) -> None:
    count = min(CONNECTIONS, raise_file_limit() - FIRST)
    broker = make_broker(SETTINGS).start()
    process_facts.wait_until_quiet(broker.pid)
    with opened(broker, FIRST):
        before = process_facts.resident_bytes(broker.pid)
        with opened(broker, count):
            each = (process_facts.resident_bytes(broker.pid) - before) / count
            print(f"{count} connections after ApiVersions: {each:.0f} bytes each")
    assert each <= FRESH_BYTES_MAX


def test_waiting_members(make_broker: MakeBroker) -> None:
    """They join beside produces, whose frames share the receive chunks with theirs; no faster than
    they are served, since what queues meanwhile has a bound of its own."""
    count = min(CONNECTIONS, raise_file_limit() - FIRST)
    broker = make_broker(SETTINGS).start()
    wait_for_coordinator(address(broker), "g")
    produce = struct.pack(">hhiih7sii", -1, 1, 1000, 1, 7, b"nowhere", 1, 0)
    produce = framed(0, 3, 42, produce + struct.pack(">i", PRODUCE_BYTES) + bytes(PRODUCE_BYTES))
    no_groups = framed(15, 0, 7, struct.pack(">i", 0))
    with opened(broker, FIRST) as first, opened(broker, count) as connections:
        wait_in(b"first", first)
        assert eventually(lambda: members_in(broker, b"first") == FIRST)
        before = process_facts.resident_bytes(broker.pid)
        with connect(broker) as producer, connect(broker) as asker:
            for number, member in enumerate(connections):
                member.sendall(join_group(b"g"))
                if number % 10 == 0:
                    producer.sendall(produce)
                    answer(producer)
                    asker.sendall(no_groups)  # Python answers it after those before it
                    answer(asker)
            asker.sendall(no_groups)
            answer(asker)
        # Before the members are asked for: that answer is as large as all of them.
        each = (process_facts.resident_bytes(broker.pid) - before) / count
        print(f"{count} JoinGroups that wait: {each:.0f} bytes each")
        assert eventually(lambda: members_in(broker, b"g") == count)
    assert each <= WAITING_BYTES_MAX
