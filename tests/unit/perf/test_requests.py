"""Templates and set-up requests against the message schemas of kio."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.schema.fetch.v4.request import FetchRequest as FetchRequestV4
from kio.schema.fetch.v18.request import FetchRequest as FetchRequestV18
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.produce.v7.request import ProduceRequest as ProduceRequestV7
from kio.schema.produce.v13.request import ProduceRequest as ProduceRequestV13
from kio.serial import entity_reader

from perf import batch, requests
from perf.requests import Topic
from perf.spec import Connection, Partition, Run, Stream
from tests.unit.perf.fake import Recorder

TOPIC = Topic("perf-topic", uuid.uuid4().bytes, 3)
HEADER_BYTES = {1: 4 + 8 + 2 + len("kbroker-perf"), 2: 4 + 8 + 2 + len("kbroker-perf") + 1}


def decode(entity: Any, body: bytes) -> Any:
    value, size = entity_reader(entity)(body, 0)
    assert size == len(body), "nothing is left over"
    return value


def _produce(version: int, idempotent: bool) -> Connection:
    body = batch.of_records(100)
    pairs = [(Partition(index), body) for index in range(3)]
    return requests.produce(version, TOPIC, pairs, acks=-1, idempotent=idempotent)


@pytest.mark.parametrize(
    ("version", "entity", "header"), [(7, ProduceRequestV7, 1), (13, ProduceRequestV13, 2)]
)
def test_produce_templates(version: int, entity: Any, header: int) -> None:
    made = _produce(version, version == 13)
    assert int.from_bytes(made.frame[:4], "big") == len(made.frame) - 4
    request = decode(entity, made.frame[HEADER_BYTES[header] :])
    assert (request.acks, request.transactional_id) == (-1, None)
    (topic,) = request.topic_data
    if version == 13:
        assert topic.topic_id.bytes == TOPIC.topic_id
    else:
        assert topic.name == TOPIC.name
    assert [part.index for part in topic.partition_data] == [0, 1, 2]
    expected = batch.of_records(100).data
    for place, part in zip(made.batches, topic.partition_data, strict=True):
        assert bytes(part.records) == expected
        assert made.frame[place.at : place.at + place.size] == expected


@pytest.mark.parametrize(
    ("version", "entity", "header"), [(4, FetchRequestV4, 1), (18, FetchRequestV18, 2)]
)
def test_fetch_requests_that_c_writes(version: int, entity: Any, header: int) -> None:
    with Recorder() as recorder:
        connection = requests.fetch(
            version, TOPIC, [Partition(i, fetch_offset=10 + i, end_offset=99) for i in range(3)]
        )
        stream = Stream(
            "fetch",
            version,
            (connection,),
            max_wait_ms=123,
            max_bytes=1 << 20,
            partition_max_bytes=4096,
            session=version == 18,
        )
        (frame,) = recorder.frames_of(Run("127.0.0.1", recorder.port, (stream,), stall_s=1))
    request = decode(entity, frame[HEADER_BYTES[header] :])
    assert (request.min_bytes, request.max_bytes) == (1, 1 << 20)
    (topic,) = request.topics
    assert [part.partition for part in topic.partitions] == [0, 1, 2]
    assert [part.fetch_offset for part in topic.partitions] == [10, 11, 12]
    if version == 18:
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert topic.topic_id.bytes == TOPIC.topic_id
    else:
        assert topic.topic == TOPIC.name


def test_metadata_of_all_topics() -> None:
    request = decode(MetadataRequest, requests.metadata_of_all_topics().frame[HEADER_BYTES[2] :])
    assert request.topics is None
    assert not request.allow_auto_topic_creation
