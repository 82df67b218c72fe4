"""What it costs to clean a compacted log of two gigabytes: kbroker beside Apache Kafka.

Records of 1 KB with random keys are produced to a topic whose dirty ratio is never reached; then
that is set to 0.01, and the cleaner begins. It has ended when `cleaner-offset-checkpoint`, which
both write, names the segment that is appended to. Counted is the broker's CPU until
then, its memory at the most beyond what it had, and what a producer of another topic waits without
and with the cleaning beside it.

One broker after the other, each in a new directory in every round.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perf.brokers import Broker
from perf.cells import MEGABYTE, CellError
from perf.cluster.brokers import until
from perf.cluster.paced import Latency, PacedProducer
from perf.judge import Bar, value_bar
from perf.log.rounds import new_broker, order
from perf.measurement import OURS, THEIRS, Measurement, kafka_bar
from perf.process import Watch, cpu_ns, memory
from perf.stats import estimate
from perf.tables import interval

RECORD_BYTES: Final = 1_000
SEGMENT_BYTES: Final = 256 << 20
ALONE_S: Final = 5.0  # of the producer's window without the cleaning
POLL_S: Final = 0.05
WAIT_S: Final = 600.0
SEED: Final = 1
CHECKPOINT: Final = "cleaner-offset-checkpoint"
SETTINGS: Final = (
    "log.cleaner.backoff.ms=500", "log.initial.task.delay.ms=0",
    f"log.segment.bytes={SEGMENT_BYTES}",
)  # fmt: skip
CPU_BAR, P99_BAR = 0.7, 1.5


@dataclass(frozen=True)
class CleaningPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 3
    gigabytes: float = 2.0
    keys: int = 1_000_000
    rate: float = 500.0  # of the producer beside

    @property
    def records(self) -> int:
        return int(self.gigabytes * 1e9 / RECORD_BYTES)


@dataclass(frozen=True)
class Cleaned:
    """One cleaning."""

    broker: str
    round: int
    seconds: float
    cpu_s: float
    memory_bytes: int  # at the most, beyond what it held before
    bytes_before: int
    bytes_after: int
    alone: Latency
    beside: Latency
    quiet: bool

    def to_json(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "alone": dict(self.alone.__dict__),
            "beside": dict(self.beside.__dict__),
        }


class Peak(threading.Thread):
    """The most memory that a process holds, looked at every 50 ms until `end`."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._over = pid, threading.Event()
        self.first = self.most = memory(pid).anonymous
        self.start()

    def run(self) -> None:
        while not self._over.wait(POLL_S):
            self.most = max(self.most, memory(self._pid).anonymous)

    def end(self) -> int:
        """Beyond what it held at first."""
        self._over.set()
        self.join()
        return self.most - self.first


