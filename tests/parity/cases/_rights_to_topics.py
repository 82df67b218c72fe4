"""Rights to topics: the answers to clients with and without them."""

from __future__ import annotations

from typing import Any, Final

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._rights import UNKNOWN_ID, add_rights, denied_sorted, names, own, topics
from tests.parity.requests import build
from tests.parity.talk import Talk

book = Book()

add_rights(
    book,
    "ListOffsets",
    range(1, 12),
    ["DESCRIBE T t, DESCRIBE T m", "READ T t", "ALTER_CONFIGS T t"],
    lambda talk, version: build(
        ApiKey.LIST_OFFSETS,
        version,
        replica_id=-1,
        topics=[
            {
                "name": name,
                "partitions": [
                    {"partition_index": i, "current_leader_epoch": -1, "timestamp": -1}
                    for i in (0, 7)
                ],
            }
            for name in names(talk)
        ],
    ),
    prepare=topics,
)


def metadata(talk: Talk, version: int, *, create: bool = False) -> Any:
    return build(
        ApiKey.METADATA,
        version,
        topics=[{"name": name, "topic_id": None} for name in names(talk)],
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )


SOME: Final = ["DESCRIBE T t, DESCRIBE T m", "READ T t, ALTER T t", "DESCRIBE C"]
add_rights(book, "Metadata", range(14), SOME, metadata, prepare=topics)
add_rights(
    book,
    "Metadata that creates",
    range(14),
    [
        "DESCRIBE T m",
        "DESCRIBE T m, CREATE T m",
        "DESCRIBE T m, CREATE C",
        "CREATE C",
        "CREATE T m, CREATE T t",
    ],
    lambda talk, version: metadata(talk, version, create=True),
    prepare=topics,
)
add_rights(
    book,
    "Metadata by id",
    range(12, 14),
    SOME,
    lambda talk, version: build(
        ApiKey.METADATA,
        version,
        topics=[
            {"name": None, "topic_id": each}
            for each in (
                talk.topic_id(talk.name("t")),
                talk.topic_id(talk.name("u")),
                UNKNOWN_ID,
            )
        ],
        include_topic_authorized_operations=True,
    ),
    prepare=topics,
)
add_rights(
    book,
    "Metadata of all",
    range(14),
    SOME,
    lambda talk, version: build(ApiKey.METADATA, version, topics=None if version else ()),
    prepare=topics,
    view=own("topics"),
)
add_rights(
    book,
    "DescribeTopicPartitions",
    [0],
    SOME,
    lambda talk, version: build(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        version,
        topics=[{"name": name} for name in names(talk)],
        response_partition_limit=100,
    ),
    prepare=topics,
    view=denied_sorted,
)
add_rights(
    book,
    "DescribeTopicPartitions of all",
    [0],
    SOME,
    lambda talk, version: build(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, version, topics=[], response_partition_limit=10_000
    ),
    prepare=topics,
    view=own("topics"),
)


def created(name: str) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1}


add_rights(
    book,
    "CreateTopics",
    range(2, 8),
    [
        "CREATE C",
        "CREATE T m",
        "CREATE T m, DESCRIBE_CONFIGS T m",
        "CREATE C, ALTER_CONFIGS T m, DESCRIBE_CONFIGS T t",
        "CREATE T t, DESCRIBE T t",
        "WRITE T m, ALTER C",
    ],
    lambda talk, version: build(
        ApiKey.CREATE_TOPICS,
        version,
        topics=[created(talk.name(each)) for each in ("t", "m", "n")],
        timeout=30_000,
    ),
    prepare=lambda talk: talk.topic("t"),
)
add_rights(
    book,
    "CreateTopics twice",
    range(2, 8),
    ["CREATE T m"],
    lambda talk, version: build(
        ApiKey.CREATE_TOPICS,
        version,
        topics=[created(talk.name(each)) for each in ("m", "n", "n")],
        timeout=30_000,
    ),
)
DELETERS: Final = [
    "DELETE C",
    "DELETE T t",
    "DELETE T m, DESCRIBE T t",
    "DESCRIBE T t, DESCRIBE T m",
    "DELETE T t, DELETE T m",
]
add_rights(
    book,
    "DeleteTopics",
    range(1, 7),
    DELETERS,
    lambda talk, version: build(
        ApiKey.DELETE_TOPICS,
        version,
        topic_names=names(talk),
        topics=[{"name": name, "topic_id": None} for name in names(talk)],
        timeout=30_000,
    ),
    prepare=topics,
)
add_rights(
    book,
    "DeleteTopics by id",
    [6],
    DELETERS,
    lambda talk, version: build(
        ApiKey.DELETE_TOPICS,
        version,
        topics=[
            {"name": None, "topic_id": each}
            for each in (
                talk.topic_id(talk.name("t")),
                talk.topic_id(talk.name("u")),
                UNKNOWN_ID,
            )
        ],
        timeout=30_000,
    ),
    prepare=topics,
)
add_rights(
    book,
    "DeleteRecords",
    range(3),
    ["DELETE T t, DELETE T m", "WRITE T t"],
    lambda talk, version: build(
        ApiKey.DELETE_RECORDS,
        version,
        topics=[
            {"name": name, "partitions": [{"partition_index": i, "offset": 0} for i in (0, 7)]}
            for name in names(talk)
        ],
        timeout=10_000,
    ),
    prepare=topics,
)
add_rights(
    book,
    "CreatePartitions",
    range(4),
    ["ALTER T t, ALTER T m", "ALTER C", "CREATE C"],
    lambda talk, version: build(
        ApiKey.CREATE_PARTITIONS,
        version,
        topics=[{"name": name, "count": 2, "assignments": None} for name in names(talk)],
        timeout=30_000,
        validate_only=False,
    ),
    prepare=topics,
)
add_rights(
    book,
    "OffsetForLeaderEpoch",
    range(2, 5),
    ["DESCRIBE T t, DESCRIBE T m", "CLUSTER_ACTION C", "READ T t"],
    lambda talk, version: build(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        version,
        replica_id=-1,
        topics=[
            {
                "topic": name,
                "partitions": [
                    {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0},
                ],
            }
            for name in names(talk)
        ],
    ),
    prepare=topics,
)
add_rights(
    book,
    "DescribeProducers",
    [0],
    ["READ T t, READ T m", "DESCRIBE T t", "WRITE T t"],
    lambda talk, version: build(
        ApiKey.DESCRIBE_PRODUCERS,
        version,
        topics=[
            {"name": name, "partition_indexes": [0, 7]} for name in (*names(talk), "not a name")
        ],
    ),
    prepare=topics,
)
