"""Alerts about replicas and leaders fire when brokers are gone, and not before.

What the living brokers tell of themselves is given to promtool as what Prometheus has scraped for
ten minutes, with the rules that `kbroker generate alert-rules` writes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from kbroker.metrics.alerts import JOB
from kbroker.testing import Cluster
from kbroker.testing.inspection import wait_until
from tests.support import promtool

pytestmark = [pytest.mark.client, pytest.mark.timeout(240)]

TOPIC = "orders"
MINUTES = 10
ALERTS = {
    "HighUnderReplicatedPartitions",
    "KbrokerUnderReplicatedPartitions",
    "KbrokerUnderMinIsr",
    "KbrokerOfflinePartitions",
    "KbrokerActiveControllers",
    "KbrokerUncleanElections",
}
SERIES = {
    "kafka_server_ReplicaManager_UnderReplicatedPartitions",
    "kafka_server_ReplicaManager_UnderMinIsrPartitionCount",
    "kafka_controller_KafkaController_OfflinePartitionsCount",
    "kafka_controller_KafkaController_ActiveControllerCount",
    "kafka_controller_ControllerStats_UncleanLeaderElectionsPerSec",
}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("alerts") / "rules.yml"
    command = [sys.executable, "-m", "kbroker", "generate", "alert-rules"]
    path.write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    return path


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, {"min.insync.replicas": 2}, topics={TOPIC: 3}) as made:
        yield made


def scraped(cluster: Cluster) -> Iterator[tuple[str, float]]:
    """Series of the brokers that live, as Prometheus names them, and what they are now."""
    for broker in cluster.brokers.values():
        if not broker.alive:
            continue
        with urllib.request.urlopen(broker.admin + "/metrics", timeout=30) as answer:
            text = answer.read().decode()
        at = f'instance="{broker.broker_id}",job="{JOB}"'
        for metric in text_string_to_metric_families(text):
            for sample in metric.samples:
                if sample.name in SERIES:
                    assert not sample.labels
                    yield f"{sample.name}{{{at}}}", sample.value


def firing(cluster: Cluster, rules: Path, where: Path) -> set[str]:
    """Which of `ALERTS` fire, had all been like this for ten minutes."""
    series = [{"series": name, "values": f"{value}x{MINUTES}"} for name, value in scraped(cluster)]
    none = [
        {"eval_time": f"{MINUTES}m", "alertname": each, "exp_alerts": []} for each in sorted(ALERTS)
    ]
    test = {"interval": "1m", "input_series": series, "alert_rule_test": none}
    path = where / "test.yml"  # JSON is YAML
    path.write_text(json.dumps({"rule_files": [str(rules)], "tests": [test]}))
    command = [promtool.path(), "test", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    found = {each for each in ALERTS if f"alertname: {each}," in output}
    assert bool(found) == bool(done.returncode), output
    return found


def settles_at(cluster: Cluster, rules: Path, where: Path, alerts: set[str]) -> None:
    """Brokers look at themselves every so often."""
    seen: list[set[str]] = [set()]

    def settled() -> bool:
        seen[0] = firing(cluster, rules, where)
        return seen[0] == alerts

    try:
        wait_until(settled, "the alerts")
    except TimeoutError:
        assert seen[0] == alerts
        raise


def test_alerts_fire_as_brokers_go_and_end_when_they_are_back(
    cluster: Cluster, rules: Path, tmp_path: Path
) -> None:
    settles_at(cluster, rules, tmp_path, set())
    lacking = {"HighUnderReplicatedPartitions", "KbrokerUnderReplicatedPartitions"}
    cluster.kill(3)
    settles_at(cluster, rules, tmp_path, lacking)
    cluster.kill(2)
    settles_at(cluster, rules, tmp_path, lacking | {"KbrokerUnderMinIsr"})
    cluster.heal()
    settles_at(cluster, rules, tmp_path, set())
    # A topic with a single replica has no other leader.
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("alone", 1, replica_assignment=[[1]])])["alone"].result(30)
    cluster.kill(1)
    settles_at(cluster, rules, tmp_path, lacking | {"KbrokerOfflinePartitions"})
    cluster.heal()
    settles_at(cluster, rules, tmp_path, set())


def test_an_unclean_election_fires_its_alert(cluster: Cluster, rules: Path, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    new = NewTopic("hurried", 1, replica_assignment=[[3, 2]], config=settings)
    admin.create_topics([new])["hurried"].result(30)
    cluster.wait_in_sync("hurried")
    others = [each for each in cluster.brokers.values() if each.broker_id != 3]
    cluster.kill(2)
    wait_until(lambda: cluster.brokers[1].partitions("hurried")[0].isr == (3,), "3 is alone")
    cluster.kill(3)
    cluster.brokers[2].start()
    assert cluster.leader("hurried", 0) in others
    lacking = {"HighUnderReplicatedPartitions", "KbrokerUnderReplicatedPartitions"}
    settles_at(cluster, rules, tmp_path, lacking | {"KbrokerUncleanElections"})
    cluster.heal()
