"""What fsync costs a producer: kbroker beside Apache Kafka, each batch on the disk when answered.

The topic says `flush.messages=1`. Sixteen connections, records of 1 KB, one to a batch, acks=1,
each connection with one request in flight. Both brokers live through the run, warmed without
fsync, all but one held still; blocks by turns. Where each connection has a partition of its own,
sixteen files want to be synced at once; where they share one, sixteen batches of a file do.

The number of flushes, by the kernel's count for the whole disk, is given for each request: it says
that a broker syncs, and how many requests one sync serves. A tmpfs is no disk and has no such
count, and there fsync costs nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perf.brokers import Broker
from perf.cells import Bench, Block, Cell
from perf.judge import Bar
from perf.log.rounds import new_broker, order
from perf.measurement import OURS, THEIRS, Measurement, kafka_bar
from perf.stats import estimate
from perf.tables import interval
from perf.warm import warm

RECORD_BYTES: Final = 1_000
WARM_CELL: Final = "p-1k-16x5"
SETTLE_S: Final = 0.05  # after being woken
TIME_BAR: Final = 1 / 2
FLUSHES_FIELD: Final = 15  # of a disk's stat: Documentation/block/stat.rst, from 0
INVERSE: Final = "at least 2 x the requests is held as its inverse: at most half of the time of one"
NO_DISK: Final = "the kernel counts no flushes where the data are: is it a disk?"


@dataclass(frozen=True)
class FsyncPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 7
    seconds: float = 5.0
    connections: int = 16
    partitions: tuple[int, ...] = (16, 1)

    def cell(self, partitions: int) -> Cell:
        return Cell(
            f"fsync-1k-{self.connections}x1-{partitions}p",
            f"produce 1 KB with fsync, {self.connections} conns, {partitions} partitions",
            "produce", RECORD_BYTES, self.connections, partitions=partitions,
            configs=(("flush.messages", "1"),),
        )  # fmt: skip


@dataclass(frozen=True)
class Synced:
    """One block."""

    broker: str
    round: int
    partitions: int
    requests_per_s: float
    p50_us: float
    p99_us: float
    cpu_us_per_request: float
    flushes_per_request: float | None  # None: there is no count
    quiet: bool

    @property
    def seconds_each(self) -> float:
        """Of the run, for each request."""
        return 1 / self.requests_per_s

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def disk_flushes(directory: Path, devices: Path = Path("/sys/dev/block")) -> int | None:
    """How often the disk below has flushed, for all processes; None where there is no count."""
    device = os.stat(directory).st_dev
    try:
        found = (devices / f"{os.major(device)}:{os.minor(device)}" / "stat").read_text().split()
        return int(found[FLUSHES_FIELD])
    except (OSError, IndexError):
        return None


def _synced(block: Block, partitions: int, number: int, flushes: int | None) -> Synced:
    return Synced(
        block.broker, number, partitions, block.requests_per_s, block.percentile_us(50),
        block.percentile_us(99), block.cpu_us_per_request,
        None if flushes is None else flushes / block.requests, block.guard.quiet,
    )  # fmt: skip


def _block(bench: Bench, plan: FsyncPlan, partitions: int, number: int) -> Synced:
    directory = bench.broker.directory
    before = disk_flushes(directory)
    block = bench.run(plan.cell(partitions))
    after = disk_flushes(directory)
    flushes = None if before is None or after is None else after - before
    return _synced(block, partitions, number, flushes)


def measure(plan: FsyncPlan, root: Path, say: Callable[[str], None]) -> list[Synced]:
    """A round is one block by each, of each number of partitions."""
    found = []
    with ExitStack() as stack:
        brokers: dict[str, Broker] = {}
        for kind in plan.brokers:
            broker = brokers[kind] = new_broker(kind, root / kind)
            stack.callback(broker.discard)
            broker.start()
            warm(broker, [WARM_CELL], say)
            broker.hold()
        # Not warmed within a block: all of its flushes belong to its window, but the topic's own.
        benches = {
            kind: Bench(broker, seconds=plan.seconds, warm_s=0) for kind, broker in brokers.items()
        }
        for number in range(plan.rounds):
            for partitions in plan.partitions:
                for kind in order(plan.brokers, number):
                    brokers[kind].resume()
                    time.sleep(SETTLE_S)
                    found.append(_block(benches[kind], plan, partitions, number))
                    brokers[kind].hold()
                    one = found[-1]
                    say(
                        f"round {number + 1} {kind:8} {partitions} partitions:"
                        f" {one.requests_per_s:,.0f} requests/s, p99 {one.p99_us:,.0f} us"
                    )
    return found


def bars(found: Sequence[Synced]) -> list[Bar]:
    """The time of a request by Apache Kafka's, of each number of partitions."""
    return [
        kafka_bar(
            f"time of a produce with fsync, {partitions} partition{'s' * (partitions > 1)}",
            TIME_BAR, [one for one in found if one.partitions == partitions],
            lambda one: one.seconds_each,
        )
        for partitions in dict.fromkeys(one.partitions for one in found)
    ]  # fmt: skip


def report(found: Sequence[Synced], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for kind, partitions in dict.fromkeys((one.broker, one.partitions) for one in found):
        some = [one for one in found if (one.broker, one.partitions) == (kind, partitions)]
        flushes = [one.flushes_per_request for one in some]
        columns = (
            [one.requests_per_s for one in some],
            [one.p50_us for one in some],
            [one.p99_us for one in some],
            [one.cpu_us_per_request for one in some],
            [each for each in flushes if each is not None],
        )
        rows.append([kind, str(partitions), *(interval(estimate(each)) for each in columns)])
    head = ("broker", "partitions", "req/s", "p50 us", "p99 us", "CPU us", "disk flushes each")
    remarks = [INVERSE, *[NO_DISK] * any(one.flushes_per_request is None for one in found)]
    return Measurement.of(plan, head, rows, bars(found), found, lambda one: (
        (f"produce with fsync, {one.partitions} partitions: requests", one.requests_per_s, "1/s"),
        (f"produce with fsync, {one.partitions} partitions: p99", one.p99_us, "us"),
    ), remarks)  # fmt: skip
