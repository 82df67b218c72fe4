"""One block: a fresh topic, a load, and the proof that every record is where its answer said.

Leader and producer are in the near network, the follower and the meeting place in the far one. The
generator checks each answer: no error, and where one connection writes a partition exactly the next
offset, so that nothing is lost, doubled or out of order. After the load the high watermark must
come to the number of acknowledged records: then the follower has them all, and no others.
Last both replicas' files are read: each record once, each producer's in the order of their sending,
the same bytes on both.
CPU is taken from before the first request until then, over all requests: replication that lags
costs as much as one that keeps up.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from perf import batch, requests
from perf.cells import PLAIN_PRODUCE, CellError, run_load
from perf.client import Client
from perf.cluster.brokers import Cluster, until
from perf.cluster.topics import write_one_each
from perf.histogram import Histogram
from perf.pipelining import java_producer, replicas
from perf.pipelining.failures import BREAKS, void_on_failure
from perf.pipelining.plan import RECORD_BYTES, Condition
from perf.pipelining.two_networks import TwoNetworks
from perf.process import Guard, Watch, cpu_ns, touch_pages
from perf.requests import Topic
from perf.spec import Partition, Run, Stream
from perf.studies.measured import REQUEST, Measured

LEADER, FOLLOWER = 1, 2
WARM_S: Final = 0.3
WINDOW_BYTES_MAX: Final = 400_000_000  # of a block: two replicas of it are in the page cache
TOUCH_BYTES: Final = 64 << 20
STALL_S: Final = 30.0  # without an answer; and for the last ones after the window
# What one request takes at the slowest, beside its round trip, when it is served alone: the drain
# of a closed loop is a whole turn of that.
REQUEST_S_MAX, BYTES_PER_S_MIN = 0.005, 20e6
DELETED_S: Final = 0.7  # files of a deleted topic go within it, before the cluster is held still
SEED: Final = 7  # of the first producer's noise
ZERO_WINDOWS: Final = "TCPToZeroWindowAdv"  # times that a receiver's window fell to zero


@dataclass
class Bench:
    """Runs blocks on one cluster, whose turn it is."""

    cluster: Cluster
    networks: TwoNetworks
    seconds: float
    _serial: int = 0

    def run(
        self, condition: Condition, *, rate: float = 0.0, seconds: float | None = None
    ) -> Measured:
        """One block; `rate`: requests a second. CellError if anything in it was wrong.

        `seconds`: of its window, where it is not the bench's.
        """
        if condition.section == "paced" and not rate > 0:
            raise CellError(f"{condition.key}: no pace, which would be a closed loop")
        self.networks.set_round_trip(condition.round_trip_us / 1e6)
        with (
            void_on_failure(condition.key),
            self.cluster.client(LEADER) as client,
            self._topic(client, condition) as topic,
        ):
            write_one_each(client, [topic], acks=-1)
            self._check_in_sync(topic)
            touch_pages(self.cluster.directory, TOUCH_BYTES * condition.replicas)
            if condition.section == "java":
                found = self._java(client, condition, topic)
            else:
                spec = self.spec(condition, topic, rate, seconds or self.seconds)
                found = self._loaded(client, condition, topic, spec)
            self._check_in_sync(topic)
            self._check_replicas(condition, topic, found)
            return found

    @contextlib.contextmanager
    def _topic(self, client: Client, condition: Condition) -> Iterator[Topic]:
        """A fresh one. It goes with its block, a void one too."""
        self._serial += 1
        name = f"pipelining-{os.getpid()}-{self._serial}"
        brokers = (LEADER, FOLLOWER)[: condition.replicas]
        try:
            yield client.create_topic(name, 1, replicas=brokers)
        except Exception:
            # By a connection of its own: the block's may be what broke, and so may the broker.
            with contextlib.suppress(*BREAKS), self.cluster.client(LEADER) as another:
                another.delete_topic(name)
                time.sleep(DELETED_S)
            raise
        client.delete_topic(name)
        time.sleep(DELETED_S)

    def _check_in_sync(self, topic: Topic) -> None:
        if not self.cluster.in_sync(LEADER, topic.name):
            raise CellError(f"{self.cluster.name}: a replica of {topic.name} is not in sync")

    def _check_replicas(self, condition: Condition, topic: Topic, found: Measured) -> None:
        brokers = (LEADER, FOLLOWER)[: condition.replicas]
        homes = [self.cluster.nodes[number].directory for number in brokers]
        stamp_at = body_of(condition, 0).stamp_at
        replicas.check(homes, topic.name, int(found.figures["written"]), stamp_at)

    def _loaded(self, client: Client, condition: Condition, topic: Topic, spec: Run) -> Measured:
        costs = _Costs(self.cluster, self.networks)
        counters = run_load(spec)
        stream = counters["streams"][0]
        if stream["errors"]:
            raise CellError(f"{condition.key}: error code {stream['first_error']}")
        behind_s = self._all_replicated(client, topic, stream["records_all"])
        wall_s = counters["wall_ns"] / 1e9
        latency = Histogram.from_native(stream["latency"])
        if not stream["requests"] or not latency.total:
            raise CellError(f"{condition.key}: nothing was answered in the window")
        per_request = costs.taken(stream["answered"])
        return Measured(
            requests=stream["requests"],
            records=stream["records"],
            bytes=stream["records"] * RECORD_BYTES,
            wall_s=wall_s,
            broker_cpu_s=per_request["brokers_cpu_us"] * stream["requests"] / 1e6,
            own_cpu_s=counters["own_cpu_ns"] / 1e9,
            guard=costs.guard,
            histograms={REQUEST: latency},
            figures={
                **per_request,
                "in_flight": stream["requests"] / wall_s * latency.mean / 1e9,  # Little's law
                "behind_s": behind_s,
                "rate": spec.streams[0].rate,
                "written": float(stream["records_all"] + topic.partitions),
            },
            ended_at_ms=time.time_ns() // 1_000_000,
        )

    def _all_replicated(self, client: Client, topic: Topic, acknowledged: int) -> float:
        """Seconds until the high watermark is what was acknowledged, and the first record."""
        began_s = time.monotonic()
        wanted = acknowledged + topic.partitions
        until(
            f"the high watermark of {topic.name} is {wanted}",
            lambda: sum(client.offsets(topic)) >= wanted,
        )
        took_s = time.monotonic() - began_s
        if (there := sum(client.offsets(topic))) != wanted:
            raise CellError(f"{topic.name}: {there - wanted} records that were not acknowledged")
        return took_s

    def spec(self, condition: Condition, topic: Topic, rate: float, seconds: float) -> Run:
        """The load of a block; `rate` 0: a closed loop."""
        node = self.cluster.nodes[LEADER]
        exact = 1 if condition.producers == 1 else -1  # a record is there already
        partition = Partition(0, expected_offset=exact)
        connections = tuple(
            requests.produce(
                PLAIN_PRODUCE, topic, [(partition, body_of(condition, number))], acks=condition.acks
            )
            for number in range(condition.producers)
        )
        stream = Stream(
            "produce",
            PLAIN_PRODUCE,
            connections,
            acks=condition.acks,
            in_flight=condition.in_flight,
            rate=rate,
        )
        # A closed loop is warm when its first turn is answered: those requests were all sent at
        # once, into empty queues, and no request waits for another.
        turn = condition.in_flight * condition.producers
        request_s = (
            condition.round_trip_us / 1e6
            + REQUEST_S_MAX
            + condition.records * RECORD_BYTES / BYTES_PER_S_MIN
        )
        return Run(
            node.host, node.port, (stream,), warm_s=WARM_S, warm_requests=0 if rate else turn,
            window_s=seconds, window_bytes=WINDOW_BYTES_MAX, stall_s=STALL_S + turn * request_s,
        )  # fmt: skip

    def _java(self, client: Client, condition: Condition, topic: Topic) -> Measured:
        costs = _Costs(self.cluster, self.networks)
        found = java_producer.run(self.cluster.nodes[LEADER].address, topic.name)
        behind_s = self._all_replicated(client, topic, found.records)
        per_request = costs.taken(found.records, found.cpu_s)
        return Measured(
            requests=found.records,
            records=found.records,
            bytes=found.records * RECORD_BYTES,
            wall_s=found.seconds,
            broker_cpu_s=per_request["brokers_cpu_us"] * found.records / 1e6,
            own_cpu_s=found.cpu_s,
            guard=costs.guard,
            # It says percentiles and no more; without a histogram the block would not be published.
            histograms={REQUEST: Histogram.empty()},
            figures={
                **per_request,
                "behind_s": behind_s,
                "p99_us": found.p99_ms * 1e3,
                "written": float(found.records + topic.partitions),
            },
            ended_at_ms=time.time_ns() // 1_000_000,
        )


def body_of(condition: Condition, producer: int) -> batch.RecordBatch:
    """The batch of one of its producers. Each has noise of its own, after the send time too, by
    which its records differ from another's (perf/pipelining/replicas.py)."""
    return batch.of_records(
        RECORD_BYTES,
        (RECORD_BYTES + 8) * condition.records,
        seed=SEED + producer,
        stamped=condition.stamped,
        timestamp_ms=time.time_ns() // 1_000_000,
    )


