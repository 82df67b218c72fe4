"""Metadata as perf asks for it and reads it, against the message schemas of kio."""

from __future__ import annotations

import datetime
import uuid
from io import BytesIO
from typing import Any

import pytest
from kio.schema.create_topics.v4.request import CreateTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import request as asked
from kio.schema.metadata.v12 import response as answers
from kio.serial import entity_reader, entity_writer

from perf import metadata
from perf.client import Client, ClientError
from perf.wire import Reader, WireError
from tests.unit.perf.fake import FakeBroker

TOPIC_ID = uuid.UUID(int=7)
HEADER_BYTES = 4 + 8 + 2 + len("kbroker-perf")


def partition(number: int, leader: int, in_sync: tuple[int, ...], code: int = 0) -> Any:
    return answers.MetadataResponsePartition(
        error_code=ErrorCode(code),
        partition_index=number,
        leader_id=leader,
        leader_epoch=3,
        replica_nodes=(1, 2),
        isr_nodes=in_sync,
        offline_replicas=(),
    )


def answer(*partitions: Any, code: int = 0) -> bytes:
    topic = answers.MetadataResponseTopic(
        error_code=ErrorCode(code),
        name="orders",
        topic_id=TOPIC_ID,
        is_internal=False,
        partitions=partitions,
        topic_authorized_operations=0,
    )
    brokers = tuple(
        answers.MetadataResponseBroker(node_id=node, host="a", port=9, rack=None) for node in (1, 2)
    )
    whole = answers.MetadataResponse(
        throttle_time=datetime.timedelta(0),
        brokers=brokers,
        cluster_id="c",
        controller_id=2,
        topics=(topic,),
    )
    out = BytesIO()
    entity_writer(answers.MetadataResponse)(out, whole)
    return out.getvalue()


@pytest.mark.parametrize("names", [None, [], ["a", "orders-eu"]])
def test_the_request_that_is_sent(names: list[str] | None) -> None:
    body = metadata.question(names)
    found, size = entity_reader(asked.MetadataRequest)(body, 0)
    assert size == len(body)
    assert (None if found.topics is None else [each.name for each in found.topics]) == names
    assert not found.allow_auto_topic_creation


def test_the_answer_that_is_read() -> None:
    state = metadata.read(Reader(answer(partition(0, 1, (1, 2)), partition(1, -1, ())), True))
    assert (state.brokers, state.controller) == ((1, 2), 2)
    (topic,) = state.topics
    assert (topic.code, topic.name, topic.topic_id) == (0, "orders", TOPIC_ID.bytes)
    assert list(state.partitions) == [(0, 0, 1, (1, 2), (1, 2)), (0, 1, -1, (1, 2), ())]
    assert topic.missing == 5


@pytest.mark.parametrize(
    ("data", "missing"),
    [
        (answer(partition(0, 1, (1,))), 0),
        (answer(partition(0, 1, (1,)), partition(1, 1, (1,), code=9)), 9),
        (answer(code=3), 3),
        (answer(), 3),
    ],
)
def test_states_that_keep_a_topic_from_being_used(data: bytes, missing: int) -> None:
    (topic,) = metadata.read(Reader(data, True)).topics
    assert topic.missing == missing


def test_an_answer_that_ends_too_soon() -> None:
    whole = answer(partition(0, 1, (1, 2)))
    for size in range(len(whole) - 1):
        with pytest.raises(WireError):
            metadata.read(Reader(whole[:size], True))


@pytest.mark.parametrize(
    ("replicas", "shape"), [((), (2, 1, ())), ((3, 1), (-1, -1, ((0, (3, 1)), (1, (3, 1)))))]
)
def test_topics_on_chosen_brokers(replicas: tuple[int, ...], shape: Any) -> None:
    refused = b"\0\0\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\0\x24" + b"\xff\xff"
    with (
        FakeBroker(lambda number, frame: refused) as broker,
        Client("127.0.0.1", broker.port) as client,
        pytest.raises(ClientError, match="36"),
    ):
        client.create_topics(["t"], 2, replicas=replicas)
    found, _ = entity_reader(CreateTopicsRequest)(broker.frames[0][HEADER_BYTES:], 0)
    (topic,) = found.topics
    chosen = tuple((one.partition_index, tuple(one.broker_ids)) for one in topic.assignments)
    assert (topic.num_partitions, topic.replication_factor, chosen) == shape
