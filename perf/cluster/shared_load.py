"""What a request costs a leader and its follower together, acks=1: kbroker beside Apache Kafka.

Two brokers of each; the first leads every partition, the second follows. A block writes to a fresh
topic whose follower has the first record of every partition, then waits until the follower has all
of it: the high watermark, which the leader raises as its follower asks for more, is the
number of records acknowledged. The brokers' CPU is taken from before the first request until then,
over all requests: replication that lags costs as much as one that keeps up. Both replicas must be
in sync before and after, or the block is void. The meeting place (ZooKeeper, the quorum
controller) is counted apart.

A closed loop says what a busy pair costs, a fixed rate what the same requests cost both.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from perf import batch, requests, warm
from perf._load import LoadError
from perf.brokers.base import COLLECTOR, COMPILER, BrokerError
from perf.cells import GIGABYTE, PLAIN_PRODUCE, TOUCH_BYTES_FIRST, Block, Cell, CellError, run_load
from perf.client import Client, ClientError
from perf.cluster.brokers import Cluster, until
from perf.cluster.rotation import Rotation, Say
from perf.cluster.topics import write_one_each
from perf.compare import REPEATS
from perf.histogram import Histogram
from perf.process import ThreadWatch, Watch, cpu_ns, touch_pages
from perf.requests import Topic
from perf.spec import Connection, Partition, Run, Stream

LEADER, FOLLOWER = 1, 2
REPLICAS: Final = (LEADER, FOLLOWER)
DELETED_S: Final = 0.7  # files of a deleted topic go within it, before the cluster is held still
WARM_BLOCK_S: Final = 1.0

CELLS: Final = (
    Cell("s-1k-4x5", "1 KB, 4 conns, 5 in flight", "produce", 1000, 4, 5),
    Cell("s-1k-4000", "1 KB, 4 conns, 4,000/s", "produce", 1000, 4, 5, rate=4000.0),
    Cell("s-10k-4x5", "10 KB, 4 conns, 5 in flight", "produce", 10_000, 4, 5, bytes_max=GIGABYTE),
    Cell("s-10k-2000", "10 KB, 4 conns, 2,000/s", "produce", 10_000, 4, 5, rate=2000.0),
)
BY_KEY: Final = {cell.key: cell for cell in CELLS}
NULL_CELLS: Final = ("s-1k-4x5", "s-1k-4000")


@dataclass(frozen=True)
class SharedBlock:
    """A block of which `block` has the CPU of both brokers, over all requests of the run."""

    block: Block
    leader_cpu_s: float
    follower_cpu_s: float
    meeting_cpu_s: float
    behind_s: float  # from the last answer until the follower had everything

    @property
    def broker(self) -> str:
        return self.block.broker

    @property
    def round(self) -> int:
        return self.block.round

    @property
    def quiet(self) -> bool:
        return self.block.quiet

    def to_json(self) -> dict[str, Any]:
        beside = {key: value for key, value in self.__dict__.items() if key != "block"}
        return {**self.block.to_json(), **beside}


@dataclass(frozen=True)
class SharedPlan:
    """How much is run."""

    brokers: tuple[str, ...] = ("kafka", "kbroker")
    cells: tuple[str, ...] = tuple(BY_KEY)
    rounds: int = REPEATS
    seconds: float = 2.0
    warm_requests: int = warm.WARM_REQUESTS  # of a runtime that compiles


@dataclass
class SharedOutcome:
    """Blocks by cell and broker; `again` those of the null test."""

    plan: SharedPlan
    blocks: dict[str, dict[str, list[SharedBlock]]] = field(default_factory=dict)
    again: dict[str, dict[str, list[SharedBlock]]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


class SharedBench:
    """Runs cells on a cluster's first two brokers."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self.cluster = cluster
        self.seconds = seconds
        self._serial = 0
        self._written: dict[str, int] = {}  # by a block of each cell

    def run(self, cell: Cell) -> SharedBlock:
        """One block. CellError if anything in it was wrong."""
        self._serial += 1
        name = f"perf-{os.getpid()}-{self._serial}-{cell.key}"
        try:
            with self.cluster.client(LEADER) as client:
                topic = client.create_topic(name, cell.connections, replicas=REPLICAS)
                write_one_each(client, [topic], acks=-1)
                self._touch(cell)
                self._check_in_sync(topic)
                found = self._measured(client, cell, topic)
                self._check_in_sync(topic)
                client.delete_topic(topic.name)
                time.sleep(DELETED_S)
                return found
        except (LoadError, ClientError, BrokerError) as error:
            raise CellError(f"{cell.key} on {self.cluster.name}: {error}") from error

    def _touch(self, cell: Cell) -> None:
        """As many pages as both brokers will write, so that none is a first touch."""
        each = self._written.get(cell.key, TOUCH_BYTES_FIRST)
        if cell.rate:
            each = int(cell.rate * self.seconds * (cell.size + 100))
        touch_pages(self.cluster.directory, 2 * each)

    def _check_in_sync(self, topic: Topic) -> None:
        if not self.cluster.in_sync(LEADER, topic.name):
            raise CellError(f"{self.cluster.name}: a replica of {topic.name} is not in sync")

    def _measured(self, client: Client, cell: Cell, topic: Topic) -> SharedBlock:
        leader, follower = (self.cluster.nodes[node] for node in REPLICAS)
        counted = [leader.pid, follower.pid, self.cluster.meeting.pid]
        stream = Stream(
            "produce", PLAIN_PRODUCE, _connections(cell, topic), in_flight=cell.in_flight,
            rate=cell.rate,
        )  # fmt: skip
        spec = Run(
            leader.host, leader.port, (stream,), broker_pid=leader.pid, warm_s=0,
            window_s=self.seconds, window_bytes=cell.bytes_max,
        )  # fmt: skip
        watch = Watch([os.getpid(), *counted])
        threads = [ThreadWatch(each.pid, each.runtime_threads) for each in (leader, follower)]
        before = [cpu_ns(pid) for pid in counted]
        counters = run_load(spec)
        ended_s = time.monotonic()
        first = counters["streams"][0]
        if first["errors"]:
            raise CellError(f"{cell.key}: error code {first['first_error']}")
        wanted = first["records_all"] + topic.partitions
        caught_up_s = until(
            f"the follower of {topic.name} has everything",
            lambda: sum(client.offsets(topic)) == wanted,
        )
        cpu_s = [(cpu_ns(pid) - was) / 1e9 for pid, was in zip(counted, before, strict=True)]
        guard = watch.guard()
        shares = [each.shares() for each in threads]
        runtime_s = {
            kind: sum(map(operator.mul, cpu_s, [share.get(kind, 0.0) for share in shares]))
            for kind in (COMPILER, COLLECTOR)
        }
        block = Block(
            cell=cell.key,
            broker=self.cluster.name,
            requests=first["answered"],
            records=first["records_all"],
            bytes=first["bytes"],
            wall_s=counters["wall_ns"] / 1e9,
            broker_cpu_s=cpu_s[0] + cpu_s[1],
            own_cpu_s=counters["own_cpu_ns"] / 1e9,
            latency=Histogram.from_native(first["latency"]),
            end_to_end=Histogram.empty(),
            verified_batches=0,
            guard=guard,
            ended_ms=time.time_ns() // 1_000_000,
            compiler_cpu_s=runtime_s[COMPILER],
            collector_cpu_s=runtime_s[COLLECTOR],
        )
        self._written[cell.key] = max(int(first["bytes"] * 1.2), self._written.get(cell.key, 0))
        return SharedBlock(block, cpu_s[0], cpu_s[1], cpu_s[2], caught_up_s - ended_s)


