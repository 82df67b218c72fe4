"""ControlledShutdown (7), between brokers: a broker that is about to stop asks for other leaders.

The response has the partitions that the broker still leads, though others have replicas that may
come to lead.
"""

from __future__ import annotations

from kbroker.protocol.messages.table import Message, Record, array, int16, int32, int64, string
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.CONTROLLED_SHUTDOWN, versions=(3, 3)):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class RemainingPartition(Record):
    topic_name: str = string()
    partition_index: int = int32()


class Response(Message, api=ApiKey.CONTROLLED_SHUTDOWN, versions=(3, 3)):
    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition, default=())
