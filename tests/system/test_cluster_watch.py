"""Figures of a cluster by brokers and commands before, while and after a broker is gone or lags."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from prometheus_client.parser import text_string_to_metric_families

from kbroker.cli.main import main
from kbroker.testing import Cluster
from kbroker.testing.inspection import wait_until

pytestmark = [pytest.mark.client, pytest.mark.timeout(180)]

TOPIC = "orders"
PARTITIONS = 3
RECORD = b"x" * 10_000
RECORDS = 300
# A fetch has one batch at the least: small ones, so that a throttled copy goes on evenly.
ROUND_BYTES = 40_000
THROTTLED_BYTES_PER_S = 100_000  # 3 MB take 30 s, of which a look needs five, or ten
UNTHROTTLED_BYTES_PER_S = 1 << 30

Figures = dict[str, float]
NodeFigures = dict[int, Figures]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "min.insync.replicas": 2,
        "replica.fetch.max.bytes": ROUND_BYTES,
        # A leader misses a follower before its session is over: then it is the leader that shrinks.
        "zookeeper.session.timeout.ms": 8_000,
    }
    with Cluster(3, settings, topics={TOPIC: PARTITIONS}) as made:
        yield made


def scraped(cluster: Cluster) -> NodeFigures:
    """By broker, of those that live: series without labels, or with the client's alone."""
    found: NodeFigures = {}
    for broker_id, broker in cluster.brokers.items():
        if not broker.alive or broker.paused:
            continue
        with urllib.request.urlopen(broker.admin + "/metrics", timeout=30) as answer:
            text = answer.read().decode()
        figures = found[broker_id] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name.rpartition("_")[2]
                if name in ("count", "sum", "total", "bytes", "seconds"):
                    name = sample.name
                request = sample.labels.get("request")
                if request is not None:
                    figures[f"{name}:{request}"] = sample.value
                elif not sample.labels.keys() - {"clientId"}:
                    figures[name] = sample.value
    return found


def over_all(watched: NodeFigures, name: str) -> float:
    return sum(figures[name] for figures in watched.values())


def until(cluster: Cluster, what: str, holds: Callable[[NodeFigures], bool]) -> NodeFigures:
    seen: list[NodeFigures] = [{}]

    def found() -> bool:
        seen[0] = scraped(cluster)
        return holds(seen[0])

    wait_until(found, what)
    return seen[0]


def produce(cluster: Cluster, records: int = RECORDS) -> None:
    producer = Producer({
        "bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.size": ROUND_BYTES,
    })  # fmt: skip
    for number in range(records):
        producer.produce(TOPIC, RECORD, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


def throttle(cluster: Cluster, bytes_per_s: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for kind, name, key, value in (
        (ResourceType.BROKER, "3", "follower.replication.throttled.rate", bytes_per_s),
        (ResourceType.TOPIC, TOPIC, "follower.replication.throttled.replicas", "*"),
    ):
        entry = ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)


def kbroker(cluster: Cluster, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main([*words, "-o", "json", "-b", cluster.bootstrap])
    return status, capsys.readouterr().out


def test_one_controller_and_nothing_amiss(cluster: Cluster) -> None:
    watched = scraped(cluster)
    assert len(watched) == 3
    assert over_all(watched, "ActiveControllerCount") == 1
    assert watched[cluster.controller().broker_id]["ActiveControllerCount"] == 1
    for name in (
        "UnderReplicatedPartitions", "UnderMinIsrPartitionCount", "OfflinePartitionsCount",
        "MaxLag", "FailedPartitionsCount", "kbroker_replica_lag_bytes",
        "kbroker_replica_catch_up_seconds", "kbroker_leader_elections_total",
        "kafka_controller_controllerstats_uncleanleaderelections_total",
    ):  # fmt: skip
        assert over_all(watched, name) == 0, name
    for figures in watched.values():
        events = figures["kafka_controller_ControllerEventManager_EventQueueTimeMs_count"]
        assert events > 0 and figures["EventQueueSize"] >= 0
        took = "kafka_controller_ControllerEventManager_EventQueueProcessingTimeMs_sum"
        assert figures[took] > 0


def test_followers_fetch_is_distinguished_from_consumers(cluster: Cluster) -> None:
    cluster.wait_in_sync(TOPIC)
    produce(cluster)
    size = RECORDS * len(RECORD)
    replicated_in = "kafka_server_brokertopicmetrics_replicationbytesin_total"
    replicated_out = "kafka_server_brokertopicmetrics_replicationbytesout_total"
    consumed = "kafka_server_brokertopicmetrics_bytesout_total"
    watched = until(
        cluster,
        "copied, and as much received as sent",  # what is on its way is one and not the other
        lambda now: 2 * size <= over_all(now, replicated_in) == over_all(now, replicated_out),
    )
    copied = over_all(watched, replicated_in)
    assert copied == over_all(watched, "kafka_server_replicamanager_replicafetcherbytes_total")
    assert over_all(watched, consumed) == 0, "nothing was consumed"
    count = "kafka_network_RequestMetrics_TotalTimeMs_count"
    assert all(figures[f"{count}:FetchFollower"] > 0 for figures in watched.values())
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest",
    })  # fmt: skip
    consumer.subscribe([TOPIC])
    got = 0
    while got < RECORDS:
        got += len(consumer.consume(RECORDS, 1.0))
    consumer.close()
    assert over_all(scraped(cluster), consumed) >= size
    until(
        cluster,
        "the rate",
        lambda now: all(figures["ReplicaFetcherBytesPerSec"] > 0 for figures in now.values()),
    )


