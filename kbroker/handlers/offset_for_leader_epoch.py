"""OffsetForLeaderEpoch (23): how far did the log come in leader epoch N?

A client or follower that knows offset and epoch of its position finds out whether the log still
holds what it has read. The answer is the largest epoch at or below the one asked, and where the
next one begins; for the current epoch that is the end of the log. If the log has no such epoch,
there is no error, but epoch and offset are -1.

Every partition has its own error: 3 and 6 for one that is not there or not led here, 56 if its log
has failed, 74 and 75 if the client's *current* epoch is older or newer than ours. A partition that
is asked twice is answered twice.

Any handler thread; holds no lock: the epochs are one list that is replaced and never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied, may_on_cluster
from kbroker.handlers.services import led_replica
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.offset_for_leader_epoch import (
        EpochEndOffset,
        OffsetForLeaderPartition,
        Request,
        Response,
    )


def handle(services: Services, call: Call[Request]) -> None:
    # The leader answers every replica id.
    table = messages.offset_for_leader_epoch
    hidden: frozenset[str] = frozenset()
    if not may_on_cluster(services, call, Operation.CLUSTER_ACTION, quiet=True):
        names = [topic.topic for topic in call.message.topics]
        hidden = denied(services, call, Operation.DESCRIBE, ResourceType.TOPIC, names)
    topics = [
        table.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                table.EpochEndOffset(
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=partition.partition
                )
                if topic.topic in hidden
                else _end(services, topic.topic, partition)
                for partition in topic.partitions
            ],
        )
        # Those that the client may not describe come last.
        for topic in sorted(call.message.topics, key=lambda topic: topic.topic in hidden)
    ]
    call.answer(table.Response(topics=topics))


def _end(services: Services, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    table = messages.offset_for_leader_epoch
    try:
        replica = led_replica(services, topic, asked.partition, asked.current_leader_epoch)
    except KafkaError as error:
        return table.EpochEndOffset(error_code=error.code, partition=asked.partition)
    epoch, end_offset = replica.epochs.end_offset_for(asked.leader_epoch, replica.log_end_offset)
    return table.EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=asked.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """A partition that is asked twice is answered twice, without the epoch that was asked."""
    table = messages.offset_for_leader_epoch
    topics = [
        table.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                table.EpochEndOffset(error_code=code, partition=asked.partition)
                for asked in topic.partitions
            ],
        )
        for topic in call.message.topics
    ]
    return table.Response(topics=topics)
