"""Frames that no client sends: what they cost the broker, and that the next client finds it well.

Each case once wrote over the heap, took gigabytes or kept a socket; with a sanitizer's build
(`make test-asan`) the first wrong byte ends the broker, without one its memory and files tell.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import time
import urllib.request
from collections.abc import Callable

import pytest

from kbroker.testing.plain import PlainBroker as Broker
from tests.support.record_batches import build_batch
from tests.system import process_facts

pytestmark = pytest.mark.client

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, API_VERSIONS = 0, 1, 3, 8, 18
FETCH_4 = struct.pack(">iiiib", -1, 0, 0, 1 << 20, 0)  # any replica, no wait, no minimum
GROWTH_BYTES_MAX = 256 << 20  # with the overhead of a sanitizer; each of these once took more


def framed(key: int, version: int, correlation: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", key, version, correlation, 1) + b"x"
    return struct.pack(">i", len(head) + len(body)) + head + body


def connect(broker: Broker) -> socket.socket:
    host, _, port = broker.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def answer(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        (size,) = struct.unpack(">i", stream.read(4))
        return stream.read(size)


def assert_well(broker: Broker) -> None:
    with connect(broker) as connection:
        connection.sendall(framed(API_VERSIONS, 0, 7, b""))
        assert answer(connection)[:6] == struct.pack(">ih", 7, 0)


def eventually(holds: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_most_of_a_frame_then_a_pause(broker: Broker) -> None:
    # 150 KB for one partition of an unknown topic: nothing of it is looked at.
    records = bytes(150_000)
    body = struct.pack(">hhii", -1, 1, 1000, 1) + struct.pack(">h7si", 7, b"nowhere", 1)
    body += struct.pack(">ii", 0, len(records)) + records
    frame = framed(PRODUCE, 3, 42, body)
    resume = time.monotonic() + 2.5  # after the tick that makes slow peers' bytes smaller
    with connect(broker) as connection:
        connection.sendall(frame[:110_000])
        while time.monotonic() < resume:
            assert_well(broker)
        connection.sendall(frame[110_000:])
        assert answer(connection)[:4] == struct.pack(">i", 42)
    assert_well(broker)


def test_a_long_name_for_many_partitions(broker: Broker) -> None:
    # 130,789 x (72 + 32,767) bytes is 12 KB more than 4 GB.
    count, name = 130_789, b"n" * 32_767
    body = FETCH_4 + struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", count)
    body += b"".join(struct.pack(">iqi", index, 0, 1024) for index in range(count))
    with connect(broker) as connection:
        connection.sendall(framed(FETCH, 4, 43, body))
        assert connection.recv(1) == b"", "no answer can be that long: the connection ends"
    assert_well(broker)


def test_a_session_does_not_multiply_a_name(broker: Broker) -> None:
    count, name = 20_000, b"n" * 32_767
    body = FETCH_4 + struct.pack(">ii", 0, 0)  # a full fetch that wants a session
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", count)
    body += b"".join(struct.pack(">iqqi", index, 0, -1, 1024) for index in range(count))
    before = process_facts.resident_bytes(broker.pid)
    with connect(broker) as connection:
        connection.sendall(framed(FETCH, 7, 44, body + struct.pack(">i", 0)))
        assert answer(connection)[:4] == struct.pack(">i", 44)
        assert process_facts.resident_bytes(broker.pid) < before + GROWTH_BYTES_MAX


def session_fetch(
    session: tuple[int, int], names: list[bytes], forgotten: int, level: int
) -> bytes:
    """Version 7 of a session (id, epoch); the first of the names are forgotten again."""
    topics = [struct.pack(">h", len(name)) + name + struct.pack(">ii", 1, 0) for name in names]
    body = struct.pack(">iiiib", -1, 0, 0, 1 << 20, level) + struct.pack(">ii", *session)
    asked = [topic + struct.pack(">qqi", 0, -1, 1024) for topic in topics]
    for items in (asked, topics[:forgotten]):
        body += struct.pack(">i", len(items)) + b"".join(items)
    return framed(FETCH, 7, 48, body)


def test_partitions_that_a_refused_fetch_names_and_forgets(broker: Broker) -> None:
    # With 17 of them the session's table shrinks into the memory of those that were forgotten;
    # names of some lengths, since one has to fit exactly.
    for length in range(8, 40):
        names = [b"%0*d" % (length, number) for number in range(17)]
        with connect(broker) as connection:
            connection.sendall(session_fetch((0, 0), names, 0, 0))
            (session,) = struct.unpack(">i", answer(connection)[10:14])
            assert session > 0
            connection.sendall(session_fetch((session, 1), names, 14, 5))
            assert answer(connection)[8:10] == struct.pack(">h", -1), "no such isolation level"
            connection.sendall(session_fetch((session, 2), names, 0, 0))
            assert answer(connection)[8:14] == struct.pack(">hi", 0, session)
    assert_well(broker)


def parked(broker: Broker) -> int:
    with urllib.request.urlopen(f"{broker.admin}/metrics", timeout=60) as metrics:
        lines = metrics.read().decode().splitlines()
    name = 'kbroker_live_objects{kind="parked_requests"} '
    return sum(int(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_one_append_for_many_large_fetches(broker: Broker) -> None:
    # 20 frames of 1.6 MB wait for one partition; what each takes to be answered is 50 times that.
    topic = struct.pack(">ih5s", 1, 5, b"woken")
    fetch = struct.pack(">iiiib", -1, 60_000, 1, 1 << 20, 0) + topic + struct.pack(">i", 100_000)
    fetch += b"".join(struct.pack(">iqi", index, 1, 1024) for index in range(100_000))
    batch = build_batch([b"x"])
    produce = struct.pack(">hhi", -1, 1, 1000) + topic
    produce += struct.pack(">iii", 1, 0, len(batch)) + batch

    def produced(writer: socket.socket) -> bool:
        writer.sendall(framed(METADATA, 1, 1, topic))  # makes it
        answer(writer)
        writer.sendall(framed(PRODUCE, 3, 1, produce))
        return answer(writer)[23:25] == struct.pack(">h", 0)

    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(connect(broker))
        assert eventually(lambda: produced(writer))
        readers = [stack.enter_context(connect(broker)) for _ in range(20)]
        for reader in readers:
            reader.sendall(framed(FETCH, 4, 47, fetch))
        assert eventually(lambda: parked(broker) == len(readers))
        process_facts.forget_peak(broker.pid)
        before = process_facts.resident_bytes(broker.pid)
        assert produced(writer)
        for reader in readers:
            assert len(answer(reader)) > 100_000
        assert process_facts.peak_bytes(broker.pid) < before + GROWTH_BYTES_MAX


def test_many_topics_of_one_partition(broker: Broker) -> None:
    count = 6000
    body = FETCH_4 + struct.pack(">i", count)
    body += b"".join(
        struct.pack(">h6siiqi", 6, b"%06d" % topic, 1, 0, 0, 1024) for topic in range(count)
    )
    before = process_facts.resident_bytes(broker.pid)
    with connect(broker) as connection:
        connection.sendall(framed(FETCH, 4, 45, body))
        assert answer(connection)[:4] == struct.pack(">i", 45)
    assert process_facts.peak_bytes(broker.pid) < before + GROWTH_BYTES_MAX


def test_bytes_and_the_end_in_one_event(broker: Broker) -> None:
    """A producer with acks=0 that leaves at once: nothing is ever sent to it, so nothing fails."""
    port = int(broker.bootstrap.rpartition(":")[2])
    connections = [connect(broker) for _ in range(20)]
    for connection in connections:
        connection.sendall(framed(API_VERSIONS, 0, 7, b""))
        answer(connection)
    broker.signal(signal.SIGSTOP)  # so that both are there when it looks
    assert eventually(lambda: process_facts.is_stopped(broker.pid))
    for connection in connections:
        connection.sendall(framed(PRODUCE, 3, 46, struct.pack(">hhii", -1, 0, 1000, 0)))
        connection.close()
    assert eventually(lambda: process_facts.left_by_peers(port) == len(connections))
    broker.signal(signal.SIGCONT)
    assert eventually(lambda: process_facts.left_by_peers(port) == 0)


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def counted(number: int, flexible: bool) -> bytes:
    return uvarint(number + 1) if flexible else struct.pack(">i", number)


def before_topics(key: int, version: int, flexible: bool) -> bytes:
    """A request up to the count of its topics, after the header's client id."""
    null, tags = (b"\0", b"\0") if flexible else (b"\xff\xff", b"")
    if key == PRODUCE:
        return tags + null + struct.pack(">hi", 1, 1000)
    if key == FETCH:
        replica = b"" if version >= 15 else struct.pack(">i", -1)
        session = struct.pack(">ii", 0, -1) if version >= 7 else b""
        return tags + replica + FETCH_4[4:] + session
    if key == OFFSET_COMMIT:
        group, member = (b"\x02g", b"\x01") if flexible else (b"\0\1g", b"\0\0")
        instance = null if version >= 7 else b""
        retention = struct.pack(">q", -1) if version <= 4 else b""
        return tags + group + struct.pack(">i", -1) + member + instance + retention
    return tags


