"""How long a broker that was killed needs for some gigabytes: kbroker beside Apache Kafka.

The same load generator writes the same bytes into the same number of partitions of both, and they
are killed with SIGKILL. Neither is spared anything: before each start the clean mark and the
recovery points are removed from both directories alike, so that every batch of every segment is
read and checked; what a broker has read by /proc/PID/io must be all of its logs, or there is no
figure. Both have their bytes in the page cache: dirty pages are written out once, and all files
are read right before each start.

A start is timed from exec until every partition has answered with the end of its log. The same
start of the same topic without records is taken off it: what is left is the recovery. An intact
log is not changed by it, so a directory serves all rounds; each start ends with SIGKILL.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from perf import batch, requests
from perf.bars import MIB
from perf.batch import RecordBatch
from perf.brokers import Broker
from perf.cells import MEGABYTE, PLAIN_PRODUCE, CellError, run_load
from perf.judge import Bar
from perf.log.rounds import new_broker, order
from perf.log.starts import (
    SPARING,
    Ready,
    data_of,
    log_bytes,
    read_into_cache,
    spare_nothing,
    timed_start,
    until_answered,
)
from perf.measurement import OURS, THEIRS, Measurement, kafka_bar
from perf.process import memory, touch_pages
from perf.requests import Topic
from perf.spec import Partition, Run, Stream
from perf.stats import estimate
from perf.tables import interval

RECORD_BYTES, BATCH_BYTES = 1_000, 16 << 10  # of a producer with its usual batch.size
SEGMENT_BYTES: Final = 1 << 30
TIME_BAR: Final = 0.5
SYNC_WAIT_S: Final = 300.0
COLD_MAX: Final = 0.01  # of the bytes: more from the disk is remarked on
REMARK: Final = (
    f"before each start, of both: {' and '.join(SPARING)} removed, all files read into the page"
    " cache; what was read by the broker was all of its logs"
)


@dataclass(frozen=True)
class RecoveryPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 7
    gigabytes: float = 5.0
    partitions: tuple[int, ...] = (1, 100)
    threads: int = 2  # num.recovery.threads.per.data.dir

    @cached_property
    def body(self) -> RecordBatch:
        return batch.of_records(RECORD_BYTES, BATCH_BYTES, timestamp_ms=time.time_ns() // 1_000_000)

    def batches_each(self, partitions: int) -> int:
        """In a partition."""
        return max(1, int(self.gigabytes * 1e9 / len(self.body.data) / partitions))

    def bytes(self, partitions: int) -> int:
        """Of all partitions together, which both brokers get."""
        return self.batches_each(partitions) * partitions * len(self.body.data)

    @property
    def settings(self) -> tuple[str, ...]:
        """Of both brokers."""
        return (
            f"log.segment.bytes={SEGMENT_BYTES}",
            f"num.recovery.threads.per.data.dir={self.threads}",
        )

    def to_json(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in self.__dataclass_fields__}


@dataclass(frozen=True)
class Recovered:
    """One start with the records, and one without them."""

    broker: str
    round: int
    partitions: int
    bytes: int
    start_s: float  # with them
    empty_s: float  # without
    cpu_s: float  # of the start with them
    peak_bytes: int  # of resident memory, of the same
    from_disk_bytes: int
    quiet: bool

    @property
    def seconds(self) -> float:
        """Of the recovery alone."""
        return self.start_s - self.empty_s

    @property
    def megabytes_per_s(self) -> float | None:
        """None: it drowned in the noise of the starts."""
        return self.bytes / self.seconds / MEGABYTE if self.seconds > 0 else None

    def to_json(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "seconds": self.seconds,
            "megabytes_per_s": self.megabytes_per_s,
        }


@dataclass(frozen=True)
class Killed:
    """A broker that does not run, and what its directory holds."""

    broker: Broker
    topic: Topic
    end_offset: int  # of each partition
    bytes: int

    def recover(self) -> tuple[Ready, int]:
        """Starts it, kills it again; its peak of resident memory is the second."""
        data = data_of(self.broker)
        spare_nothing(data)
        read_into_cache(data)
        try:
            ready = timed_start(self.broker, [self.topic], self.end_offset)
            peak = memory(self.broker.pid).peak
        finally:
            self.broker.kill()
        check_read(self.broker.name, ready.reads.asked, self.bytes)
        return ready, peak


def check_read(broker: str, read: int, size: int) -> None:
    """CellError unless it can have read all of its logs."""
    if read < size:
        raise CellError(f"{broker} has read {read:,} bytes of {size:,}: that is no recovery")


def _write(broker: Broker, topic: Topic, body: RecordBatch, batches_each: int) -> None:
    """So many batches into each partition, one partition after the other."""
    for index in range(topic.partitions):
        where = [(Partition(index, expected_offset=0), body)]
        one = requests.produce(PLAIN_PRODUCE, topic, where, acks=1)
        stream = Stream("produce", PLAIN_PRODUCE, (one,), in_flight=5, send_limit=batches_each)
        counters = run_load(Run(broker.host, broker.port, (stream,), warm_s=0, window_s=0))
        if counters["streams"][0]["errors"]:
            raise CellError(f"{topic.name}: error code {counters['streams'][0]['first_error']}")


def _filled(broker: Broker, plan: RecoveryPlan, partitions: int, batches_each: int) -> Topic:
    broker.start()
    with broker.client() as client:
        topic = client.create_topic("recovered", partitions)
    if batches_each:
        _write(broker, topic, plan.body, batches_each)
    until_answered(broker, [topic], batches_each * plan.body.records)
    return topic


def _killed(
    kind: str, directory: Path, plan: RecoveryPlan, partitions: int, batches_each: int
) -> Killed:
    """So many batches in each partition, which are on the disk, as a killed broker leaves them."""
    directory.mkdir(parents=True)
    wanted = batches_each * partitions * len(plan.body.data)
    touch_pages(directory, wanted)
    filling = new_broker(kind, directory, plan.settings)
    try:
        topic = _filled(filling, plan, partitions, batches_each)
    finally:
        filling.kill()
    subprocess.run(["sync", "--file-system", str(directory)], check=True, timeout=SYNC_WAIT_S)
    broker = new_broker(kind, directory, plan.settings, killed=True)
    size = log_bytes(data_of(broker), [topic])
    if size != wanted:
        raise CellError(f"{kind}: the logs have {size:,} bytes, {wanted:,} were written")
    return Killed(broker, topic, batches_each * plan.body.records, size)


def _recovered(full: Killed, empty: Killed, number: int) -> Recovered:
    without, _ = empty.recover()
    ready, peak = full.recover()
    return Recovered(
        full.broker.name, number, full.topic.partitions, full.bytes, ready.seconds,
        without.seconds, ready.cpu_s, peak, ready.reads.from_disk, ready.quiet and without.quiet,
    )  # fmt: skip


def measure(plan: RecoveryPlan, root: Path, say: Callable[[str], None]) -> list[Recovered]:
    """A round is one recovery by each. One number of partitions after the other, so that the disk
    and the page cache have to hold the bytes of two directories and no more."""
    found = []
    for partitions in plan.partitions:
        with ExitStack() as stack:
            full, empty = {}, {}
            for kind in plan.brokers:
                where = root / f"{kind}-{partitions}"
                stack.callback(shutil.rmtree, where, ignore_errors=True)
                empty[kind] = _killed(kind, where / "empty", plan, partitions, 0)
                each = plan.batches_each(partitions)
                full[kind] = _killed(kind, where / "full", plan, partitions, each)
                say(f"{kind}: {full[kind].bytes / MEGABYTE:,.0f} MB in {partitions} partitions")
            for number in range(plan.rounds):
                for kind in order(plan.brokers, number):
                    found.append(_recovered(full[kind], empty[kind], number))
                    one = found[-1]
                    say(
                        f"round {number + 1} {kind:8} {one.seconds:.2f} s: {one.start_s:.2f} s,"
                        f" empty {one.empty_s:.2f} s; {one.cpu_s:.2f} s of CPU"
                    )
    return found


def bars(found: Sequence[Recovered]) -> list[Bar]:
    """Of each number of partitions, by Apache Kafka's: the recovery, and the start as a whole."""
    every = []
    for partitions in dict.fromkeys(one.partitions for one in found):
        some = [one for one in found if one.partitions == partitions]
        of = f"{some[0].bytes / 1e9:.3g} GB in {partitions} partition{'s' * (partitions > 1)}"
        every += [
            kafka_bar(f"recovery of {of}", TIME_BAR, some, lambda one: one.seconds),
            kafka_bar(f"start with it, {of}", TIME_BAR, some, lambda one: one.start_s),
        ]
    return every


