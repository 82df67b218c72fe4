"""The messages of our client as a member of a group: join, sync, heartbeat, leave.

As `messages`; `versions` has the versions. Errors are part of the results, except that a
coordinator which has moved or still loads (14, 15, 16) is raised. Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kbroker.errors import ErrorCode
from kbroker.peer.group_messages import MemberIdentity, raise_if_moved
from kbroker.peer.messages import error_code
from kbroker.protocol import messages as tables
from kbroker.protocol.wire import Reader


class Joining(NamedTuple):
    """What a member says when it joins; `protocols` from the one it likes best."""

    group: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: Mapping[str, bytes]


class Joined(NamedTuple):
    """`members` (id -> its metadata) is empty for every member but the leader."""

    error: ErrorCode
    generation: int
    protocol: str
    leader: str
    skip_assignment: bool
    member_id: str
    members: Mapping[str, bytes]


def encode_join_group(version: int, joining: Joining) -> bytes:
    table = tables.join_group
    request = table.Request(
        group_id=joining.group,
        session_timeout_ms=joining.session_timeout_ms,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        member_id=joining.member_id,
        group_instance_id=joining.instance_id,
        protocol_type=joining.protocol_type,
        protocols=[
            table.Protocol(name=name, metadata=metadata)
            for name, metadata in joining.protocols.items()
        ],
    )
    return request.encode(version)


def decode_join_group(reader: Reader, version: int) -> Joined:
    response = tables.join_group.Response.read(reader, version)
    error = error_code(response.error_code)
    raise_if_moved(error, "join")
    return Joined(
        error,
        response.generation_id,
        response.protocol_name or "",
        response.leader,
        response.skip_assignment,
        response.member_id,
        {each.member_id: each.metadata for each in response.members},
    )


def encode_sync_group(
    version: int,
    group: str,
    member: MemberIdentity,
    protocol_type: str,
    protocol: str,
    assignments: Mapping[str, bytes],
) -> bytes:
    """`assignments` by member id, from the leader; other members have none."""
    table = tables.sync_group
    request = table.Request(
        group_id=group,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=[
            table.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments.items()
        ],
    )
    return request.encode(version)


def decode_sync_group(reader: Reader, version: int) -> tuple[ErrorCode, bytes]:
    """The error and our own assignment."""
    response = tables.sync_group.Response.read(reader, version)
    error = error_code(response.error_code)
    raise_if_moved(error, "sync")
    return error, response.assignment


def encode_heartbeat(version: int, group: str, member: MemberIdentity) -> bytes:
    request = tables.heartbeat.Request(
        group_id=group,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
    )
    return request.encode(version)


def decode_heartbeat(reader: Reader, version: int) -> ErrorCode:
    error = error_code(tables.heartbeat.Response.read(reader, version).error_code)
    raise_if_moved(error, "heartbeat")
    return error


def encode_leave_group(version: int, group: str, member: MemberIdentity) -> bytes:
    table = tables.leave_group
    leaving = table.MemberIdentity(member_id=member.member_id, group_instance_id=member.instance_id)
    request = table.Request(group_id=group, member_id=member.member_id, members=[leaving])
    return request.encode(version)


def decode_leave_group(reader: Reader, version: int) -> ErrorCode:
    """The group's error, else our own."""
    response = tables.leave_group.Response.read(reader, version)
    codes = [response.error_code, *(each.error_code for each in response.members)]
    error = next((error_code(code) for code in codes if code), ErrorCode.NONE)
    raise_if_moved(error, "leave")
    return error
