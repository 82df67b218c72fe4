"""The ladder's servers: the same answers from every rung, and the faults that tell them apart."""

from __future__ import annotations

import select
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perf import batch, requests
from perf._load import Load
from perf.brokers import Broker
from perf.ladder import CORRUPT_MESSAGE, FRAME_BYTES_MAX, TITLES, Work, take
from perf.requests import API_VERSIONS, Topic
from perf.spec import Partition, Run, Stream
from perf.wire import Reader, WireError, Writer, frame, request_header
from tests.support.source_tree import ROOT

TOPIC = Topic("rung", bytes(16), 2)
WAIT_S = 20.0
ASK = frame(request_header(API_VERSIONS, 0), b"")


class LadderBroker(Broker):
    """One rung as a process of its own."""

    is_limit = True  # as the limit server: a topic exists by being written to

    def __init__(self, directory: Path, *, design: str) -> None:
        self.name = design
        super().__init__(directory)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "perf.ladder", self.name, str(self.port), str(self.directory)]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module", params=tuple(TITLES))
def rung(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    name: str = request.param
    with LadderBroker(tmp_path_factory.mktemp(name), design=name) as broker:
        yield broker


def test_every_record_is_there_and_in_order(rung: LadderBroker) -> None:
    """Exact offsets on each connection, seven in flight: a rung that mixes answers up fails."""
    with rung.client() as client:
        topic = client.create_topic("counted", 2)
        body = batch.of_records(100, 1000)
        connections = tuple(
            requests.produce(7, topic, [(Partition(i, expected_offset=0), body)], acks=1)
            for i in range(2)
        )
        stream = Stream("produce", 7, connections, in_flight=7, send_limit=501)
        run = Run(rung.host, rung.port, (stream,), rung.pid, warm_s=0, window_s=0)
        counted = Load(run).go()["streams"][0]
        assert (counted["sent"], counted["answered"], counted["errors"]) == (501, 501, 0)
        assert sum(client.offsets(topic)) == 501 * body.records


def _answered(connection: socket.socket, within_s: float = WAIT_S) -> bool:
    return bool(select.select([connection], [], [], within_s)[0])


def _connect(rung: LadderBroker) -> socket.socket:
    return socket.create_connection((rung.host, rung.port), WAIT_S)


def test_half_a_request_stops_the_loop_and_no_other(rung: LadderBroker) -> None:
    with _connect(rung) as slow, _connect(rung) as other:
        for connection in (slow, other):  # both are known to the server before the test begins
            connection.sendall(ASK)
            assert _answered(connection)
            connection.recv(1000)
        slow.sendall(ASK[:9])
        if rung.name == "loop":
            # Only the loop is silent for as long as the rest does not come. It may take one more
            # request first, if that is before half a one in its list, but not two.
            for _ in range(2):
                other.sendall(ASK)
                if not _answered(other, 0.2):
                    break
                other.recv(1000)
            else:
                pytest.fail("the loop served another client twice")
        else:
            other.sendall(ASK)
            assert _answered(other)
        slow.sendall(ASK[9:])
        assert _answered(slow) and _answered(other)


@pytest.mark.parametrize("bad", [struct.pack(">i", -1), struct.pack(">i", FRAME_BYTES_MAX + 1),
                                 frame(request_header(3, 12), b"")])  # fmt: skip
def test_nonsense_closes_its_own_connection(rung: LadderBroker, bad: bytes) -> None:
    with _connect(rung) as rude, _connect(rung) as other:
        rude.sendall(bad)
        rude.settimeout(WAIT_S)
        assert rude.recv(1) == b""
        other.sendall(ASK)
        assert _answered(other)


def test_a_client_that_hangs_up_in_service_harms_none(rung: LadderBroker) -> None:
    body = batch.of_records(1000, 100_000)
    wanted = requests.produce(7, TOPIC, [(Partition(0), body)], acks=1).frame
    for _ in range(20):
        with _connect(rung) as rude:
            rude.sendall(wanted * 3 + wanted[:50])
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with _connect(rung) as other:
        other.sendall(ASK)
        assert _answered(other)


def test_a_damaged_request_is_refused(tmp_path: Path) -> None:
    work = Work(tmp_path, fsync=True)
    whole = requests.produce(7, TOPIC, [(Partition(1), batch.of_records(100))], acks=1).frame[4:]
    assert _produced(work.answer(whole)) == (0, 0)
    assert _produced(work.answer(whole)) == (0, 1)
    damaged = bytearray(whole)
    damaged[-5] ^= 1
    assert _produced(work.answer(bytes(damaged))) == (CORRUPT_MESSAGE, -1)
    assert not list(tmp_path.iterdir())  # its files have no names


def _produced(answer: bytes) -> tuple[int, int]:
    """Error code and offset of the one partition of a produce answer."""
    r = Reader(answer)
    assert r.get("i") == len(answer) - 4
    r.get("i")
    assert r.count() == 1 and r.string() == TOPIC.name and r.count() == 1
    r.get("i")
    return r.get("h"), r.get("q")


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_request_that_ends_early_is_malformed(tmp_path: Path, cut: int) -> None:
    whole = requests.produce(7, TOPIC, [(Partition(0), batch.of_records(10))], acks=1).frame[4:]
    with pytest.raises(WireError):
        Work(tmp_path).answer(whole[:cut])


def test_an_inbox_gives_whole_requests() -> None:
    inbox = bytearray()
    first, second = b"x" * 8, b"y" * 300
    taken = []
    for byte in b"".join(bytes(Writer().bytes(one).data) for one in (first, second)):
        inbox.append(byte)
        while (request := take(inbox)) is not None:
            taken.append(request)
    assert taken == [first, second] and take(inbox) is None
    inbox += struct.pack(">i", 7)
    with pytest.raises(WireError):
        take(inbox)
