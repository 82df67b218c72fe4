"""One transaction that stays open beside a thousand partitions: p99 of all others.

A kbroker alone. Four producers write to partitions of their own at a fixed rate, acks=all, and one
consumer of committed records follows all partitions in a session. A round has a block without a
transaction, the same block again (the null test), and one beside a transaction that was begun in
another partition, where the consumer has to wait. It is aborted afterwards. In every second round
the order is the other way round.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from perf import batch, requests
from perf.before_after.lines import P99_HALF_BAND_MAX
from perf.brokers import Broker
from perf.cells import JAVA_FETCH, PLAIN_PRODUCE, CellError, run_load
from perf.histogram import Histogram
from perf.judge import NOT_SLOWER, Slowness, not_slower, side, times, together
from perf.log.rounds import new_broker, order
from perf.measurement import OURS, Measurement
from perf.process import Watch
from perf.spec import Partition, Run, Stream
from perf.stats import estimate
from perf.tables import interval
from perf.transactions.committed_reader import READ_COMMITTED
from perf.transactions.driver import ask, connected
from perf.transactions.producer import TV1, Producer, await_coordinator, values

BESIDE: Final = "beside it"
BLOCKS: Final = ("without", "without, again", BESIDE)
WARMING: Final = -1
RECORD_BYTES: Final = 1_000
CONNECTIONS, IN_FLIGHT = 4, 5
WARM_S: Final = 0.5


@dataclass(frozen=True)
class HangingPlan:
    """How much is run."""

    rounds: int = 15
    seconds: float = 2.0
    partitions: int = 1_000
    rate: float = 2_000.0
    brokers: tuple[str, ...] = (OURS,)

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Beside:
    """One block."""

    broker: str
    round: int
    which: str
    requests: int
    produce_p99_us: float
    visible_p99_us: float  # from when a record was meant to be sent until the consumer had it
    quiet: bool

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Work:
    """The partitions, and a producer of transactions in the first of them. Close it."""

    def __init__(self, broker: Broker, plan: HangingPlan) -> None:
        self._broker, self._plan = broker, plan
        self._stack = ExitStack()
        name = f"perf-hanging-{os.getpid()}"
        self._client = self._stack.enter_context(broker.client())
        self._topic = self._client.create_topic(name, plan.partitions)
        await_coordinator(self._client, name)
        first = replace(self._topic, partitions=1)
        self._producer = Producer(self._client, name, TV1, first, values(1, RECORD_BYTES))
        self._connection = self._stack.enter_context(connected(broker.host, broker.port))

    def close(self) -> None:
        self._stack.close()

    def block(self, which: str, number: int) -> Beside:
        load = self._load()
        if which == BESIDE:
            ask(self._connection, self._producer.begun())
            ask(self._connection, self._producer.written())
        watch = Watch([os.getpid(), *self._broker.own_pids])
        found = run_load(load)
        quiet = watch.guard().quiet
        if which == BESIDE:
            ask(self._connection, self._producer.ended(committed=False))
        produced, consumed = found["streams"]
        for stream in (produced, consumed):
            if stream["errors"]:
                raise CellError(f"{which}: error code {stream['first_error']}")
        return Beside(
            self._broker.name, number, which, produced["requests"],
            Histogram.from_native(produced["latency"]).percentile(99) / 1e3,
            Histogram.from_native(consumed["end_to_end"]).percentile(99) / 1e3, quiet,
        )  # fmt: skip

    def _load(self) -> Run:
        ends = self._client.offsets(self._topic)
        body = batch.of_records(
            RECORD_BYTES, timestamp_ms=time.time_ns() // 1_000_000, stamped=True
        )
        producing = Stream(
            "produce", PLAIN_PRODUCE,
            tuple(
                requests.produce(PLAIN_PRODUCE, self._topic, [(Partition(index), body)], acks=-1)
                for index in range(1, 1 + CONNECTIONS)
            ),
            acks=-1, in_flight=IN_FLIGHT, rate=self._plan.rate,
        )  # fmt: skip
        everywhere = [Partition(index, fetch_offset=end) for index, end in enumerate(ends)]
        consuming = Stream(
            "fetch", JAVA_FETCH, (requests.fetch(JAVA_FETCH, self._topic, everywhere),),
            tail=True, session=True, isolation=READ_COMMITTED, verify_every=1,
            stamped_at=producing.connections[0].batches[0].stamp_at,
        )  # fmt: skip
        return Run(
            self._broker.host, self._broker.port, (producing, consuming), warm_s=WARM_S,
            window_s=self._plan.seconds,
        )  # fmt: skip


def measure(plan: HangingPlan, root: Path, say: Callable[[str], None]) -> list[Beside]:
    """A round is one block of each kind."""
    found = []
    with ExitStack() as stack:
        broker = new_broker(OURS, root / OURS)
        stack.callback(broker.discard)
        broker.start()
        work = Work(broker, plan)
        stack.callback(work.close)
        for which in BLOCKS:
            work.block(which, WARMING)
        for number in range(plan.rounds):
            for which in order(BLOCKS, number):
                found.append(work.block(which, number))
                one = found[-1]
                say(
                    f"round {number + 1} {which:14} p99 of a produce"
                    f" {one.produce_p99_us:,.0f} us, until read {one.visible_p99_us:,.0f} us"
                )
    return found


FIGURES: Final[Mapping[str, Callable[[Beside], float]]] = {
    "p99 of a produce": lambda one: one.produce_p99_us,
    "p99 until read": lambda one: one.visible_p99_us,
}


def judged(found: Sequence[Beside]) -> dict[str, Slowness]:
    """Beside it by without; what the null test shows of the same block is no difference."""
    out = {}
    for title, figure in FIGURES.items():
        alone, again, beside = (
            side([one for one in found if one.which == which], figure) for which in BLOCKS
        )
        nulls = [together(again, alone)]
        out[title] = not_slower(together(beside, alone), nulls, half_band_max=P99_HALF_BAND_MAX)
    return out


def report(found: Sequence[Beside], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for which in dict.fromkeys(one.which for one in found):
        some = [one for one in found if one.which == which]
        columns = (
            [one.requests / plan["seconds"] for one in some],
            [one.produce_p99_us for one in some],
            [one.visible_p99_us for one in some],
        )
        rows.append([which, *(interval(estimate(each)) for each in columns)])
    head = ("a transaction stays open", "requests/s", "produce p99 us", "until read p99 us")
    verdicts = judged(found)
    measured = Measurement.of(plan, head, rows, (), found, lambda one: [
        (f"{title}, a transaction that stays open: {one.which}", figure(one), "us")
        for title, figure in FIGURES.items()
    ], [_line(title, verdict) for title, verdict in verdicts.items()])  # fmt: skip
    values = [{"what": title, **verdict.to_json()} for title, verdict in verdicts.items()]
    fine = all(verdict.verdict == NOT_SLOWER for verdict in verdicts.values())
    return replace(measured, values=[*measured.values, *values], fine=fine)


def _line(title: str, found: Slowness) -> str:
    why = f": {found.doubt}" if found.doubt else ""
    return (
        f"{title}: {found.ratio.text(times)} x without, half-band {found.half_band_text}:"
        f" {found.verdict}{why}"
    )
