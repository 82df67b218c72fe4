"""Consume, transform, produce, each record once: records a second by two clients (copiers.py).

Records of 100 B with their numbers are copied from one partition to a new topic, in transactions of
200 that commit the offsets as well: what Apache Kafka's copier takes by default. A block is one
copy by a new client, of which the first quarter is not timed. Then the copy is read by a consumer
of committed records and has to have every number once and in order, and the group's offset has to
be at the end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perf import batch, requests
from perf.brokers import Broker
from perf.cells import PLAIN_PRODUCE, CellError, run_load
from perf.judge import Bar, value_bar
from perf.log.rounds import new_broker, order
from perf.measurement import OURS, THEIRS, Measurement, kafka_bar
from perf.process import Watch, cpu_ns
from perf.requests import Topic
from perf.spec import Partition, Run, Stream
from perf.stats import estimate
from perf.tables import interval
from perf.transactions import commits
from perf.transactions.copiers import CLIENTS, WAIT_S, Work
from perf.transactions.driver import SETTLE_S
from perf.transactions.producer import TV1, await_coordinator

RECORD_BYTES: Final = 100
BATCH_RECORDS: Final = 500
RECORDS_EACH: Final = 200
WARM_SHARE: Final = 0.25
TIME_BAR: Final = 1 / 2
WARMING: Final = -1
READ_RECORDS: Final = 1_000
INVERSE: Final = "at least 2 x the records a second is held as its inverse: the time of one record"


@dataclass(frozen=True)
class CopyPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 6
    records: int = 20_000
    records_each: int = RECORDS_EACH
    clients: tuple[str, ...] = tuple(CLIENTS)
    warm_commits: int = commits.WARM_COMMITS  # 0: it is not warmed

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Copy:
    """One block."""

    broker: str
    round: int
    client: str
    records: int
    seconds_each: float
    cpu_us_each: float  # of the broker
    lost: int
    doubled: int
    quiet: bool

    @property
    def records_per_s(self) -> float:
        return 1 / self.seconds_each

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Source:
    """The records of one broker, and copies of them."""

    def __init__(self, broker: Broker, records: int) -> None:
        self._broker = broker
        self._values = [b"%0*d" % (RECORD_BYTES, number) for number in range(records)]
        self._serial = 0
        with broker.client() as client:
            self._topic = client.create_topic(f"perf-copied-{os.getpid()}", 1)
            await_coordinator(client, self._topic.name)
            for at in range(0, records, BATCH_RECORDS):
                self._write(self._values[at : at + BATCH_RECORDS])
            if client.offsets(self._topic) != [records]:
                raise CellError(f"{broker.name}: not every record is written")

    def _write(self, some: list[bytes]) -> None:
        body = batch.encode(some, timestamp_ms=time.time_ns() // 1_000_000)
        one = requests.produce(PLAIN_PRODUCE, self._topic, [(Partition(0), body)], acks=-1)
        stream = Stream("produce", PLAIN_PRODUCE, (one,), acks=-1, send_limit=1)
        run_load(Run(self._broker.host, self._broker.port, (stream,), warm_s=0, window_s=0))

    def copy(self, name: str, number: int, records_each: int) -> Copy:
        self._serial += 1
        broker, count = self._broker, len(self._values)
        with broker.client() as client:
            target = client.create_topic(f"{self._topic.name}-{name}-{self._serial}", 1)
            work = Work(
                broker.address, self._topic.name, target.name, target.name, count, records_each
            )
            watch = Watch([os.getpid(), *broker.own_pids])
            before_ns = cpu_ns(broker.measured_pid)
            copied = CLIENTS[name](work)
            cpu_us = (cpu_ns(broker.measured_pid) - before_ns) / 1e3
            guard = watch.guard(copied.ended_cpu_s)
            found = _committed(broker, target)
            if _offset(broker, work) != count:
                raise CellError(f"{broker.name}: the offset of {name} is not at the end")
            client.delete_topic(target.name)
        distinct = set(found)
        lost = len(set(self._values) - distinct)
        if not lost and found != self._values and len(found) == count:
            raise CellError(f"{broker.name}: the copy by {name} is not in order")
        return Copy(
            broker.name, number, name, count, copied.seconds_each(int(count * WARM_SHARE)),
            cpu_us / count, lost, len(found) - len(distinct), guard.quiet,
        )  # fmt: skip


def _committed(broker: Broker, topic: Topic) -> list[bytes]:
    """All values that a consumer of committed records gets."""
    import confluent_kafka as ck

    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": topic.name,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([ck.TopicPartition(topic.name, 0, 0)])
    found: list[bytes] = []
    give_up_s = time.monotonic() + WAIT_S
    while time.monotonic() < give_up_s:
        for each in consumer.consume(READ_RECORDS, 1.0):
            error = each.error()
            if error is None:
                found.append(each.value() or b"")
            elif error.code() == ck.KafkaError._PARTITION_EOF:
                consumer.close()
                return found
            else:
                raise CellError(f"{broker.name}: {error}")
    raise CellError(f"{broker.name}: the copy was not read within {WAIT_S:.0f} s")


def _offset(broker: Broker, work: Work) -> int:
    import confluent_kafka as ck

    group = {"bootstrap.servers": broker.address, "group.id": work.name, "log_level": 0}
    consumer = ck.Consumer(group)
    (found,) = consumer.committed([ck.TopicPartition(work.source, 0)], WAIT_S)
    consumer.close()
    return int(found.offset)


def _warm(broker: Broker, source: Source, plan: CopyPlan, say: Callable[[str], None]) -> None:
    work = commits.Work(broker, commits.CommitCell(1, 1, 10, TV1))
    work.warm(plan.warm_commits, say)
    work.close()
    for name in plan.clients:
        source.copy(name, WARMING, plan.records_each)


def measure(plan: CopyPlan, root: Path, say: Callable[[str], None]) -> list[Copy]:
    """A round is one copy at each broker, by each client."""
    found = []
    with ExitStack() as stack:
        brokers: dict[str, Broker] = {}
        sources: dict[str, Source] = {}
        for name in plan.brokers:
            broker = brokers[name] = new_broker(name, root / name)
            stack.callback(broker.discard)
            broker.start()
            sources[name] = Source(broker, plan.records)
            if plan.warm_commits:
                _warm(broker, sources[name], plan, say)
            broker.hold()
        for number in range(plan.rounds):
            for client in plan.clients:
                for name in order(plan.brokers, number):
                    brokers[name].resume()
                    time.sleep(SETTLE_S)
                    one = sources[name].copy(client, number, plan.records_each)
                    brokers[name].hold()
                    found.append(one)
                    say(
                        f"round {number + 1} {name:8} {client}: {one.records_per_s:,.0f}"
                        f" records/s, CPU {one.cpu_us_each:.1f} us, {one.lost} lost,"
                        f" {one.doubled} doubled"
                    )
    return found


def bars(found: Sequence[Copy]) -> list[Bar]:
    out = []
    for client in dict.fromkeys(one.client for one in found):
        some = [one for one in found if one.client == client]
        title = f"time of a copied record, {client}"
        out.append(kafka_bar(title, TIME_BAR, some, lambda one: one.seconds_each))
        wrong = [(float(one.lost + one.doubled), True) for one in some if one.broker == OURS]
        out.append(value_bar(f"records lost or doubled, {client}", 0.0, "", wrong))
    return out


def report(found: Sequence[Copy], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for name, client in dict.fromkeys((one.broker, one.client) for one in found):
        some = [one for one in found if (one.broker, one.client) == (name, client)]
        columns = ([one.records_per_s for one in some], [one.cpu_us_each for one in some])
        wrong = [str(sum(one.lost for one in some)), str(sum(one.doubled for one in some))]
        rows.append([name, client, *(interval(estimate(each)) for each in columns), *wrong])
    head = ("broker", "client", "records/s", "CPU us each", "lost", "doubled")
    return Measurement.of(plan, head, rows, bars(found), found, lambda one: (
        (f"copied in transactions by {one.client}", one.records_per_s, "records/s"),
        (f"CPU of a record copied in transactions by {one.client}", one.cpu_us_each, "us"),
    ), [INVERSE])  # fmt: skip
