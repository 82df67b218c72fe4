"""AlterPartition (56) between brokers: values of the controller as records, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.partition_states import InSyncChange
from kbroker.metadata.image import ZERO_UUID
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.metadata.image import PartitionImage

R = TypeVar("R")


def request_of(
    leader: int, broker_epoch: int, changes: Sequence[InSyncChange]
) -> messages.alter_partition.Request:
    table = messages.alter_partition
    partitions = [
        table.Partition(
            partition_index=change.partition,
            leader_epoch=change.leader_epoch,
            new_isr_with_epochs=[
                table.BrokerState(broker_id=node_id, broker_epoch=epoch)
                for node_id, epoch in change.in_sync.items()
            ],
            partition_epoch=change.partition_epoch,
        )
        for change in changes
    ]
    topics = [
        table.Topic(topic_id=topic_id, partitions=some)
        for topic_id, some in _by_topic(changes, partitions).items()
    ]
    return table.Request(broker_id=leader, broker_epoch=broker_epoch, topics=topics)


def changes_of(request: messages.alter_partition.Request) -> tuple[InSyncChange, ...]:
    return tuple(
        InSyncChange(
            topic.topic_id or ZERO_UUID,
            each.partition_index,
            each.leader_epoch,
            each.partition_epoch,
            {member.broker_id: member.broker_epoch for member in each.new_isr_with_epochs},
        )
        for topic in request.topics
        for each in topic.partitions
    )


def response_of(
    changes: Sequence[InSyncChange], results: Iterable[PartitionImage | KafkaError]
) -> messages.alter_partition.Response:
    """Each partition as it is now, or the error. An error of the request is every partition's: the
    broker is not the controller, or not known."""
    table = messages.alter_partition
    partitions = [_result(*each) for each in zip(changes, results, strict=True)]
    topics = [
        table.TopicResult(topic_id=topic_id, partitions=some)
        for topic_id, some in _by_topic(changes, partitions).items()
    ]
    return table.Response(topics=topics)


def _result(
    change: InSyncChange, result: PartitionImage | KafkaError
) -> messages.alter_partition.PartitionResult:
    table = messages.alter_partition
    if isinstance(result, KafkaError):
        return table.PartitionResult(partition_index=change.partition, error_code=result.code)
    return table.PartitionResult(
        partition_index=change.partition,
        error_code=ErrorCode.NONE,
        leader_id=result.leader,
        leader_epoch=result.leader_epoch,
        isr=list(result.isr),
        partition_epoch=result.partition_epoch,
    )


def errors_of(response: messages.alter_partition.Response) -> Mapping[tuple[UUID, int], ErrorCode]:
    """By topic id and partition."""
    return {
        (topic.topic_id or ZERO_UUID, each.partition_index): ErrorCode.for_code(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }


def _by_topic(changes: Sequence[InSyncChange], records: Sequence[R]) -> dict[UUID, list[R]]:
    topics: dict[UUID, list[R]] = {}
    for change, record in zip(changes, records, strict=True):
        topics.setdefault(change.topic_id, []).append(record)
    return topics
