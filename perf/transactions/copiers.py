"""Two clients that consume, transform and produce: a partition is copied, offsets in transactions.

Java's is Apache Kafka's own TransactionalMessageCopier, librdkafka's runs in this process. Both
read what is committed up to the end that the partition had when they began, and take part in no
group's rebalances. Each says when how many records were committed.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lab import child
from lab.jars import KAFKA
from perf.cells import CellError

HEAP: Final = "256m"
WAIT_S: Final = 60.0
POLL_S: Final = 1.0


class Work(NamedTuple):
    """What is copied, partition 0 of each topic."""

    bootstrap: str
    source: str
    target: str
    name: str  # of the group, and of the transactional id
    records: int
    records_each: int  # in a transaction, at most


class Progress(NamedTuple):
    """By time.monotonic(), all records that were committed until then."""

    at_s: float
    records: int


@dataclass(frozen=True)
class Copied:
    """One copy. `ended_cpu_s`: of a process that is over."""

    progress: list[Progress]
    ended_cpu_s: float = 0.0

    def seconds_each(self, warm_records: int) -> float:
        """Of a record, after the first ones, in which a client gets warm. CellError."""
        last = self.progress[-1]
        first = next((each for each in self.progress if each.records >= warm_records), last)
        if first is last:
            raise CellError("a copy of no more than one transaction after it is warm")
        return (last.at_s - first.at_s) / (last.records - first.records)


def java(work: Work) -> Copied:
    """CellError where it fails."""
    command = ["java", f"-Xmx{HEAP}", "-cp", KAFKA.fetch()]
    command += ["org.apache.kafka.tools.TransactionalMessageCopier", "--use-group-metadata"]
    command += ["--broker-list", work.bootstrap, "--input-topic", work.source]
    command += ["--input-partition", "0", "--output-topic", work.target]
    command += ["--consumer-group", work.name, "--transactional-id", work.name]
    command += ["--transaction-size", str(work.records_each)]
    process = child.start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    progress, last = [], b""
    with process:
        for line in process.stdout or ():
            at_s, last = time.monotonic(), line
            if b"ProcessLoop" in line:
                progress.append(Progress(at_s, json.loads(line)["totalProcessed"]))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        said = last.decode(errors="replace").strip()
        raise CellError(f"Java's copier ended with {process.returncode}: {said}")
    return Copied(progress, used.ru_utime + used.ru_stime)


def librdkafka(work: Work) -> Copied:
    """As its documentation says; an error ends it."""
    import confluent_kafka as ck

    common = {"bootstrap.servers": work.bootstrap, "log_level": 0}
    consumer = ck.Consumer(
        {
            **common,
            "group.id": work.name,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([ck.TopicPartition(work.source, 0, 0)])
    producer = ck.Producer({**common, "transactional.id": work.name})
    producer.init_transactions(WAIT_S)
    progress = [Progress(time.monotonic(), 0)]
    while progress[-1].records < work.records:
        taken = _taken(consumer, work.records_each)
        producer.begin_transaction()
        for each in taken:
            producer.produce(work.target, each.value(), partition=0)
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_S)
        producer.commit_transaction(WAIT_S)
        progress.append(Progress(time.monotonic(), progress[-1].records + len(taken)))
    consumer.close()
    return Copied(progress)


def _taken(consumer: Any, count: int) -> list[Any]:
    """At least one record."""
    give_up_s = time.monotonic() + WAIT_S
    while time.monotonic() < give_up_s:
        taken = consumer.consume(count, POLL_S)
        if taken:
            for each in taken:
                if each.error():
                    raise CellError(f"librdkafka: {each.error()}")
            return list(taken)
    raise CellError(f"librdkafka: no record in {WAIT_S:.0f} s")


CLIENTS: Final[dict[str, Callable[[Work], Copied]]] = {"java": java, "librdkafka": librdkafka}