def test_a_stopped_broker_lags_and_then_has_caught_up(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    throttle(cluster, THROTTLED_BYTES_PER_S)
    for partition in range(PARTITIONS):
        cluster.move_leader(TOPIC, partition, cluster.brokers[1])
    moved = scraped(cluster)
    elections = over_all(moved, "kbroker_leader_elections_total")
    assert elections >= 2
    shrinks = moved[1]["kafka_server_replicamanager_isrshrinks_total"]
    expands = moved[1]["kafka_server_replicamanager_isrexpands_total"]
    cluster.brokers[3].pause()
    watched = until(
        cluster,
        "the leader misses it",
        lambda now: (
            now[1]["UnderReplicatedPartitions"] >= PARTITIONS
            # Counted a moment later.
            and now[1]["kafka_server_replicamanager_isrshrinks_total"] >= shrinks + PARTITIONS
        ),
    )
    assert watched[2]["UnderReplicatedPartitions"] <= watched[1]["UnderReplicatedPartitions"]
    assert over_all(watched, "UnderMinIsrPartitionCount") == 0
    assert over_all(watched, "ActiveControllerCount") == 1
    cluster.kill(3)
    produce(cluster)
    status, out = kbroker(cluster, capsys, "health")
    checks = json.loads(out)["checks"]
    assert status >= 1
    lacking = [each for each in checks if "lack in-sync replicas" in each["seen"]]
    assert lacking and "on broker 3" in lacking[0]["seen"], checks
    # It comes back, slowly.
    cluster.brokers[3].start()
    watched = until(
        cluster,
        "it says how far it lags",
        lambda now: now[3]["kbroker_replica_lag_bytes"] > len(RECORD),
    )
    lagging = watched[3]
    assert 0 < lagging["MaxLag"] <= RECORDS / PARTITIONS
    assert lagging["kbroker_replica_lag_bytes"] < 1.1 * RECORDS * len(RECORD)
    assert lagging["kbroker_replica_catch_up_seconds"] > 0
    assert watched[1]["kbroker_replica_lag_bytes"] == watched[2]["kbroker_replica_lag_bytes"] == 0
    status, out = kbroker(cluster, capsys, "top", "-n", "2", "-d", "2")
    nodes = json.loads(out.splitlines()[-1])["nodes"]
    assert status == 0
    assert [row["answers"] for row in nodes] == ["yes"] * 3
    assert [row["behind"] > 0 for row in nodes] == [False, False, True]
    assert nodes[2]["behind_bytes"] > 0 and nodes[2]["copied_bytes_per_s"] > 0
    assert 0 < nodes[2]["caught_up_in_s"] < 120
    throttle(cluster, UNTHROTTLED_BYTES_PER_S)
    watched = until(
        cluster,
        "it has caught up",
        lambda now: (
            over_all(now, "UnderReplicatedPartitions") == 0
            and now[3]["kbroker_replica_lag_bytes"] == 0
            # Counted a moment later.
            and now[1]["kafka_server_replicamanager_isrexpands_total"] >= expands + PARTITIONS
        ),
    )
    assert watched[3]["MaxLag"] == watched[3]["kbroker_replica_catch_up_seconds"] == 0


def test_doctor_looks_at_every_broker(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    checks = json.loads(kbroker(cluster, capsys, "doctor")[1])["checks"]
    by_name: dict[str, list[str]] = {}
    for each in checks:
        by_name.setdefault(each["name"], []).append(each["verdict"])
    assert by_name["round trip"] == ["ok"] * 3
    for name in ("replicas", "racks", "settings", "versions", "topics"):
        assert set(by_name[name]) == {"ok"}, checks


def test_killed_brokers_leave_too_few_in_sync(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.kill(3)
    cluster.kill(2)
    watched = until(
        cluster,
        "too few are left",
        lambda now: now[1]["UnderMinIsrPartitionCount"] >= PARTITIONS,
    )
    assert watched[1]["UnderReplicatedPartitions"] >= PARTITIONS
    assert watched[1]["OfflinePartitionsCount"] == 0
    assert watched[1]["ActiveControllerCount"] == 1
    status, out = kbroker(cluster, capsys, "health")
    checks = json.loads(out)["checks"]
    assert status == 2
    refused = [each for each in checks if "refuse acks=all" in each["seen"]]
    assert refused and refused[0]["fix"] == "start broker 2, 3", checks
    cluster.heal()
    until(cluster, "all is well", lambda now: over_all(now, "UnderMinIsrPartitionCount") == 0)
