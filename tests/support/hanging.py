"""A transaction that no coordinator has: a batch of one, sent to a broker that does not verify."""

from __future__ import annotations

from typing import Final

from kbroker.peer.address import parse_addresses
from kbroker.peer.client import Client
from kbroker.protocol import messages
from kbroker.protocol.record_batch import Record, encode_batch
from kbroker.types import ApiKey, TopicPartition

PRODUCER_ID: Final = 4_000
VERIFIES: Final = "transaction.partition.verification.enable"
VALUE: Final = b"lost"


def write(bootstrap: str, partition: TopicPartition, timestamp_ms: int, sequence: int = 0) -> int:
    """One record of PRODUCER_ID in epoch 0; the error code of the response."""
    batch = encode_batch(
        [Record(key=None, value=VALUE, timestamp_ms=timestamp_ms)],
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    table = messages.produce
    data = table.PartitionData(index=partition.partition, records=batch)
    request = table.Request(
        transactional_id="ghost",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[table.TopicData(name=partition.topic, partition_data=[data])],
    )
    with Client(bootstrap) as client:
        answer = client.cluster.ask(
            parse_addresses(bootstrap)[0], ApiKey.PRODUCE, request.encode, table.Response.read
        )
    return int(answer.responses[0].partition_responses[0].error_code)
