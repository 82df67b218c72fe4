"""What the leader of a partition says of one record, as a share group reads it.

By tagged fields of ours in DescribeProducers: another broker answers without them. Any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import error_code
from kbroker.peer.transaction_messages import AskedShare, encode_describe_producers
from kbroker.protocol import messages as tables
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.protocol.messages.describe_producers import ShareRecord
    from kbroker.protocol.wire import Reader


class AtLeader(NamedTuple):
    """`record`: None where no member has fetched from this leader, or the broker is another."""

    error: ErrorCode
    message: str | None
    record: ShareRecord | None


def record_at(client: Client, group_id: str, where: TopicPartition, offset: int) -> AtLeader:
    """KafkaError: the partition has no leader when the client's time is over, or the group is not
    to be described."""
    asked = AskedShare(group_id, offset)

    def attempt(left: Mapping[TopicPartition, Any]) -> dict[TopicPartition, AtLeader]:
        return client.cluster.ask_leaders(
            left, ApiKey.DESCRIBE_PRODUCERS, partial(_encode, asked), _decode
        )

    found: AtLeader = client.cluster.until_answered({where: None}, attempt)[where]
    if found.error is not ErrorCode.NONE:
        raise KafkaError(found.error, found.message or str(where))
    return found


def _encode(asked: AskedShare, version: int, partitions: Mapping[TopicPartition, Any]) -> bytes:
    return encode_describe_producers(version, partitions, asked)


def _decode(reader: Reader, version: int) -> dict[TopicPartition, AtLeader]:
    response = tables.describe_producers.Response.read(reader, version)
    return {
        TopicPartition(topic.name, each.partition_index): AtLeader(
            error_code(each.error_code),
            each.error_message,
            each.share_records[0] if each.share_records else None,
        )
        for topic in response.topics
        for each in topic.partitions
    }
