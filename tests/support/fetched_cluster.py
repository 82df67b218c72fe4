"""Brokers that follow each other, on a virtual loop: real logs, replicas and fetchers.

The one thing that is played is the leader's answer to a Fetch: what `engine/apis/_fetch` does on a
broker, a few lines of Python do here, on a real `Replica` that leads. Between the brokers are links
that lose requests and answers, refuse and delay, as the dice say. The caller of `elect` is the
controller.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import random
import struct
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.peer.address import Address
from kbroker.peer.replica_fetch import FETCH_VERSION, FetchLimits
from kbroker.protocol.wire import Reader, Writer
from kbroker.replica._replica import Replica
from kbroker.replica.fetcher import Us
from kbroker.replica.fetcher_manager import FetcherManager, Leader
from kbroker.replica.fetcher_settings import FetcherSettings
from kbroker.types import ApiKey, TopicPartition
from tests.support.led_log import LedLog, open_led_log
from tests.support.played_fetch_sessions import (
    Answered,
    PlayedSession,
    PlayedSessions,
    Read,
    refused_fetch,
    write_partition,
)
from tests.support.record_batches import build_batch, parse_batches
from tests.support.virtual_loop import LoopClock, VirtualLoop

LATENCY_MS = 1
REQUEST_TIMEOUT_MS = 1_000
LIMITS = FetchLimits(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, partition_max_bytes=1 << 16)
SETTINGS = FetcherSettings(LIMITS, backoff_ms=1_000)
SMALL_SEGMENTS = {"segment_bytes": 2_000, "index_interval_bytes": 0}


class Position(NamedTuple):
    topic_id: UUID
    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int
    bytes_max: int


class Record(NamedTuple):
    """A batch of one record: where, in which epoch, and what."""

    offset: int
    epoch: int
    value: bytes | None


@dataclass
class Faults:
    """How often, of a hundred calls."""

    refused: int = 0
    request_lost: int = 0
    answer_lost: int = 0
    slow: int = 0


def records_of(log: LedLog, start: int = 0) -> list[Record]:
    """All that the files hold, also beyond the high watermark."""
    found = [record for data in files_of(log) for record in _parsed(data)]
    return [record for record in found if record.offset >= start] if start else found


@functools.lru_cache(maxsize=1_000)
def _parsed(data: bytes) -> tuple[Record, ...]:
    return tuple(
        Record(batch.base_offset, batch.leader_epoch, batch.records[0].value)
        for batch in parse_batches(data)
    )


def files_of(log: LedLog) -> Iterator[bytes]:
    for path in sorted(log.path.glob("*.log")):
        yield path.read_bytes()


def bytes_from(log: LedLog, offset: int, bytes_max: int) -> bytes:
    """Batches from the one that holds the offset on; the first comes whole."""
    found = b""
    for data in files_of(log):
        at = 0
        while at < len(data):
            base, size, delta = *struct.unpack_from(">qi", data, at), data[at + 26]
            delta = struct.unpack_from(">i", data, at + 23)[0]
            if base + delta >= offset:
                if found and len(found) + size + 12 > bytes_max:
                    return found + data[at : at + bytes_max - len(found)]  # cut off, as Kafka does
                found += data[at : at + 12 + size]
            at += 12 + size
    return found


class Node:
    """A broker: its replicas, who follows and what it answers."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.node_id = node_id
        self.address = Address(f"broker-{node_id}", 9092)
        self.replicas: dict[TopicPartition, LedLog] = {}
        self.leading: dict[TopicPartition, bool] = {}
        self.woken: list[Replica] = []  # whose waiting requests were woken
        self.unaware: set[TopicPartition] = set()  # its controller's word is still under way
        self.up = True
        self.keeps_starts = True  # of its logs, on file
        self.changed = asyncio.Event()
        numbers = itertools.count(node_id * 1_000)
        self.sessions: PlayedSessions[Position] = PlayedSessions(lambda: next(numbers))
        self.failures = Failures(f"broker {node_id}", logging.getLogger("tests"))
        self.cluster = cluster
        self.manager = FetcherManager(
            Us(node_id, lambda: 7),
            self._submit,
            lambda address: FakeLink(cluster, self, address),
            self.replicas.get,
            cluster.settings,
            cluster.clock,
            random.Random(cluster.dice.random()),
            self.failures,
            self.woken.append,
            lambda name: name in cluster.throttled,
            keep_starts=self._keep_starts,
        )

    def _submit(self, work: Coroutine[Any, Any, None]) -> Any:
        return self.cluster.loop.create_task(work)

    def _keep_starts(self, logs: Sequence[PartitionLog]) -> None:
        for log in logs if self.keeps_starts else ():
            log.start_on_file = log.log_start_offset

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    # --- what a leader answers ---

    async def answer(self, api_key: ApiKey, body: bytes) -> bytes:
        reader = Reader(body, flexible=True)
        return (
            self._offsets(reader) if api_key is ApiKey.LIST_OFFSETS else await self._fetch(reader)
        )

    async def _fetch(self, reader: Reader) -> bytes:
        max_wait_ms, _, bytes_left = reader.int32(), reader.int32(), reader.int32()
        reader.raw(1)
        session_id, epoch = reader.int32(), reader.int32()
        asked = {(each.topic_id, each.partition): each for each in _positions(reader)}
        forgotten = list(_forgotten(reader))
        reader.string()
        follower: list[int] = []
        reader.tags({1: lambda tag: follower.extend((tag.int32(), tag.int64()))})
        assert follower[1] == 7
        try:
            session, full = self.sessions.serve(session_id, epoch, asked, forgotten)
        except KafkaError as error:
            return refused_fetch(error.code)
        positions = [*session.positions.values()]
        self.cluster.fetches.append((follower[0], self.node_id, positions, max_wait_ms))
        self.cluster.named.append(None if full else [*asked.values()])
        deadline_s = self.cluster.loop.time() + max_wait_ms / 1000
        while True:
            changed = self.changed
            left_s = deadline_s - self.cluster.loop.time()
            how = follower[0], session, full, bytes_left
            out = self._fetched(*how, last=left_s <= 0)
            if out is not None:
                return out
            try:
                async with asyncio.timeout(left_s):
                    await changed.wait()
            except TimeoutError:
                pass

    def _fetched(
        self,
        follower: int,
        session: PlayedSession[Position],
        full: bool,
        bytes_left: int,
        *,
        last: bool,
    ) -> bytes | None:
        """None: there is nothing new, and the fetch may wait."""
        news, reads = last, []
        for each in session.positions.values():
            read, moved = self._read(follower, each, bytes_left)
            bytes_left -= len(read.records)
            news |= moved
            reads.append((each, read))
        if not news:
            return None
        writer = Writer(flexible=True)
        writer.raw(bytes(4 + 2))
        writer.int32(session.session_id)
        reads = [(each, read) for each, read in reads if full or _is_new(session, each, read)]
        writer.array(len(reads))
        for each, read in reads:
            write_partition(writer, each.topic_id, each.partition, read)
            key = each.topic_id, each.partition
            session.remember(key, read.answered, records=bool(read.records) and not full)
        writer.tags()
        return writer.getvalue()

    def _read(self, follower: int, at: Position, bytes_left: int) -> tuple[Read, bool]:
        """And whether that is news."""
        name = self.cluster.name_of(at)
        error, diverging, log = self._judge(name, at)
        records = b""
        marks = (-1, -1)
        if error is ErrorCode.NONE and log is not None:
            if diverging is None:
                try:
                    log.note_fetch(follower, at.offset, self.cluster.clock.monotonic_ns())
                except KafkaError as refused:
                    error = refused.code
            if error is ErrorCode.NONE:
                marks = (log.high_watermark, log.log_start_offset)
            if error is ErrorCode.NONE and diverging is None and bytes_left > 0:
                records = bytes_from(log, at.offset, min(at.bytes_max, bytes_left))
        known = self.cluster.answered.get((follower, log), -1)
        news = bool(records) or error is not ErrorCode.NONE or diverging is not None
        if marks[0] > known:
            self.cluster.answered[follower, log] = marks[0]
            news = True
        return Read(Answered(error, *marks), diverging, records), news

    def _judge(
        self, name: TopicPartition | None, at: Position
    ) -> tuple[ErrorCode, tuple[int, int] | None, LedLog | None]:
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID, None, None
        log = self.replicas.get(name)
        if log is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, None
        if not self.leading.get(name):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None, None
        if at.leader_epoch != log.leader_epoch:
            fenced = at.leader_epoch < log.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH
            return code, None, None
        if at.last_epoch >= 0:
            epoch, end = log.epochs.end_offset_for(at.last_epoch, log.log_end_offset)
            if epoch < 0 or at.offset < log.log_start_offset:
                return ErrorCode.OFFSET_OUT_OF_RANGE, None, None
            if epoch < at.last_epoch or end < at.offset:
                return ErrorCode.NONE, (epoch, end), log
        if not log.log_start_offset <= at.offset <= log.log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE, None, None
        return ErrorCode.NONE, None, log

    def _offsets(self, reader: Reader) -> bytes:
        replica_id = reader.int32()
        assert replica_id >= 0, "a consumer would get the high watermark"
        reader.int8()
        writer = Writer(flexible=True)
        writer.int32(0)
        topics = reader.array()
        writer.array(topics)
        for _ in range(topics):
            topic = reader.string()
            writer.string(topic)
            partitions = reader.array()
            writer.array(partitions)
            for _ in range(partitions):
                name = TopicPartition(topic, reader.int32())
                epoch, timestamp = reader.int32(), reader.int64()
                reader.tags()
                log = self.replicas[name]
                right = self.leading.get(name) and epoch == log.leader_epoch
                writer.int32(name.partition)
                writer.int16(ErrorCode.NONE if right else ErrorCode.NOT_LEADER_OR_FOLLOWER)
                writer.int64(-1)
                found = log.log_start_offset if timestamp == -2 else log.log_end_offset
                writer.int64(found if right else -1)
                writer.int32(epoch)
                writer.tags()
            writer.tags()
            reader.tags()
        writer.tags()
        return writer.getvalue()