def _connections(cell: Cell, topic: Topic) -> tuple[Connection, ...]:
    """One to each partition, which holds a record already."""
    body = batch.of_records(cell.size, timestamp_ms=time.time_ns() // 1_000_000)
    return tuple(
        requests.produce(
            PLAIN_PRODUCE, topic, [(Partition(index, expected_offset=1), body)], acks=1
        )
        for index in range(topic.partitions)
    )


def _warm(bench: SharedBench, wanted: int, say: Say) -> None:
    compiles = bool(bench.cluster.nodes[LEADER].runtime_threads)
    brief = SharedBench(bench.cluster, WARM_BLOCK_S)
    cell = BY_KEY["s-1k-4x5"]
    found = warm.until_flat(
        lambda cell: brief.run(cell).block, cell, wanted if compiles else warm.FEW_REQUESTS
    )
    say(f"{bench.cluster.name} warm: {found.requests:,} requests{', flat' * found.flat}")


def measure(plan: SharedPlan, root: Path, say: Callable[[str], None]) -> SharedOutcome:
    """All rounds. A block that is void is said and leaves a hole."""
    outcome = SharedOutcome(plan)
    with Rotation(plan.brokers, root, len(REPLICAS), say) as turns:
        benches: dict[str, SharedBench] = {}
        for kind in plan.brokers:
            with turns.alone(kind) as cluster:
                benches[kind] = SharedBench(cluster, plan.seconds)
                outcome.versions[kind] = cluster.nodes[LEADER].version()
                _warm(benches[kind], plan.warm_requests, say)
        for number in range(plan.rounds):
            for key in plan.cells:
                for kind in turns.order(number):
                    with turns.alone(kind) as cluster:
                        _block(outcome, benches[kind], BY_KEY[key], number, say)
                        cluster.check_alive()
    return outcome


def _block(outcome: SharedOutcome, bench: SharedBench, cell: Cell, number: int, say: Say) -> None:
    """A block, and where the null test is, another right after it."""
    for where in (outcome.blocks, outcome.again)[: 1 + (cell.key in NULL_CELLS)]:
        try:
            found = bench.run(cell)
        except (CellError, OSError) as error:
            outcome.faults.append(str(error))
            say(f"VOID {error}")
            return
        found = replace(found, block=replace(found.block, round=number))
        where.setdefault(cell.key, {}).setdefault(bench.cluster.name, []).append(found)
        per_request = 1e6 / found.block.requests
        say(
            f"round {number + 1} {cell.key:11} {bench.cluster.name:8}"
            f"{found.block.requests / found.block.wall_s:>10,.0f}/s"
            f" {found.leader_cpu_s * per_request:>7.1f} + {found.follower_cpu_s * per_request:.1f}"
            f" us CPU, {found.behind_s * 1e3:.0f} ms lag"
        )
