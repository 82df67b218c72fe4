"""What other people's consoles ask of a broker, and what they change: kafka-ui (kafbat), AKHQ and
Redpanda's console.

programs/java/Consoles.java makes their calls over Apache Kafka's own clients. A console that gets
an error leaves a page out, or takes the whole cluster for unreachable: kafka-ui does so where
describeFeatures fails, or describeMetadataQuorum fails with anything but "unsupported"; it reads
the broker's version from `inter.broker.protocol.version`, or from the feature `metadata.version`.
Redpanda's console enables a page by the APIs that are listed. AKHQ changes settings by
AlterConfigs, which clients since 4.0 lack; librdkafka has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.clients.adapters import TIMEOUT_S
from tests.clients.agents.tools import Tool, Tools
from tests.clients.conftest import Server

pytestmark = [pytest.mark.client, pytest.mark.java]

# By call: the error that the consoles expect. Kafka has it, too, without an authorizer.
SECURITY_DISABLED = {"describeAcls": "SecurityDisabledException"}
# Apache Kafka has a quorum, whose voters do not change below kraft.version 1.
NO_VOTERS = dict.fromkeys(("addRaftVoter", "removeRaftVoter"), "UnsupportedVersionException")
# There is no quorum: DescribeQuorum, AddRaftVoter and RemoveRaftVoter are not listed.
NO_QUORUM = {"describeMetadataQuorum": "UnsupportedVersionException"}
# DescribeQuorum, GetTelemetrySubscriptions, PushTelemetry, AddRaftVoter, RemoveRaftVoter.
NOT_LISTED = {55, 71, 72, 80, 81}
STREAMS_GROUPS = {88, 89}  # with streams.version 1, which is off
# The answers of the calls, in short, where they are the same on each broker.
ANSWERS: Final[dict[str, Any]] = {
    "consumer reads": 3,
    "consumer.beginningOffsets": 0,
    "consumer.endOffsets": 3,
    "describeCluster": 1,
    "describeCluster with fenced brokers": 1,
    "describeLogDirs": True,
    "describeReplicaLogDirs": True,
    "describeConfigs of a broker's loggers": True,
    "listConfigResources": True,
    "listPartitionReassignments": 0,
    "describeTopics": 2,
    "describeConfigs of a topic": {
        "undocumented": [],
        "sources of retention.ms": ["DYNAMIC_TOPIC_CONFIG"],
    },
    "listConsumerGroups": True,
    "listGroups": ["Classic", "Share"],
    "listGroups of type Classic": 1,
    "listGroups of type Consumer": 0,
    "listGroups of type Share": 1,
    "listGroups of type Streams": 0,
    "describeConsumerGroups": 1,
    "describeClassicGroups": 1,
    "describeShareGroups": 1,
    "listConsumerGroupOffsets": 3,
    "listOffsets of earliest": 0,
    "listOffsets of latest": 3,
    "listOffsets of a timestamp": 0,
    "listOffsets of earliest local": 0,
    "listOffsets of latest tiered": -1,
    "listOffsets of committed records": 0,
    "listTransactions": ["Ongoing"],
    "describeProducers": 1,
    "deleteRecords": 1,
    "electLeaders": "ElectionNotNeededException",
}


@pytest.fixture
def tool(tools: Tools, bootstrap: str) -> Tool:
    return Tool(tools, bootstrap)


def test_the_calls_of_other_consoles(
    tool: Tool, server: Server, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2, retention_ms=3_600_000)
    found: dict[str, Any] = json.loads(tool.run("Consoles", topic))
    errors = {name: each["error"] for name, each in found.items() if "error" in each}
    named = SECURITY_DISABLED | NO_VOTERS | (NO_QUORUM if server.kbroker else {})
    assert {name: text.partition(":")[0] for name, text in errors.items()} == named, errors
    answers = {name: each["ok"] for name, each in found.items() if "ok" in each}
    assert {name: answers.get(name) for name in ANSWERS} == ANSWERS
    assert answers["describeTopics by id"] == topic
    assert answers["describeTransactions"] == [f"{topic}-0"]
    assert "__consumer_offsets" in answers["listTopics"]
    assert answers["describeCluster with operations"] > 0
    assert answers["describeTopics with operations"] > 0
    settings = answers["describeConfigs of a broker"]
    assert settings["delete.topic.enable"] == "true"
    if server.kbroker:  # kafka-ui reads 2.6 and later as "all features are there"
        assert settings["inter.broker.protocol.version"] == "3.9"
    else:
        assert "metadata.version" in answers["describeFeatures"]


def test_the_apis_that_are_not_listed(tool: Tool, server: Server) -> None:
    listed = tool.run("BrokerApiVersionsCommand")
    lacks = {int(key) for key in re.findall(r"\w+\((\d+)\): UNSUPPORTED", listed)}
    assert lacks == (NOT_LISTED | STREAMS_GROUPS if server.kbroker else {71, 72}), listed


def test_settings_are_changed_by_alter_configs(bootstrap: str, topic: str) -> None:
    """AKHQ sends all settings of a topic that it wants."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    wanted = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "600000"})
    with pytest.deprecated_call():
        (done,) = client.alter_configs([wanted]).values()
    done.result(TIMEOUT_S)
    (described,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    assert described.result(TIMEOUT_S)["retention.ms"].value == "600000"
