"""The members' APIs, DescribeGroups and ListGroups: the bytes of every version."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from kbroker.coordinator.group.departures import Why
from kbroker.errors import ErrorCode
from kbroker.protocol import messages
from kbroker.protocol.versions import SERVED
from kbroker.types import ApiKey
from tests.support import schemas
from tests.unit.handlers.support import FakeBroker, answer_of, request_of

JOIN = ApiKey.JOIN_GROUP


def versions(key: ApiKey) -> range:
    return range(SERVED[key].min, SERVED[key].max + 1)


def join(version: int, member_id: str = "", group: str = "g", **more: Any) -> Any:
    protocol = schemas.request_module(JOIN, version).JoinGroupRequestProtocol
    fields: dict[str, Any] = {
        "group_id": group,
        "session_timeout": datetime.timedelta(seconds=10),
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": (protocol(name="range", metadata=b"topics"),),
    }
    if version >= 1:
        fields["rebalance_timeout"] = datetime.timedelta(seconds=5)
    if version >= 5:
        fields["group_instance_id"] = None
    if version >= 8:
        fields["reason"] = "because"
    return request_of(JOIN, version, **(fields | more))


def sync(
    version: int, member_id: str, generation: int = 1, *, assignment: bytes = b"all", **more: Any
) -> Any:
    given = schemas.request_module(ApiKey.SYNC_GROUP, version).SyncGroupRequestAssignment
    fields: dict[str, Any] = {
        "group_id": "g",
        "generation_id": generation,
        "member_id": member_id,
        "assignments": (given(member_id=member_id, assignment=assignment),),
    }
    if version >= 3:
        fields["group_instance_id"] = None
    if version >= 5:
        fields |= {"protocol_type": "consumer", "protocol_name": "range"}
    return request_of(ApiKey.SYNC_GROUP, version, **(fields | more))


def joined(broker: FakeBroker, version: int = 3, **more: Any) -> str:
    """A member of `g`, in its first generation."""
    member_id: str = broker.call(join(version, **more)).member_id
    return member_id


def settled(broker: FakeBroker) -> str:
    member_id = joined(broker)
    assert broker.call(sync(2, member_id)).error_code.value == ErrorCode.NONE
    return member_id


@pytest.mark.parametrize("version", versions(JOIN))
def test_join(version: int) -> None:
    broker = FakeBroker()
    answer = broker.call(join(version))
    if version >= 4:
        assert answer.error_code.value == ErrorCode.MEMBER_ID_REQUIRED
        assert (answer.generation_id, answer.leader, answer.members) == (-1, "", ())
        answer = broker.call(join(version, answer.member_id))
    assert answer.error_code.value == ErrorCode.NONE
    assert answer.generation_id == 1
    assert answer.leader == answer.member_id
    assert answer.protocol_name == "range"
    ((member),) = answer.members
    assert (member.member_id, member.metadata) == (answer.member_id, b"topics")
    if version >= 7:
        assert answer.protocol_type == "consumer"
    if version >= 9:
        assert answer.skip_assignment is False


@pytest.mark.parametrize("version", versions(JOIN))
def test_join_refused(version: int) -> None:
    answer = FakeBroker().call(join(version, "stranger"))
    assert answer.error_code.value == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.member_id == "stranger"
    assert answer.protocol_name == (None if version >= 7 else "")


def test_join_of_static_members() -> None:
    broker = FakeBroker()
    first = broker.call(join(9, group_instance_id="i"))
    broker.call(sync(5, first.member_id, group_instance_id="i"))
    second = broker.call(join(9, group_instance_id="i"))
    assert (second.skip_assignment, second.leader) == (True, second.member_id)
    assert second.members[0].group_instance_id == "i"
    assert second.member_id != first.member_id


def test_join_waits_and_is_answered_by_another_request() -> None:
    broker = FakeBroker()
    leader = settled(broker)
    waiting = broker.ask(join(3))
    assert waiting.answer is None
    assert broker.call(join(3, leader)).generation_id == 2
    assert answer_of(waiting).generation_id == 2


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_sync(version: int) -> None:
    broker = FakeBroker()
    member_id = joined(broker)
    answer = broker.call(sync(version, member_id))
    assert (answer.error_code.value, answer.assignment) == (ErrorCode.NONE, b"all")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    refused = broker.call(sync(version, member_id, generation=2))
    assert (refused.error_code.value, refused.assignment) == (ErrorCode.ILLEGAL_GENERATION, b"")


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_sync_that_does_not_name_the_protocol(missing: str) -> None:
    broker = FakeBroker()
    answer = broker.call(sync(5, joined(broker), **{missing: None}))
    assert answer.error_code.value == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_heartbeat(version: int) -> None:
    broker = FakeBroker()
    member_id = settled(broker)
    more: dict[str, Any] = {"group_instance_id": None} if version >= 3 else {}
    for generation, code in ((1, ErrorCode.NONE), (2, ErrorCode.ILLEGAL_GENERATION)):
        answer = broker.call(
            request_of(
                ApiKey.HEARTBEAT,
                version,
                group_id="g",
                generation_id=generation,
                member_id=member_id,
                **more,
            )
        )
        assert answer.error_code.value == code


def leave(version: int, *members: tuple[str, str | None], group: str = "g") -> Any:
    if version < 3:
        return request_of(ApiKey.LEAVE_GROUP, version, group_id=group, member_id=members[0][0])
    identity = schemas.request_module(ApiKey.LEAVE_GROUP, version).MemberIdentity
    reason: dict[str, Any] = {"reason": "closing"} if version >= 5 else {}
    named = tuple(
        identity(member_id=member, group_instance_id=instance, **reason)
        for member, instance in members
    )
    return request_of(ApiKey.LEAVE_GROUP, version, group_id=group, members=named)


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave(version: int) -> None:
    broker = FakeBroker()
    member_id = settled(broker)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    if version < 3:
        assert broker.call(leave(version, ("stranger", None))).error_code.value == unknown
        assert broker.call(leave(version, (member_id, None))).error_code.value == ErrorCode.NONE
    else:
        answer = broker.call(leave(version, ("stranger", None), (member_id, None), ("", "i")))
        assert answer.error_code.value == ErrorCode.NONE
        assert [(m.member_id, m.group_instance_id, m.error_code.value) for m in answer.members] == [
            ("stranger", None, unknown),
            (member_id, None, ErrorCode.NONE),
            ("", "i", unknown),
        ]
    no_group = broker.call(leave(version, (member_id, None), group=""))
    assert no_group.error_code.value == ErrorCode.INVALID_GROUP_ID


def describe(version: int, *groups: str, operations: bool = True) -> Any:
    more: dict[str, Any] = {"include_authorized_operations": operations} if version >= 3 else {}
    return request_of(ApiKey.DESCRIBE_GROUPS, version, groups=groups, **more)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_describe(version: int) -> None:
    broker = FakeBroker()
    member_id = settled(broker)
    there, absent = broker.call(describe(version, "g", "nope")).groups
    assert (there.error_code.value, there.group_state) == (ErrorCode.NONE, "Stable")
    assert (there.protocol_type, there.protocol_data) == ("consumer", "range")
    ((member),) = there.members
    assert (member.member_id, member.client_id) == (member_id, "test")
    assert (member.client_host, member.member_metadata) == ("/127.0.0.1", b"topics")
    assert member.member_assignment == b"all"
    late = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (absent.error_code.value, absent.group_state, absent.members) == (late, "Dead", ())
    if version >= 3:
        assert there.authorized_operations == 3400
        assert absent.authorized_operations == (-(2**31) if version >= 6 else 3400)
        quiet = broker.call(describe(version, "g", operations=False)).groups[0]
        assert quiet.authorized_operations == -(2**31)
    if version >= 6:
        assert absent.error_message == "Group nope not found."


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_list(version: int) -> None:
    broker = FakeBroker()
    settled(broker)
    broker.call(join(9, group="pending"))

    def listed(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> set[str]:
        filters: dict[str, Any] = {}
        if version >= 4:
            filters["states_filter"] = states
        if version >= 5:
            filters["types_filter"] = types
        answer = broker.call(request_of(ApiKey.LIST_GROUPS, version, **filters))
        assert answer.error_code.value == ErrorCode.NONE
        return {group.group_id for group in answer.groups}

    assert listed() == {"g", "pending"}
    if version >= 4:
        assert listed(("sTable",)) == {"g"}
        assert listed(("Empty", "Stable")) == {"g", "pending"}
        assert listed(("nonsense",)) == set()
    if version >= 5:
        assert listed(types=("CLASSIC",)) == {"g", "pending"}
        assert listed(types=("consumer",)) == set()
    answer = broker.call(request_of(ApiKey.LIST_GROUPS, version, **(
        {} if version < 4 else {"states_filter": ()} if version < 5
        else {"states_filter": (), "types_filter": ()}
    )))  # fmt: skip
    group = next(each for each in answer.groups if each.group_id == "g")
    assert group.protocol_type == "consumer"
    if version >= 4:
        assert group.group_state == "Stable"
    if version >= 5:
        assert group.group_type == "classic"


def test_a_broken_coordinator_answers_in_the_shape_of_each_api(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = FakeBroker()
    member_id = joined(broker)

    def broken(*_: object) -> None:
        raise RuntimeError("no")

    for name in ("join", "sync", "heartbeat", "leave", "describe", "listings"):
        monkeypatch.setattr(broker.groups, name, broken)
    heartbeat = request_of(
        ApiKey.HEARTBEAT, 4, group_id="g", generation_id=1, member_id="m", group_instance_id=None
    )
    for request in (
        join(9, member_id),
        sync(5, member_id),
        heartbeat,
        leave(5, (member_id, None)),
        request_of(ApiKey.LIST_GROUPS, 5, states_filter=(), types_filter=()),
    ):
        assert broker.call(request).error_code.value == ErrorCode.UNKNOWN_SERVER_ERROR
    (group,) = broker.call(describe(6, "g")).groups
    assert group.error_code.value == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_group_that_is_named_again_is_answered_again_within_bounds() -> None:
    # A member brings 256 KB, which nine bytes would ask for each time.
    broker = FakeBroker()
    large = schemas.request_module(JOIN, 3).JoinGroupRequestProtocol(
        name="range", metadata=bytes(1 << 18)
    )
    member_id = joined(broker, protocols=(large,))
    broker.call(sync(3, member_id))
    described = broker.call(describe(6, "g", "none", "g", *["g"] * 200)).groups
    codes = [group.error_code.value for group in described]
    assert codes[:3] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE]
    assert codes[-1] == ErrorCode.INVALID_REQUEST and "too often" in described[-1].error_message
    assert codes.count(ErrorCode.NONE) == 1 + 4, "once, and as often as 1 MB has room for"
    assert len(codes) == 1 + 5 + 1, "the error once: it is longer than the request for it"


@pytest.mark.parametrize("version", [4, 5, 6])
def test_departures_are_for_those_that_ask(version: int) -> None:
    """Since version 5, by tags of kbroker's own; of a group that is not there, too."""
    broker = FakeBroker()
    settled(broker)
    broker.groups.departures.note("g", "m1", Why.SESSION_OVER)
    broker.groups.departures.note("nope", "m2", Why.LEFT)
    table = messages.describe_groups

    def described(*, asks: bool) -> list[Any]:
        body = table.Request(groups=["g", "nope"], with_departures=asks).encode(version)
        answer = broker.send(ApiKey.DESCRIBE_GROUPS, version, body).answer
        assert answer is not None
        return list(table.Response.decode(answer, version).groups)

    there, absent = described(asks=True)
    found = [[(each.member_id, each.why) for each in group.departures] for group in (there, absent)]
    if version >= 5:
        assert found == [[("m1", Why.SESSION_OVER.value)], [("m2", Why.LEFT.value)]]
    else:
        assert found == [[], []]
    assert not any(group.departures for group in described(asks=False))
