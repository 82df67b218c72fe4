"""The follower is killed in the middle of the load and comes back: nothing is lost, all in order.

A cluster of its own with the systems' own session timeouts. One producer goes through three loads,
its sequence numbers and offsets going on from one to the next:

- a closed loop, so that the pipeline is full when the follower is killed. While that one is gone
  and still in sync, every acks=-1 produce waits; then the leader goes on alone;
- a paced load while it is away and catches up, which it might never against a leader that writes
  alone as fast as it can, and the records have to fit a disk;
- a closed loop after that.

Five in flight come from an idempotent producer, more from one that is not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from perf import batch, requests
from perf.cells import JAVA_PRODUCE, PLAIN_PRODUCE, CellError
from perf.client import Client
from perf.cluster.brokers import Cluster, Make, until
from perf.cluster.topics import write_one_each
from perf.histogram import Histogram
from perf.load_thread import LoadThread
from perf.pipelining import replicas
from perf.pipelining.bench import FOLLOWER, LEADER
from perf.pipelining.failures import void_on_failure
from perf.pipelining.plan import RECORD_BYTES, Condition
from perf.pipelining.two_networks import TwoNetworks
from perf.process import Guard
from perf.requests import Topic
from perf.spec import Partition, Run, Stream
from perf.studies.measured import REQUEST, Measured

BEFORE_S, GONE_S, BEHIND_S = 1.0, 1.0, 2.0
GOES_ON_S: Final = 60.0
STALL_S: Final = 60.0
WINDOW_S: Final = 600.0  # it is ended before
IDEMPOTENT_MAX: Final = 5  # in flight
AWAY_RATE: Final = 2000.0  # a second, while the follower is away


def measure(condition: Condition, make: Make, networks: TwoNetworks, root: Path) -> Measured:
    """One run. CellError if anything was lost, doubled, reordered or refused."""
    networks.set_round_trip(condition.round_trip_us / 1e6)
    with (
        void_on_failure(condition.key),
        make(root, FOLLOWER, settings={}) as cluster,
        cluster.client(LEADER) as client,
    ):
        return _run(condition, cluster, client)


def _run(condition: Condition, cluster: Cluster, client: Client) -> Measured:
    topic = client.create_topic("killed", 1, replicas=(LEADER, FOLLOWER))
    write_one_each(client, [topic], acks=-1)
    producer = Producer(condition, client, topic)
    with producer.load():
        time.sleep(BEFORE_S)
        cluster.nodes[FOLLOWER].kill()
        killed_s = time.monotonic()
        before = sum(client.offsets(topic))
        until("the leader goes on alone", lambda: not cluster.in_sync(LEADER, topic.name))
        until("it acknowledges again", lambda: sum(client.offsets(topic)) > before, GOES_ON_S)
        stood_s = time.monotonic() - killed_s
    with producer.load(AWAY_RATE):
        time.sleep(GONE_S)
        cluster.restart(FOLLOWER)
        cluster.wait_in_sync(LEADER, topic.name)
    with producer.load():
        time.sleep(BEHIND_S)
    wanted = producer.written + topic.partitions
    until("the follower has everything", lambda: sum(client.offsets(topic)) >= wanted)
    cluster.wait_in_sync(LEADER, topic.name)
    homes = [cluster.nodes[number].directory for number in (LEADER, FOLLOWER)]
    replicas.check(homes, topic.name, wanted, producer.stamp_at)
    return producer.measured({"stood_still_s": stood_s})


class Producer:
    """One producer, whose loads follow one another as if they were one."""

    def __init__(self, condition: Condition, client: Client, topic: Topic) -> None:
        self._condition, self._topic = condition, topic
        self._host, self._port = client.host, client.port
        self._idempotent = condition.in_flight <= IDEMPOTENT_MAX
        options: dict[str, Any] = {"stamped": True, "timestamp_ms": time.time_ns() // 1_000_000}
        if self._idempotent:
            options["producer_id"], options["producer_epoch"] = client.init_producer_id()
        self._body = batch.of_records(RECORD_BYTES, **options)
        self._counters: list[dict[str, Any]] = []

    @property
    def stamp_at(self) -> int:
        """Where its batches have the send time."""
        return self._body.stamp_at

    @property
    def written(self) -> int:
        """Records that were acknowledged, of all loads."""
        return sum(one["streams"][0]["records_all"] for one in self._counters)

    @contextmanager
    def load(self, rate: float = 0.0) -> Iterator[None]:
        """Sends meanwhile; at its end everything is answered. LoadError; CellError of an answer
        that is an error."""
        load = LoadThread(self.spec(rate))
        load.start()
        try:
            yield
        finally:
            load.stop()
            counters = load.join()
        found = counters["streams"][0]
        if found["errors"]:
            raise CellError(f"{self._condition.key}: error code {found['first_error']}")
        self._counters.append(counters)

    def spec(self, rate: float) -> Run:
        """The next load; `rate` 0: a closed loop."""
        partition = Partition(0, next_sequence=self.written, expected_offset=1 + self.written)
        version = JAVA_PRODUCE if self._idempotent else PLAIN_PRODUCE
        one = requests.produce(
            version, self._topic, [(partition, self._body)], acks=-1, idempotent=self._idempotent
        )
        stream = Stream(
            "produce", version, (one,), acks=-1, in_flight=self._condition.in_flight, rate=rate
        )
        return Run(self._host, self._port, (stream,), warm_s=0, window_s=WINDOW_S, stall_s=STALL_S)

    def measured(self, figures: dict[str, float]) -> Measured:
        """All loads together. CellError where nothing was answered."""
        streams = [one["streams"][0] for one in self._counters]
        latency = Histogram.merge(Histogram.from_native(one["latency"]) for one in streams)
        if not latency.total:
            raise CellError(f"{self._condition.key}: nothing was answered")
        records = sum(one["records"] for one in streams)
        return Measured(
            requests=sum(one["requests"] for one in streams),
            records=records,
            bytes=records * RECORD_BYTES,
            wall_s=sum(one["wall_ns"] for one in self._counters) / 1e9,
            broker_cpu_s=0.0,
            own_cpu_s=sum(one["own_cpu_ns"] for one in self._counters) / 1e9,
            guard=Guard(0.0, 0.0),
            histograms={REQUEST: latency},
            figures=figures,
            ended_at_ms=time.time_ns() // 1_000_000,
        )
