"""Under which conditions the latency study measures: the points, and why these.

Record and rate. 1,000 bytes at 1,000 records a second: 1 MB/s, a hundredth of either broker's
most, so that nothing queues and the times are those of one record. And so that every value of the
document's matrix means something: a batch of 1, 16 and 64 KB fills in 1, 16 and 65 ms, before,
between and after its lingers of 5, 10 and 100 ms.

Paced, the sender follows a schedule and every record knows when it was due. `sync` waits for each
record's acknowledgement (with acks=0: until it is written to the socket) before the next send;
where that cannot hold the rate, what counts is the time from send(), and that it was not held.
Flat out, the sender never rests, and only the client's buffer (32 MB, the document's buffer.memory)
holds it back: what a load test does, and where acks=0 and async have another effect.

A group has the points that are compared: all acks, modes and brokers of one batch size and
linger. The null tests are at linger 0 and 10, both modes, and flat out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from perf.studies.study import Dim, Point, StudyError

RECORD_BYTES = 1_000
RATE = 1_000.0
BUFFER_KB = 32 << 10
IN_FLIGHT = 5
REPLICAS_MAX: Final = 5
ACKS = (0, 1, -1)
BATCHES = (1 << 10, 16 << 10, 64 << 10)
LINGERS_MS = (0, 5, 10, 100)

Load = Literal["paced", "flat-out"]
Mode = Literal["async", "sync"]
MODES: tuple[Mode, ...] = ("async", "sync")
DEFAULT_BATCH = 16 << 10  # the document's, and the Java client's
DEFAULT_LINGER_MS = 0
NULL_LINGERS_MS = (0, 10)


class Setting(NamedTuple):
    """Another key that the document names or a client has, held against the same without it."""

    load: Load
    knob: str
    value: str
    producer: Mapping[str, object]
    consumer: Mapping[str, object]
    servers: Mapping[str, object] = MappingProxyType({})
    acks: int = 1


# Beside the matrix, one at a time: acks=1, async, 16 KB, no linger.
OTHER_SETTINGS: Final = (
    Setting("flat-out", "buffer.memory", "4 MB", {"queue.buffering.max.kbytes": 4 << 10}, {}),
    Setting("flat-out", "retries", "0", {"retries": 0}, {}),
    Setting("flat-out", "max.in.flight.requests.per.connection", "1", {"max.in.flight": 1}, {}),
    Setting(
        "flat-out",
        "max.partition.fetch.bytes",
        "64 KB",
        {},
        {"max.partition.fetch.bytes": 64 << 10},
    ),
    Setting("paced", "fetch.min.bytes", "16 KB", {}, {"fetch.min.bytes": 16 << 10}),
)  # fmt: skip
# The document's settings of followers: where there are some, acks=-1 waits for them.
REPLICATED_SETTINGS: Final = tuple(
    Setting(
        load,
        "replica.fetch.max.bytes",
        "64 KB",
        {},
        {},
        {"replica.fetch.max.bytes": 64 << 10},
        acks=-1,
    )
    for load in ("flat-out", "paced")
)


@dataclass(frozen=True)
class Condition:
    """One cell of the study, without its broker."""

    load: Load
    acks: int
    mode: Mode
    batch_bytes: int = DEFAULT_BATCH
    linger_ms: int = DEFAULT_LINGER_MS
    knob: str = ""  # another setting, and its value
    knob_value: str = ""
    producer: Mapping[str, object] = field(default_factory=dict)
    consumer: Mapping[str, object] = field(default_factory=dict)
    servers: Mapping[str, object] = field(default_factory=dict)  # of a cluster of its own

    @property
    def rate(self) -> float:
        """Records per second that are intended; 0: as many as it takes."""
        return RATE if self.load == "paced" else 0.0

    @property
    def cell(self) -> str:
        words = [
            self.load,
            self.mode,
            f"acks={self.acks}",
            f"{self.batch_bytes >> 10} KB",
            f"linger {self.linger_ms}",
        ]
        return ", ".join([*words, *([f"{self.knob} {self.knob_value}"] if self.knob else [])])

    def key(self, broker: str) -> str:
        return f"{broker}: {self.cell}"

    @property
    def wait_ms(self) -> float:
        """How long the median record waits for its batch to leave, if only linger decides.

        sync: it is alone in its batch, so all of linger. async: until linger is over since the
        batch's first record, or one comes that does not fit; the others came one by one meanwhile.
        """
        if self.mode == "sync" or not self.linger_ms:
            return float(self.linger_ms)
        apart_ms = 1000 / RATE
        fills_ms = max(1, self.batch_bytes // RECORD_BYTES) * apart_ms
        first_ms = min(float(self.linger_ms), fills_ms)
        records = math.ceil(first_ms / apart_ms)
        return first_ms - apart_ms * (records - 1) / 2

    def server(self, broker: str) -> str:
        """Which of the started ones it is measured on."""
        return f"{broker}, {self.knob} {self.knob_value}" if self.servers else broker

    def dims(self, broker: str, replicas: int = 1) -> dict[str, Dim]:
        """As columns of perf.results_table."""
        found: dict[str, Dim] = {
            "cell": self.load,
            "work": "e2e",
            "broker": broker,
            "acks": self.acks,
            "mode": self.mode,
            "batch_bytes": self.batch_bytes,
            "linger_ms": self.linger_ms,
            "rate": self.rate,
            "size_bytes": RECORD_BYTES,
            "in_flight": IN_FLIGHT,
            "connections": 1,
            "partitions": 1,
            "replicas": replicas,
            "codec": "none",
        }
        if self.knob:
            found |= {"knob": self.knob, "knob_value": self.knob_value}
        return found

    def options(self) -> tuple[dict[str, object], dict[str, object]]:
        """librdkafka's settings under its names: of the producer, of the consumer."""
        producer: dict[str, object] = {
            "acks": self.acks,
            "linger.ms": self.linger_ms,
            "batch.size": self.batch_bytes,
            "max.in.flight": IN_FLIGHT,
            "enable.idempotence": False,
            "queue.buffering.max.kbytes": BUFFER_KB,
            "queue.buffering.max.messages": 0,
            "socket.nagle.disable": True,
            **self.producer,
        }
        # Without the backoff of a second after its queue was full, which would be all we measure.
        consumer: dict[str, object] = {
            "fetch.queue.backoff.ms": 1,
            "socket.nagle.disable": True,
            **self.consumer,
        }
        return producer, consumer


