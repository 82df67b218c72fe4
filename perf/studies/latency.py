"""The latency study of document 002: from send() to the consumer, on kbroker and Apache Kafka.

One block: a fresh topic; the receiving process begins to consume it; a first record goes all the
way, so that connections and metadata are there; then the sender works for the block's seconds, and
the block ends when every record has come, once and in order. A block in which one is missing is
void. Times are from send(), and from when the record was due (its intended time), which differs
where the sender could not keep to its schedule; flat out, the time until librdkafka reports the
record acknowledged is kept instead: it separates the client's own queue from the rest.

With --replicas N each system is a cluster of N brokers, the topic on all of them, its leader the
one that the clients know. All live through the whole study and are held still (SIGSTOP) when it is
not their turn.
The client is librdkafka (confluent-kafka), because its batching, lingering and buffering are what
the document asks about; sender here, receiver in a process of its own. What the blocks say in the
end is perf/studies/answers.py.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from perf.brokers import KINDS, Broker, KafkaBroker
from perf.cells import BY_KEY, Bench, CellError, placed
from perf.cluster.as_one_broker import ClusterAsBroker
from perf.cluster.brokers import KINDS as CLUSTERS
from perf.process import Guard, Watch, cpu_ns, touch_pages
from perf.studies.answers import ACKNOWLEDGED, FROM_DUE, HELD_MIN
from perf.studies.conditions import RECORD_BYTES, Condition, Plan, conditions, points
from perf.studies.measured import END_TO_END, Measured
from perf.studies.receiver import Receiver
from perf.studies.stamped import HEAD, RECORDS_MAX, histogram, value
from perf.studies.study import Outcome, Point, Say, run

STUDY = "latency-study"
WARM_S = 0.1  # of a paced block; flat out until the buffer has filled
FLAT_WARM_S = 0.3
ACK_WAIT_S = 20.0
FLUSH_WAIT_S = 30.0
PURGE_WAIT_S = 1.0
FIRST_WAIT_S = 15.0
FULL_POLL_S = 0.001
SETTLE_AFTER_HOLD_S = 0.03
FLAT_TOUCH_BYTES = 128 << 20
WARM_REQUESTS, WARM_BLOCKS = 200_000, 12


def need_client() -> None:
    """CellError, in one line, where confluent-kafka is not installed."""
    try:
        import confluent_kafka  # noqa: F401
    except ModuleNotFoundError:
        raise CellError(
            "the latency study needs librdkafka (confluent-kafka): pip install 'kbroker[perf]'"
        ) from None


class Sender:
    """librdkafka's producer on one topic, sending stamped records one by one."""

    def __init__(self, bootstrap: str, topic: str, condition: Condition) -> None:
        import confluent_kafka as ck

        options = condition.options()[0]
        self._producer: Any = ck.Producer(
            {"bootstrap.servers": bootstrap, "on_delivery": self._delivered, **options}
        )
        self._full = BufferError
        self._topic = topic
        self._sync = condition.mode == "sync"
        self._filling = bytes(RECORD_BYTES - HEAD.size)
        self._step_ns = 1e9 / condition.rate if condition.rate else 0.0
        self._due = 0  # number in the schedule
        self.sent = self.acknowledged = 0
        self.failed = ""
        self.timing = False
        self.latencies_s: list[float] = []

    def _delivered(self, error: object, message: Any) -> None:
        self.acknowledged += 1
        if error is not None:
            self.failed = self.failed or str(error)
        elif self.timing:
            self.latencies_s.append(message.latency() or 0.0)

    def send(self, due_ns: int) -> None:
        """One record; sync: until it is acknowledged. A full buffer is waited for, and counts."""
        now_ns = time.monotonic_ns()
        if self.sent >= RECORDS_MAX:
            raise CellError(f"more than {RECORDS_MAX:,} records in a block")
        body = value(self.sent, due_ns or now_ns, now_ns, self._filling)
        while True:
            try:
                self._producer.produce(self._topic, body, partition=0)
                break
            except self._full:
                self._producer.poll(FULL_POLL_S)
        self.sent += 1
        if self._sync:
            self._await_all(ACK_WAIT_S)
        else:
            self._producer.poll(0)

    def _await_all(self, wait_s: float) -> None:
        give_up = time.monotonic() + wait_s
        while self.acknowledged < self.sent:
            self._producer.poll(0.2)
            if time.monotonic() > give_up:
                raise CellError(f"record {self.sent - 1} was not acknowledged in {wait_s:.0f} s")
        if self.failed:
            raise CellError(f"producer: {self.failed}")

    def go(self, origin_ns: int, end_ns: int) -> None:
        """Send until the clock says end: by the schedule that began at `origin_ns`, or flat out."""
        if not self._step_ns:
            while time.monotonic_ns() < end_ns:
                self.send(0)
            return
        while True:
            due_ns = origin_ns + int(self._due * self._step_ns)
            now_ns = time.monotonic_ns()
            if now_ns < min(due_ns, end_ns):
                time.sleep((min(due_ns, end_ns) - now_ns) / 1e9)
            if max(due_ns, now_ns) >= end_ns:
                return
            self.send(due_ns)
            self._due += 1

    def finish(self) -> None:
        """All acknowledged, or CellError."""
        self._producer.flush(FLUSH_WAIT_S)
        self._await_all(1.0)

    def close(self) -> None:
        """End its threads now: they refer to us as we do to them. Queued records are dropped."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(PURGE_WAIT_S)


class LatencyBench:
    """Runs blocks against brokers that take turns."""

    def __init__(self, brokers: dict[str, Broker], plan: Plan) -> None:
        self._brokers = brokers
        self._plan = plan
        self._conditions = {
            condition.key(name): (condition, condition.server(name))
            for condition in conditions(plan)
            for name in plan.brokers
        }
        self.replicas = plan.replicas
        self._receiver: Receiver | None = None
        self._serial = 0

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.close()
            self._receiver = None

    def measure(self, point: Point) -> Measured:
        """One block of a study's point, its broker running alone."""
        condition, name = self._conditions[point.key]
        broker = self._brokers[name]
        broker.resume()
        try:
            time.sleep(SETTLE_AFTER_HOLD_S)
            return self.block(broker, condition)
        finally:
            broker.check_alive()
            broker.hold()

    def block(self, broker: Broker, condition: Condition) -> Measured:
        """One block on a running broker. CellError if a record was lost, doubled or reordered."""
        self._serial += 1
        topic = f"latency-{os.getpid()}-{self._serial}"
        if self._receiver is None:
            self._receiver = Receiver()
        if condition.load == "flat-out" and broker.directory.is_dir():
            touch_pages(broker.directory, FLAT_TOUCH_BYTES)
        with broker.client() as client:
            client.create_topic(topic, 1, replicas=placed(self.replicas))
            try:
                found = self._run(broker, self._receiver, condition, topic)
            except BaseException:
                self.close()  # what it would say next belongs to this block
                raise
            finally:
                client.delete_topic(topic)
        return found

    def _run(
        self, broker: Broker, receiver: Receiver, condition: Condition, topic: str
    ) -> Measured:
        options = condition.options()[1]
        receiver.ask(do="listen", bootstrap=broker.address, topic=topic, options=options)
        sender = Sender(broker.address, topic, condition)
        try:
            sender.send(0)
            receiver.answer(FIRST_WAIT_S)  # the first record has gone all the way
            return self._window(broker, receiver, condition, sender)
        finally:
            sender.close()

    def _window(
        self, broker: Broker, receiver: Receiver, condition: Condition, sender: Sender
    ) -> Measured:
        flat = condition.load == "flat-out"
        warm_s = FLAT_WARM_S if flat else WARM_S
        seconds = self._plan.seconds
        origin_ns = time.monotonic_ns()
        begin_ns = origin_ns + int(warm_s * 1e9)
        end_ns = begin_ns + int(seconds * 1e9)
        sender.go(origin_ns, begin_ns)
        watch = Watch([os.getpid(), receiver.pid, *broker.own_pids])
        before = _cpu(broker, receiver)
        sent_before, sender.timing = sender.sent, True
        sender.go(origin_ns, end_ns)
        sent = sender.sent - sent_before
        after, guard = _cpu(broker, receiver), watch.guard()
        wall_s = (time.monotonic_ns() - begin_ns) / 1e9
        sender.finish()
        answer = receiver.ask(do="end", records=sender.sent, begin_ns=begin_ns, end_ns=end_ns)
        spent = after[0] - before[0], after[1] - before[1]
        return _measured(condition, sender, answer, guard, sent=sent, wall_s=wall_s, spent=spent)


