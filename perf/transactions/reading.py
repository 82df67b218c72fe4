"""read_committed beside read_uncommitted: CPU of a fetch where none, 1 % or half is aborted.

A log of 64 MB for each share: transactions of four batches of 16 KB, of which the share is aborted.
The generator walks the log with Fetch 4 at either isolation level, by blocks in turn, and gets the
same bytes: what is aborted is left out by the client. Fetches of 16 KB are the many small ones, of
1 MB the few large ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from perf import requests
from perf.brokers import Broker
from perf.cells import FETCH_MAX_BYTES, PLAIN_FETCH, CellError, run_load
from perf.histogram import Histogram
from perf.judge import Bar, ratio_bar, side, together
from perf.log.rounds import new_broker, order
from perf.measurement import OURS, THEIRS, Measurement
from perf.process import Watch
from perf.requests import Topic
from perf.spec import Partition, Run, Stream
from perf.stats import estimate
from perf.tables import interval
from perf.transactions.driver import SETTLE_S, connected, fill
from perf.transactions.producer import TV1, Producer, await_coordinator, values
from perf.warm import warm

RECORD_BYTES: Final = 16 << 10
BATCHES_EACH: Final = 4
LOG_BYTES: Final = 64 << 20
WARM_S: Final = 0.3
CPU_BAR: Final = 1.1
WARM_CELL: Final = "f-16k"
ISOLATIONS: Final = ("uncommitted", "committed")


@dataclass(frozen=True)
class ReadingPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 7
    seconds: float = 1.6
    shares: tuple[int, ...] = (0, 1, 50)  # aborted, of a hundred transactions
    sizes: tuple[int, ...] = (16 << 10, 1 << 20)
    log_bytes: int = LOG_BYTES
    connections: int = 4
    warm: bool = True

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Fetched:
    """One block."""

    broker: str
    round: int
    share: int
    size: int
    isolation: str
    requests_per_s: float
    megabytes_per_s: float
    cpu_us_each: float
    cpu_s_per_gigabyte: float
    p99_us: float
    quiet: bool

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Log:
    """One partition with its transactions, on one broker."""

    def __init__(self, broker: Broker, share: int, log_bytes: int) -> None:
        self._broker = broker
        name = f"perf-aborted-{share}-{os.getpid()}"
        with broker.client() as client, connected(broker.host, broker.port) as connection:
            self.topic: Topic = client.create_topic(name, 1)
            await_coordinator(client, name)
            producer = Producer(client, name, TV1, self.topic, values(1, RECORD_BYTES))
            count = max(2, log_bytes // (BATCHES_EACH * RECORD_BYTES))
            aborted = {at for at in range(count) if at * share // 100 < (at + 1) * share // 100}
            fill(producer, connection, count, BATCHES_EACH, aborted)
            (self.end,) = client.offsets(self.topic)
        if self.end < count * (BATCHES_EACH + 1) - 1:  # the last marker may be to come
            raise CellError(f"{broker.name}: {self.end} records and markers are too few")

    def read(self, isolation: int, size: int, seconds: float, connections: int) -> dict[str, Any]:
        """Round and round, for a time."""
        stream = self._stream(isolation, size, connections)
        return self._run(stream, warm_s=WARM_S, window_s=seconds)

    def read_so_often(self, isolation: int, size: int, count: int) -> dict[str, Any]:
        """So many fetches, one after the other."""
        stream = replace(self._stream(isolation, size, 1), send_limit=count)
        return self._run(stream, warm_s=0, window_s=0)

    def _stream(self, isolation: int, size: int, connections: int) -> Stream:
        each = [
            Partition(0, fetch_offset=self.end * number // connections, end_offset=self.end)
            for number in range(connections)
        ]
        return Stream(
            "fetch", PLAIN_FETCH,
            tuple(requests.fetch(PLAIN_FETCH, self.topic, [one]) for one in each),
            max_bytes=FETCH_MAX_BYTES, partition_max_bytes=size, isolation=isolation,
        )  # fmt: skip

    def _run(self, stream: Stream, *, warm_s: float, window_s: float) -> dict[str, Any]:
        broker = self._broker
        found = run_load(
            Run(
                broker.host, broker.port, (stream,), broker_pid=broker.measured_pid,
                warm_s=warm_s, window_s=window_s,
            )
        )  # fmt: skip
        (fetched,) = found["streams"]
        if fetched["errors"]:
            raise CellError(f"{broker.name}: a fetch was answered with {fetched['first_error']}")
        return found


def _block(
    broker: Broker, log: Log, plan: ReadingPlan, which: tuple[int, int, str], number: int
) -> Fetched:
    share, size, isolation = which
    watch = Watch([os.getpid(), *broker.own_pids])
    found = log.read(ISOLATIONS.index(isolation), size, plan.seconds, plan.connections)
    guard = watch.guard()
    (stream,) = found["streams"]
    wall_s, cpu_s = found["wall_ns"] / 1e9, found["broker_cpu_ns"] / 1e9
    return Fetched(
        broker.name, number, share, size, isolation, stream["requests"] / wall_s,
        stream["bytes"] / wall_s / 1e6, cpu_s * 1e6 / stream["requests"],
        cpu_s * 1e9 / stream["bytes"],
        Histogram.from_native(stream["latency"]).percentile(99) / 1e3, guard.quiet,
    )  # fmt: skip


def measure(plan: ReadingPlan, root: Path, say: Callable[[str], None]) -> list[Fetched]:
    """A round is one block by each broker, of each share, size and isolation level."""
    found = []
    with ExitStack() as stack:
        brokers: dict[str, Broker] = {}
        logs: dict[tuple[str, int], Log] = {}
        for name in plan.brokers:
            broker = brokers[name] = new_broker(name, root / name)
            stack.callback(broker.discard)
            broker.start()
            for share in plan.shares:
                logs[name, share] = Log(broker, share, plan.log_bytes)
            say(f"{name}: logs are written")
            if plan.warm:
                warm(broker, [WARM_CELL], say)
                for share in plan.shares:
                    logs[name, share].read(1, plan.sizes[0], plan.seconds, plan.connections)
            broker.hold()
        cells = [
            (share, size, isolation)
            for share in plan.shares
            for size in plan.sizes
            for isolation in ISOLATIONS
        ]
        for number in range(plan.rounds):
            for which in cells:
                for name in order(plan.brokers, number):
                    broker = brokers[name]
                    broker.resume()
                    time.sleep(SETTLE_S)
                    found.append(_block(broker, logs[name, which[0]], plan, which, number))
                    broker.hold()
                    one = found[-1]
                    say(
                        f"round {number + 1} {name:8} {_title(one)}, {one.isolation}:"
                        f" {one.cpu_us_each:,.1f} us, {one.megabytes_per_s:,.0f} MB/s"
                    )
    return found


def _title(one: Fetched) -> str:
    return f"{one.size >> 10} KB, {one.share} % aborted"


def bars(found: Sequence[Fetched]) -> list[Bar]:
    """kbroker's committed by its uncommitted."""
    ours = [one for one in found if one.broker == OURS]
    out = []
    for title in dict.fromkeys(_title(one) for one in ours):
        some = [one for one in ours if _title(one) == title]
        by_isolation = [
            side([one for one in some if one.isolation == each], lambda one: one.cpu_s_per_gigabyte)
            for each in reversed(ISOLATIONS)
        ]
        what = f"CPU of a fetch of {title}, committed"
        out.append(ratio_bar(what, CPU_BAR, "x uncommitted", together(*by_isolation)))
    return out


def report(found: Sequence[Fetched], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for name, title, isolation in dict.fromkeys(
        (one.broker, _title(one), one.isolation) for one in found
    ):
        some = [
            one for one in found
            if (one.broker, _title(one), one.isolation) == (name, title, isolation)
        ]  # fmt: skip
        columns = (
            [one.requests_per_s for one in some],
            [one.megabytes_per_s for one in some],
            [one.cpu_us_each for one in some],
            [one.cpu_s_per_gigabyte for one in some],
            [one.p99_us for one in some],
        )
        rows.append([name, title, isolation, *(interval(estimate(each)) for each in columns)])
    head = ("broker", "fetch", "isolation", "req/s", "MB/s", "CPU us", "s/GB", "p99 us")
    return Measurement.of(plan, head, rows, bars(found), found, lambda one: (
        (f"CPU of a fetch, {_title(one)}, {one.isolation}", one.cpu_us_each, "us"),
    ))  # fmt: skip
