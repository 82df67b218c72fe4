"""`perf produce` and `perf consume`: a fixed number of records to or from a topic of any broker.

The counterparts of the perf-test scripts that users know, on the raw generator: requests are built
once and sent as they are, so what is measured is the broker and not a client library. The summary
is the line that those scripts print and many tools parse; percentiles there are whole milliseconds,
so a second line gives microseconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from perf import batch, requests
from perf.cells import (
    FETCH_MAX_BYTES,
    JAVA_FETCH,
    JAVA_PRODUCE,
    PLAIN_FETCH,
    PLAIN_PRODUCE,
    CellError,
    Path_,
    run_load,
)
from perf.client import EARLIEST, Client, ClientError
from perf.histogram import Histogram
from perf.requests import Topic
from perf.spec import Connection, Partition, Run, Stream

MIB = 1 << 20
TOPIC_WAIT_S = 0.5  # of a topic that is to be read: it is there or it is not
GROWN_WAIT_S = 10.0  # for followers: a high watermark that is not there by then is a finding
GROWN_PAUSE_S = 0.01
TOPIC_ALREADY_EXISTS = 36
BODY_SEED = 7


@dataclass(frozen=True)
class Work:
    """What to send or read."""

    host: str
    port: int
    topic: str
    records: int
    record_bytes: int = 100
    batch_bytes: int = 16 << 10
    rate: float = 0.0  # records a second; 0: as fast as it goes
    acks: int = 1
    connections: int = 1
    in_flight: int = 5
    partitions: int = 1  # of a topic that has to be created
    path: Path_ = "plain"
    codec: str = "none"
    coalesce: bool = False
    broker_pid: int = 0
    values: tuple[bytes, ...] = ()  # instead of made-up ones
    fetch_bytes: int = 1 << 20
    distinct: bool = False  # each connection has a batch of its own, instead of one for all


@dataclass(frozen=True)
class Summary:
    """What happened."""

    verb: str
    records: int
    value_bytes: int
    wall_s: float
    latency: Histogram
    broker_cpu_s: float
    own_cpu_s: float
    requests: int

    def _ms(self, percent: float) -> float:
        return self.latency.percentile(percent) / 1e6

    def line(self) -> str:
        """The line that perf-test tools print."""
        rate = self.records / self.wall_s
        return (
            f"{self.records} records {self.verb}, {rate:.1f} records/sec "
            f"({self.value_bytes / self.wall_s / MIB:.2f} MB/sec), "
            f"{self.latency.mean / 1e6:.2f} ms avg latency, "
            f"{self.latency.max / 1e6:.2f} ms max latency, "
            f"{self._ms(50):.0f} ms 50th, {self._ms(95):.0f} ms 95th, "
            f"{self._ms(99):.0f} ms 99th, {self._ms(99.9):.0f} ms 99.9th."
        )

    def detail(self) -> str:
        """The same percentiles in microseconds, and the CPU where it is known."""
        points = ", ".join(
            f"{name} {self.latency.percentile(percent) / 1e3:,.0f} us"
            for name, percent in (("p50", 50), ("p95", 95), ("p99", 99), ("p99.9", 99.9))
        )
        text = f"{self.requests} requests, {points}"
        if self.broker_cpu_s:
            text += f", broker CPU {self.broker_cpu_s * 1e6 / self.requests:.1f} us a request"
        return text

    def to_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "records_per_s": self.records / self.wall_s,
            "mebibytes_per_s": self.value_bytes / self.wall_s / MIB,
            "requests": self.requests,
            "wall_s": self.wall_s,
            "avg_latency_ms": self.latency.mean / 1e6,
            "max_latency_ms": self.latency.max / 1e6,
            **{
                f"p{name}_ms": self._ms(percent)
                for name, percent in (("50", 50), ("95", 95), ("99", 99), ("99_9", 99.9))
            },
            "broker_cpu_s": self.broker_cpu_s,
            "own_cpu_s": self.own_cpu_s,
            "histogram_ns": self.latency.to_json(),
        }


def find_topic(client: Client, work: Work) -> Topic:
    """The topic, created where it is missing."""
    try:
        client.create_topics([work.topic], work.partitions)
    except ClientError as error:
        if error.code != TOPIC_ALREADY_EXISTS:
            raise
    return client.topic(work.topic)


def read_values(path: str) -> tuple[bytes, ...]:
    """The lines of a payload file."""

    def lines() -> Iterator[bytes]:
        with open(path, "rb") as file:
            for line in file:
                if value := line.rstrip(b"\r\n"):
                    yield value

    values = tuple(lines())
    if not values:
        raise CellError(f"{path} holds no line")
    return values


def _body(work: Work, producer: tuple[int, int], number: int = 0) -> batch.RecordBatch:
    """The batch that connection `number` repeats."""
    options: dict[str, Any] = {
        "codec": work.codec,
        "timestamp_ms": time.time_ns() // 1_000_000,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
    }
    if not work.values:
        return batch.of_records(
            work.record_bytes,
            work.batch_bytes,
            words=work.codec != "none",
            seed=BODY_SEED + number * work.distinct,
            **options,
        )
    chosen: list[bytes] = []
    used = 0
    while not chosen or used < work.batch_bytes:
        chosen.append(work.values[len(chosen) % len(work.values)])
        used += len(chosen[-1]) + 8
    return batch.encode(chosen, **options)


def _check_grown(
    grown: Callable[[], int],
    acknowledged: int,
    *,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Whether the log grew by all that was acknowledged; others may write to the topic as well.

    A client sees a log's end only up to the high watermark. With acks 0 or 1 an acknowledged record
    may still be on its way to the followers: they have `GROWN_WAIT_S` for it.
    """
    give_up_s = now_s() + GROWN_WAIT_S
    while (found := grown()) < acknowledged:
        if now_s() >= give_up_s:
            raise CellError(
                f"{acknowledged} records acknowledged, {found} readable after {GROWN_WAIT_S:.0f} s:"
                " lost, or a follower lags; see the log of the leader"
            )
        sleep(GROWN_PAUSE_S)


