"""The follower is killed in the middle of the load and comes back: nothing is lost, all in order.

A cluster of its own with the systems' own session timeouts. While the follower is gone and still in
sync, every acks=-1 produce waits; then the leader goes on alone, and the follower catches up. Five
in flight come from an idempotent producer, more from one that is not.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from perf import batch, requests
from perf._load import LoadError
from perf.brokers.base import BrokerError
from perf.cells import JAVA_PRODUCE, PLAIN_PRODUCE, CellError
from perf.client import Client, ClientError
from perf.cluster.brokers import Cluster, Make, until
from perf.cluster.topics import write_one_each
from perf.histogram import Histogram
from perf.load_thread import LoadThread
from perf.pipelining import replicas
from perf.pipelining.bench import FOLLOWER, LEADER
from perf.pipelining.plan import RECORD_BYTES, Condition
from perf.pipelining.two_networks import TwoNetworks
from perf.process import Guard
from perf.requests import Topic
from perf.spec import Connection, Partition, Run, Stream
from perf.studies.measured import REQUEST, Measured

BEFORE_S, GONE_S, BEHIND_S = 1.0, 1.0, 2.0
GOES_ON_S: Final = 60.0
STALL_S: Final = 60.0
WINDOW_S: Final = 600.0  # it is ended before
IDEMPOTENT_MAX: Final = 5  # in flight
RATE_MAX: Final = 2000.0  # a second: what is written until the follower is missed fits a disk


def measure(condition: Condition, make: Make, networks: TwoNetworks, root: Path) -> Measured:
    """One run. CellError if anything was lost, doubled, reordered or refused."""
    networks.set_round_trip(condition.round_trip_us / 1e6)
    try:
        with make(root, FOLLOWER, settings={}) as cluster, cluster.client(LEADER) as client:
            return _run(condition, cluster, client)
    except (LoadError, ClientError, BrokerError) as error:
        raise CellError(f"{condition.key}: {error}") from error


def _run(condition: Condition, cluster: Cluster, client: Client) -> Measured:
    topic = client.create_topic("killed", 1, replicas=(LEADER, FOLLOWER))
    write_one_each(client, [topic], acks=-1)
    connection, stamp_at, version = _connection(condition, client, topic)
    stream = Stream(
        "produce", version, (connection,), acks=-1, in_flight=condition.in_flight, rate=RATE_MAX
    )
    node = cluster.nodes[LEADER]
    load = LoadThread(
        Run(node.host, node.port, (stream,), warm_s=0, window_s=WINDOW_S, stall_s=STALL_S)
    )
    load.start()
    try:
        time.sleep(BEFORE_S)
        cluster.nodes[FOLLOWER].kill()
        killed_s = time.monotonic()
        before = sum(client.offsets(topic))
        until("the leader goes on alone", lambda: not cluster.in_sync(LEADER, topic.name))
        until("it acknowledges again", lambda: sum(client.offsets(topic)) > before, GOES_ON_S)
        stood_s = time.monotonic() - killed_s
        time.sleep(GONE_S)
        cluster.restart(FOLLOWER)
        cluster.wait_in_sync(LEADER, topic.name)
        time.sleep(BEHIND_S)
    finally:
        load.stop()
        counters = load.join()
    found = counters["streams"][0]
    if found["errors"]:
        raise CellError(f"{condition.key}: error code {found['first_error']}")
    wanted = found["records_all"] + topic.partitions
    until("the follower has everything", lambda: sum(client.offsets(topic)) >= wanted)
    cluster.wait_in_sync(LEADER, topic.name)
    homes = [cluster.nodes[number].directory for number in (LEADER, FOLLOWER)]
    replicas.check(homes, topic.name, wanted, stamp_at)
    return Measured(
        requests=found["requests"],
        records=found["records"],
        bytes=found["records"] * RECORD_BYTES,
        wall_s=counters["wall_ns"] / 1e9,
        broker_cpu_s=0.0,
        own_cpu_s=counters["own_cpu_ns"] / 1e9,
        guard=Guard(0.0, 0.0),
        histograms={REQUEST: Histogram.from_native(found["latency"])},
        figures={"stood_still_s": stood_s},
        ended_at_ms=time.time_ns() // 1_000_000,
    )


def _connection(condition: Condition, client: Client, topic: Topic) -> tuple[Connection, int, int]:
    """The producer, where its batches have the send time, and its version of Produce."""
    idempotent = condition.in_flight <= IDEMPOTENT_MAX
    options: dict[str, Any] = {"stamped": True, "timestamp_ms": time.time_ns() // 1_000_000}
    if idempotent:
        options["producer_id"], options["producer_epoch"] = client.init_producer_id()
    body = batch.of_records(RECORD_BYTES, **options)
    version = JAVA_PRODUCE if idempotent else PLAIN_PRODUCE
    one = requests.produce(
        version, topic, [(Partition(0, expected_offset=1), body)], acks=-1, idempotent=idempotent
    )
    return one, body.stamp_at, version
