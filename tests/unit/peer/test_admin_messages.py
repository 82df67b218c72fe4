"""CreatePartitions and DeleteRecords of our client, against kio in both directions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode
from kbroker.peer import admin_messages as messages
from kbroker.peer.versions import VERSIONS
from kbroker.protocol.versions import SERVED, is_flexible
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey
from tests.unit.peer.fake_broker import kio_error, make, module
from tests.unit.peer.test_messages import A0, A1, B0, none, read_request, reader_of, versions


def test_we_speak_the_versions_that_we_serve() -> None:
    for api in (ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_RECORDS):
        assert VERSIONS[api] == SERVED[api][:2]


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
def test_create_partitions_request(version: int) -> None:
    body = messages.encode_create_partitions(
        version, {"a": 3, "b": 9}, timeout_ms=1500, validate_only=True
    )
    request = read_request(ApiKey.CREATE_PARTITIONS, version, body)
    assert [(topic.name, topic.count, topic.assignments) for topic in request.topics] == [
        ("a", 3, None),
        ("b", 9, None),
    ]
    assert request.timeout == timedelta(milliseconds=1500) and request.validate_only


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
def test_create_partitions_response(version: int) -> None:
    where = module(ApiKey.CREATE_PARTITIONS, version, "response")
    refusal = kio_error(ErrorCode.INVALID_PARTITIONS)
    results = (
        make(where, "CreatePartitionsTopicResult", name="a", error_code=none(), error_message=None),
        make(
            where, "CreatePartitionsTopicResult", name="b", error_code=refusal, error_message="no"
        ),
    )
    response = make(where, "CreatePartitionsResponse", throttle_time=timedelta(0), results=results)
    reader = reader_of(ApiKey.CREATE_PARTITIONS, version, response)
    assert messages.decode_create_partitions(reader, version) == [
        ("a", ErrorCode.NONE, None),
        ("b", ErrorCode.INVALID_PARTITIONS, "no"),
    ]


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_delete_records_request(version: int) -> None:
    offsets = {A0: 5, B0: messages.TO_HIGH_WATERMARK, A1: 2**40}
    body = messages.encode_delete_records(version, offsets, timeout_ms=1500)
    request = read_request(ApiKey.DELETE_RECORDS, version, body)
    assert [
        (topic.name, [(each.partition_index, each.offset) for each in topic.partitions])
        for topic in request.topics
    ] == [("a", [(0, 5), (1, 2**40)]), ("b", [(0, -1)])]
    assert request.timeout == timedelta(milliseconds=1500)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_delete_records_response(version: int) -> None:
    where = module(ApiKey.DELETE_RECORDS, version, "response")

    def partition(index: int, low_watermark: int, error: Any) -> Any:
        return make(
            where,
            "DeleteRecordsPartitionResult",
            partition_index=index,
            low_watermark=low_watermark,
            error_code=error,
        )

    refused = kio_error(ErrorCode.OFFSET_OUT_OF_RANGE)
    topics = (
        make(
            where,
            "DeleteRecordsTopicResult",
            name="a",
            partitions=(partition(0, 5, none()), partition(1, -1, refused)),
        ),
    )
    response = make(where, "DeleteRecordsResponse", throttle_time=timedelta(0), topics=topics)
    reader = reader_of(ApiKey.DELETE_RECORDS, version, response)
    assert messages.decode_delete_records(reader, version) == {
        A0: (ErrorCode.NONE, 5),
        A1: (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
    }


@pytest.mark.parametrize(
    ("api", "decode"),
    [
        (ApiKey.CREATE_PARTITIONS, messages.decode_create_partitions),
        (ApiKey.DELETE_RECORDS, messages.decode_delete_records),
    ],
)
@settings(deadline=None)  # the first example imports a library
@given(data=st.binary(max_size=80), high=st.booleans())
def test_hostile_responses_end_in_a_protocol_error(
    api: ApiKey, decode: Any, data: bytes, high: bool
) -> None:
    version = VERSIONS[api][1 if high else 0]
    try:
        decode(Reader(data, flexible=is_flexible(api, version)), version)
    except ProtocolError:
        pass  # an answer; anything else is a defect
