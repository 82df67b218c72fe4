"""Answers taken in by one call, beside the same answers taken in part by part by Python's code:
the logs, the positions and every request after them are the same."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.log_lines import LogLines
from kbroker.peer._replica_fetch import encode_fetch
from kbroker.peer.address import Address
from kbroker.peer.replica_fetch import FETCH_VERSION, Asked, Fetched
from kbroker.protocol.wire import ProtocolError, Reader, Writer
from kbroker.replica._taking import TURN_OVER, FollowedState, Refused, Taking
from kbroker.replica.fetcher import ReplicaFetcher, Source, Us
from kbroker.replica.fetcher_partition import FollowedPartition
from kbroker.replica.fetcher_session import FetchSession, key_of
from kbroker.replica.throttle import FollowerThrottle
from kbroker.testing.file_faults import Fault, FileFaults
from kbroker.types import ApiKey, TopicPartition
from tests.support.fetched_cluster import LIMITS, SETTINGS, files_of
from tests.support.led_log import LedLog, open_led_log
from tests.support.played_fetch_sessions import Answered, Read, refused_fetch, write_partition
from tests.support.record_batches import build_batch
from tests.support.virtual_loop import LoopClock, VirtualLoop
from tests.unit.engine.wire import Ask, fetch_frame, fetched_in
from tests.unit.net.harness import Rig
from tests.unit.peer.fake_broker import kio_read, module

FETCH_REQUEST: Final = module(ApiKey.FETCH, FETCH_VERSION, "request").FetchRequest
TOPIC, OTHER = UUID(int=1 << 90 | 1), UUID(int=2)
LEADER, OWN, EPOCH = 1, 2, 3
SESSION: Final = 5
PARTITIONS, ROUNDS = 3, 30


def batches(count: int, offset: int, epoch: int) -> bytes:
    return b"".join(build_batch(base_offset=offset + at, leader_epoch=epoch) for at in range(count))


class Part(NamedTuple):
    """Of an answer; offsets are beside the log's end at that time."""

    partition: int
    topic: UUID = TOPIC
    error: ErrorCode = ErrorCode.NONE
    records: int = 0
    epoch: int = EPOCH
    off: int = 0
    cut: int = 0  # bytes that its end lacks
    damage: int = -1  # a byte that is another
    committed: int = 0  # below the end
    start: int = 0
    diverging: tuple[int, int] | None = None
    ends: int = 1  # the log, where the caller does not say it

    def write(self, writer: Writer, end: int) -> None:
        records = bytearray(batches(self.records, end + self.off, self.epoch))
        if records:
            records = records[: max(1, len(records) - self.cut)]
            if self.damage >= 0:
                records[self.damage % len(records)] ^= 0x55
        marks = Answered(self.error, max(0, end + self.records - self.committed), self.start)
        read = Read(marks, self.diverging, bytes(records))
        write_partition(writer, self.topic, self.partition, read)


def some_part(dice: random.Random) -> Part:
    part = Part(dice.randrange(PARTITIONS), records=dice.choice([0, 1, 1, 1, 2, 5]))
    part = part._replace(committed=dice.choice([0, 0, 1, 3]), start=dice.choice([0, 0, 0, 1, 4]))
    return part if dice.randrange(3) else part._replace(**dice.choice([
        {"epoch": EPOCH - 1}, {"epoch": EPOCH + 1}, {"off": -1}, {"off": 3}, {"cut": 20},
        {"cut": 1_000}, {"damage": dice.randrange(200)}, {"topic": UUID(int=0)}, {"topic": OTHER},
        {"diverging": (EPOCH, dice.randrange(8))}, {"partition": 77},
        {"error": ErrorCode.NOT_LEADER_OR_FOLLOWER}, {"error": ErrorCode.OFFSET_OUT_OF_RANGE},
        {"error": ErrorCode.CORRUPT_MESSAGE}, {"committed": -5}, {"start": 1 << 40},
    ]))  # fmt: skip


Answer = list[Part] | ErrorCode | bytes