def produce(work: Work) -> Summary:
    """Send at least `records` records (whole requests) and have each acknowledged."""
    with Client(work.host, work.port) as client:
        topic = find_topic(client, work)
        made: list[Connection] = []
        plain = work.path == "plain"
        body = _body(work, (-1, -1))
        for number in range(work.connections):
            if plain:
                if work.distinct:
                    body = _body(work, (-1, -1), number)
                one = [(Partition(number % topic.partitions), body)]
                made.append(requests.produce(PLAIN_PRODUCE, topic, one, acks=work.acks))
                continue
            body = _body(work, client.init_producer_id(), number)
            every = [(Partition(index), body) for index in range(topic.partitions)]
            made.append(requests.produce(JAVA_PRODUCE, topic, every, acks=-1, idempotent=True))
        each = body.records * len(made[0].batches)
        stream = Stream(
            "produce",
            PLAIN_PRODUCE if plain else JAVA_PRODUCE,
            tuple(made),
            acks=work.acks if plain else -1,
            in_flight=work.in_flight,
            rate=work.rate / each,
            coalesce=work.coalesce,
            send_limit=math.ceil(work.records / each),
        )
        before = sum(client.offsets(topic))
        counters = run_load(
            Run(
                work.host,
                work.port,
                (stream,),
                broker_pid=work.broker_pid,
                warm_s=0,
                window_s=0,
            )
        )
        done = counters["streams"][0]
        _check_errors(done)
        _check_grown(lambda: sum(client.offsets(topic)) - before, done["records_all"])
    value_bytes = done["records_all"] * body.value_bytes // body.records
    return _summary("sent", counters, value_bytes)


def consume(work: Work) -> Summary:
    """Read `records` records from the beginning on, or all that there are if those are fewer."""
    with Client(work.host, work.port) as client:
        topic = client.topic(work.topic, TOPIC_WAIT_S)
        starts, ends = client.offsets(topic, EARLIEST), client.offsets(topic)
    held = sum(ends) - sum(starts)
    if not held:
        raise CellError(f"topic {work.topic} is empty")
    plain = work.path == "plain"
    version = PLAIN_FETCH if plain else JAVA_FETCH
    partitions = [Partition(i, fetch_offset=first) for i, first in enumerate(starts)]
    stream = Stream(
        "fetch",
        version,
        (requests.fetch(version, topic, partitions),),
        max_bytes=FETCH_MAX_BYTES,
        partition_max_bytes=work.fetch_bytes,
        tail=True,
        session=not plain,
    )
    counters = run_load(
        Run(
            work.host,
            work.port,
            (stream,),
            broker_pid=work.broker_pid,
            warm_s=0,
            window_s=0,
            window_records=min(held, work.records) if work.records else held,
        )
    )
    _check_errors(counters["streams"][0])
    return _summary("received", counters, counters["streams"][0]["bytes"])


def _check_errors(stream: dict[str, Any]) -> None:
    if stream["errors"]:
        raise CellError(
            f"{stream['errors']} answers with an error, the first with code {stream['first_error']}"
        )


def _summary(verb: str, counters: dict[str, Any], value_bytes: int) -> Summary:
    stream = counters["streams"][0]
    return Summary(
        verb,
        stream["records_all"],
        value_bytes,
        counters["wall_ns"] / 1e9,
        Histogram.from_native(stream["latency"]),
        counters["broker_cpu_ns"] / 1e9,
        counters["own_cpu_ns"] / 1e9,
        stream["requests"],
    )