@dataclass(frozen=True)
class Plan:
    """How much of the matrix is measured, on which brokers, and how long each block is."""

    brokers: tuple[str, ...] = ("kafka", "kbroker")
    batches: Sequence[int] = BATCHES
    lingers_ms: Sequence[int] = LINGERS_MS
    flat_batches: Sequence[int] = BATCHES
    others: bool = True
    replicas: int = 1  # of the topic: each system has as many brokers
    rounds: int = 7
    seconds: float = 0.5
    directory: Path | None = None

    def __post_init__(self) -> None:
        """StudyError. A plan may come from a file, which may hold anything."""
        if type(self.replicas) is not int or not 1 <= self.replicas <= REPLICAS_MAX:
            raise StudyError(f"the plan's replicas: from 1 to {REPLICAS_MAX}")

    def servers(self) -> dict[str, tuple[str, Mapping[str, object]]]:
        """What has to be started, by its name: which system, and its settings."""
        return {
            one.server(broker): (broker, one.servers)
            for one in conditions(self)
            for broker in self.brokers
        }

    @property
    def with_kafka(self) -> bool:
        return "kafka" in self.brokers

    @classmethod
    def quick(cls, **changes: Any) -> Plan:
        """Three minutes: a batch size, three lingers; a look, for three rounds decide nothing."""
        base = cls(
            batches=(DEFAULT_BATCH,),
            lingers_ms=(0, 10, 100),
            flat_batches=(DEFAULT_BATCH,),
            others=False,
            rounds=3,
        )
        return replace(base, **changes)


def conditions(plan: Plan) -> list[Condition]:
    """Every condition, in the order of the groups."""
    found = [
        Condition("paced", acks, mode, batch, linger)
        for batch in plan.batches
        for linger in plan.lingers_ms
        for mode in MODES
        for acks in ACKS
    ]
    found += [
        Condition("flat-out", acks, "async", batch) for batch in plan.flat_batches for acks in ACKS
    ]
    found += [Condition("flat-out", acks, "sync") for acks in ACKS]
    if plan.others:
        others = OTHER_SETTINGS + (REPLICATED_SETTINGS if plan.replicas > 1 else ())
        found += [
            Condition(
                one.load, one.acks, "async", knob=one.knob, knob_value=one.value,
                producer=one.producer, consumer=one.consumer, servers=one.servers,
            )
            for one in others
        ]  # fmt: skip
    return found


def is_null(condition: Condition) -> bool:
    """Whether a null test is made of it."""
    plain = condition.acks == 1 and condition.batch_bytes == DEFAULT_BATCH and not condition.knob
    if condition.load == "flat-out":
        return plain
    return plain and condition.linger_ms in NULL_LINGERS_MS


def points(found: Sequence[Condition], brokers: Sequence[str], replicas: int = 1) -> list[Point]:
    """The study's points: what is held against each other in one group."""
    return [
        Point(
            condition.key(broker),
            _group(condition),
            condition.dims(broker, replicas),
            null=is_null(condition),
        )
        for condition in found
        for broker in brokers
    ]


def _group(condition: Condition) -> str:
    if condition.load == "paced":
        return f"paced-{condition.batch_bytes}-{condition.linger_ms}"
    return f"flat-out-{condition.batch_bytes}"