def some_answer(dice: random.Random) -> Answer:
    match dice.randrange(20):
        case 0:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        case 1:
            return dice.randbytes(dice.randrange(40))
        case 2:
            return ErrorCode.NETWORK_EXCEPTION
    return [some_part(dice) for _ in range(dice.randrange(4))]


class Leader:
    """Answers as the script says, then never."""

    def __init__(self, script: list[Answer], logs: list[LedLog]) -> None:
        self.script = script[::-1]
        self.logs = logs
        self.requests: list[tuple[ApiKey, bytes]] = []
        self.done = asyncio.Event()

    async def call(self, api_key: ApiKey, _version: int, body: bytes) -> Reader:
        self.requests.append((api_key, body))
        await asyncio.sleep(0.001)
        if api_key is not ApiKey.FETCH:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "no offsets")
        if not self.script:
            self.done.set()
            await asyncio.Event().wait()
        answer = self.script.pop()
        if isinstance(answer, bytes):
            return Reader(answer, flexible=True)
        if answer is ErrorCode.NETWORK_EXCEPTION:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "lost")
        if isinstance(answer, ErrorCode):
            return Reader(refused_fetch(answer), flexible=True)
        writer = Writer(flexible=True)
        writer.int32(0)
        writer.int16(0)
        writer.int32(SESSION)
        writer.array(len(answer))
        for part in answer:
            known = part.partition < PARTITIONS
            part.write(writer, self.logs[part.partition].log_end_offset if known else 0)
        writer.tags()
        return Reader(writer.getvalue(), flexible=True)

    async def close(self) -> None:
        """There is no connection."""


@contextmanager
def logs_in(directory: Path, **settings: int) -> Iterator[list[LedLog]]:
    directory.mkdir(exist_ok=True)
    logs = [
        open_led_log(directory / f"words-{index}", "words", index, TOPIC, settings)
        for index in range(PARTITIONS)
    ]
    try:
        for log in logs:
            log.set_leadership(LEADER, False, EPOCH, 2)
        yield logs
    finally:
        for log in logs:
            log.close(clean=False)


def followed(log: LedLog, wake: Callable[[Any], None]) -> FollowedPartition:
    name = TopicPartition(log.topic, log.index)
    lines = LogLines(logging.getLogger("tests"))
    return FollowedPartition(name, log.topic_id, EPOCH, log, lines, wake)


def story(directory: Path, script: list[Answer], **settings: int) -> list[Any]:
    """What comes of it, as a fetcher asks and takes it in."""
    loop = VirtualLoop()
    failures = Failures("a fetcher", logging.getLogger("tests"))

    async def whole() -> list[Any]:
        clock = LoopClock(loop)
        with logs_in(directory, **settings) as logs:
            leader = Leader(script, logs)
            partitions = [followed(log, [].append) for log in logs]
            fetcher = ReplicaFetcher(
                Us(OWN, lambda: 7), Source(LEADER, Address("h", 1)), lambda _: leader, SETTINGS,
                clock, random.Random(1), failures, LogLines(logging.getLogger("tests")),
                FollowerThrottle(clock, lambda _: False), set_starts,
            )  # fmt: skip
            for partition in partitions:
                fetcher.follow(partition)
            task = loop.create_task(fetcher.run())
            await leader.done.wait()
            task.cancel()
            return [
                [*map(said_by, leader.requests)], fetcher.bytes_fetched, fetcher.requests,
                failures.count,
                [(each.failures, each.offline, each.changes, each.leader_high_watermark)
                 for each in partitions],
                [(each.high_watermark, each.log_start_offset, each.epochs.entries,
                  [*files_of(each)]) for each in logs],
            ]  # fmt: skip

    return loop.run(whole())


def said_by(request: tuple[ApiKey, bytes]) -> Any:
    """What a request says; the partitions that changed are in no order."""
    api_key, body = request
    if api_key is not ApiKey.FETCH:
        return body
    fetch = kio_read(FETCH_REQUEST, body)
    topics = [
        (topic.topic_id, topic.partitions if fetch.session_epoch == 0 else set(topic.partitions))
        for topic in fetch.topics
    ]
    return fetch.session_id, fetch.session_epoch, topics, fetch.forgotten_topics_data


