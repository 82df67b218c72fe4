"""The cells: what is measured, and how one block of a cell is run against one broker.

A cell is a fixed piece of work (sizes, connections, requests in flight, path); a block is one run
of it, a second or two, on a fresh topic. `Bench.run` prepares the topic, touches as many pages as
the block will write, runs the generator, checks that the broker holds exactly the records that it
acknowledged, removes the topic and returns a `Block`. A block with a single error code, a wrong
offset or a wrong count raises CellError: there are no figures of a broker that loses or reorders.

plain path: Produce 7 and Fetch 4 by topic name, one partition to a connection.
java path:  what the Java client does by default: Produce 13 by topic id, idempotent, acks=-1, a
            batch for each of four partitions; Fetch 18 in a session, four partitions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from perf import batch, members, requests
from perf._load import LoadError
from perf.brokers.base import COLLECTOR, COMPILER, Broker
from perf.client import Client
from perf.cluster.brokers import until
from perf.histogram import Histogram
from perf.load_thread import LoadThread
from perf.process import Guard, ThreadWatch, Watch, touch_pages
from perf.requests import Topic
from perf.spec import Connection, Partition, Run, Stream

JAVA_PARTITIONS = 4
PLAIN_PRODUCE, PLAIN_FETCH = 7, 4
JAVA_PRODUCE, JAVA_FETCH = 13, 18
FETCH_BATCH_BYTES = 16 << 10
FETCH_LOG_BYTES = 64 << 20  # per partition: all of it stays in the page cache
FETCH_MAX_BYTES = 50 << 20
TOUCH_BYTES_FIRST, TOUCH_BYTES_MAX = 512 << 20, 2 << 30
TOUCH_MARGIN = 1.2
MEGABYTE = 1_000_000  # as in performance tables; a GB is 10^9 bytes

Path_ = Literal["plain", "java"]


class CellError(Exception):
    """The block is void: an error code, a wrong offset, a wrong count, a stall."""


@dataclass(frozen=True)
class Cell:
    """A fixed piece of work."""

    key: str
    title: str
    kind: Literal["produce", "fetch", "e2e", "heartbeat", "commit"]
    size: int  # produce: value bytes of a record; fetch: bytes wanted of a partition
    connections: int = 1
    in_flight: int = 1
    path: Path_ = "plain"
    acks: int = 1
    rate: float = 0.0
    codec: str = "none"
    batch_bytes: int = 0  # values of one batch together; 0: one record
    pinned: bool = False  # client on CPU 0, broker on the others
    coalesce: bool = False
    bytes_max: int = 0  # ends the window early
    neighbour: bool = False  # a client that asks for all topics' metadata in a loop beside it
    configs: tuple[tuple[str, str], ...] = ()  # of the topic
    words: bool = False  # values that a codec can shorten, also where the producer has none
    replicas: int = 1  # on the first brokers of a cluster
    partitions: int = 0  # plain path: connections share so many; 0: each has its own


@dataclass(frozen=True)
class Block:
    """One run of a cell on one broker."""

    cell: str
    broker: str
    requests: int
    records: int
    bytes: int
    wall_s: float
    broker_cpu_s: float
    own_cpu_s: float
    latency: Histogram
    end_to_end: Histogram
    verified_batches: int
    guard: Guard
    neighbour_requests: int = 0
    ended_ms: int = 0  # since 1970 UTC
    round: int = 0  # what a comparison pairs by: a void block leaves a hole
    compiler_cpu_s: float = 0.0  # of broker_cpu_s: of threads that compile while it runs
    collector_cpu_s: float = 0.0  # and of those that collect garbage

    @property
    def quiet(self) -> bool:
        """Whether nothing else ran beside it."""
        return self.guard.quiet

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.wall_s

    @property
    def megabytes_per_s(self) -> float:
        return self.bytes / self.wall_s / MEGABYTE

    @property
    def cpu_us_per_request(self) -> float:
        return self.broker_cpu_s * 1e6 / max(1, self.requests)

    @property
    def cpu_us_without_runtime(self) -> float:
        """The same without compiling and collecting, which later requests may need less of."""
        runtime_s = self.compiler_cpu_s + self.collector_cpu_s
        return (self.broker_cpu_s - runtime_s) * 1e6 / max(1, self.requests)

    @property
    def own_us_per_request(self) -> float:
        return self.own_cpu_s * 1e6 / max(1, self.requests)

    @property
    def cpu_s_per_gigabyte(self) -> float:
        return self.broker_cpu_s * 1e9 / max(1, self.bytes)

    @property
    def measured(self) -> Histogram:
        """What the cell is about: end to end where that was measured, else per request."""
        return self.end_to_end if self.end_to_end.total else self.latency

    def percentile_us(self, percent: float) -> float:
        return self.measured.percentile(percent) / 1e3

    def to_json(self) -> dict[str, Any]:
        return {
            "cell": self.cell,
            "broker": self.broker,
            "round": self.round,
            "requests": self.requests,
            "records": self.records,
            "bytes": self.bytes,
            "wall_s": self.wall_s,
            "broker_cpu_s": self.broker_cpu_s,
            "compiler_cpu_s": self.compiler_cpu_s,
            "collector_cpu_s": self.collector_cpu_s,
            "own_cpu_s": self.own_cpu_s,
            "requests_per_s": self.requests_per_s,
            "megabytes_per_s": self.megabytes_per_s,
            "cpu_us_per_request": self.cpu_us_per_request,
            "cpu_us_without_runtime": self.cpu_us_without_runtime,
            "own_us_per_request": self.own_us_per_request,
            "cpu_s_per_gigabyte": self.cpu_s_per_gigabyte,
            "p50_us": self.percentile_us(50),
            "p99_us": self.percentile_us(99),
            "p999_us": self.percentile_us(99.9),
            "verified_batches": self.verified_batches,
            "others_cpu": self.guard.others,
            "steal": self.guard.steal,
            "quiet": self.guard.quiet,
            "neighbour_requests": self.neighbour_requests,
            "histogram": self.measured.to_json(),
        }


def run_load(spec: Run) -> dict[str, Any]:
    """Run the generator on a thread of its own, so that an interrupt ends it at once."""
    load = LoadThread(spec)
    load.start()
    return load.join()


def check_count(where: str, client: Client, cell: Cell, topic: Topic, acknowledged: int) -> None:
    """CellError unless the topic's high watermarks say as much."""

    def there() -> int:
        return sum(client.offsets(topic))

    if cell.replicas > 1:  # acks=1 waits for none of the others
        until(f"all replicas have {acknowledged} records", lambda: there() >= acknowledged)
    if (held := there()) != acknowledged:
        raise CellError(f"{where}: {acknowledged} records were acknowledged, the log holds {held}")


