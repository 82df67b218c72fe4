"""The messages about share groups in every version that we speak, against kio."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer import share_group_messages as messages
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey, TopicPartition
from tests.unit.peer.fake_answers import NO_TIME, kio_error, make
from tests.unit.peer.fake_broker import module
from tests.unit.peer.test_messages import read_request, reader_of, versions

DESCRIBE, OFFSETS = ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
REFUSALS = [
    ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED,
]  # fmt: skip


def groups_of(version: int, error: ErrorCode = ErrorCode.NONE) -> Reader:
    where = module(DESCRIBE, version, "response")
    topics = make(where, "TopicPartitions", topic_id=UUID(int=1), topic_name="t", partitions=(0, 2))
    member = make(
        where, "Member", member_id="m", rack_id=None, member_epoch=3, client_id="c",
        client_host="/h", subscribed_topic_names=("t",),
        assignment=make(where, "Assignment", topic_partitions=(topics,)),
    )  # fmt: skip
    group = make(
        where, "DescribedGroup", error_code=kio_error(error), error_message=None, group_id="g",
        group_state="Stable", group_epoch=3, assignment_epoch=3, assignor_name="simple",
        members=(member,), authorized_operations=0,
    )  # fmt: skip
    name = "ShareGroupDescribeResponse"
    return reader_of(DESCRIBE, version, make(where, name, throttle_time=NO_TIME, groups=(group,)))


def offsets_of(version: int, error: ErrorCode = ErrorCode.NONE) -> Reader:
    where = module(OFFSETS, version, "response")
    rows: tuple[Any, ...] = tuple(
        make(
            where, "DescribeShareGroupOffsetsResponsePartition", partition_index=index,
            start_offset=start, leader_epoch=0, lag=lag, error_code=kio_error(code),
            error_message=None,
        )
        for index, start, lag, code in (
            (0, 4, 2, ErrorCode.NONE), (1, -1, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        )
    )  # fmt: skip
    topic = make(
        where, "DescribeShareGroupOffsetsResponseTopic", topic_name="t", topic_id=UUID(int=1),
        partitions=rows,
    )  # fmt: skip
    group = make(
        where, "DescribeShareGroupOffsetsResponseGroup", group_id="g", topics=(topic,),
        error_code=kio_error(error), error_message=None,
    )  # fmt: skip
    name = "DescribeShareGroupOffsetsResponse"
    return reader_of(OFFSETS, version, make(where, name, throttle_time=NO_TIME, groups=(group,)))


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_members(version: int) -> None:
    request = read_request(DESCRIBE, version, messages.encode_share_group_describe(version, "g"))
    assert (request.group_ids, request.include_authorized_operations) == (("g",), False)
    found = messages.decode_share_group_describe(groups_of(version), version)
    assert found == ("g", "Stable", "simple", (
        ("m", "c", "/h", (TopicPartition("t", 0), TopicPartition("t", 2))),
    ))  # fmt: skip


@pytest.mark.parametrize("version", versions(OFFSETS))
def test_offsets(version: int) -> None:
    request = read_request(OFFSETS, version, messages.encode_share_offsets(version, "g"))
    assert [(group.group_id, group.topics) for group in request.groups] == [("g", None)]
    assert messages.decode_share_offsets(offsets_of(version), version) == {
        TopicPartition("t", 0): (4, 2 if version else -1, ErrorCode.NONE),
        TopicPartition("t", 1): (-1, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    }


@pytest.mark.parametrize("error", REFUSALS)
def test_errors_of_a_group_are_raised(error: ErrorCode) -> None:
    for version in versions(OFFSETS):
        with pytest.raises(KafkaError) as raised:
            messages.decode_share_offsets(offsets_of(version, error), version)
        assert raised.value.code is error
    for version in versions(DESCRIBE):
        with pytest.raises(KafkaError) as raised:
            messages.decode_share_group_describe(groups_of(version, error), version)
        assert raised.value.code is error
