"""Names from outside: those too long for an answer are refused before anything is kept of them.

The codes are those of Apache Kafka 4.3.0 for the same bytes, which keeps a group in some of these
cases that then breaks its ListGroups; here nothing stays.
"""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.coordinator.group.messages import NO_MEMBER_ID, JoinAsked
from kbroker.errors import ErrorCode
from kbroker.limits import TEXT_BYTES_MAX
from tests.unit.coordinator.group.world import GROUP, REBALANCE_MS, SESSION_MS, Answer, World

NO_UTF8 = "\ufffd" * 11_000  # as 11,000 bytes that are no UTF-8 are read
ID_BYTES = 37  # of "-" and a UUID after the name of a client


def join(world: World, **fields: Any) -> Answer[Any]:
    answer: Answer[Any] = Answer()
    asked: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": "",
        "instance_id": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "protocol_type": "consumer",
        "protocols": (("range", b""),),
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
    }
    world.coordinator.join(JoinAsked(**(asked | fields)), answer)
    return answer


@pytest.mark.parametrize("needs_id", [True, False])
@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": NO_UTF8},
        {"client_id": NO_UTF8},
        {"client_id": "c" * (TEXT_BYTES_MAX - ID_BYTES + 1)},
        {"client_id": "c" * 32_760, "instance_id": "i"},
        {"instance_id": NO_UTF8},
        {"instance_id": "i" * (TEXT_BYTES_MAX - ID_BYTES + 1)},
        {"member_id": NO_UTF8},
        {"protocol_type": NO_UTF8},
        {"protocols": (("range", b""), (NO_UTF8, b""))},
    ],
    ids=lambda fields: " ".join(fields),
)
def test_a_name_too_long_for_an_answer_is_refused(fields: dict[str, Any], needs_id: bool) -> None:
    world = World()
    if fields == {"client_id": "c" * 32_760, "instance_id": "i"}:
        assert join(world, **fields).got.code is ErrorCode.NONE  # no id is made of it
        return
    answered = join(world, needs_id=needs_id, **fields).got
    assert (answered.code, answered.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, NO_MEMBER_ID)
    assert not world.coordinator.listings()
    assert not len(world.timer)


def test_a_member_of_the_longest_name_is_one_like_any() -> None:
    world = World()
    name = "c" * (TEXT_BYTES_MAX - ID_BYTES)
    member_id, joined = world.new(name)
    assert len(member_id) == TEXT_BYTES_MAX
    assert joined.got.member_id == member_id
    world.settle([member_id])
    assert world.heartbeat(member_id) is ErrorCode.NONE


def test_a_commit_makes_no_group_with_a_name_too_long_for_an_answer() -> None:
    world = World()
    code = world.coordinator.check_commit(NO_UTF8, "", None, -1, 9)
    assert code is ErrorCode.UNKNOWN_SERVER_ERROR
    world.coordinator.ensure_group(NO_UTF8)  # a log may have anything
    assert not world.coordinator.listings()


def test_a_stranger_does_not_wedge_a_group() -> None:
    """Once the name of one member stopped every answer of its group."""
    world = World()
    (leader,) = world.stable()
    assert join(world, client_id="c" * 32_760).got.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert join(world, instance_id="i" * 32_760).got.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.heartbeat(leader) is ErrorCode.NONE
    assert world.commit(leader) is ErrorCode.NONE
