"""The topics of a Metadata answer as bytes, kept from one request to the next.

Why: a client that asks for all topics in a loop must not take the interpreter from everybody else.
Encoding a thousand partitions costs milliseconds of Python; joining bytes that exist already costs
microseconds. A topic's bytes depend on its `TopicImage` (immutable, so the object itself is the
key), on the version of the API, on which brokers are alive and which of them clients of the
listener reach, and on nothing else.

Three layers: one topic's bytes by version, listener and name; the joined bytes of all topics for
the newest image, by version, listener and whether authorized operations were asked; and the bytes
of a list of node ids. The two optional trailing fields of a topic are added when joining, so that
one entry serves both kinds of request. Entries of deleted topics are dropped when they could make
up half a table.

Any handler thread; no lock: a table is replaced or filled by single dict operations, and two
threads that race do the same work twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kbroker.errors import ErrorCode
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import INT32_MIN, Writer, encode_array_length, encode_string
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage, PartitionImage, TopicImage

SINCE_INTERNAL: Final = 1
SINCE_OFFLINE_REPLICAS: Final = 5
SINCE_LISTENER_ERROR: Final = 6
SINCE_LEADER_EPOCH: Final = 7
SINCE_TOPIC_OPERATIONS: Final = 8
SINCE_TOPIC_ID: Final = 10

NO_NODE: Final = -1
# Every operation a topic has, as the bits of their ACL codes: READ (3), WRITE (4), CREATE (5),
# DELETE (6), ALTER (7), DESCRIBE (8), DESCRIBE_CONFIGS (10), ALTER_CONFIGS (11). Without an
# authorizer everybody may do everything.
TOPIC_OPERATIONS: Final = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
OPERATIONS_NOT_ASKED: Final = INT32_MIN


def topic_operations(*, asked: bool) -> int:
    return TOPIC_OPERATIONS if asked else OPERATIONS_NOT_ASKED


_DEAD_ENTRIES_MIN: Final = 64

_WITHOUT_EPOCH: Final = struct.Struct(">hii")
_WITH_EPOCH: Final = struct.Struct(">hiii")


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
    """The topics of one version and listener, valid for one set of brokers, as an image has it."""

    image: ClusterImage
    brokers: ListenerBrokers
    topics: dict[str, tuple[TopicImage, bytes]]


class MetadataCache:
    """The encoded topics, as the broker of this id tells them."""

    __slots__ = ("_all", "_node_id", "_tables")

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._tables: dict[tuple[int, str], _Table] = {}
        self._all: dict[tuple[int, str, bool], tuple[ClusterImage, bytes]] = {}

    def all_topics(
        self, image: ClusterImage, version: int, listener: str, *, operations: bool
    ) -> bytes:
        """The whole array of topics: its count and every topic of the image."""
        key = (version, listener, operations)
        known = self._all.get(key)
        if known is not None and known[0] is image:
            return known[1]
        topics = [image.topics[name] for name in sorted(image.topics)]
        encoded = self.topics(image, version, listener, topics, operations=operations)
        whole = b"".join([encode_array_length(len(encoded), flexible=_flexible(version)), *encoded])
        self._all[key] = (image, whole)
        return whole

    def topics(
        self,
        image: ClusterImage,
        version: int,
        listener: str,
        topics: Iterable[TopicImage],
        *,
        operations: bool,
    ) -> list[bytes]:
        """Each topic's bytes for clients of a listener, in the order given."""
        table = self._table(image, version, listener)
        known = table.topics
        end = topic_end(version, topic_operations(asked=operations))
        out = []
        for topic in topics:
            entry = known.get(topic.name)
            if entry is None or entry[0] is not topic:
                entry = (topic, encode_topic(version, topic, table.brokers))
                known[topic.name] = entry
            out.append(entry[1] + end)
        return out

    def _table(self, image: ClusterImage, version: int, listener: str) -> _Table:
        table = self._tables.get((version, listener))
        if table is not None and table.image is image:
            return table
        brokers = brokers_on(image, listener, self._node_id)
        if table is None or table.brokers != brokers:
            topics = {}
        elif len(table.topics) > 2 * len(image.topics) + _DEAD_ENTRIES_MIN:
            topics = {n: e for n, e in list(table.topics.items()) if image.topics.get(n) is e[0]}
        else:
            topics = table.topics
        table = self._tables[version, listener] = _Table(image, brokers, topics)
        return table

    def statistics(self) -> Mapping[str, int]:
        """How much is kept, for the admin page."""
        return {
            "topics": sum(len(table.topics) for table in self._tables.values()),
            "bytes": sum(len(whole) for _, whole in self._all.values()),
        }