def _cpu(broker: Broker, receiver: Receiver) -> tuple[float, float]:
    """CPU seconds so far: the brokers', and ours with the receiver's."""
    own = (cpu_ns(os.getpid()) + cpu_ns(receiver.pid)) / 1e9
    return sum(map(cpu_ns, broker.measured_pids)) / 1e9, own


def _measured(
    condition: Condition,
    sender: Sender,
    answer: dict[str, Any],
    guard: Guard,
    *,
    sent: int,
    wall_s: float,
    spent: tuple[float, float],
) -> Measured:
    from perf.histogram import Histogram

    try:
        from_send = Histogram.from_json(answer["from_send"])
        from_due = Histogram.from_json(answer["from_due"])
    except (KeyError, ValueError) as error:
        raise CellError(f"the receiving process answered without {error}") from None
    if not from_send.total:
        raise CellError(f"{condition.cell}: nothing was sent in the window")
    histograms = {END_TO_END: from_send}
    if condition.load == "paced":
        histograms[FROM_DUE] = from_due
    else:  # without a schedule a record is due when it is sent; what counts is where it waited
        waited_ns = (np.asarray(sender.latencies_s, dtype=np.float64) * 1e9).astype(np.int64)
        histograms[ACKNOWLEDGED] = histogram(waited_ns)
    held = sent / (condition.rate * wall_s) if condition.rate else 1.0
    return Measured(
        requests=0,
        records=int(answer["arrived"]),
        bytes=int(answer["arrived"]) * RECORD_BYTES,
        wall_s=wall_s,
        broker_cpu_s=spent[0],
        own_cpu_s=spent[1],
        guard=guard,
        histograms={name: one for name, one in histograms.items() if one.total},
        figures={"sent": float(sent), "held": held},
        ended_at_ms=time.time_ns() // 1_000_000,
    )


