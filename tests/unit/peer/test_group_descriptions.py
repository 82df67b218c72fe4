"""Groups of every type as one kind of value."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer import group_descriptions as module
from kbroker.peer.consumer_protocol import encode_assignment, encode_subscription
from kbroker.protocol import messages as tables
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey, TopicPartition

A0, B1 = TopicPartition("a", 0), TopicPartition("b", 1)


def reader_of(response: Any, api_key: ApiKey, version: int) -> Reader:
    return Reader(response.encode(version), flexible=is_flexible(api_key, version))


def test_a_classic_group() -> None:
    table = tables.describe_groups
    member = {"member_id": "m", "group_instance_id": "i", "client_id": "c", "client_host": "/h"}
    sound = table.DescribedGroupMember(
        **member,
        member_metadata=encode_subscription(["a"]),
        member_assignment=encode_assignment([A0]),
    )
    broken = table.DescribedGroupMember(
        **member, member_metadata=b"\0", member_assignment=b"\xff" * 9
    )
    # As it is described during a rebalance.
    moving = table.DescribedGroupMember(
        **member, member_metadata=b"", member_assignment=encode_assignment([A0])
    )
    group = table.DescribedGroup(
        error_code=0, group_id="g", group_state="Stable", protocol_type="consumer",
        protocol_data="range", members=[sound, broken, moving],
    )  # fmt: skip
    response = table.Response(groups=[group])
    found = module.decode_classic(reader_of(response, ApiKey.DESCRIBE_GROUPS, 5), 5)["g"]
    assert (found.kind, found.state, found.protocol, found.epoch) == (
        "classic", "Stable", "range", -1,
    )  # fmt: skip
    assert found.members == (
        ("m", "i", "c", "/h", -1, ("a",), (A0,), (), ()),
        ("m", "i", "c", "/h", -1, (), (), (), ()),
        ("m", "i", "c", "/h", -1, (), (A0,), (), ()),
    )


def test_a_consumer_group() -> None:
    table = tables.consumer_group_describe
    assignment = table.Assignment(
        topic_partitions=[table.TopicPartitions(topic_id=None, topic_name="b", partitions=[1])]
    )
    target = table.Assignment(
        topic_partitions=[table.TopicPartitions(topic_id=None, topic_name="a", partitions=[0])]
    )
    member = table.Member(
        member_id="m", member_epoch=3, client_id="c", client_host="/h",
        subscribed_topic_names=["a"], subscribed_topic_regex="b.*", assignment=assignment,
        target_assignment=target,
    )  # fmt: skip
    group = table.DescribedGroup(
        error_code=0, group_id="g", group_state="Assigning", group_epoch=4, assignment_epoch=3,
        assignor_name="uniform", members=[member],
    )  # fmt: skip
    response = table.Response(groups=[group])
    found = module.decode_consumer(reader_of(response, ApiKey.CONSUMER_GROUP_DESCRIBE, 1), 1)["g"]
    assert (found.kind, found.protocol, found.epoch, found.assignment_epoch) == (
        "consumer", "uniform", 4, 3,
    )  # fmt: skip
    assert found.members == (("m", None, "c", "/h", 3, ("a", "b.*"), (B1,), (), (A0,)),)


def test_a_streams_group() -> None:
    table = tables.streams_group_describe
    nothing = table.Assignment(active_tasks=[], standby_tasks=[], warmup_tasks=[])
    tasks = table.Assignment(
        active_tasks=[table.TaskIds(subtopology_id="0", partitions=[1, 2])],
        standby_tasks=[],
        warmup_tasks=[],
    )
    member = table.Member(
        member_id="m", member_epoch=3, client_id="c", client_host="/h", topology_epoch=0,
        process_id="p", client_tags=[], task_offsets=[], task_end_offsets=[],
        assignment=tasks, target_assignment=nothing,
    )  # fmt: skip
    group = table.DescribedGroup(error_code=0, group_id="g", group_state="Stable", members=[member])
    response = table.Response(groups=[group])
    found = module.decode_streams(reader_of(response, ApiKey.STREAMS_GROUP_DESCRIBE, 0), 0)["g"]
    assert found.members[0].tasks == ("0_1", "0_2")


def test_a_coordinator_that_has_moved_is_raised() -> None:
    table = tables.share_group_describe
    group = table.DescribedGroup(error_code=ErrorCode.NOT_COORDINATOR, group_id="g", members=[])
    response = table.Response(groups=[group])
    with pytest.raises(KafkaError) as raised:
        module.decode_share(reader_of(response, ApiKey.SHARE_GROUP_DESCRIBE, 1), 1)
    assert raised.value.code is ErrorCode.NOT_COORDINATOR