def _flexible(version: int) -> bool:
    return is_flexible(ApiKey.METADATA, version)


def topic_end(version: int, operations: int) -> bytes:
    """What follows a topic's partitions."""
    out = Writer(flexible=_flexible(version))
    if version >= SINCE_TOPIC_OPERATIONS:
        out.int32(operations)
    out.tags()
    return out.getvalue()


def encode_topic(version: int, topic: TopicImage, brokers: ListenerBrokers) -> bytes:
    """A topic without its `topic_end`."""
    flexible = _flexible(version)
    out = Writer(flexible=flexible)
    _begin_topic(out, version, ErrorCode.NONE, topic.name, topic.topic_id, internal=topic.internal)
    out.array(len(topic.partitions))
    id_lists: dict[tuple[int, ...], bytes] = {}
    parts = [_encode_partition(version, p, brokers, id_lists) for p in topic.partitions]
    out.raw(b"".join(parts))
    return out.getvalue()


def encode_missing_topic(
    version: int,
    code: ErrorCode,
    name: str | None,
    topic_id: UUID | None,
    operations: int = OPERATIONS_NOT_ASKED,
    *,
    internal: bool = False,
) -> bytes:
    """A whole topic that is only an error."""
    out = Writer(flexible=_flexible(version))
    _begin_topic(out, version, code, name, topic_id, internal=internal)
    out.array(0)
    out.raw(topic_end(version, operations))
    return out.getvalue()


def _begin_topic(
    out: Writer,
    version: int,
    code: ErrorCode,
    name: str | None,
    topic_id: UUID | None,
    *,
    internal: bool,
) -> None:
    out.int16(code)
    out.string(name)
    if version >= SINCE_TOPIC_ID:
        out.uuid(topic_id)
    if version >= SINCE_INTERNAL:
        out.boolean(internal)


def _encode_partition(
    version: int,
    partition: PartitionImage,
    brokers: ListenerBrokers,
    id_lists: dict[tuple[int, ...], bytes],
) -> bytes:
    replicas, isr, leader = partition.replicas, partition.isr, partition.leader
    code = ErrorCode.NONE
    offline = tuple(node for node in replicas if node not in brokers.reached)
    if version < SINCE_INTERNAL and offline:
        # The first clients could not bear a node they had no address for.
        replicas = tuple(node for node in replicas if node in brokers.reached)
        isr = tuple(node for node in isr if node in brokers.reached)
        code = ErrorCode.REPLICA_NOT_AVAILABLE
    if leader not in brokers.reached:
        code = ErrorCode.LEADER_NOT_AVAILABLE
        if leader in brokers.alive and version >= SINCE_LISTENER_ERROR:
            code = ErrorCode.LISTENER_NOT_FOUND
        leader = NO_NODE
    flexible = _flexible(version)
    if version >= SINCE_LEADER_EPOCH:
        head = _WITH_EPOCH.pack(code, partition.index, leader, partition.leader_epoch)
    else:
        head = _WITHOUT_EPOCH.pack(code, partition.index, leader)
    body = head + _ids(replicas, flexible, id_lists) + _ids(isr, flexible, id_lists)
    if version >= SINCE_OFFLINE_REPLICAS:
        body += _ids(offline, flexible, id_lists)
    return body + b"\x00" if flexible else body


def _ids(ids: tuple[int, ...], flexible: bool, known: dict[tuple[int, ...], bytes]) -> bytes:
    """A list of node ids; the partitions of a topic share a few of them."""
    encoded = known.get(ids)
    if encoded is None:
        encoded = encode_array_length(len(ids), flexible=flexible) + struct.pack(
            f">{len(ids)}i", *ids
        )
        known[ids] = encoded
    return encoded


def encode_broker(version: int, node_id: int, host: str, port: int, rack: str | None) -> bytes:
    """One entry of the array of brokers."""
    flexible = _flexible(version)
    encoded = struct.pack(">i", node_id) + encode_string(host, flexible=flexible)
    encoded += struct.pack(">i", port)
    if version >= SINCE_INTERNAL:
        encoded += encode_string(rack, flexible=flexible)
    return encoded + b"\x00" if flexible else encoded
