"""Brokers that authenticate at each other, and users that every broker knows."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kbroker.testing.cluster import Cluster, ClusterBroker
from tests.clients.agents.driver import eventually

_MODULES = "org.apache.kafka.common.security"
WAIT_S = 30
MECHANISMS = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule required username=b password=p user_b=p;",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule required username=b password=p;",
}


def settings(mechanism: str) -> dict[str, str]:
    return {
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"listener.name.brokers.{mechanism.lower()}.sasl.jaas.config": MECHANISMS[mechanism],
    }


def add_user(broker: ClusterBroker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wanted = [UserScramCredentialUpsertion(name, info, b"x")]
    for made in admin.alter_user_scram_credentials(wanted).values():
        made.result(WAIT_S)


def knows(broker: ClusterBroker, name: str) -> bool:
    admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap})
    try:
        found = admin.describe_user_scram_credentials([name])[name].result(WAIT_S)
    except Exception:
        return False
    return len(found.scram_credential_infos) == 1


def write(cluster: Cluster, text: str) -> None:
    bootstrap = ",".join(each.bootstrap for each in cluster.brokers.values() if each.alive)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for at in range(100):
        producer.produce("t", f"{text} {at}")
    assert producer.flush(WAIT_S) == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_cluster_replicates_and_fails_over(
    mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ClusterBroker.command

    def with_first_user(self: ClusterBroker) -> list[str]:
        return [*command(self), "--add-scram", f"{mechanism}=[name=b,password=p]"]

    if mechanism != "PLAIN":
        monkeypatch.setattr(ClusterBroker, "command", with_first_user)
    with Cluster(3, settings(mechanism), topics={"t": 3}) as cluster:
        write(cluster, "first")
        add_user(cluster.brokers[3], "alice")
        eventually(lambda: all(knows(each, "alice") for each in cluster.brokers.values()), "alice")
        cluster.controller().kill9()
        write(cluster, "second")
        others: list[Any] = [each for each in cluster.brokers.values() if each.alive]
        add_user(others[0], "bob")
        eventually(lambda: all(knows(each, "bob") for each in others), "bob")
        assert not any("Failed authentication" in each.log_text() for each in others)


@pytest.mark.slow
def test_brokers_renew_their_sessions() -> None:
    """Fetchers, the controller's links and the metrics' publisher, on connections that stay."""
    # A fetch that waits at its leader for half a second comes before a renewal.
    lifetime = {"connections.max.reauth.ms": 6_000, "metrics.topic.enable": True}
    more = {**lifetime, "metrics.topic.interval.ms": 1_000, "admin.listeners": "http://127.0.0.1:0"}
    with Cluster(3, {**settings("PLAIN"), **more}, topics={"t": 3}) as cluster:
        rounds = iter(range(1000))

        def renewed() -> bool:
            write(cluster, f"round {next(rounds)}")
            return all(_renewals(each) >= 4 for each in cluster.brokers.values())

        eventually(renewed, "two sessions of two clients at each broker")
        for each in cluster.brokers.values():
            assert "a session that was over" not in each.log_text()


def _renewals(broker: ClusterBroker) -> float:
    name = "kafka_server_socket_server_metrics_successful_reauthentication_total"
    with urllib.request.urlopen(f"{broker.admin}/metrics", timeout=WAIT_S) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))
