"""All records of a topic, read with our own client: what a test's broker really holds."""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.peer.client import Client
from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kbroker.protocol.record_batch import Record, RecordBatch, decode_batches
from kbroker.types import TopicPartition


def batches(bootstrap: str, topic: str, partition: int = 0) -> list[RecordBatch]:
    """From the first to the last of the time of the call."""
    where = TopicPartition(topic, partition)
    found: list[RecordBatch] = []
    with Client(bootstrap) as client:
        client.partitions(topic)
        position = client.list_offsets({where: EARLIEST_TIMESTAMP})[where].offset
        end = client.list_offsets({where: LATEST_TIMESTAMP})[where].offset
        while position < end:
            result = client.fetch({where: position})[where]
            assert result.error is ErrorCode.NONE, result.error
            for batch in decode_batches(result.records):
                found.append(batch)
                position = batch.last_offset + 1
    return found


def records(bootstrap: str, topic: str, partition: int = 0) -> list[Record]:
    return [record for batch in batches(bootstrap, topic, partition) for record in batch.records]