def _positions(reader: Reader) -> Iterator[Position]:
    for _ in range(reader.array()):
        topic_id = reader.uuid()
        assert topic_id is not None
        for _ in range(reader.array()):
            yield Position(
                topic_id, reader.int32(), reader.int32(), reader.int64(), reader.int32(),
                reader.int64(), reader.int32(),
            )  # fmt: skip
            reader.tags()
        reader.tags()


def _forgotten(reader: Reader) -> Iterator[tuple[UUID | None, int]]:
    for _ in range(reader.array()):
        topic_id = reader.uuid()
        for _ in range(reader.array()):
            yield topic_id, reader.int32()
        reader.tags()


def _is_new(session: PlayedSession[Position], at: Position, read: Read) -> bool:
    more = bool(read.records or read.diverging)
    return not session.repeats((at.topic_id, at.partition), read.answered, more=more)


class FakeLink:
    """To one broker; one request at a time, with whatever goes wrong between two brokers."""

    def __init__(self, cluster: Cluster, own: Node, address: Address) -> None:
        self._cluster = cluster
        self._own = own
        self._address = address
        self._busy = False
        cluster.links += 1

    async def call(self, api_key: ApiKey, version: int, body: bytes) -> Reader:
        assert not self._busy, "one request at a time"
        self._busy = True
        try:
            return await self._call(api_key, version, body)
        finally:
            self._busy = False

    async def _call(self, api_key: ApiKey, version: int, body: bytes) -> Reader:
        assert version == (FETCH_VERSION if api_key is ApiKey.FETCH else 7)
        cluster, faults = self._cluster, self._cluster.faults
        node = next(each for each in cluster.nodes.values() if each.address == self._address)
        if not node.up or not self._own.up or cluster.happens(faults.refused):
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "refused")
        await self._delay()
        if cluster.happens(faults.request_lost):
            await self._never()
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
                answer = await node.answer(api_key, body)
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late") from None
        await self._delay()
        if not node.up or not self._own.up or cluster.happens(faults.answer_lost):
            await self._never()
        return Reader(answer, flexible=True)

    async def _delay(self) -> None:
        slow = 300 if self._cluster.happens(self._cluster.faults.slow) else LATENCY_MS
        await asyncio.sleep(slow / 1000)

    async def _never(self) -> None:
        await asyncio.sleep(REQUEST_TIMEOUT_MS / 1000)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nothing came")

    async def close(self) -> None:
        self._cluster.links -= 1


