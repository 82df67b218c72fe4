"""Rights to the cluster, and to the settings of topics, groups and brokers."""

from __future__ import annotations

from typing import Any, Final

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._rights import add_rights, own, topics
from tests.parity.requests import build
from tests.parity.talk import Talk

book = Book()

CONFIGURED: Final = (
    (2, "t"),
    (2, "u"),
    (2, "m"),
    (4, "1"),
    (4, ""),
    (8, "1"),
    (16, "s"),
    (32, "g"),
    (32, "h"),
)


def resources(talk: Talk, **fields: Any) -> list[dict[str, Any]]:
    return [
        {
            "resource_type": kind,
            "resource_name": name if kind in (4, 8) else talk.name(name),
            **fields,
        }
        for kind, name in CONFIGURED
    ]


add_rights(
    book,
    "DescribeConfigs",
    range(1, 5),
    [
        "DESCRIBE_CONFIGS T t, DESCRIBE_CONFIGS T m",
        "DESCRIBE_CONFIGS G g",
        "DESCRIBE_CONFIGS C",
        "ALTER_CONFIGS C, ALTER_CONFIGS T t",
        "DESCRIBE C, DESCRIBE T t",
    ],
    lambda talk, version: build(
        ApiKey.DESCRIBE_CONFIGS, version, resources=resources(talk, configuration_keys=["none"])
    ),
    prepare=topics,
)
ALTERERS: Final = [
    "ALTER_CONFIGS T t, ALTER_CONFIGS T m",
    "ALTER_CONFIGS G g",
    "ALTER_CONFIGS C",
    "ALTER C, ALTER T t, CLUSTER_ACTION C",
]
add_rights(
    book,
    "AlterConfigs",
    range(3),
    ALTERERS,
    lambda talk, version: build(
        ApiKey.ALTER_CONFIGS,
        version,
        # Loggers are the other API's, and the defaults of brokers may not be without any value.
        resources=[
            each
            for each in resources(talk, configs=[])
            if each["resource_type"] != 8 and each["resource_name"]
        ],
        validate_only=True,
    ),
    prepare=topics,
)
add_rights(
    book,
    "IncrementalAlterConfigs",
    range(2),
    ALTERERS,
    lambda talk, version: build(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        version,
        resources=resources(talk, configs=[]),
        validate_only=True,
    ),
    prepare=topics,
)
add_rights(
    book,
    "ListConfigResources",
    range(2),
    ["DESCRIBE C", "DESCRIBE_CONFIGS C"],
    lambda talk, version: build(ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=[32]),
    view=own("config_resources"),
)
add_rights(
    book,
    "DescribeCluster",
    range(3),
    ["DESCRIBE C", "ALTER C, CREATE C"],
    lambda talk, version: build(
        ApiKey.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True
    ),
)
add_rights(
    book,
    "DescribeCluster, no operations",
    range(3),
    ["DESCRIBE C"],
    lambda talk, version: build(ApiKey.DESCRIBE_CLUSTER, version),
)
add_rights(
    book,
    "DescribeLogDirs",
    range(1, 6),
    ["DESCRIBE C", "ALTER C", "DESCRIBE_CONFIGS C"],
    lambda talk, version: build(
        ApiKey.DESCRIBE_LOG_DIRS,
        version,
        topics=[{"topic": talk.name("m"), "partitions": [0]}],
    ),
)
add_rights(
    book,
    "AlterReplicaLogDirs",
    range(1, 3),
    ["ALTER C", "DESCRIBE C"],
    lambda talk, version: build(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        version,
        dirs=[{"path": "/none", "topics": [{"name": talk.name("m"), "partitions": [0, 1]}]}],
    ),
)
add_rights(
    book,
    "ElectLeaders",
    range(3),
    ["ALTER C", "DESCRIBE C"],
    lambda talk, version: build(
        ApiKey.ELECT_LEADERS,
        version,
        election_type=0,
        topic_partitions=[{"topic": talk.name("m"), "partitions": [0, 1]}],
        timeout=10_000,
    ),
)
add_rights(
    book,
    "AlterPartitionReassignments",
    range(2),
    ["ALTER C", "DESCRIBE C"],
    lambda talk, version: build(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        version,
        topics=[{"name": talk.name("m"), "partitions": [{"partition_index": 0, "replicas": None}]}],
        timeout=10_000,
    ),
)
add_rights(
    book,
    "ListPartitionReassignments",
    [0],
    ["ALTER C", "DESCRIBE C"],
    lambda talk, version: build(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, version, topics=None, timeout=10_000
    ),
)
add_rights(
    book,
    "DescribeClientQuotas",
    range(2),
    ["DESCRIBE C", "DESCRIBE_CONFIGS C", "ALTER_CONFIGS C"],
    lambda talk, version: build(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=[], strict=False
    ),
)
add_rights(
    book,
    "DescribeUserScramCredentials",
    [0],
    ["DESCRIBE C", "ALTER C"],
    lambda talk, version: build(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, version, users=[{"name": talk.name("none")}]
    ),
)
add_rights(
    book,
    "UpdateFeatures",
    range(2),
    ["ALTER C", "DESCRIBE C"],
    lambda talk, version: build(
        ApiKey.UPDATE_FEATURES,
        version,
        feature_updates=[{"feature": "none", "max_version_level": 1, "upgrade_type": 1}],
        timeout=10_000,
    ),
)
add_rights(
    book,
    "UnregisterBroker",
    [0],
    ["ALTER C", "DESCRIBE C"],
    lambda talk, version: build(ApiKey.UNREGISTER_BROKER, version, broker_id=4711),
)
