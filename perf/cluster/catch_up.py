"""How fast a follower catches up that was away for two gigabytes: kbroker beside Apache Kafka.

The follower is stopped and has left the in-sync replicas; the leader takes the bytes, which stay in
its page cache; what is dirty is written out, and as many pages as the follower will write are
touched before. Then the follower starts: from its registration, as the leader's Metadata shows it,
or its first byte if that comes before (Apache Kafka's fetches as soon as it knows what there is to
follow), until it is in sync in every partition.

Beside it a producer writes 1 KB records at a fixed rate to a topic of the leader alone: its p99
without and with the catching up. A faster follower takes more of the leader at a time, and nothing
here makes two of them equally fast: a p99 that is no worse at a higher speed is none at the same.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from perf import batch, requests
from perf._load import LoadError
from perf.brokers.base import BrokerError
from perf.cells import MEGABYTE, PLAIN_PRODUCE, CellError, run_load
from perf.client import Client, ClientError
from perf.cluster.brokers import WAIT_S, Cluster, until
from perf.cluster.paced import Latency, PacedProducer
from perf.cluster.rotation import Rotation
from perf.judge import FAILED, Bar, times
from perf.measurement import OURS, THEIRS, Measurement, kafka_bar
from perf.process import Watch, touch_pages
from perf.requests import Topic
from perf.spec import Partition, Run, Stream
from perf.stats import estimate
from perf.tables import interval, number

LEADER, FOLLOWER = 1, 2
BATCH_BYTES: Final = 64 << 10
ALONE_S: Final = 5.0
# Apache Kafka's controller takes no new process of a broker while the session of the old one lasts,
# even if that stopped in order: so it is short here, its brokers lose it while they are held still,
# and have another when they have been awake for as long.
SESSION_MS: Final = 6_000
SETTINGS: Final = {THEIRS: {"broker.session.timeout.ms": SESSION_MS}}
SETTLE_S: Final = SESSION_MS / 1000 + 1
REST_S: Final = 1.0
SYNC_WAIT_S: Final = 120.0
SLOWEST_BYTES_PER_S: Final = 10_000_000  # slower is given up
TIME_BAR, P99_BAR = 1 / 1.5, 1.0


@dataclass(frozen=True)
class CatchUp:
    """One follower that came back."""

    broker: str
    round: int
    bytes: int
    seconds: float  # from its registration until it was in sync everywhere
    alone: Latency
    beside: Latency
    quiet: bool

    @property
    def megabytes_per_s(self) -> float:
        return self.bytes / self.seconds / MEGABYTE

    def to_json(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "megabytes_per_s": self.megabytes_per_s,
            "alone": dict(self.alone.__dict__),
            "beside": dict(self.beside.__dict__),
        }


@dataclass(frozen=True)
class CatchUpPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 7
    gigabytes: float = 2.0
    partitions: int = 4
    rate: float = 500.0  # of the producer beside

    @property
    def batches_each(self) -> int:
        """In a partition."""
        return max(1, int(self.gigabytes * 1e9 / BATCH_BYTES / self.partitions))

    @property
    def bytes(self) -> int:
        return self.batches_each * self.partitions * BATCH_BYTES


def _fill(cluster: Cluster, topic: Topic, batches_each: int) -> None:
    """So many batches into each partition, one partition after the other."""
    leader = cluster.nodes[LEADER]
    body = batch.of_size(BATCH_BYTES, timestamp_ms=time.time_ns() // 1_000_000)
    for index in range(topic.partitions):
        where = [(Partition(index, expected_offset=0), body)]
        one = requests.produce(PLAIN_PRODUCE, topic, where, acks=1)
        stream = Stream("produce", PLAIN_PRODUCE, (one,), in_flight=5, send_limit=batches_each)
        run_load(Run(leader.host, leader.port, (stream,), warm_s=0, window_s=0))


def _write_out(directory: Path) -> None:
    """Dirty pages to the disk, so that the kernel does not do it while the follower catches up."""
    subprocess.run(["sync", "--file-system", str(directory)], check=True, timeout=SYNC_WAIT_S)


def _leave(cluster: Cluster, topic: Topic) -> None:
    """Stop the follower and wait until the leader is alone."""
    cluster.nodes[FOLLOWER].stop()

    def alone() -> bool:
        state = cluster.state(LEADER, topic.name)
        left = all(each.in_sync == (LEADER,) for each in state.partitions)
        return left and state.brokers == (LEADER,)

    until(f"{cluster.name}: the follower has left", alone)


def _has_bytes(cluster: Cluster, topic: Topic) -> bool:
    """Whether the follower has written anything of it."""
    logs = cluster.nodes[FOLLOWER].directory.glob(f"data/{topic.name}-*/*.log")
    return any(path.stat().st_size for path in logs)


def _is_back(cluster: Cluster, topic: Topic) -> bool:
    return FOLLOWER in cluster.state(LEADER).brokers or _has_bytes(cluster, topic)


def _come_back(cluster: Cluster, topic: Topic, beside: PacedProducer, wait_s: float) -> float:
    """Start the follower; seconds until it is in sync again. The producer runs meanwhile."""
    follower = cluster.nodes[FOLLOWER]
    follower.prepare()
    follower.launch()
    what = f"{cluster.name}: the follower is registered"
    began_s = until(what, lambda: _is_back(cluster, topic))
    beside.start()
    what = f"{cluster.name}: the follower is in sync"
    return until(what, lambda: cluster.in_sync(LEADER, topic.name), wait_s) - began_s


def caught_up(cluster: Cluster, plan: CatchUpPlan, turn: int) -> CatchUp:
    leader = cluster.nodes[LEADER]
    stem = f"perf-{os.getpid()}-{turn}"
    with cluster.client(LEADER) as client:
        topic = client.create_topic(f"{stem}-far", plan.partitions, replicas=(LEADER, FOLLOWER))
        own = client.create_topic(f"{stem}-near", 1, replicas=(LEADER,))
    _leave(cluster, topic)
    left_s = time.monotonic()
    touch_pages(cluster.directory, 2 * plan.bytes)
    _fill(cluster, topic, plan.batches_each)
    _write_out(cluster.directory)
    alone = PacedProducer(leader, own, plan.rate)
    alone.start()
    time.sleep(ALONE_S)
    alone_found = alone.end()
    time.sleep(max(0.0, left_s + SETTLE_S - time.monotonic()))
    beside = PacedProducer(leader, own, plan.rate)
    watch = Watch([os.getpid(), leader.pid, cluster.meeting.pid])
    seconds = _come_back(cluster, topic, beside, WAIT_S + plan.bytes / SLOWEST_BYTES_PER_S)
    beside_found = beside.end()
    watch.include(cluster.nodes[FOLLOWER].pid)
    quiet = watch.guard().quiet
    cluster.wait_for_all()
    with cluster.client(LEADER) as client:
        _check(client, topic, plan.batches_each)
        client.delete_topic(topic.name)
        client.delete_topic(own.name)
    time.sleep(REST_S)
    return CatchUp(cluster.name, turn, plan.bytes, seconds, alone_found, beside_found, quiet)


def _check(client: Client, topic: Topic, batches_each: int) -> None:
    """With all replicas in sync the high watermark says what each of them holds."""
    held = client.offsets(topic)
    if held != [batches_each] * topic.partitions:
        raise CellError(f"{topic.name}: {batches_each} batches were written, {held} are held")


def measure(
    plan: CatchUpPlan, root: Path, say: Callable[[str], None]
) -> tuple[list[CatchUp], list[str]]:
    """What was found, and what went wrong on the way; a cluster whose turn failed ends the run."""
    found: list[CatchUp] = []
    with Rotation(plan.brokers, root, 2, say, settings=SETTINGS, settle_s=SETTLE_S) as turns:
        for number_ in range(plan.rounds):
            for kind in turns.order(number_):
                with turns.alone(kind) as cluster:
                    try:
                        found.append(caught_up(cluster, plan, number_))
                    except (LoadError, ClientError, BrokerError, CellError, OSError) as error:
                        say(f"VOID {kind}: {error}")
                        return found, [f"{kind}, round {number_ + 1}: {error}"]
                say(_line(found[-1]))
    return found, []


def _line(one: CatchUp) -> str:
    return (
        f"round {one.round + 1} {one.broker:8} {one.seconds:.2f} s, {one.megabytes_per_s:,.0f} MB/s"
        f"; p99 {one.alone.p99_us:,.0f} us alone, {one.beside.p99_us:,.0f} us beside"
    )


def bars(found: Sequence[CatchUp]) -> list[Bar]:
    """A p99 that is worse while the follower is faster is no verdict on equal followers."""
    speed = kafka_bar("seconds to catch up", TIME_BAR, found, lambda one: one.seconds)
    p99 = kafka_bar("p99 of produce beside it", P99_BAR, found, lambda one: one.beside.p99_us)
    if p99.verdict == FAILED and speed.value is not None and speed.value.high < 1:
        p99 = replace(p99, doubt=f"the follower took {times(speed.value.median)} of the time")
    return [speed, p99]


def report(found: Sequence[CatchUp], faults: Sequence[str], plan: CatchUpPlan) -> Measurement:
    rows = []
    for kind in plan.brokers:
        some = [one for one in found if one.broker == kind]
        if some:
            latencies = ([one.alone.p99_us for one in some], [one.beside.p99_us for one in some])
            speed = interval(estimate([one.megabytes_per_s for one in some]))
            seconds = interval(estimate([one.seconds for one in some]))
            each = [interval(estimate(values)) for values in latencies]
            p50 = number(statistics.median(one.beside.p50_us for one in some))
            rows.append([kind, seconds, speed, each[0], each[1], p50])
    head = ("broker", "s", "MB/s", "p99 us alone", "p99 us beside", "p50 us beside")
    said: Mapping[str, Any] = {**plan.__dict__, "bytes": plan.bytes, "batch_bytes": BATCH_BYTES}
    return Measurement.of(said, head, rows, bars(found), found, lambda one: (
        ("catch-up", one.megabytes_per_s, "MB/s"),
        ("p99 of produce without a follower that catches up", one.alone.p99_us, "us"),
        ("p99 of produce beside a follower that catches up", one.beside.p99_us, "us"),
    ), faults)  # fmt: skip