def placed(replicas: int) -> Sequence[int]:
    """On the first brokers, the first of which leads; a broker alone chooses for itself."""
    return range(1, replicas + 1) if replicas > 1 else ()


class Bench:
    """Runs cells against one broker and keeps the logs that fetch cells read."""

    def __init__(self, broker: Broker, *, seconds: float = 1.6, warm_s: float = 0.3) -> None:
        self.broker = broker
        self.seconds = seconds
        self.warm_s = warm_s
        self._logs: dict[int, Topic] = {}
        self._serial = 0
        self._written: dict[str, int] = {}  # by a block of each cell, warming included

    def run(self, cell: Cell) -> Block:
        """One block. CellError if anything in it was wrong."""
        runner: dict[str, Callable[[Client, Cell], Block]] = {
            "produce": self._produce,
            "fetch": self._fetch,
            "e2e": self._end_to_end,
            "heartbeat": self._group,
            "commit": self._group,
        }
        try:
            with self.broker.client() as client:
                return runner[cell.kind](client, cell)
        except LoadError as error:
            raise CellError(f"{cell.key} on {self.broker.name}: {error}") from error

    # Pieces of a produce cell.

    def _new_topic(self, client: Client, cell: Cell, partitions: int) -> Topic:
        self._serial += 1
        name = f"perf-{os.getpid()}-{id(self) & 0xFFFFFF:x}-{self._serial}-{cell.key}"
        return client.create_topic(name, partitions, dict(cell.configs), placed(cell.replicas))

    def _batch(self, cell: Cell, producer: tuple[int, int] = (-1, -1)) -> batch.RecordBatch:
        options: dict[str, Any] = {
            "codec": cell.codec,
            "timestamp_ms": time.time_ns() // 1_000_000,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
        }
        if cell.size >= 1 << 20:  # the broker's limit is on the whole batch
            return batch.of_size(cell.size, **options)
        if cell.kind == "e2e":
            return batch.of_records(cell.size, stamped=True, **options)
        words = cell.words or cell.codec != "none"
        return batch.of_records(cell.size, cell.batch_bytes, words=words, **options)

    def _producers(self, client: Client, cell: Cell, topic: Topic) -> tuple[Connection, ...]:
        made = []
        for number in range(cell.connections):
            if cell.path == "plain":
                partition = Partition(number % topic.partitions, expected_offset=0)
                if cell.connections > topic.partitions:
                    partition = replace(partition, expected_offset=-1)
                one = [(partition, self._batch(cell))]
                made.append(requests.produce(PLAIN_PRODUCE, topic, one, acks=cell.acks))
                continue
            body = self._batch(cell, client.init_producer_id())
            exact = 0 if cell.connections == 1 else -1
            several = [
                (Partition(index, expected_offset=exact), body) for index in range(topic.partitions)
            ]
            made.append(requests.produce(JAVA_PRODUCE, topic, several, acks=-1, idempotent=True))
        return tuple(made)

    def _produce_stream(self, client: Client, cell: Cell, topic: Topic) -> Stream:
        plain = cell.path == "plain"
        return Stream(
            "produce",
            PLAIN_PRODUCE if plain else JAVA_PRODUCE,
            self._producers(client, cell, topic),
            acks=cell.acks if plain else -1,
            in_flight=cell.in_flight,
            rate=cell.rate,
            coalesce=cell.coalesce,
        )

    def _partitions(self, cell: Cell) -> int:
        return cell.partitions or cell.connections if cell.path == "plain" else JAVA_PARTITIONS

    def _touch(self, cell: Cell) -> None:
        """As many pages as the block will write: what the last one wrote, or a guess."""
        if not self.broker.directory.is_dir():
            return  # a broker that is merely attached
        expected = self._written.get(cell.key, 2 * cell.bytes_max or TOUCH_BYTES_FIRST)
        if cell.rate:
            expected = int(cell.rate * (self.seconds + 1) * (cell.size + 100))
        touch_pages(self.broker.directory, min(expected, TOUCH_BYTES_MAX))

    def _produce(self, client: Client, cell: Cell) -> Block:
        topic = self._new_topic(client, cell, self._partitions(cell))
        streams = [self._produce_stream(client, cell, topic)]
        if cell.neighbour:
            streams.append(Stream("repeat", 12, (requests.metadata_of_all_topics(),)))
        self._touch(cell)
        block, counters = self._go(cell, tuple(streams))
        self._check_count(client, cell, topic, counters["streams"][0])
        client.delete_topic(topic.name)
        per_request = block.bytes / block.requests
        written = int(counters["streams"][0]["sent"] * per_request * TOUCH_MARGIN)
        self._written[cell.key] = max(written, self._written.get(cell.key, 0))
        if cell.neighbour:
            block = replace(block, neighbour_requests=counters["streams"][1]["requests"])
        return block

    def _check_count(self, client: Client, cell: Cell, topic: Topic, stream: Any) -> None:
        where = f"{cell.key} on {self.broker.name}"
        check_count(where, client, cell, topic, stream["records_all"])

    # Fetch and end to end.

    def fill_log(self, client: Client, partitions: int) -> Topic:
        """A topic whose every batch has FETCH_BATCH_BYTES and one record; written once."""
        if partitions in self._logs:
            return self._logs[partitions]
        self._serial += 1
        topic = client.create_topic(f"perf-{os.getpid()}-{id(self) & 0xFFFFFF:x}-log", partitions)
        if self.broker.directory.is_dir():
            touch_pages(self.broker.directory, FETCH_LOG_BYTES * partitions)
        body = batch.of_size(FETCH_BATCH_BYTES, timestamp_ms=time.time_ns() // 1_000_000)
        connections = tuple(
            requests.produce(
                PLAIN_PRODUCE, topic, [(Partition(index, expected_offset=0), body)], acks=1
            )
            for index in range(partitions)
        )
        each = FETCH_LOG_BYTES // FETCH_BATCH_BYTES
        for connection in connections:
            stream = Stream("produce", PLAIN_PRODUCE, (connection,), in_flight=5, send_limit=each)
            run_load(Run(self.broker.host, self.broker.port, (stream,), warm_s=0, window_s=0))
        if client.offsets(topic) != [each] * partitions:
            raise CellError(f"{self.broker.name}: the log to fetch from is not what was written")
        self._logs[partitions] = topic
        return topic

    def _fetch(self, client: Client, cell: Cell) -> Block:
        plain = cell.path == "plain"
        topic = self.fill_log(client, cell.connections if plain else JAVA_PARTITIONS)
        each = FETCH_LOG_BYTES // FETCH_BATCH_BYTES
        connections = []
        for number in range(cell.connections):
            first = each * number // cell.connections
            indexes = [number] if plain else list(range(topic.partitions))
            partitions = [
                Partition(index, fetch_offset=first, start_offset=0, end_offset=each)
                for index in indexes
            ]
            version = PLAIN_FETCH if plain else JAVA_FETCH
            connections.append(requests.fetch(version, topic, partitions))
        stream = Stream(
            "fetch",
            PLAIN_FETCH if plain else JAVA_FETCH,
            tuple(connections),
            rate=cell.rate,
            max_bytes=FETCH_MAX_BYTES,
            partition_max_bytes=cell.size,
            session=not plain,
            uniform_bytes=FETCH_BATCH_BYTES if plain else 0,
            uniform_records=1,
        )
        return self._go(cell, (stream,))[0]

    def _end_to_end(self, client: Client, cell: Cell) -> Block:
        topic = self._new_topic(client, cell, self._partitions(cell))
        producing = self._produce_stream(client, cell, topic)
        plain = cell.path == "plain"
        consuming = Stream(
            "fetch",
            PLAIN_FETCH if plain else JAVA_FETCH,
            (
                requests.fetch(
                    PLAIN_FETCH if plain else JAVA_FETCH,
                    topic,
                    [Partition(index) for index in range(topic.partitions)],
                ),
            ),
            tail=True,
            session=not plain,
            stamped_at=producing.connections[0].batches[0].stamp_at,
            verify_every=1,
        )
        block, counters = self._go(cell, (producing, consuming))
        self._check_count(client, cell, topic, counters["streams"][1])
        client.delete_topic(topic.name)
        return block

    # A member of its own group on each connection.

    def _group(self, client: Client, cell: Cell) -> Block:
        topic = self._new_topic(client, cell, 1)
        joined = [members.join(client, f"{topic.name}-{i}") for i in range(cell.connections)]
        if cell.kind == "heartbeat":
            connections = tuple(members.heartbeat(member) for member in joined)
        else:
            connections = tuple(members.commit(member, topic, 0) for member in joined)
        version = members.HEARTBEAT_VERSION if cell.kind == "heartbeat" else members.COMMIT_VERSION
        stream = Stream("repeat", version, connections, in_flight=cell.in_flight)
        block = self._go(cell, (stream,))[0]
        for member in joined:
            members.leave(client, member)
        client.delete_topic(topic.name)
        return block

    # The run itself.

    def _go(self, cell: Cell, streams: tuple[Stream, ...]) -> tuple[Block, dict[str, Any]]:
        pid = self.broker.measured_pid
        spec = Run(
            self.broker.host,
            self.broker.port,
            streams,
            broker_pid=pid,
            warm_s=self.warm_s,
            window_s=self.seconds,
            window_bytes=cell.bytes_max,
        )
        watch = Watch([os.getpid(), *self.broker.own_pids])
        threads = ThreadWatch(pid, self.broker.runtime_threads)
        with Placement(pid, cell.pinned):
            counters = run_load(spec)
        guard = watch.guard()
        shares = threads.shares()
        broker_cpu_s = counters["broker_cpu_ns"] / 1e9
        first = counters["streams"][0]
        for stream in counters["streams"]:
            if stream["errors"]:
                raise CellError(
                    f"{cell.key} on {self.broker.name}: {stream['errors']} answers with an "
                    f"error, the first with code {stream['first_error']}"
                )
        if not first["requests"]:
            raise CellError(f"{cell.key} on {self.broker.name}: nothing was answered in the window")
        block = Block(
            cell=cell.key,
            broker=self.broker.name,
            requests=first["requests"],
            records=first["records"],
            bytes=first["bytes"],
            wall_s=counters["wall_ns"] / 1e9,
            broker_cpu_s=broker_cpu_s,
            own_cpu_s=counters["own_cpu_ns"] / 1e9,
            latency=Histogram.from_native(first["latency"]),
            end_to_end=Histogram.from_native(counters["streams"][-1]["end_to_end"]),
            verified_batches=sum(s["verified_batches"] for s in counters["streams"]),
            guard=guard,
            ended_ms=time.time_ns() // 1_000_000,
            compiler_cpu_s=broker_cpu_s * shares.get(COMPILER, 0.0),
            collector_cpu_s=broker_cpu_s * shares.get(COLLECTOR, 0.0),
        )
        if not block.measured.total:
            raise CellError(f"{cell.key} on {self.broker.name}: {cell.rate:.0f}/s was not held")
        return block, counters


class Placement:
    """Where threads may run during a block: freely, or client on CPU 0 and broker on the rest."""

    def __init__(self, broker_pid: int, pinned: bool) -> None:
        self._pid = broker_pid
        self._all = os.sched_getaffinity(0)
        self._pinned = pinned and broker_pid > 0 and len(self._all) > 1

    def __enter__(self) -> None:
        if self._pinned:
            first = min(self._all)
            os.sched_setaffinity(0, {first})  # the generator's thread inherits this
            self._place_broker(self._all - {first})

    def __exit__(self, *_: object) -> None:
        if self._pinned:
            os.sched_setaffinity(0, self._all)
            self._place_broker(self._all)

    def _place_broker(self, cpus: set[int]) -> None:
        for task in Path(f"/proc/{self._pid}/task").iterdir():
            try:
                os.sched_setaffinity(int(task.name), cpus)
            except ProcessLookupError:
                continue  # a thread that has just ended


def _produce(
    key: str, title: str, size: int, connections: int, in_flight: int, **more: Any
) -> Cell:
    return Cell(key, title, "produce", size, connections, in_flight, **more)


GIGABYTE = 1_000_000_000

# The table of the project's performance notes first, then what the bars ask for besides.
CELLS: tuple[Cell, ...] = (
    _produce("p-100-1x1", "produce 100 B, 1 conn, 1 in flight", 100, 1, 1),
    _produce("p-100-1x1-pin", "produce 100 B, 1 x 1, pinned", 100, 1, 1, pinned=True),
    _produce("p-100-1x5", "produce 100 B, 1 conn, 5 in flight", 100, 1, 5),
    _produce("p-100-4x5", "produce 100 B, 4 conns, 5 in flight", 100, 4, 5),
    _produce("p-100-16x5", "produce 100 B, 16 conns, 5 in flight", 100, 16, 5),
    _produce("p-1k-1x5", "produce 1 KB, 1 conn, 5 in flight", 1000, 1, 5),
    _produce("p-1k-4x5", "produce 1 KB, 4 conns, 5 in flight", 1000, 4, 5),
    _produce("p-1k-16x5", "produce 1 KB, 16 conns, 5 in flight", 1000, 16, 5),
    _produce(
        "p-16k-4x5", "produce 16 KB, 4 conns, 5 in flight", 16 << 10, 4, 5, bytes_max=GIGABYTE
    ),
    _produce("p-1m-4x5", "produce 1 MB, 4 conns, 5 in flight", 1 << 20, 4, 5, bytes_max=GIGABYTE),
    Cell("f-16k", "fetch, 16 KB max, 4 conns", "fetch", 16 << 10, 4),
    Cell("f-1m", "fetch, 1 MB max, 4 conns", "fetch", 1 << 20, 4),
    _produce("p-1k-4x5-acks0", "produce 1 KB, 4 x 5, acks=0", 1000, 4, 5, acks=0),
    _produce("p-1k-4x5-all", "produce 1 KB, 4 x 5, acks=-1", 1000, 4, 5, acks=-1),
    _produce("p-1k-4x5-runs", "produce 1 KB, 4 x 5, one send a turn", 1000, 4, 5, coalesce=True),
    _produce("p-1k-4000", "produce 1 KB, 4 conns, 4,000/s", 1000, 4, 5, rate=4000.0),
    _produce("j-100-1x5", "java path, 4 x 100 B, 1 conn", 100, 1, 5, path="java"),
    _produce("j-1k-4x5", "java path, 4 x 1 KB, 4 conns", 1000, 4, 5, path="java"),
    _produce("j-100-16x5", "java path, 4 x 100 B, 16 conns", 100, 16, 5, path="java"),
    _produce(
        "j-lz4",
        "java path, 4 x 16 KB of 1 KB, lz4",
        1000,
        4,
        5,
        path="java",
        codec="lz4",
        batch_bytes=16 << 10,
    ),
    _produce(
        "j-zstd",
        "java path, 4 x 16 KB of 1 KB, zstd",
        1000,
        4,
        5,
        path="java",
        codec="zstd",
        batch_bytes=16 << 10,
    ),
    Cell(
        "jf-16k", "java fetch in a session, 4 x 16 KB, 4 conns", "fetch", 16 << 10, 4, path="java"
    ),
    Cell("heartbeat-16x5", "Heartbeat, 16 conns, 5 in flight", "heartbeat", 0, 16, 5),
    Cell("commit-16x5", "OffsetCommit of one partition, 16 conns, 5 in flight", "commit", 0, 16, 5),
    Cell("e2e-200", "produce to long-polling fetch, 200/s", "e2e", 100, rate=200.0),
    Cell("e2e-java-200", "the same on the java path", "e2e", 100, rate=200.0, path="java"),
)
BY_KEY = {cell.key: cell for cell in CELLS}
GROUP_CELLS = ("heartbeat-16x5", "commit-16x5")
QUICK = (
    "p-100-1x1",
    "p-100-1x5",
    "p-100-16x5",
    "p-1k-4x5",
    "p-16k-4x5",
    "p-1m-4x5",
    "f-16k",
    "f-1m",
    "j-100-1x5",
    "j-1k-4x5",
    "jf-16k",
    "heartbeat-16x5",
    "commit-16x5",
    "e2e-200",
)
