"""Slow and rude peers: each may cost the broker so much memory, and other clients nothing.

Beside every one of them an ordinary producer works on a connection of its own and may not see an
error. Afterwards the broker's memory, its open files and its own count of connections are looked
at. Nothing here waits for time to pass: peers send by a clock of bytes, and what is waited for is a
condition with a bound that only a failure reaches.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from kbroker.testing.plain import KEEPS_WHAT_IS_OLD
from kbroker.testing.plain import PlainBroker as Broker
from tests.fuzz.mutate import framed
from tests.fuzz.neighbour import Neighbour
from tests.fuzz.target import Admin
from tests.support.record_batches import build_batch
from tests.system import process_facts
from tests.system.conftest import MakeBroker

pytestmark = pytest.mark.client

# A thousand at once, beside other tests: the default of 50 would have most of them try again.
OVERRIDES = {"socket.listen.backlog.size": 4096, **KEEPS_WHAT_IS_OLD}

TOPIC = "words"
RESET = struct.pack("ii", 1, 0)
MEGABYTE = 1 << 20
DEADLINE_S = 60.0
# The allocator and the kernel's counting may add this to the bounded bytes.
SLACK_BYTES = 12 * MEGABYTE
FRAME_BYTES_MAX = 100 * MEGABYTE  # socket.request.max.bytes


def eventually(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.01)


def address_of(broker: Broker) -> tuple[str, int]:
    host, _, port = broker.bootstrap.rpartition(":")
    return host, int(port)


def connect(broker: Broker, receive_bytes: int = 0) -> socket.socket:
    peer = socket.socket()
    if receive_bytes:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    peer.settimeout(DEADLINE_S)
    peer.connect(address_of(broker))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def produce(correlation_id: int, batch: bytes, acks: int = 1) -> bytes:
    """Produce v3 to partition 0."""
    name = TOPIC.encode()
    body = struct.pack(">hhihh", 0, 3, correlation_id, -1, -1) + struct.pack(">hii", acks, 1000, 1)
    body += struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, 0, len(batch)) + batch
    return framed(body)


def fetch(correlation_id: int, max_bytes: int, offset: int = 0, wait_ms: int = 0) -> bytes:
    """Fetch v4 of partition 0."""
    name = TOPIC.encode()
    body = struct.pack(">hhih", 1, 4, correlation_id, -1)
    body += struct.pack(">iiiib", -1, wait_ms, 1, max_bytes, 0)
    body += struct.pack(">ih", 1, len(name)) + name
    return framed(body + struct.pack(">iiqi", 1, 0, offset, max_bytes))


def receive(peer: socket.socket) -> bytes:
    """One answer, without its size."""
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        wanted = 4 if len(data) < 4 else 4 + int.from_bytes(data[:4], "big")
        got = peer.recv(min(wanted - len(data), MEGABYTE))
        assert got, f"the connection ended after {len(data)} bytes"
        data += got
    return bytes(data[4:])


class Beside:
    """The broker's state before the peers came, and the producer that must not notice them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        process_facts.wait_until_quiet(broker.pid)
        self.neighbour = Neighbour(address_of(broker), TOPIC)
        self.resident = process_facts.resident_bytes(broker.pid)
        self.files = process_facts.open_files(broker.pid)

    def growth(self) -> int:
        return process_facts.resident_bytes(self.broker.pid) - self.resident

    def check(self) -> None:
        """The peers have gone: so have their sockets."""
        eventually(
            lambda: process_facts.open_files(self.broker.pid) <= self.files, "sockets are left"
        )
        self.neighbour.stop()
        assert not self.neighbour.errors
        assert self.neighbour.samples


@pytest.fixture
def broker(make_broker: MakeBroker) -> Broker:
    return make_broker(OVERRIDES).start()


