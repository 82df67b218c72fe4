"""What our client says as a member of a group, in every version that we speak, against kio."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer import member_messages as messages
from kbroker.peer.group_messages import MemberIdentity
from kbroker.peer.member_messages import Joining
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey
from tests.unit.peer.fake_answers import NO_TIME, kio_error, make
from tests.unit.peer.fake_broker import module
from tests.unit.peer.test_messages import none, read_request, reader_of, versions

JOIN, SYNC = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP
BEAT, LEAVE = ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
MEMBER = MemberIdentity(7, "m", "i")
DECODERS = {
    JOIN: messages.decode_join_group,
    SYNC: messages.decode_sync_group,
    BEAT: messages.decode_heartbeat,
    LEAVE: messages.decode_leave_group,
}


@pytest.mark.parametrize("version", versions(JOIN))
def test_join(version: int) -> None:
    joining = Joining("g", 1500, 2500, "m", "i", "consumer", {"range": b"\x00\x01", "x": b""})
    request = read_request(JOIN, version, messages.encode_join_group(version, joining))
    assert (request.group_id, request.member_id, request.protocol_type) == ("g", "m", "consumer")
    assert request.session_timeout == timedelta(milliseconds=1500)
    assert request.rebalance_timeout == timedelta(milliseconds=2500)
    assert getattr(request, "group_instance_id", "i") == "i"
    assert [(p.name, p.metadata) for p in request.protocols] == [("range", b"\x00\x01"), ("x", b"")]
    where = module(JOIN, version, "response")
    member = make(
        where, "JoinGroupResponseMember", member_id="m", group_instance_id="i", metadata=b"data"
    )

    def answer(error: ErrorCode) -> Reader:
        entity = make(
            where,
            "JoinGroupResponse",
            throttle_time=NO_TIME,
            error_code=kio_error(error),
            generation_id=7,
            protocol_type="consumer",
            protocol_name="range",
            leader="m",
            skip_assignment=True,
            member_id="m",
            members=(member,),
        )
        return reader_of(JOIN, version, entity)

    joined = messages.decode_join_group(answer(ErrorCode.MEMBER_ID_REQUIRED), version)
    skip = version >= 9
    assert joined == (79, 7, "range", "m", skip, "m", {"m": b"data"})
    with pytest.raises(KafkaError):
        messages.decode_join_group(answer(ErrorCode.NOT_COORDINATOR), version)


@pytest.mark.parametrize("version", versions(SYNC))
def test_sync(version: int) -> None:
    body = messages.encode_sync_group(version, "g", MEMBER, "consumer", "range", {"m": b"a"})
    request = read_request(SYNC, version, body)
    assert (request.group_id, request.generation_id, request.member_id) == ("g", 7, "m")
    assert getattr(request, "group_instance_id", "i") == "i"
    assert getattr(request, "protocol_name", "range") == "range"
    assert [(a.member_id, a.assignment) for a in request.assignments] == [("m", b"a")]
    entity = make(
        module(SYNC, version, "response"),
        "SyncGroupResponse",
        throttle_time=NO_TIME,
        error_code=kio_error(ErrorCode.REBALANCE_IN_PROGRESS),
        protocol_type="consumer",
        protocol_name="range",
        assignment=b"mine",
    )
    answer = messages.decode_sync_group(reader_of(SYNC, version, entity), version)
    assert answer == (ErrorCode.REBALANCE_IN_PROGRESS, b"mine")


@pytest.mark.parametrize("version", versions(BEAT))
def test_heartbeat(version: int) -> None:
    request = read_request(BEAT, version, messages.encode_heartbeat(version, "g", MEMBER))
    assert (request.group_id, request.generation_id, request.member_id) == ("g", 7, "m")
    assert getattr(request, "group_instance_id", "i") == "i"
    entity = make(
        module(BEAT, version, "response"),
        "HeartbeatResponse",
        throttle_time=NO_TIME,
        error_code=kio_error(ErrorCode.ILLEGAL_GENERATION),
    )
    reader = reader_of(BEAT, version, entity)
    assert messages.decode_heartbeat(reader, version) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions(LEAVE))
def test_leave(version: int) -> None:
    request = read_request(LEAVE, version, messages.encode_leave_group(version, "g", MEMBER))
    assert request.group_id == "g"
    if version >= 3:
        ((who),) = request.members
        assert (who.member_id, who.group_instance_id) == ("m", "i")
    else:
        assert request.member_id == "m"
    where = module(LEAVE, version, "response")
    members: tuple[Any, ...] = ()
    error = kio_error(ErrorCode.UNKNOWN_MEMBER_ID)
    if version >= 3:
        members = (
            make(where, "MemberResponse", member_id="m", group_instance_id=None, error_code=error),
        )
        error = none()
    entity = make(
        where, "LeaveGroupResponse", throttle_time=NO_TIME, error_code=error, members=members
    )
    reader = reader_of(LEAVE, version, entity)
    assert messages.decode_leave_group(reader, version) is ErrorCode.UNKNOWN_MEMBER_ID


@settings(deadline=None)
@given(data=st.binary(max_size=100), api=st.sampled_from(list(DECODERS)), newest=st.booleans())
def test_hostile_bytes(data: bytes, api: ApiKey, newest: bool) -> None:
    version = versions(api)[-1 if newest else 0]
    try:
        DECODERS[api](Reader(data, flexible=is_flexible(api, version)), version)
    except (ProtocolError, KafkaError):
        pass
