"""AlterPartition (56) between brokers: a leader asks the controller for other in-sync sets.

Version 3 of Apache Kafka's request (KIP-497, KIP-841, KIP-903): each member comes with the epoch
under which the leader saw it fetch. The answer has each partition as it is now, or why not. Bytes
from a peer are not trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from kbroker.errors import ErrorCode
from kbroker.metadata.controller.partition_states import InSyncChange
from kbroker.metadata.image import ZERO_UUID
from kbroker.protocol.wire import Reader, Writer

T = TypeVar("T", bound="InSyncChange | InSyncAnswer")

_RECOVERED: Final = 0  # the leader has found all of its log: there is nothing else here


class InSyncAsked(NamedTuple):
    leader: int
    broker_epoch: int
    changes: tuple[InSyncChange, ...]


class InSyncAnswer(NamedTuple):
    """Of one partition: as it is now, where there is no error."""

    topic_id: UUID
    partition: int
    error: ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    in_sync: tuple[int, ...] = ()
    partition_epoch: int = -1


def encode_asked(asked: InSyncAsked) -> bytes:
    writer = Writer(flexible=True)
    writer.int32(asked.leader)
    writer.int64(asked.broker_epoch)
    topics = _by_topic(asked.changes)
    writer.array(len(topics))
    for topic_id, changes in topics.items():
        writer.uuid(topic_id)
        writer.array(len(changes))
        for change in changes:
            writer.int32(change.partition)
            writer.int32(change.leader_epoch)
            writer.array(len(change.in_sync))
            for node_id, broker_epoch in change.in_sync.items():
                writer.int32(node_id)
                writer.int64(broker_epoch)
                writer.tags()
            writer.int8(_RECOVERED)
            writer.int32(change.partition_epoch)
            writer.tags()
        writer.tags()
    writer.tags()
    return writer.getvalue()


def decode_asked(body: bytes) -> InSyncAsked:
    """Raises ProtocolError."""
    reader = Reader(body, flexible=True)
    leader, broker_epoch = reader.int32(), reader.int64()
    changes: list[InSyncChange] = []
    for _ in range(reader.array()):
        topic_id = reader.uuid() or ZERO_UUID
        changes += [_change(reader, topic_id) for _ in range(reader.array())]
        reader.tags()
    reader.tags()
    return InSyncAsked(leader, broker_epoch, tuple(changes))


def _change(reader: Reader, topic_id: UUID) -> InSyncChange:
    partition, leader_epoch = reader.int32(), reader.int32()
    in_sync: dict[int, int] = {}
    for _ in range(reader.array()):
        node_id = reader.int32()
        in_sync[node_id] = reader.int64()
        reader.tags()
    reader.int8()
    partition_epoch = reader.int32()
    reader.tags()
    return InSyncChange(topic_id, partition, leader_epoch, partition_epoch, in_sync)


def encode_answers(error: ErrorCode, answers: Sequence[InSyncAnswer]) -> bytes:
    """`error` is one for the whole request."""
    writer = Writer(flexible=True)
    writer.int32(0)  # throttle time
    writer.int16(error)
    topics = _by_topic(answers)
    writer.array(len(topics))
    for topic_id, partitions in topics.items():
        writer.uuid(topic_id)
        writer.array(len(partitions))
        for each in partitions:
            writer.int32(each.partition)
            writer.int16(each.error)
            writer.int32(each.leader)
            writer.int32(each.leader_epoch)
            writer.array(len(each.in_sync))
            for node_id in each.in_sync:
                writer.int32(node_id)
            writer.int8(_RECOVERED)
            writer.int32(each.partition_epoch)
            writer.tags()
        writer.tags()
    writer.tags()
    return writer.getvalue()


def decode_answers(body: bytes) -> tuple[ErrorCode, list[InSyncAnswer]]:
    """Raises ProtocolError."""
    reader = Reader(body, flexible=True)
    reader.int32()
    error = ErrorCode.for_code(reader.int16())
    answers: list[InSyncAnswer] = []
    for _ in range(reader.array()):
        topic_id = reader.uuid() or ZERO_UUID
        answers += [_answer(reader, topic_id) for _ in range(reader.array())]
        reader.tags()
    reader.tags()
    return error, answers


def _answer(reader: Reader, topic_id: UUID) -> InSyncAnswer:
    partition, error = reader.int32(), ErrorCode.for_code(reader.int16())
    leader, leader_epoch = reader.int32(), reader.int32()
    in_sync = tuple(reader.int32() for _ in range(reader.array()))
    reader.int8()
    partition_epoch = reader.int32()
    reader.tags()
    return InSyncAnswer(topic_id, partition, error, leader, leader_epoch, in_sync, partition_epoch)


def _by_topic(each_of: Iterable[T]) -> dict[UUID, list[T]]:
    found: dict[UUID, list[T]] = {}
    for each in each_of:
        found.setdefault(each.topic_id, []).append(each)
    return found
