"""A topic as Metadata describes it to the clients of a listener, and those that are kept encoded.

A client that names a topic of ten thousand partitions again and again must not take the interpreter
from all others: encoding a thousand partitions costs milliseconds of Python. So an encoded topic is
kept until its `TopicImage` (immutable, so the object itself is compared) or the set of brokers that
the clients reach is another one. Entries of deleted topics are dropped when they could make up half
a table.

Any handler thread; no lock: a table is replaced or filled by single dict operations, and two
threads that race do the same work twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.protocol import messages
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import INT32_MIN
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage, PartitionImage, TopicImage
    from kbroker.protocol.messages.metadata import (
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

_SINCE_INTERNAL: Final = 1
_SINCE_LISTENER_ERROR: Final = 6

NO_NODE: Final = -1
# Every operation a topic has, as the bits of their ACL codes: READ (3), WRITE (4), CREATE (5),
# DELETE (6), ALTER (7), DESCRIBE (8), DESCRIBE_CONFIGS (10), ALTER_CONFIGS (11). Without an
# authorizer a client may do everything.
TOPIC_OPERATIONS: Final = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
OPERATIONS_NOT_ASKED: Final = INT32_MIN

_DEAD_ENTRIES_MIN: Final = 64


def topic_operations(*, asked: bool) -> int:
    return TOPIC_OPERATIONS if asked else OPERATIONS_NOT_ASKED


class ListenerBrokers(NamedTuple):
    """The brokers that are alive, and those of them that clients of one listener reach."""

    alive: frozenset[int]
    reached: frozenset[int]


def brokers_on(image: ClusterImage, listener: str, own_id: int) -> ListenerBrokers:
    """What clients of a listener see; its own node a client has reached already."""
    brokers = image.brokers
    reached = [n for n in brokers if n == own_id or brokers[n].address_on(listener) is not None]
    return ListenerBrokers(frozenset(brokers), frozenset(reached))


class _Table(NamedTuple):
    """The topics of one version, listener and kind of answer, for one set of brokers."""

    image: ClusterImage
    brokers: ListenerBrokers
    topics: dict[str, tuple[TopicImage, Any]]  # as `Encoded`


class TopicsKept:
    """The encoded topics, as the broker of this id describes them."""

    __slots__ = ("_node_id", "_tables")

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._tables: dict[tuple[int, str, bool], _Table] = {}

    def topic(
        self,
        image: ClusterImage,
        version: int,
        listener: str,
        topic: TopicImage,
        *,
        operations: bool,
    ) -> Any:
        """The entry of a topic in an answer, encoded."""
        table = self._table(image, version, listener, operations=operations)
        entry = table.topics.get(topic.name)
        if entry is None or entry[0] is not topic:
            record = topic_entry(version, topic, table.brokers, operations=operations)
            flexible = is_flexible(ApiKey.METADATA, version)
            entry = (topic, record.encoded(version, flexible=flexible))
            table.topics[topic.name] = entry
        return entry[1]

    def _table(
        self, image: ClusterImage, version: int, listener: str, *, operations: bool
    ) -> _Table:
        key = version, listener, operations
        table = self._tables.get(key)
        if table is not None and table.image is image:
            return table
        brokers = brokers_on(image, listener, self._node_id)
        if table is None or table.brokers != brokers:
            topics = {}
        elif len(table.topics) > 2 * len(image.topics) + _DEAD_ENTRIES_MIN:
            topics = {n: e for n, e in list(table.topics.items()) if image.topics.get(n) is e[0]}
        else:
            topics = table.topics
        table = self._tables[key] = _Table(image, brokers, topics)
        return table

    def __len__(self) -> int:
        return sum(len(table.topics) for table in self._tables.values())


def topic_entry(
    version: int, topic: TopicImage, brokers: ListenerBrokers, *, operations: bool
) -> MetadataResponseTopic:
    return messages.metadata.MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_partition_entry(version, each, brokers) for each in topic.partitions],
        topic_authorized_operations=topic_operations(asked=operations),
    )


def _partition_entry(
    version: int, partition: PartitionImage, brokers: ListenerBrokers
) -> MetadataResponsePartition:
    replicas, isr, leader = partition.replicas, partition.isr, partition.leader
    code = ErrorCode.NONE
    offline = [node for node in replicas if node not in brokers.reached]
    if version < _SINCE_INTERNAL and offline:
        # The first clients could not bear a node they had no address for.
        replicas = tuple(node for node in replicas if node in brokers.reached)
        isr = tuple(node for node in isr if node in brokers.reached)
        code = ErrorCode.REPLICA_NOT_AVAILABLE
    if leader not in brokers.reached:
        code = ErrorCode.LEADER_NOT_AVAILABLE
        if leader in brokers.alive and version >= _SINCE_LISTENER_ERROR:
            code = ErrorCode.LISTENER_NOT_FOUND
        leader = NO_NODE
    return messages.metadata.MetadataResponsePartition(
        error_code=code,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(replicas),
        isr_nodes=list(isr),
        offline_replicas=offline,
    )