FLEXIBLE_FROM = {PRODUCE: 9, FETCH: 12, METADATA: 9, OFFSET_COMMIT: 8}
TOPIC_IDS_FROM = {PRODUCE: 13, FETCH: 13, METADATA: 10, OFFSET_COMMIT: 10}
VERSIONS = {PRODUCE: (3, 8, 9, 12, 13), FETCH: (4, 11, 12, 13, 18), METADATA: (1, 8, 9, 12, 13),
            OFFSET_COMMIT: (2, 7, 8, 10)}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "version"), [(key, version) for key in VERSIONS for version in VERSIONS[key]]
)
def test_a_count_that_the_bytes_may_hold(broker: Broker, key: int, version: int) -> None:
    """As many topics, or partitions of a topic, as a request may name, and more; then zeros."""
    flexible = version >= FLEXIBLE_FROM[key]
    head = before_topics(key, version, flexible)
    topic = bytes(16) if version >= TOPIC_IDS_FROM[key] else b"\x02t" if flexible else b"\0\1t"
    before = process_facts.resident_bytes(broker.pid)
    for count in (100_000, 100_001, 1_000_001):
        items = counted(count, flexible) + bytes(20 * count)
        for body in (head + items, head + counted(1, flexible) + topic + items):
            with connect(broker) as connection:
                connection.sendall(framed(key, version, 43, body))
                connection.recv(1)  # an answer or the end: both are well
            assert_well(broker)
    assert process_facts.peak_bytes(broker.pid) < before + GROWTH_BYTES_MAX