def report(found: Sequence[Recovered], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for kind, partitions in dict.fromkeys((one.broker, one.partitions) for one in found):
        some = [one for one in found if (one.broker, one.partitions) == (kind, partitions)]
        columns = (
            [one.seconds for one in some],
            [one.start_s for one in some],
            [one.empty_s for one in some],
            [one.megabytes_per_s for one in some if one.megabytes_per_s is not None],
            [one.cpu_s for one in some],
            [one.peak_bytes / MIB for one in some],
        )
        rows.append([kind, str(partitions), *(interval(estimate(each)) for each in columns)])
    head = (
        "broker", "partitions", "recovery s", "start s", "empty s", "MB/s", "CPU s", "peak MB",
    )  # fmt: skip
    cold = sum(one.from_disk_bytes > COLD_MAX * one.bytes for one in found)
    remarks = [REMARK]
    if cold:
        remarks.append(f"{cold} of {len(found)} recoveries read more than 1 % from the disk")
    return Measurement.of(plan, head, rows, bars(found), found, lambda one: (
        (f"recovery, {one.partitions} partitions", one.seconds, "s"),
        (f"recovery, {one.partitions} partitions: start", one.start_s, "s"),
        (f"recovery, {one.partitions} partitions: CPU", one.cpu_s, "s"),
    ), remarks)  # fmt: skip
