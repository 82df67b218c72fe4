"""Apache Kafka's own tools, unchanged, at three brokers: with one killed, and when it is back."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kbroker.peer.client import Client
from kbroker.testing import Cluster, ClusterBroker
from kbroker.testing.inspection import wait_until
from tests.clients.agents.tools import Tool, Tools
from tests.support import ended_sessions

pytestmark = [
    pytest.mark.client, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(240),
]  # fmt: skip

TOPIC = "orders"
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "min.insync.replicas": 3,
        "auto.leader.rebalance.enable": False,
        # As in test_reassignment.py.
        "zookeeper.session.timeout.ms": 6_000,
        "replica.lag.time.max.ms": 10_000,
    }
    with Cluster(3, settings, topics={TOPIC: 3}) as made:
        yield made


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    made = Tools()
    yield made
    made.close()


@pytest.fixture
def tool(cluster: Cluster, tools: Tools) -> Tool:
    cluster.heal()
    return Tool(tools, cluster.bootstrap)


def killed(cluster: Cluster) -> ClusterBroker:
    """One that is not the controller, with every survivor knowing what it led."""
    controller = cluster.controller()
    broker = next(each for each in cluster.brokers.values() if each is not controller)
    ended_sessions.kill(cluster, broker)
    survivors = [each for each in cluster.brokers.values() if each is not broker]
    wait_until(
        lambda: all(
            broker.broker_id not in partition.isr
            for each in survivors
            for partition in each.partitions(TOPIC)
        ),
        "it is in no set",
    )
    return broker


def lines(output: str) -> list[str]:
    return [line for line in output.splitlines() if f"Topic: {TOPIC}" in line]


def test_kafka_topics_lists_partitions_without_a_broker(cluster: Cluster, tool: Tool) -> None:
    describe = ("TopicCommand", "--describe", "--topic", TOPIC)
    assert len(lines(tool.run(*describe))) == 1 + 3
    assert lines(tool.run(*describe, "--under-replicated-partitions")) == []
    broker = killed(cluster)
    for asked in ("--under-replicated-partitions", "--under-min-isr-partitions"):
        found = lines(tool.run(*describe, asked))
        assert len(found) == 3
        assert all(f"Leader: {broker.broker_id}" not in line for line in found)
    assert lines(tool.run(*describe, "--unavailable-partitions")) == []


def test_kafka_leader_election_brings_leaders_back(cluster: Cluster, tool: Tool) -> None:
    broker = killed(cluster)
    cluster.heal()
    with Client(cluster.bootstrap) as client:
        preferred = {
            each.index: each.replicas[0]
            for each in client.metadata([TOPIC]).topics[TOPIC].partitions
        }
    (lost,) = [index for index, node in preferred.items() if node == broker.broker_id]
    command = ("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    output = tool.run(*command)
    assert "Successfully completed leader election (PREFERRED)" in output
    assert f"{TOPIC}-{lost}" in output
    wait_until(lambda: cluster.leader(TOPIC, lost) is broker, "it leads again")


def test_kafka_log_dirs_asks_every_broker(cluster: Cluster, tool: Tool) -> None:
    output = tool.run("LogDirsCommand", "--describe", "--topic-list", TOPIC)
    found = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    held = {
        each["broker"]: {
            partition["partition"]
            for directory in each["logDirs"]
            for partition in directory["partitions"]
        }
        for each in found["brokers"]
    }
    every = {f"{TOPIC}-{index}" for index in range(3)}
    assert held == {1: every, 2: every, 3: every}


def test_kafka_configs_of_one_broker_of_all_and_of_a_topic(cluster: Cluster, tool: Tool) -> None:
    """Through whichever broker the tool asks; each follows."""
    of = {
        "2": ("--entity-type", "brokers", "--entity-name", "2"),
        "3": ("--entity-type", "brokers", "--entity-name", "3"),
        "all": ("--entity-type", "brokers", "--entity-default"),
        "topic": ("--entity-type", "topics", "--entity-name", TOPIC),
    }

    def has_setting(where: str, setting: str) -> bool:
        return setting in tool.run(CONFIGS, "--describe", *of[where])

    tool.run(CONFIGS, "--alter", *of["2"], "--add-config", "log.segment.delete.delay.ms=1234")
    wait_until(lambda: has_setting("2", "log.segment.delete.delay.ms=1234"), "it is set")
    assert not has_setting("3", "log.segment.delete.delay.ms=1234")
    tool.run(CONFIGS, "--alter", *of["all"], "--add-config", "log.segment.delete.delay.ms=4321")
    wait_until(lambda: has_setting("all", "log.segment.delete.delay.ms=4321"), "it is set for all")
    # Of a broker the tool shows its own alone, unless it is asked for all that hold.
    whole = ("--describe", "--all", *of["3"])
    wait_until(
        lambda: "log.segment.delete.delay.ms=4321" in tool.run(CONFIGS, *whole), "it holds there"
    )
    tool.run(CONFIGS, "--alter", *of["topic"], "--add-config", "retention.ms=99999")
    wait_until(lambda: has_setting("topic", "retention.ms=99999"), "it is set")
    for where in ("2", "all"):
        tool.run(CONFIGS, "--alter", *of[where], "--delete-config", "log.segment.delete.delay.ms")
    wait_until(lambda: not has_setting("2", "log.segment.delete.delay.ms="), "it is gone")


def test_kafka_cluster_unregisters_a_broker(cluster: Cluster, tool: Tool) -> None:
    """One that is gone leaves nothing, and may come back; one that runs does so by itself."""

    def unregistered(node_id: int) -> str:
        where = ("--bootstrap-server", tool.bootstrap)
        ran = tool.attempt("ClusterTool", "unregister", *where, "--id", str(node_id))
        return (ran.stdout + ran.stderr).decode()

    def known(node_id: int) -> list[str]:
        paths = [f"/brokers/{kind}/{node_id}" for kind in ("ids", "directories")]
        return [path for path in paths if cluster.zookeeper.data_of(path) is not None]

    gone = killed(cluster).broker_id
    assert f"Broker {gone} is no longer registered." in unregistered(gone)
    assert known(gone) == []
    assert "BrokerIdNotRegisteredException" in unregistered(gone)
    cluster.heal()
    assert len(known(gone)) == 2
    runs = cluster.controller().broker_id
    assert f"Broker {runs} is no longer registered." in unregistered(runs)
    wait_until(lambda: len(known(runs)) == 2, "it has registered again")
    cluster.heal()


def test_every_broker_says_its_versions(cluster: Cluster, tool: Tool) -> None:
    output = tool.run("BrokerApiVersionsCommand")
    assert output.count("(id: ") == 3
    assert cluster.bootstrap.count(",") == 2