def describe(one: Measured) -> str:
    held = one.figures.get("held", 1.0)
    return (
        f"p50 {one.percentile_us(END_TO_END, 50):>9,.0f} us  p99 "
        f"{one.percentile_us(END_TO_END, 99):>9,.0f} us {one.records_per_s:>9,.0f}/s"
        + ("" if held >= HELD_MIN else f" ({held:.0%} of the rate)")
    )


def run_study(plan: Plan, say: Say, journal: Path, *, fresh: bool = False) -> Outcome:
    """Start the brokers, warm them, measure, end them. The blocks stay in the journal."""
    need_client()
    root = Path(tempfile.mkdtemp(prefix="kbroker-latency-", dir=plan.directory))
    started: dict[str, Broker] = {}
    bench = LatencyBench(started, plan)
    try:
        for name, (kind, settings) in plan.servers().items():
            started[name] = _made(plan, kind, settings, root / str(len(started)))
            started[name].start()
        bench = LatencyBench(started, plan)
        for broker in started.values():
            _warm(bench, broker, say)
            broker.hold()
        return run(
            STUDY,
            points(conditions(plan), plan.brokers, plan.replicas),
            bench.measure,
            rounds=plan.rounds,
            directory=journal,
            say=say,
            settings={"seconds": plan.seconds, "record_bytes": RECORD_BYTES},
            describe=describe,
            fresh=fresh,
        )
    finally:
        bench.close()
        for broker in started.values():
            broker.discard()
        shutil.rmtree(root, ignore_errors=True)


def _made(plan: Plan, kind: str, settings: Mapping[str, object], root: Path) -> Broker:
    """A broker, or a cluster that looks like one; not started."""
    if plan.replicas == 1:
        return KINDS[kind](root)
    every = {"offsets.topic.replication.factor": 1, **settings}
    return ClusterAsBroker(CLUSTERS[kind](root, plan.replicas, holdable=True, settings=every))


def _warm(bench: LatencyBench, broker: Broker, say: Say) -> None:
    """Kafka's compiler needs many requests; then the study's own kind of block, not counted."""
    served = 0
    generator = Bench(broker, seconds=1.0, warm_s=0)
    cells = [replace(BY_KEY[key], replicas=bench.replicas) for key in ("p-1k-4x5", "e2e-200")]
    for _ in range(WARM_BLOCKS if broker.name == KafkaBroker.name else 1):
        served += sum(generator.run(cell).requests for cell in cells)
        if served >= WARM_REQUESTS:
            break
    for condition in (
        Condition("flat-out", 1, "async"),
        Condition("paced", -1, "async"),
        Condition("paced", 0, "sync"),
    ):
        bench.block(broker, condition)
    say(f"{broker.name} warm after {served:,} requests")
