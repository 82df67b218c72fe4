"""What another replica has of a batch that rots, and when it takes its place."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbroker.clock import Clock, ManualClock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.upkeep.scrubber import LogScrubber, ScrubSettings
from kbroker.metadata.image import BrokerImage
from kbroker.peer.address import Address
from kbroker.peer.link import Link, network_error
from kbroker.protocol.wire import Reader, Writer
from kbroker.replica.batch_repair import BatchRepair, first_batch
from kbroker.testing.file_faults import Fault, FileFaults
from kbroker.types import ApiKey, TopicPartition
from tests.support.led_log import LedLog
from tests.support.record_batches import Record, build_batch, parse_batches
from tests.unit.log.conftest import OpenLog

NAME = TopicPartition("words", 0)
VERSION = 12
FAST = ScrubSettings(60_000, 1e12)
CRC_AT, LENGTH_AT, ATTRIBUTES_AT = 17, 8, 22
US, LEADER, FOLLOWER = 1, 2, 3
Answer = Callable[[int], bytes]


class Others:
    """The other brokers, and what each has at an offset."""

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.asked: list[tuple[int, int]] = []
        self.closed = 0

    def open_link(self, address: Address, client_id: str, timeout_ms: int, clock: Clock) -> Link:
        assert timeout_ms > 0 and client_id
        if address.port not in self.answers:
            raise network_error(f"cannot connect to {address}")
        return cast(Link, _Link(self, address.port))


class _Link:
    def __init__(self, others: Others, node_id: int) -> None:
        self._others = others
        self._node_id = node_id
        self._offset = -1

    def version(self, api_key: ApiKey) -> int:
        assert api_key is ApiKey.FETCH
        return VERSION

    def send(self, api_key: ApiKey, version: int, body: bytes, deadline_ns: int) -> None:
        reader = Reader(body, flexible=True)
        assert reader.int32() == -1, "it is asked as a consumer"
        reader.raw(4 + 4 + 4 + 1 + 4 + 4)
        assert reader.array() == 1 and reader.string() == NAME.topic
        assert reader.array() == 1 and reader.int32() == NAME.partition
        reader.int32()
        self._offset = reader.int64()
        self._others.asked.append((self._node_id, self._offset))

    def receive(self, deadline_ns: int) -> Reader:
        try:
            code, records = ErrorCode.NONE, self._others.answers[self._node_id](self._offset)
        except KafkaError as error:
            code, records = error.code, b""
        writer = Writer(flexible=True)
        writer.int32(0)
        writer.int16(0)
        writer.int32(0)
        writer.array(1)
        writer.string(NAME.topic)
        writer.array(1)
        writer.int32(NAME.partition)
        writer.int16(int(code))
        for _ in range(3):
            writer.int64(0)
        writer.array(0)
        writer.int32(-1)
        writer.bytes(records)
        writer.tags()
        writer.tags()
        writer.tags()
        return Reader(writer.getvalue(), flexible=True)

    def close(self) -> None:
        self._others.closed += 1


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
def filled(open_log: OpenLog) -> LedLog:
    return fill(open_log)


def fill(open_log: OpenLog, **settings: Any) -> LedLog:
    """Four batches to a segment, the last one is empty and active; all committed, epoch 3."""
    log = open_log(segment_bytes=400, leader_epoch=3, **settings)
    for number in range(8):
        log.append(build_batch([b"%06d" % number + b"." * 20]))
    log.roll()
    return log


def scrubber(log: LedLog, others: Others) -> LogScrubber:
    brokers = {node: BrokerImage(node, "there", node) for node in (US, LEADER, FOLLOWER)}
    partition = SimpleNamespace(isr=(FOLLOWER, US, LEADER), leader=LEADER)
    topic = SimpleNamespace(partitions=[partition])
    image = SimpleNamespace(
        brokers=brokers, topic_by_id=lambda each: topic if each == log.log.topic_id else None
    )
    clock = ManualClock()
    repair = BatchRepair(US, lambda _: log, lambda: cast(Any, image), clock, others.open_link)
    return LogScrubber(lambda: [log.log], lambda: FAST, clock, repair=repair)


def first_segment(log: LedLog) -> Path:
    return min(log.path.glob("*.log"))


def flip(path: Path, *positions: int) -> bytes:
    """What was there before."""
    before = path.read_bytes()
    data = bytearray(before)
    for position in positions:
        data[position] ^= 0x10
    path.write_bytes(data)
    return before


def batch_in(data: bytes, offset: int) -> bytes:
    """From the batch with that offset on."""
    position = 0
    for batch in parse_batches(data):
        if batch.base_offset >= offset:
            break
        position += batch.size_bytes
    return data[position:]


def size_of_first(data: bytes) -> int:
    return parse_batches(data)[0].size_bytes


@pytest.mark.parametrize(
    "where",
    [
        pytest.param([70], id="records"),
        pytest.param([70, 75, 80], id="more of them"),
        pytest.param([CRC_AT], id="crc"),
        pytest.param([ATTRIBUTES_AT], id="attributes"),
        pytest.param([LENGTH_AT], id="length, too long for the file"),
        pytest.param([LENGTH_AT + 3], id="length, a little"),
    ],
)
def test_a_rotten_batch_is_had_from_the_leader(
    filled: LedLog, others: Others, where: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    path = first_segment(filled)
    second = size_of_first(path.read_bytes())
    before = flip(path, *[second + each for each in where])
    others.answers[LEADER] = lambda offset: batch_in(before, offset)
    others.answers[FOLLOWER] = others.answers[LEADER]
    scrub = scrubber(filled, others)
    scrub.scrub_all()
    assert path.read_bytes() == before
    assert scrub.damaged == {} and scrub.repaired == 1
    assert others.asked == [(LEADER, 1)] and others.closed == 1
    assert "offset 1 is repaired, from broker 2" in caplog.text


def test_two_side_by_side_are_had_one_after_the_other(filled: LedLog, others: Others) -> None:
    path = first_segment(filled)
    size = size_of_first(path.read_bytes())
    before = flip(path, size + 70, 2 * size + 70)
    others.answers[LEADER] = lambda offset: batch_in(before, offset)
    scrub = scrubber(filled, others)
    scrub.scrub_all()
    scrub.scrub_all()
    assert path.read_bytes() == before and scrub.damaged == {} and scrub.repaired == 2


def test_a_replica_without_an_answer_or_with_rot_is_not_the_last_to_be_asked(
    filled: LedLog, others: Others
) -> None:
    path = first_segment(filled)
    before = flip(path, 70)
    rotten = path.read_bytes()
    others.answers[LEADER] = lambda _: rotten
    others.answers[FOLLOWER] = lambda offset: batch_in(before, offset)
    scrub = scrubber(filled, others)
    scrub.scrub_all()
    assert path.read_bytes() == before
    flip(path, 71)
    del others.answers[LEADER]
    scrub.scrub_all()
    assert path.read_bytes() == before
    assert others.asked == [(LEADER, 0), (FOLLOWER, 0), (FOLLOWER, 0)]


def refused(_: int) -> bytes:
    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def changed(data: bytes, position: int, value: bytes) -> bytes:
    return data[:position] + value + data[position + len(value) :]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda _: refused, id="an error"),
        pytest.param(lambda _: lambda offset: b"", id="nothing"),
        pytest.param(lambda it: lambda offset: it[:60], id="half a header"),
        pytest.param(lambda it: lambda offset: it[:-1], id="half a batch"),
        pytest.param(lambda it: lambda offset: changed(it, 16, b"\1"), id="an old format"),
        pytest.param(lambda it: lambda offset: changed(it, 12, b"\0\0\0\4"), id="another epoch"),
        pytest.param(
            lambda it: lambda offset: build_batch([b"x" * 26], leader_epoch=3), id="other records"
        ),
        pytest.param(
            lambda it: lambda offset: build_batch([b"x"], leader_epoch=3), id="another length"
        ),
        pytest.param(lambda it: lambda offset: changed(it, 8, b"\x7f\xff\xff\xff"), id="no length"),
    ],
)
def test_a_batch_that_does_not_fit_changes_nothing(
    filled: LedLog, others: Others, answer: Callable[[bytes], Answer]
) -> None:
    path = first_segment(filled)
    before = flip(path, 70)
    rotten = path.read_bytes()
    others.answers[LEADER] = answer(before[: size_of_first(before)])
    scrub = scrubber(filled, others)
    for _ in range(2):
        scrub.scrub_all()
        assert path.read_bytes() == rotten
        assert len(scrub.damaged[NAME]) == 1 and scrub.repaired == 0


def test_uncommitted_batches_are_not_compared(open_log: OpenLog, others: Others) -> None:
    log = open_log(segment_bytes=400, lead=False)
    log.set_leadership(LEADER, False, 3, 1)
    batches = b"".join(
        build_batch([b"%06d" % number], base_offset=number, leader_epoch=3) for number in range(2)
    )
    log.append_as_follower(batches, 3)
    log.roll()
    path = first_segment(log)
    before = flip(path, 70)
    rotten = path.read_bytes()
    others.answers[LEADER] = lambda offset: batch_in(before, offset)
    scrub = scrubber(log, others)
    scrub.scrub_all()
    assert path.read_bytes() == rotten
    log.follow_bounds(3, 2, 0)
    scrub.scrub_all()
    assert path.read_bytes() == before


def test_of_a_compacted_log_the_header_has_to_be_the_same(
    open_log: OpenLog, others: Others
) -> None:
    log = open_log(segment_bytes=400, leader_epoch=3, compacted=True)
    for number in range(8):
        log.append(build_batch([Record(b"key", b"%06d" % number + b"." * 20)]))
    log.roll()
    path = first_segment(log)
    before = flip(path, CRC_AT)
    others.answers[LEADER] = lambda offset: batch_in(before, offset)
    scrub = scrubber(log, others)
    scrub.scrub_all()
    assert path.read_bytes() != before and scrub.repaired == 0
    path.write_bytes(before)
    flip(path, 75)
    scrub.scrub_all()
    assert path.read_bytes() == before and scrub.repaired == 1


def test_a_disk_that_takes_no_write_is_said(
    filled: LedLog, others: Others, caplog: pytest.LogCaptureFixture
) -> None:
    path = first_segment(filled)
    before = flip(path, 70)
    others.answers[LEADER] = lambda offset: batch_in(before, offset)
    scrub = scrubber(filled, others)
    with FileFaults(Fault(("write",), path.name, error=errno.EIO)):
        scrub.scrub_all()
    assert "offset 0 cannot be repaired" in caplog.text
    assert scrub.repaired == 0 and len(scrub.damaged[NAME]) == 1
    scrub.scrub_all()
    assert path.read_bytes() == before


def test_a_segment_that_was_cut_meanwhile_is_not_written(filled: LedLog, others: Others) -> None:
    path = first_segment(filled)
    before = flip(path, 70)

    def cut(offset: int) -> bytes:
        filled.truncate_to(1)
        return batch_in(before, offset)

    others.answers[LEADER] = cut
    scrub = scrubber(filled, others)
    scrub.scrub_all()
    assert scrub.repaired == 0
    assert path.read_bytes() != before[: size_of_first(before)]


def test_the_first_batch_of_many() -> None:
    batch = build_batch([b"a"])
    assert first_batch(batch + batch) == batch
    assert first_batch(batch[:-1]) == first_batch(b"") == b""


def test_a_repair_that_cannot_be_synced_takes_the_log_offline(
    filled: LedLog, others: Others
) -> None:
    """Other unwritten bytes of the segment are lost with it, and no later flush reports them."""
    before = flip(first_segment(filled), 70)
    others.answers[LEADER] = lambda offset: batch_in(before, offset)
    assert filled.log.recovery_point == 0
    with FileFaults(Fault(("sync",), path_part=".log", error=errno.EIO)):
        scrubber(filled, others).scrub_all()
    with pytest.raises(OSError):
        filled.log.flush()
    assert filled.log.recovery_point == 0 and not filled.online