def _fill(broker: Broker, topic: str, plan: CleaningPlan) -> None:
    import confluent_kafka

    chance = random.Random(SEED)
    body = chance.randbytes(RECORD_BYTES)
    failed: list[str] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.address, "linger.ms": 20, "batch.size": 1 << 20,
            "queue.buffering.max.messages": 200_000, "acks": 1,
            "on_delivery": lambda error, _message: failed.append(str(error)) if error else None,
        }
    )  # fmt: skip
    for _ in range(plan.records):
        while True:
            try:
                producer.produce(topic, body, b"%012d" % chance.randrange(plan.keys), partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    if producer.flush(WAIT_S) or failed:
        raise CellError(f"{broker.name}: {len(failed)} records were refused: {failed[:1]}")


def clean_from_now_on(broker: Broker, topic: str) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    entry = ConfigEntry(
        "min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.address})
    (changed,) = admin.incremental_alter_configs([resource]).values()
    changed.result(WAIT_S)


def _segments(broker: Broker, topic: str) -> dict[int, int]:
    """Bytes by base offset."""
    found = (broker.directory / "data" / f"{topic}-0").glob("*.log")
    return {int(path.stem): path.stat().st_size for path in found}


def _is_cleaned(broker: Broker, topic: str) -> bool:
    try:
        lines = (broker.directory / "data" / CHECKPOINT).read_text().splitlines()
    except FileNotFoundError:
        return False
    offsets = {tuple(words[:2]): int(words[2]) for line in lines if len(words := line.split()) == 3}
    return offsets.get((topic, "0"), 0) >= max(_segments(broker, topic))


def until_cleaned(broker: Broker, topic: str) -> float:
    """When it was, by time.monotonic()."""

    def cleaned() -> bool:
        broker.check_alive()
        return _is_cleaned(broker, topic)

    return until(f"{broker.name} has cleaned {topic}", cleaned, WAIT_S)


def _cleaned(broker: Broker, plan: CleaningPlan, number: int) -> Cleaned:
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
    with broker.client() as client:
        topic = client.create_topic("compacted", 1, configs)
        own = client.create_topic("beside", 1)
    _fill(broker, topic.name, plan)
    before = sum(_segments(broker, topic.name).values())
    alone = PacedProducer(broker, own, plan.rate)
    alone.start()
    time.sleep(ALONE_S)
    alone_found = alone.end()
    beside = PacedProducer(broker, own, plan.rate)
    watch, peak = Watch([os.getpid(), broker.pid]), Peak(broker.pid)
    beside.start()
    spent_ns, began_s = cpu_ns(broker.pid), time.monotonic()
    clean_from_now_on(broker, topic.name)
    seconds = until_cleaned(broker, topic.name) - began_s
    cpu_s = (cpu_ns(broker.pid) - spent_ns) / 1e9
    beside_found = beside.end()
    after = sum(_segments(broker, topic.name).values())
    return Cleaned(
        broker.name, number, seconds, cpu_s, peak.end(), before, after, alone_found, beside_found,
        watch.guard().quiet,
    )  # fmt: skip


def measure(plan: CleaningPlan, root: Path, say: Callable[[str], None]) -> list[Cleaned]:
    """A round is one cleaning by each."""
    found = []
    for number in range(plan.rounds):
        for kind in order(plan.brokers, number):
            broker = new_broker(kind, root / f"{kind}-{number}", SETTINGS)
            try:
                broker.start()
                found.append(_cleaned(broker, plan, number))
            finally:
                broker.discard()
            one = found[-1]
            say(
                f"round {number + 1} {kind:8} {one.seconds:.1f} s, {one.cpu_s:.1f} s of CPU,"
                f" {one.memory_bytes / MEGABYTE:,.0f} MB, {one.bytes_before / MEGABYTE:,.0f} to"
                f" {one.bytes_after / MEGABYTE:,.0f} MB; p99 {one.alone.p99_us:,.0f} us alone,"
                f" {one.beside.p99_us:,.0f} us beside"
            )
    return found


def bars(found: Sequence[Cleaned]) -> list[Bar]:
    """The CPU by Apache Kafka's, and our p99 by the same without the cleaning."""
    ours = [one for one in found if one.broker == OURS]
    grown = [(one.beside.p99_us / one.alone.p99_us, one.quiet) for one in ours if one.alone.p99_us]
    return [
        kafka_bar("CPU of a cleaning", CPU_BAR, found, lambda one: one.cpu_s),
        value_bar("p99 of produce beside it", P99_BAR, "x without", grown),
    ]


def report(found: Sequence[Cleaned], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for kind in dict.fromkeys(one.broker for one in found):
        some = [one for one in found if one.broker == kind]
        columns = (
            [one.seconds for one in some],
            [one.cpu_s for one in some],
            [one.memory_bytes / MEGABYTE for one in some],
            [one.bytes_after / MEGABYTE for one in some],
            [one.alone.p99_us for one in some],
            [one.beside.p99_us for one in some],
        )
        rows.append([kind, *(interval(estimate(each)) for each in columns)])
    head = ("broker", "s", "CPU s", "more MB", "MB left", "p99 us alone", "p99 us beside")
    return Measurement.of(plan, head, rows, bars(found), found, lambda one: (
        ("cleaning", one.seconds, "s"),
        ("cleaning, CPU", one.cpu_s, "s"),
        ("cleaning, memory", one.memory_bytes, "bytes"),
    ))  # fmt: skip
