"""Fetch and ListOffsets as a follower speaks them, against kio, and hostile bytes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer._replica_fetch import decode_fetch, encode_fetch
from kbroker.peer.replica_fetch import (
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    Asked,
    FetchLimits,
    FetchMetadata,
    encode_list_offsets,
)
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey, TopicPartition
from tests.unit.peer.fake_broker import kio_bytes, kio_error, kio_read, make, module

ONE, TWO = UUID(int=1), UUID(int=2)
LIMITS = FetchLimits(max_wait_ms=500, min_bytes=1, max_bytes=1000, partition_max_bytes=100)


def test_a_fetch_names_its_follower_and_offsets() -> None:
    asked = [
        Asked(TWO, 3, 5, 1 << 40, 4, 7), Asked(ONE, 0, 9, 0, -1, 0), Asked(TWO, 1, 5, 1, 4, 7),
        Asked(ONE, 1, 9, 10, 8, 0),
    ]  # fmt: skip
    request_type = module(ApiKey.FETCH, FETCH_VERSION, "request").FetchRequest
    request = kio_read(request_type, encode_fetch(12, 1 << 33, asked, LIMITS))
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (12, 1 << 33)
    assert (request.max_wait, request.min_bytes) == (timedelta(milliseconds=500), 1)
    assert (request.max_bytes, request.isolation_level) == (1000, 0)
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert request.forgotten_topics_data == () and request.rack_id == ""
    found = [
        Asked(
            topic.topic_id, each.partition, each.current_leader_epoch, each.fetch_offset,
            each.last_fetched_epoch, each.log_start_offset,
        )
        for topic in request.topics for each in topic.partitions
    ]  # fmt: skip
    assert found == [asked[at] for at in (0, 2, 1, 3)]  # a topic once
    assert {each.partition_max_bytes for t in request.topics for each in t.partitions} == {100}


def test_a_fetch_in_a_session_names_it_and_forgotten_partitions() -> None:
    body = encode_fetch(
        12, 1, [Asked(ONE, 4, 0, 1, 0, 0)], LIMITS, FetchMetadata(77, 3),
        [(TWO, 1), (ONE, 0), (TWO, 5)],
    )  # fmt: skip
    request_type = module(ApiKey.FETCH, FETCH_VERSION, "request").FetchRequest
    request = kio_read(request_type, body)
    assert (request.session_id, request.session_epoch) == (77, 3)
    assert [(it.topic_id, it.partitions) for it in request.forgotten_topics_data] == [
        (TWO, (1, 5)),
        (ONE, (0,)),
    ]
    nothing = encode_fetch(12, 1, [], LIMITS, FetchMetadata(77, 4))
    assert kio_read(request_type, nothing).topics == () and len(nothing) < 50


def partition(index: int, **how: Any) -> Any:
    types = module(ApiKey.FETCH, FETCH_VERSION, "response")
    plain: dict[str, Any] = dict(
        partition_index=index, error_code=kio_error(ErrorCode.NONE), high_watermark=9,
        last_stable_offset=9, log_start_offset=2, aborted_transactions=None, records=None,
    )  # fmt: skip
    return make(types, "PartitionData", **{**plain, **how})


def response(*partitions: Any, error: ErrorCode = ErrorCode.NONE) -> bytes:
    types = module(ApiKey.FETCH, FETCH_VERSION, "response")
    topic = make(types, "FetchableTopicResponse", topic_id=ONE, partitions=partitions)
    return kio_bytes(
        make(types, "FetchResponse", throttle_time=timedelta(0), error_code=kio_error(error),
            session_id=9, responses=(topic,), node_endpoints=(),
        )
    )  # fmt: skip


def test_an_answer_s_records_are_views_of_its_frame() -> None:
    types = module(ApiKey.FETCH, FETCH_VERSION, "response")
    aborted = (make(types, "AbortedTransaction", producer_id=1, first_offset=2),)
    frame = response(
        partition(0, records=b"batches", aborted_transactions=aborted),
        partition(1, error_code=kio_error(ErrorCode.FENCED_LEADER_EPOCH)),
        partition(2, diverging_epoch=make(types, "EpochEndOffset", epoch=3, end_offset=40)),
        partition(3, records=b""),
    )
    answer = decode_fetch(Reader(frame, flexible=True))
    first, second, third, fourth = answer.partitions
    assert answer.session_id == 9
    assert first[:-1] == (ONE.int, 0, ErrorCode.NONE, 9, 2, None)
    assert first.records == b"batches" and first.records.obj is frame
    assert (second.partition, second.error) == (1, ErrorCode.FENCED_LEADER_EPOCH)
    assert third.diverging == (3, 40) and third.records is None
    assert fourth.records == b""


@pytest.mark.parametrize(("epoch", "end"), [(-1, -1), (-1, 5), (5, -1)])
def test_a_divergence_without_a_place_is_none(epoch: int, end: int) -> None:
    types = module(ApiKey.FETCH, FETCH_VERSION, "response")
    where = make(types, "EpochEndOffset", epoch=epoch, end_offset=end)
    frame = response(partition(0, diverging_epoch=where))
    (found,) = decode_fetch(Reader(frame, flexible=True)).partitions
    assert found.diverging is None


def test_a_refused_fetch_raises() -> None:
    frame = response(error=ErrorCode.STALE_BROKER_EPOCH)
    with pytest.raises(KafkaError) as caught:
        decode_fetch(Reader(frame, flexible=True))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_list_offsets_is_asked_as_a_replica() -> None:
    epochs = {TopicPartition("a", 1): 4, TopicPartition("b", 0): 5, TopicPartition("a", 0): 6}
    request_type = module(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, "request").ListOffsetsRequest
    request = kio_read(request_type, encode_list_offsets(3, epochs, -2))
    assert request.replica_id == 3
    assert {
        TopicPartition(topic.name, each.partition_index): each.current_leader_epoch
        for topic in request.topics for each in topic.partitions
    } == epochs  # fmt: skip
    assert {each.timestamp for t in request.topics for each in t.partitions} == {-2}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_hostile_answers_are_refused_or_read(data: st.DataObject) -> None:
    frame = bytearray(response(partition(0, records=b"batches"), partition(1)))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(0, len(frame)))])
    try:
        decode_fetch(Reader(cut, flexible=True))
    except (ProtocolError, KafkaError):
        pass