@pytest.fixture
def beside(broker: Broker) -> Iterator[Beside]:
    admin = Admin(address_of(broker))
    admin.create(TOPIC, 1, {})
    admin.close()
    beside = Beside(broker)
    yield beside
    beside.check()


@contextmanager
def peers(broker: Broker, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(broker)) for _ in range(count)]


def test_a_thousand_that_send_a_byte_at_a_time(broker: Broker, beside: Beside) -> None:
    frame = produce(7, build_batch([b"slow"]))
    with peers(broker, 1_000) as slow:
        for byte in range(len(frame)):
            for peer in slow:
                peer.send(frame[byte : byte + 1])
            if byte == len(frame) // 2:
                # Half a frame each: a small piece of memory each.
                assert beside.growth() < 1_000 * 20_000 + SLACK_BYTES
        for peer in slow:
            assert receive(peer)[:4] == struct.pack(">i", 7)


@pytest.mark.parametrize("announced", [FRAME_BYTES_MAX, FRAME_BYTES_MAX // 2])
def test_a_thousand_that_announce_a_large_frame_and_send_nothing_more(
    broker: Broker, beside: Beside, announced: int
) -> None:
    head = struct.pack(">i", announced) + b"\0\0\0\3"
    with peers(broker, 1_000) as liars:
        for peer in liars:
            peer.send(head)
        answered = connect(broker)
        answered.sendall(produce(1, build_batch([b"still here"])))
        assert receive(answered)[:4] == struct.pack(">i", 1)
        answered.close()
        # Together they have announced 100 GB.
        assert beside.growth() < 1_000 * 20_000 + SLACK_BYTES


def test_memory_follows_the_bytes_that_came(broker: Broker, beside: Beside) -> None:
    sent = 8 * MEGABYTE
    with connect(broker) as peer:
        peer.sendall(struct.pack(">i", FRAME_BYTES_MAX) + bytes(sent))
        with connect(broker) as other:
            other.sendall(fetch(3, 100))
            receive(other)
        assert beside.growth() < 2 * sent + SLACK_BYTES


def test_a_frame_beyond_the_limit_ends_at_once(broker: Broker, beside: Beside) -> None:
    for size in (FRAME_BYTES_MAX + 1, 2**31 - 1, -1, 0, 7):
        with connect(broker) as peer:
            peer.send(struct.pack(">i", size))
            assert peer.recv(1) == b""


def test_producers_that_never_read(broker: Broker, beside: Beside) -> None:
    """Their answers fill the socket, then the pipeline, then they are not read any more."""
    frames = produce(7, build_batch([b"x"])) * 2_000
    with ExitStack() as stack:
        rude = [stack.enter_context(connect(broker, receive_bytes=4096)) for _ in range(20)]
        for peer in rude:
            peer.setblocking(False)
        stuck: set[socket.socket] = set()
        sent = dict.fromkeys(rude, 0)

        def all_stuck() -> bool:
            for peer in rude:
                try:
                    sent[peer] += peer.send(frames[sent[peer] % len(frames) :])
                    stuck.discard(peer)
                except BlockingIOError:
                    stuck.add(peer)
            return len(stuck) == len(rude)

        quiet = 0
        until = time.monotonic() + DEADLINE_S
        while quiet < 20:
            quiet = quiet + 1 if all_stuck() else 0
            assert time.monotonic() < until, "they can send for ever"
            time.sleep(0.005)
        # channel.pipelining.max.bytes each, and a chunk.
        assert beside.growth() < len(rude) * 2 * MEGABYTE + SLACK_BYTES


def test_consumers_that_never_read(broker: Broker, beside: Beside) -> None:
    """A megabyte asked for a thousand times by each of many: it is sent from the file."""
    with connect(broker) as filler:
        for _ in range(8):
            filler.sendall(produce(1, build_batch([b"y" * 900_000])))
            receive(filler)
    with ExitStack() as stack:
        rude = [stack.enter_context(connect(broker, receive_bytes=4096)) for _ in range(100)]
        for peer in rude:
            peer.setblocking(False)
            try:
                peer.send(fetch(7, 8 * MEGABYTE) * 1_000)
            except BlockingIOError:
                pass
        with connect(broker) as reader:
            reader.sendall(fetch(8, MEGABYTE))
            assert len(receive(reader)) > 900_000
        assert beside.growth() < len(rude) * 300_000 + SLACK_BYTES


def test_a_client_that_has_shut_its_side_gets_every_answer(broker: Broker, beside: Beside) -> None:
    with connect(broker) as filler:
        filler.sendall(produce(1, build_batch([b"z" * 900_000])))
        receive(filler)
    frames = [
        produce(1, build_batch([b"a"])),
        fetch(2, MEGABYTE),
        produce(3, build_batch([b"b"])),
        produce(4, build_batch([b"c"])),
        fetch(5, MEGABYTE),
    ]
    for _ in range(50):
        with connect(broker) as peer:
            peer.sendall(b"".join(frames))
            peer.shutdown(socket.SHUT_WR)
            answers = [receive(peer)[:4] for _ in frames]
            assert answers == [struct.pack(">i", number) for number in range(1, 6)]
            assert peer.recv(1) == b""


def test_a_train_from_a_client_that_has_shut_its_side(broker: Broker, beside: Beside) -> None:
    count = 500
    frames = b"".join(produce(number, build_batch([b"t"])) for number in range(count))
    for receive_bytes in (0, 2048):
        with connect(broker, receive_bytes) as peer:
            peer.sendall(frames)
            peer.shutdown(socket.SHUT_WR)
            for number in range(count):
                assert receive(peer)[:4] == struct.pack(">i", number)
            assert peer.recv(1) == b""


def test_resets_in_the_middle_of_an_answer(broker: Broker, beside: Beside) -> None:
    with connect(broker) as filler:
        for _ in range(4):
            filler.sendall(produce(1, build_batch([b"r" * 900_000])))
            receive(filler)
    for number in range(300):
        peer = connect(broker, receive_bytes=8192)
        peer.sendall(fetch(number, 4 * MEGABYTE) * 3)
        assert peer.recv(1 + number % 5_000)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        peer.close()
    assert beside.growth() < 4 * MEGABYTE + SLACK_BYTES


def test_resets_while_a_fetch_waits(broker: Broker, beside: Beside) -> None:
    for _ in range(5):
        with ExitStack() as stack:
            waiting = [stack.enter_context(connect(broker)) for _ in range(200)]
            for peer in waiting:
                peer.sendall(fetch(1, 1000, offset=10**9) + fetch(2, 1000, 0, 2**31 - 1))
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    assert beside.growth() < SLACK_BYTES


def test_a_thousand_connections_a_second(broker: Broker, beside: Beside) -> None:
    """For some seconds: half of them say nothing, the others ask something and do not wait."""
    count = 4_000
    started = time.monotonic()
    question = fetch(1, 100)
    for number in range(count):
        peer = connect(broker)
        if number % 2:
            peer.send(question)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        peer.close()
        time.sleep(max(0.0, started + number / 1_000 - time.monotonic()))
    eventually(lambda: process_facts.open_files(broker.pid) <= beside.files, "sockets are left")
    assert beside.growth() < SLACK_BYTES


def test_closed_connections_are_in_a_short_log(broker: Broker, beside: Beside) -> None:
    began = time.monotonic()
    for _ in range(300):
        with connect(broker) as peer:
            peer.send(struct.pack(">i", -1))
            assert peer.recv(1) == b""
    closed = re.compile(r"closed (\d+) connections?: a frame size out of bounds")
    eventually(
        lambda: sum(map(int, closed.findall(broker.log_text()))) == 300, "the log tells of all"
    )
    seconds = time.monotonic() - began  # there is a line for each, at most
    assert len(closed.findall(broker.log_text())) <= max(20, 2 * seconds)
