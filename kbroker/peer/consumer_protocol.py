"""What consumers tell each other through a group: subscriptions and assignments, and who gets what.

The broker carries these bytes and does not read them; every client of the protocol type "consumer"
writes them alike (KIP-429 and its successors added fields after these ones, which are left
alone). They came from other clients, so they are read as carefully as anything else.

Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kbroker.peer.messages import write_by_topic
from kbroker.protocol.wire import ProtocolError, Reader, Writer
from kbroker.types import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
RANGE: Final = "range"


def encode_subscription(topics: Sequence[str]) -> bytes:
    """Version 0: the topics, no user data."""
    writer = Writer(flexible=False)
    writer.int16(0)
    writer.array(len(topics))
    for topic in topics:
        writer.string(topic)
    writer.array(None)  # user data: null bytes, whose length looks like an array's
    return writer.getvalue()


def decode_subscription(data: bytes) -> list[str]:
    reader = Reader(data, flexible=False)
    _version(reader)
    return [reader.string() for _ in range(reader.array())]


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Version 0: partitions by topic, no user data."""
    writer = Writer(flexible=False)
    writer.int16(0)
    write_by_topic(writer, partitions)
    writer.array(None)
    return writer.getvalue()


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """No bytes are no partitions: so it is while a group rebalances."""
    if not data:
        return []
    reader = Reader(data, flexible=False)
    _version(reader)
    partitions: list[TopicPartition] = []
    for _ in range(reader.array()):
        topic = reader.string()
        partitions += [TopicPartition(topic, reader.int32()) for _ in range(reader.array())]
    return partitions


def _version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise ProtocolError(f"version {version} of the consumer protocol")
    return version


def assign_range(
    subscriptions: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Partitions by member, as the Java client's RangeAssignor shares them out.

    `subscriptions`: member -> topics; `counts`: topic -> partitions (absent or 0: not there).
    Topic by topic, its subscribers in the order of their ids get a run of partitions each, the
    first ones one more where it does not come out even.
    """
    shares: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        each, more = divmod(counts.get(topic, 0), len(members))
        begin = 0
        for position, member in enumerate(members):
            end = begin + each + (1 if position < more else 0)
            shares[member] += [TopicPartition(topic, index) for index in range(begin, end)]
            begin = end
    return shares
