"""Apache Kafka's tools for administration, unchanged: kafka-configs, elections, reassignments.

Topics and log directories are in test_java.py. Changes of the broker are changed back.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from tests.clients.agents.tools import Tools
from tests.clients.conftest import Server
from tests.clients.test_java import Tool
from tests.support import hanging
from tests.unit.net.harness import eventually

pytestmark = [pytest.mark.client, pytest.mark.java]

CONFIGS = "kafka.admin.ConfigCommand"
TRANSACTIONS = "TransactionsCommand"
FEATURES = "FeatureCommand"
BROKER = ("--entity-type", "brokers", "--entity-name", "1")
EVERY_BROKER = ("--entity-type", "brokers", "--entity-default")


@pytest.fixture
def tool(tools: Tools, bootstrap: str) -> Tool:
    return Tool(tools, bootstrap)


@pytest.fixture
def refused(tool: Tool) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        ran = tool.attempt(CONFIGS, "--bootstrap-server", tool.bootstrap, *arguments)
        assert ran.returncode == 1
        return (ran.stdout + ran.stderr).decode()

    return run


def shows(tool: Tool, text: str, *arguments: str) -> None:
    """A change shows a moment after the tool that made it has ended, at the original."""
    eventually(lambda: text in tool.run(CONFIGS, "--describe", *arguments), text)


def test_kafka_configs_of_brokers(tool: Tool, refused: Callable[..., str]) -> None:
    output = tool.run(CONFIGS, *BROKER, "--alter", "--add-config", "num.io.threads=9")
    assert output.strip() == "Completed updating config for broker 1."
    output = tool.run(CONFIGS, *EVERY_BROKER, "--alter", "--add-config", "num.io.threads=10")
    assert output.strip() == "Completed updating default config for brokers in the cluster."
    try:
        shows(
            tool,
            "num.io.threads=9 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:num.io.threads=9, "
            "DYNAMIC_DEFAULT_BROKER_CONFIG:num.io.threads=10, DEFAULT_CONFIG:num.io.threads=8}",
            *BROKER,
        )
        shows(tool, "num.io.threads=10", *EVERY_BROKER)
        shows(tool, "Dynamic configs for broker 1 are:", "--entity-type", "brokers")
    finally:
        tool.run(CONFIGS, *BROKER, "--alter", "--delete-config", "num.io.threads")
        tool.run(CONFIGS, *EVERY_BROKER, "--alter", "--delete-config", "num.io.threads")
    assert "Cannot update these configs dynamically: [node.id]" in refused(
        *BROKER, "--alter", "--add-config", "node.id=2"
    )
    assert "should not be greater than double the current value 8" in refused(
        *BROKER, "--alter", "--add-config", "num.io.threads=17"
    )


def test_kafka_configs_of_loggers(tool: Tool, server: Server, refused: Callable[..., str]) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    logger = "kbroker.controller" if server.kbroker else "root"
    tool.run(CONFIGS, *loggers, "--alter", "--add-config", f"{logger}=WARN")
    shows(tool, f"{logger}=WARN", *loggers)
    if server.kbroker:
        tool.run(CONFIGS, *loggers, "--alter", "--delete-config", logger)
    else:
        tool.run(CONFIGS, *loggers, "--alter", "--add-config", f"{logger}=INFO")
    shows(tool, f"{logger}=INFO", *loggers)
    assert "Invalid broker logger(s): no.such.logger" in refused(
        *loggers, "--alter", "--add-config", "no.such.logger=INFO"
    )


@pytest.mark.parametrize(
    ("kind", "what", "setting"),
    [
        ("groups", "group", "consumer.session.timeout.ms=50000"),
        ("client-metrics", "client-metric", "interval.ms=5000"),
    ],
)
def test_kafka_configs_of_groups_and_client_metrics(
    tool: Tool, kind: str, what: str, setting: str
) -> None:
    entity = ("--entity-type", kind, "--entity-name", "x")
    output = tool.run(CONFIGS, *entity, "--alter", "--add-config", setting)
    assert output.strip() == f"Completed updating config for {what} x."
    shows(tool, setting, *entity)
    shows(tool, f"Dynamic configs for {what} x are:", "--entity-type", kind)
    tool.run(CONFIGS, *entity, "--alter", "--delete-config", setting.partition("=")[0])
    eventually(lambda: "=" not in tool.run(CONFIGS, "--describe", *entity).replace("{}", ""))


@pytest.mark.parametrize("kind", ["clients", "ips", "users"])
def test_kafka_configs_of_quotas_that_do_not_exist(tool: Tool, kind: str) -> None:
    assert tool.run(CONFIGS, "--describe", "--entity-type", kind) == ""


def test_kafka_acls_without_an_authorizer(tool: Tool) -> None:
    ran = tool.attempt("AclCommand", "--bootstrap-server", tool.bootstrap, "--list")
    assert ran.returncode == 1
    assert b"SecurityDisabledException" in ran.stdout + ran.stderr


def test_kafka_transactions_lists_none_that_matches(tool: Tool) -> None:
    listed = tool.run(TRANSACTIONS, "list", "--transactional-id-pattern", "of-none-.*")
    (head,) = listed.splitlines()
    assert head.startswith("TransactionalId")


def test_the_performance_tool_writes_transactions(tool: Tool, topic: str) -> None:
    ran = tool.attempt(
        *("ProducerPerformance", "--topic", topic, "--num-records", "100", "--record-size", "1"),
        *("--throughput", "-1", "--transactional-id", f"id-of-{topic}"),
        *("--transaction-duration-ms", "10"),
        *("--producer-props", f"bootstrap.servers={tool.bootstrap}"),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    listed = tool.run(TRANSACTIONS, "list")
    (line,) = [each for each in listed.splitlines() if f"id-of-{topic}" in each]
    assert "CompleteCommit" in line
    described = tool.run(TRANSACTIONS, "describe", "--transactional-id", f"id-of-{topic}")
    assert "CompleteCommit" in described


def test_kafka_transactions_ends_a_hanging_one_and_one_by_its_id(tool: Tool, topic: str) -> None:
    """Found by its age, which its record has; aborted by its first offset."""
    place = ("--topic", topic, "--partition", "0")
    off = (*EVERY_BROKER, "--alter", "--add-config", f"{hanging.VERIFIES}=false")
    tool.run(CONFIGS, *off)
    an_hour_ago_ms = int(time.time() * 1_000) - 3_600_000
    at = TopicPartition(topic, 0)
    try:
        eventually(
            lambda: hanging.write(tool.bootstrap, at, an_hour_ago_ms) == ErrorCode.NONE,
            "it is written without verification",
        )
    finally:
        tool.run(CONFIGS, *EVERY_BROKER, "--alter", "--delete-config", hanging.VERIFIES)

    for scope in (place, ("--broker-id", "1")):
        found = tool.run(TRANSACTIONS, "find-hanging", *scope).splitlines()
        (row,) = [line.split() for line in found if topic in line]
        # Topic, partition, producer id, producer epoch, coordinator epoch, start offset.
        assert row[:6] == [topic, "0", str(hanging.PRODUCER_ID), "0", "-1", "0"]
    tool.run(TRANSACTIONS, "abort", *place, "--start-offset", "0")
    assert topic not in tool.run(TRANSACTIONS, "find-hanging", *place)
    described = tool.run(TRANSACTIONS, "describe-producers", *place).splitlines()
    assert [line.split()[:2] for line in described[1:]] == [[str(hanging.PRODUCER_ID), "0"]]
    assert described[1].split()[-1] == "None"

    id = f"id-of-{topic}"
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": tool.bootstrap, "transactional.id": id}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"of a process that is gone")
    producer.flush(30)
    tool.run(TRANSACTIONS, "forceTerminateTransaction", "--transactionalId", id)
    (line,) = [each for each in tool.run(TRANSACTIONS, "list").splitlines() if id in each]
    assert "Empty" in line or "CompleteAbort" in line, line
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.commit_transaction(30)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError._FENCED


def levels(tool: Tool) -> dict[str, tuple[str, str]]:
    """Of each feature: the highest level that is supported, and the finalized one."""
    found = {}
    for line in tool.run(FEATURES, "describe").splitlines():
        cells = dict(re.findall(r"(\w+): (\S+)", line))
        if "Feature" in cells:
            found[cells["Feature"]] = cells["SupportedMaxVersion"], cells["FinalizedVersionLevel"]
    return found


def test_kafka_features(tool: Tool, server: Server) -> None:
    found = levels(tool)
    assert found["group.version"] == ("1", "1")
    assert found["transaction.version"] == ("2", "2")
    assert ("metadata.version" in found) is not server.kbroker


def test_kafka_features_goes_down_and_up(tool: Tool) -> None:
    for feature, low, high in (("transaction.version", 1, 2), ("group.version", 0, 1)):
        try:
            tried = tool.run(FEATURES, "downgrade", "--feature", f"{feature}={low}", "--dry-run")
            assert f"{feature} can be downgraded to {low}." in tried
            assert levels(tool)[feature] == (str(high), str(high))
            done = tool.run(FEATURES, "downgrade", "--feature", f"{feature}={low}")
            assert f"{feature} was downgraded to {low}." in done
            assert levels(tool)[feature][1] == str(low)
        finally:
            done = tool.run(FEATURES, "upgrade", "--feature", f"{feature}={high}")
        assert f"{feature} was upgraded to {high}." in done
        eventually(
            lambda feature=feature, high=high: levels(tool)[feature][1] == str(high), feature
        )
        above = tool.attempt(
            *(FEATURES, "--bootstrap-server", tool.bootstrap),
            *("upgrade", "--feature", f"{feature}={high + 1}"),
        )
        assert above.returncode == 1
        assert f"Could not upgrade {feature} to {high + 1}." in above.stdout.decode()


def test_kafka_leader_election(tool: Tool, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=2)
    tool.run("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    for election in ("preferred", "unclean"):
        output = tool.run(
            "LeaderElectionCommand", "--election-type", election, "--topic", topic,
            "--partition", "1",
        )  # fmt: skip
        assert f"Valid replica already elected for partitions {topic}-1" in output


def test_kafka_reassign_partitions_to_where_they_are(
    tool: Tool, topic: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    moves = [{"topic": topic, "partition": 0, "replicas": [1]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    command = ("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan))
    output = tool.run(*command, "--execute")
    assert f"Successfully started partition reassignment for {topic}-0" in output
    output = tool.run(*command, "--verify")
    assert f"Reassignment of partition {topic}-0 is completed." in output


def test_kafka_reassign_partitions_lists(tool: Tool, topic: str) -> None:
    output = tool.run("reassign.ReassignPartitionsCommand", "--list")
    assert "No partition reassignments found." in output