class _Costs:
    """CPU of every process that has a part in a block, and zero windows, from now on."""

    def __init__(self, cluster: Cluster, networks: TwoNetworks) -> None:
        self._networks = networks
        leader, follower = (cluster.nodes[node].pid for node in (LEADER, FOLLOWER))
        self._pids = {
            "leader": leader,
            "follower": follower,
            "meeting": cluster.meeting.pid,
            "line": networks.line_pid,
        }
        self._zero = self._zero_windows()
        self._watch = Watch([os.getpid(), *self._pids.values()])
        self._before = self._cpu_ns()
        self.guard = Guard(0.0, 0.0)

    def _cpu_ns(self) -> dict[str, int]:
        return {name: cpu_ns(pid) for name, pid in self._pids.items()}

    def _zero_windows(self) -> int:
        return self._networks.near.tcp_counters()[ZERO_WINDOWS]

    def taken(self, answered: int, client_cpu_s: float = 0.0) -> dict[str, float]:
        """Microseconds of CPU for each request; zero windows of producer and leader.

        `client_cpu_s`: of a client that has come and gone.
        """
        now = self._cpu_ns()
        each = {
            f"{name}_cpu_us": (now[name] - self._before[name]) / 1e3 / max(1, answered)
            for name in self._pids
        }
        each["brokers_cpu_us"] = each["leader_cpu_us"] + each["follower_cpu_us"]
        each["zero_windows"] = float(self._zero_windows() - self._zero)
        self.guard = self._watch.guard(client_cpu_s)
        return each
