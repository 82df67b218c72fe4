"""The messages about groups in every version that we speak, against kio."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer import group_messages as messages
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey, TopicPartition
from tests.unit.peer.fake_answers import NO_TIME, kio_error, make
from tests.unit.peer.fake_broker import module
from tests.unit.peer.test_messages import none, read_request, reader_of, versions

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
FIND, LIST, DESCRIBE = ApiKey.FIND_COORDINATOR, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS
FETCH, COMMIT = ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT
DELETE, FORGET = ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE
DECODERS = {
    FIND: messages.decode_find_coordinator,
    LIST: messages.decode_list_groups,
    DESCRIBE: messages.decode_describe_groups,
    FETCH: messages.decode_offset_fetch,
    COMMIT: messages.decode_offset_commit,
    DELETE: messages.decode_delete_groups,
    FORGET: messages.decode_offset_delete,
}


def topics_of(request: Any) -> list[tuple[str, list[Any]]]:
    return [(topic.name, list(topic.partitions)) for topic in request.topics]


@pytest.mark.parametrize("version", versions(FIND))
def test_find_coordinator(version: int) -> None:
    request = read_request(FIND, version, messages.encode_find_coordinator(version, "g"))
    assert (request.key, request.key_type) == ("g", 0)

    def answer(error: ErrorCode) -> Reader:
        entity = make(
            module(FIND, version, "response"),
            "FindCoordinatorResponse",
            throttle_time=NO_TIME,
            error_code=kio_error(error),
            error_message=None,
            node_id=3,
            host="h",
            port=9,
        )
        return reader_of(FIND, version, entity)

    assert messages.decode_find_coordinator(answer(ErrorCode.NONE), version) == (3, "h", 9)
    with pytest.raises(KafkaError) as raised:
        messages.decode_find_coordinator(answer(ErrorCode.COORDINATOR_NOT_AVAILABLE), version)
    assert raised.value.code.retriable


@pytest.mark.parametrize("version", versions(LIST))
def test_list_groups(version: int) -> None:
    body = messages.encode_list_groups(version, ["Stable"])
    request = read_request(LIST, version, body)
    assert getattr(request, "states_filter", ("Stable",)) == ("Stable",)
    where = module(LIST, version, "response")
    group = make(
        where,
        "ListedGroup",
        group_id="g",
        protocol_type="consumer",
        group_state="Stable",
        group_type="classic",
    )
    entity = make(
        where, "ListGroupsResponse", throttle_time=NO_TIME, error_code=none(), groups=(group,)
    )
    listed = messages.decode_list_groups(reader_of(LIST, version, entity), version)
    state, group_type = "Stable" if version >= 4 else "", "classic" if version >= 5 else ""
    assert listed == [("g", "consumer", state, group_type)]


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_describe_groups(version: int) -> None:
    body = messages.encode_describe_groups(version, ["g", "h"])
    assert read_request(DESCRIBE, version, body).groups == ("g", "h")
    where = module(DESCRIBE, version, "response")
    member = make(
        where,
        "DescribedGroupMember",
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/::1",
        member_metadata=b"meta",
        member_assignment=b"",
    )

    def answer(error: ErrorCode) -> Reader:
        group = make(
            where,
            "DescribedGroup",
            error_code=kio_error(error),
            error_message="gone" if error else None,
            group_id="g",
            group_state="Stable",
            protocol_type="consumer",
            protocol_data="range",
            members=(member, member),
            authorized_operations=-(2**31),
        )
        entity = make(where, "DescribeGroupsResponse", throttle_time=NO_TIME, groups=(group,))
        return reader_of(DESCRIBE, version, entity)

    (group,) = messages.decode_describe_groups(answer(ErrorCode.NONE), version)
    assert group[:2] == (ErrorCode.NONE, None)
    assert group[2:6] == ("g", "Stable", "consumer", "range")
    instance = "i" if version >= 4 else None
    assert group.members == (("m", instance, "c", "/::1", b"meta", b""),) * 2
    (gone,) = messages.decode_describe_groups(answer(ErrorCode.GROUP_ID_NOT_FOUND), version)
    assert gone.message == ("gone" if version >= 6 else None)
    with pytest.raises(KafkaError):
        messages.decode_describe_groups(answer(ErrorCode.NOT_COORDINATOR), version)


@pytest.mark.parametrize("version", versions(FETCH))
def test_offset_fetch(version: int) -> None:
    request = read_request(FETCH, version, messages.encode_offset_fetch(version, "g", [A0, B0, A1]))
    assert [(t.name, t.partition_indexes) for t in request.topics] == [("a", (0, 1)), ("b", (0,))]
    request = read_request(FETCH, version, messages.encode_offset_fetch(version, "g", None))
    assert (request.group_id, request.topics) == ("g", None)
    assert read_request(FETCH, version, messages.encode_offset_fetch(version, "g", [])).topics == ()
    where = module(FETCH, version, "response")

    def answer(error: ErrorCode) -> Reader:
        partition = make(
            where,
            "OffsetFetchResponsePartition",
            partition_index=1,
            committed_offset=2**40,
            committed_leader_epoch=5,
            metadata=None,
            error_code=kio_error(ErrorCode.UNSTABLE_OFFSET_COMMIT),
        )
        topic = make(where, "OffsetFetchResponseTopic", name="a", partitions=(partition,))
        entity = make(
            where,
            "OffsetFetchResponse",
            throttle_time=NO_TIME,
            topics=(topic,),
            error_code=kio_error(error),
        )
        return reader_of(FETCH, version, entity)

    epoch = 5 if version >= 5 else -1
    assert messages.decode_offset_fetch(answer(ErrorCode.NONE), version) == {
        A1: (2**40, epoch, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    }
    with pytest.raises(KafkaError):
        messages.decode_offset_fetch(answer(ErrorCode.NOT_COORDINATOR), version)


@pytest.mark.parametrize("version", versions(COMMIT))
def test_offset_commit(version: int) -> None:
    member = messages.MemberIdentity(7, "m", "i")
    body = messages.encode_offset_commit(version, "g", {A0: 1, B0: 2**40, A1: 0}, member)
    request = read_request(COMMIT, version, body)
    assert (request.group_id, request.member_id) == ("g", "m")
    assert request.generation_id_or_member_epoch == 7
    assert getattr(request, "group_instance_id", "i") == "i"
    offsets = [
        (topic, part.partition_index, part.committed_offset)
        for topic, parts in topics_of(request)
        for part in parts
    ]
    assert offsets == [("a", 0, 1), ("a", 1, 0), ("b", 0, 2**40)]
    errors = _partition_errors(COMMIT, version, "OffsetCommit", ErrorCode.ILLEGAL_GENERATION)
    assert messages.decode_offset_commit(errors, version) == {A1: ErrorCode.ILLEGAL_GENERATION}
    with pytest.raises(KafkaError):
        messages.decode_offset_commit(
            _partition_errors(COMMIT, version, "OffsetCommit", ErrorCode.NOT_COORDINATOR), version
        )


def _partition_errors(api: ApiKey, version: int, name: str, error: ErrorCode) -> Reader:
    where = module(api, version, "response")
    partition = make(
        where, f"{name}ResponsePartition", partition_index=1, error_code=kio_error(error)
    )
    topic = make(where, f"{name}ResponseTopic", name="a", partitions=(partition,))
    entity = make(
        where, f"{name}Response", throttle_time=NO_TIME, error_code=none(), topics=(topic,)
    )
    return reader_of(api, version, entity)


def test_offset_delete() -> None:
    request = read_request(FORGET, 0, messages.encode_offset_delete(0, "g", [A0, B0]))
    indexes = [(t, [part.partition_index for part in parts]) for t, parts in topics_of(request)]
    assert indexes == [("a", [0]), ("b", [0])]
    errors = _partition_errors(FORGET, 0, "OffsetDelete", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    assert messages.decode_offset_delete(errors, 0) == {A1: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


@pytest.mark.parametrize("version", versions(DELETE))
def test_delete_groups(version: int) -> None:
    body = messages.encode_delete_groups(version, ["g"])
    assert read_request(DELETE, version, body).groups_names == ("g",)
    where = module(DELETE, version, "response")
    result = make(
        where,
        "DeletableGroupResult",
        group_id="g",
        error_code=kio_error(ErrorCode.NON_EMPTY_GROUP),
    )
    entity = make(where, "DeleteGroupsResponse", throttle_time=NO_TIME, results=(result,))
    decoded = messages.decode_delete_groups(reader_of(DELETE, version, entity), version)
    assert decoded == {"g": ErrorCode.NON_EMPTY_GROUP}


@settings(deadline=None)
@given(data=st.binary(max_size=100), api=st.sampled_from(list(DECODERS)), newest=st.booleans())
def test_hostile_bytes(data: bytes, api: ApiKey, newest: bool) -> None:
    version = versions(api)[-1 if newest else 0]
    try:
        DECODERS[api](Reader(data, flexible=is_flexible(api, version)), version)
    except (ProtocolError, KafkaError):
        pass