def set_starts(logs: Any) -> None:
    for log in logs:
        log.start_on_file = log.log_start_offset


@pytest.mark.parametrize("seed", range(60))
def test_one_call_does_the_same_as_python(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    script = [some_answer(dice) for _ in range(ROUNDS)]
    settings: dict[str, int] = dice.choice([{}, {"flush_messages": 2}, {"segment_bytes": 300}])
    found = story(tmp_path / "one", script, **settings)
    monkeypatch.setattr(ReplicaFetcher, "_in_one_call", lambda _: False)
    # A change that is refused at the lock or dropped is counted there.
    *expected, partitions, logs = story(tmp_path / "two", script, **settings)
    assert found[:-2] == expected
    assert found[-1] == logs
    assert [each[:2] + each[3:] for each in found[-2]] == [
        each[:2] + each[3:] for each in partitions
    ]


# --- one answer ---


def reader_of(*parts: Part) -> Reader:
    writer = Writer(flexible=True)
    writer.int32(0)
    writer.int16(0)
    writer.int32(SESSION)
    writer.array(len(parts))
    for part in parts:
        part.write(writer, part.ends)
    writer.tags()
    return Reader(writer.getvalue(), flexible=True)


class World:
    """A lane's partitions, with logs of one record each."""

    def __init__(self, logs: list[LedLog]) -> None:
        self.woken: list[tuple[int, int]] = []
        self.wake_fails = False
        self.ms = self.look_ms = 0
        self.members: dict[bytes, FollowedPartition] = {}
        self.moved: dict[bytes, FollowedPartition] = {}
        self.session = FetchSession()
        self.positions, self.changed = self.session.positions, self.session.changed
        for log in logs:
            log.append_as_follower(batches(1, 0, EPOCH), EPOCH)
            partition = followed(log, self.wake)
            self.members[partition.key] = partition
            self.positions[partition.key] = partition.asked()
        self.taking = Taking(
            self.members, self.moved, self.session, OWN, LIMITS, self.monotonic_ms, 5
        )

    def wake(self, replica: Any) -> None:
        (partition,) = (each for each in self.members.values() if each.replica is replica)
        assert not partition._lock.locked(), "a woken consumer reads, and may change it"
        assert partition.changes % 2 == 0
        self.woken.append((replica.high_watermark, replica.log_start_offset))
        if self.wake_fails:
            raise RuntimeError("a wake-up failed")

    def monotonic_ms(self) -> int:
        self.ms += self.look_ms
        return self.ms

    def taken(self, *parts: Part, look_ms: int = 0) -> list[Any]:
        """What is returned; each look at the clock comes so much later."""
        self.look_ms = look_ms
        self.taking.begin(reader_of(*parts))
        assert self.session.session_id == SESSION
        return [*iter(lambda: self.taking.next(True, 0), None)]

    def of(self, partition: int) -> FollowedPartition:
        return self.members[key_of(TOPIC, partition)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with logs_in(tmp_path) as logs:
        yield World(logs)


def test_records_are_appended_and_the_next_position_is_known(world: World) -> None:
    assert world.taken(Part(1, records=2), Part(0)) == []
    key = key_of(TOPIC, 1)
    assert world.changed == {key: Asked(TOPIC, 1, EPOCH, 3, EPOCH, 0)}
    assert world.changed[key] == world.positions[key] == world.of(1).asked()
    assert [*world.positions] == [key_of(TOPIC, 0), key_of(TOPIC, 2), key], "served: to the end"
    assert not world.moved and world.of(1).changes == 2 and world.of(1).replica.high_watermark == 3
    assert world.of(1).leader_high_watermark == 3
    assert world.taking.record_bytes == len(batches(2, 0, EPOCH))
    assert world.taken() == [] and world.taking.answered == set()


def test_a_part_with_more_to_say_is_returned(world: World) -> None:
    parts = [Part(0, error=ErrorCode.UNKNOWN_TOPIC_ID), Part(1, diverging=(1, 1)), Part(9, OTHER)]
    found = world.taken(*parts)
    assert [type(each) for each in found] == [Fetched] * 3
    assert [each.partition for each in found] == [0, 1, 9] and found[1].diverging == (1, 1)
    assert world.taking.answered == {key_of(each.topic, each.partition) for each in parts}


def test_a_partition_that_ended_or_is_being_changed_is_left_alone(world: World) -> None:
    world.of(0).end()
    with world.of(1)._lock:
        found = world.taken(Part(0, records=1), Part(1, records=1), Part(2, records=1))
    assert [each.partition for each in found] == [0, 1]
    assert [world.of(each).replica.log_end_offset for each in range(3)] == [1, 1, 2]
    assert [world.of(each).changes for each in range(3)] == [0, 0, 2]
    assert not world.of(0)._lock.locked()


def test_a_part_for_another_end_or_epoch_is_left_to_python(world: World) -> None:
    world.of(0).replica.append_as_follower(batches(1, 1, EPOCH), EPOCH)
    world.of(1).replica.set_leadership(LEADER, False, EPOCH + 1, 2)
    found = world.taken(Part(0, records=1), Part(1, records=1))
    assert [each.partition for each in found] == [0, 1] and world.of(0).changes == 0


def test_records_are_refused_with_the_reason(world: World) -> None:
    (found,) = world.taken(Part(0, records=1, damage=-1, off=-1), Part(1, records=1))
    assert isinstance(found, Refused) and found.partition is world.of(0)
    assert isinstance(found.error, KafkaError) and found.error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert not world.of(0)._lock.locked() and world.of(1).replica.log_end_offset == 2
    with FileFaults(Fault(("write",), ".log", error=28)):
        (found,) = world.taken(Part(2, records=1))
    assert isinstance(found.error, KafkaError)
    assert found.error.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_start_that_is_not_on_file_waits_for_python(world: World) -> None:
    assert world.taken(Part(0, records=1, start=1)) == []
    assert world.of(0).replica.log_start_offset == 1
    assert [*world.moved] == [key_of(TOPIC, 0)] and not world.changed


def test_consumers_are_woken_when_their_records_are_committed(rig: Rig) -> None:
    topic = rig.create("t")
    (log,) = topic.logs
    log.set_leadership(LEADER, False, EPOCH, 2)
    world = World([log])
    reader = rig.client()
    reader.send(fetch_frame(17, [Ask(topic, 0, 0)], max_wait_ms=600_000))
    rig.wait_parked(1)
    assert world.taken(Part(0, topic.topic_id, records=1, committed=2)) == [] and not world.woken
    assert world.taken(Part(0, topic.topic_id, records=1, ends=2)) == []
    assert world.woken == [(3, 0)]
    world.wake_fails = True
    (found,) = world.taken(Part(0, topic.topic_id, records=1, ends=3))
    assert isinstance(found, Refused) and isinstance(found.error, RuntimeError)
    assert len(world.woken) == 2 and not world.members[found.partition.key]._lock.locked()
    rig.hot.wake(log)
    assert fetched_in(17, reader.receive()).only.high_watermark == 4


def test_the_loop_has_its_turns(world: World) -> None:
    parts = [Part(each % PARTITIONS, OTHER if each >= PARTITIONS else TOPIC) for each in range(6)]
    found = world.taken(*parts, look_ms=2)
    assert [each if each is TURN_OVER else each.partition for each in found] == [
        TURN_OVER, 0, 1, 2,
    ]  # fmt: skip


def test_bytes_that_are_no_answer_change_nothing(world: World) -> None:
    writer = Writer(flexible=True)
    writer.int32(0)
    writer.int16(0)
    writer.int32(SESSION)
    writer.array(2)
    Part(0, records=1).write(writer, 1)
    for cut in (writer.getvalue(), b"", writer.getvalue()[:-1]):
        with pytest.raises(ProtocolError):
            world.taking.begin(Reader(cut, flexible=True))
        assert world.taking.next(True, 0) is None
    assert world.of(0).replica.log_end_offset == 1


def test_an_answer_that_was_left_half_way_is_not_gone_on_with(world: World) -> None:
    world.taking.begin(reader_of(Part(0, error=ErrorCode.UNKNOWN_TOPIC_ID), Part(1, records=1)))
    assert isinstance(world.taking.next(True, 0), Fetched)
    with pytest.raises(ProtocolError):
        world.taking.begin(Reader(b"", flexible=True))
    assert world.taking.next(True, 0) is None and world.of(1).replica.log_end_offset == 1


def test_another_object_is_left_to_python(world: World) -> None:
    other = cast("FollowedPartition", SimpleNamespace())
    world.members[key_of(TOPIC, 0)] = other
    (found,) = world.taken(Part(0, records=1))
    assert isinstance(found, Fetched) and not isinstance(other, FollowedState)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_answers_are_refused_or_taken(world: World, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(50):
        ends = [world.of(each).replica.log_end_offset for each in range(PARTITIONS)]
        parts = [Part(each, records=1, ends=ends[each]) for each in range(PARTITIONS)]
        frame = bytearray(reader_of(*parts).raw(reader_of(*parts).left))
        for _ in range(dice.randrange(3)):
            frame[dice.randrange(len(frame))] = dice.randrange(256)
        try:
            world.taking.begin(Reader(bytes(frame), flexible=True))
        except (ProtocolError, KafkaError):
            assert world.taking.next(True, 0) is None
            continue
        while world.taking.next(True, 0) is not None:
            pass
        for each in range(PARTITIONS):
            assert world.of(each).replica.log_end_offset >= ends[each]
            assert not world.of(each)._lock.locked() and world.of(each).changes % 2 == 0


# --- the request ---


@pytest.mark.parametrize("seed", range(20))
def test_the_usual_request_is_the_one_of_the_session(world: World, seed: int) -> None:
    dice = random.Random(seed)
    session = world.session
    session.session_id, session.epoch = dice.choice([(SESSION, 1), (2**31 - 1, 2**31 - 1)])
    twin = FetchSession()
    twin.session_id, twin.epoch = session.session_id, session.epoch
    for number in range(dice.randrange(6)):
        topic = dice.choice([TOPIC, OTHER, UUID(int=2**128 - 1)])
        asked = Asked(topic, number, dice.randrange(9), dice.randrange(2**63), -1, number)
        session.ask(asked)
        twin.ask(asked)
    metadata, positions, forgotten = twin.next_request()
    broker_epoch = dice.randrange(-1, 2**63)
    body = world.taking.usual_request(broker_epoch)
    assert body == encode_fetch(OWN, broker_epoch, positions, LIMITS, metadata, forgotten)
    assert session.named == twin.named and not session.changed and not session.is_full


def test_a_full_request_and_one_that_forgets_are_the_session_s(world: World) -> None:
    session = world.session
    session.ask(Asked(TOPIC, 0, EPOCH, 1, EPOCH, 0))
    assert world.taking.usual_request(7) is None
    session.session_id, session.epoch = SESSION, 1
    session.forget(key_of(TOPIC, 0))
    assert world.taking.usual_request(7) is None and session.forgotten


def test_epochs_of_a_session_go_round_and_its_id_stays(world: World) -> None:
    session = world.session
    session.session_id, session.epoch = SESSION, 2**31 - 1
    world.taken()
    assert session.next == (SESSION, 1)
    session.session_id = SESSION + 1
    with pytest.raises(ProtocolError, match="another fetch session"):
        world.taken()


def test_left_out_partitions_have_no_failures_in_a_session(world: World) -> None:
    session = world.session
    session.named = [key_of(TOPIC, each) for each in range(PARTITIONS)] + [key_of(OTHER, 0)]
    for partition in world.members.values():
        partition.failures = 3
    session.is_full = True
    world.taken(Part(0))
    assert world.taking.left_out() == [world.of(1), world.of(2)]
    assert [world.of(each).failures for each in range(PARTITIONS)] == [0, 3, 3]
    session.is_full = False
    world.taken(Part(1, error=ErrorCode.CORRUPT_MESSAGE))
    assert [world.of(each).failures for each in range(PARTITIONS)] == [0, 3, 0]