@dataclass
class Cluster:
    """`directory` takes the logs; what goes wrong may be changed at any time."""

    directory: Path
    loop: VirtualLoop
    dice: random.Random
    node_count: int = 2
    settings: FetcherSettings = SETTINGS
    faults: Faults = field(default_factory=Faults)
    min_insync_replicas: int = 1

    def __post_init__(self) -> None:
        self.clock = LoopClock(self.loop)
        self.throttled: set[TopicPartition] = set()  # wherever they are followed
        self.links = 0
        self.epochs: dict[TopicPartition, int] = {}
        self.leaders: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, UUID] = {}
        self.answered: dict[tuple[int, LedLog | None], int] = {}
        # What was read for each fetch, and what it named of that; None: everything.
        self.fetches: list[tuple[int, int, list[Position], int]] = []
        self.named: list[list[Position] | None] = []
        self.nodes = {each: Node(self, each) for each in range(1, self.node_count + 1)}

    def happens(self, percent: int) -> bool:
        return percent > 0 and self.dice.randrange(100) < percent

    def name_of(self, at: Position) -> TopicPartition | None:
        for topic, topic_id in self.topic_ids.items():
            if topic_id == at.topic_id:
                return TopicPartition(topic, at.partition)
        return None

    # --- the controller ---

    def create(
        self, topic: str, partition: int = 0, nodes: list[int] | None = None
    ) -> TopicPartition:
        name = TopicPartition(topic, partition)
        topic_id = self.topic_ids.setdefault(topic, UUID(int=len(self.topic_ids) + 1))
        for each in nodes or self.nodes:
            path = self.directory / str(each) / str(name)
            path.parent.mkdir(exist_ok=True)
            settings = {**SMALL_SEGMENTS, "min_insync_replicas": self.min_insync_replicas}
            self.nodes[each].replicas[name] = open_led_log(
                path, topic, partition, topic_id, settings
            )
        return name

    def elect(
        self, name: TopicPartition, leader: int, *, unaware: bool = False, in_sync: bool = True
    ) -> None:
        """Another epoch, sent to all that are up. `unaware`: the leader gets it later."""
        self.epochs[name] = self.epochs.get(name, -1) + 1
        self.leaders[name] = leader
        for node in self.nodes.values():
            if name in node.replicas and node.up and not (unaware and node.node_id == leader):
                self.tell(node, name, in_sync=in_sync)

    def tell(self, node: Node, name: TopicPartition, *, in_sync: bool = True) -> None:
        leader, epoch = self.leaders[name], self.epochs[name]
        replica = node.replicas[name]
        others = {
            each: in_sync
            for each, it in self.nodes.items()
            if each != node.node_id and name in it.replicas
        }
        leads = leader == node.node_id
        if leads:
            node.manager.remove([name])
        replica.set_leadership(leader, leads, epoch, len(others) + 1, others if leads else None)
        node.leading[name] = leads
        if not leads:
            where = Leader(self.topic_ids[name.topic], leader, self.nodes[leader].address, epoch)
            node.manager.follow({name: where})
        node.wake()

    # --- clients ---

    def append(self, name: TopicPartition, value: bytes, node_id: int | None = None) -> int:
        node = self.nodes[node_id or self.leaders[name]]
        offset = node.replicas[name].append(build_batch([value])).base_offset
        node.wake()
        return offset

    def replica(self, node_id: int, name: TopicPartition) -> LedLog:
        return self.nodes[node_id].replicas[name]

    # --- looking on ---

    async def until(self, holds: Callable[[], bool], timeout_ms: int = 60_000) -> int:
        """How many milliseconds it took."""
        begin_ms = self.clock.monotonic_ms()
        while not holds():
            if self.clock.monotonic_ms() - begin_ms > timeout_ms:
                raise AssertionError(f"not within {timeout_ms} virtual ms")
            await asyncio.sleep(0.001)
        return self.clock.monotonic_ms() - begin_ms

    def caught_up(self, name: TopicPartition) -> bool:
        leader = self.replica(self.leaders[name], name)
        return all(
            node.replicas[name].log_end_offset == leader.log_end_offset
            and node.replicas[name].high_watermark == leader.high_watermark
            and leader.high_watermark == leader.log_end_offset
            for node in self.nodes.values()
            if name in node.replicas
        )

    def close(self) -> None:
        for node in self.nodes.values():
            node.manager.stop()
            for replica in node.replicas.values():
                replica.close(clean=False)
