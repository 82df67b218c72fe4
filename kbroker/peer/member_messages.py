"""The messages of our client as a member of a group: join, sync, heartbeat, leave.

As `messages`; which versions stands in `versions`. Errors are part of the results, except that a
coordinator which has moved or still loads (14, 15, 16) is raised. Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kbroker.errors import ErrorCode
from kbroker.peer.group_messages import MemberIdentity, raise_if_moved
from kbroker.peer.messages import error_code, request_writer
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey


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
    """`members` (id -> its metadata) is empty for everybody but the leader."""

    error: ErrorCode
    generation: int
    protocol: str
    leader: str
    skip_assignment: bool
    member_id: str
    members: Mapping[str, bytes]


def encode_join_group(version: int, joining: Joining) -> bytes:
    writer = request_writer(ApiKey.JOIN_GROUP, version)
    writer.string(joining.group)
    writer.int32(joining.session_timeout_ms)
    writer.int32(joining.rebalance_timeout_ms)
    writer.string(joining.member_id)
    if version >= 5:
        writer.string(joining.instance_id)
    writer.string(joining.protocol_type)
    writer.array(len(joining.protocols))
    for name, metadata in joining.protocols.items():
        writer.string(name)
        writer.bytes(metadata)
        writer.tags()
    if version >= 8:
        writer.string(None)  # reason
    writer.tags()
    return writer.getvalue()


def decode_join_group(reader: Reader, version: int) -> Joined:
    reader.int32()  # throttle time
    error = error_code(reader.int16())
    generation = reader.int32()
    if version >= 7:
        reader.nullable_string()  # protocol type
    protocol = reader.nullable_string() or ""
    leader = reader.string()
    skip_assignment = reader.boolean() if version >= 9 else False
    member_id = reader.string()
    members: dict[str, bytes] = {}
    for _ in range(reader.array()):
        member = reader.string()
        if version >= 5:
            reader.nullable_string()  # instance id
        members[member] = reader.nullable_bytes() or b""
        reader.tags()
    reader.tags()
    raise_if_moved(error, "join")
    return Joined(error, generation, protocol, leader, skip_assignment, member_id, members)


def encode_sync_group(
    version: int,
    group: str,
    member: MemberIdentity,
    protocol_type: str,
    protocol: str,
    assignments: Mapping[str, bytes],
) -> bytes:
    """`assignments` by member id, from the leader; nobody else has any."""
    writer = request_writer(ApiKey.SYNC_GROUP, version)
    writer.string(group)
    _write_identity(writer, member, instance=version >= 3)
    if version >= 5:
        writer.string(protocol_type)
        writer.string(protocol)
    writer.array(len(assignments))
    for member_id, assignment in assignments.items():
        writer.string(member_id)
        writer.bytes(assignment)
        writer.tags()
    writer.tags()
    return writer.getvalue()


def _write_identity(writer: Writer, member: MemberIdentity, *, instance: bool) -> None:
    writer.int32(member.generation)
    writer.string(member.member_id)
    if instance:
        writer.string(member.instance_id)


def decode_sync_group(reader: Reader, version: int) -> tuple[ErrorCode, bytes]:
    """The error and our own assignment."""
    reader.int32()  # throttle time
    error = error_code(reader.int16())
    if version >= 5:
        reader.nullable_string()
        reader.nullable_string()
    assignment = reader.nullable_bytes() or b""
    reader.tags()
    raise_if_moved(error, "sync")
    return error, assignment


def encode_heartbeat(version: int, group: str, member: MemberIdentity) -> bytes:
    writer = request_writer(ApiKey.HEARTBEAT, version)
    writer.string(group)
    _write_identity(writer, member, instance=version >= 3)
    writer.tags()
    return writer.getvalue()


def decode_heartbeat(reader: Reader, version: int) -> ErrorCode:
    reader.int32()  # throttle time
    error = error_code(reader.int16())
    reader.tags()
    raise_if_moved(error, "heartbeat")
    return error


def encode_leave_group(version: int, group: str, member: MemberIdentity) -> bytes:
    writer = request_writer(ApiKey.LEAVE_GROUP, version)
    writer.string(group)
    if version >= 3:
        writer.array(1)
    writer.string(member.member_id)
    if version >= 3:
        writer.string(member.instance_id)
        if version >= 5:
            writer.string(None)  # reason
        writer.tags()
    writer.tags()
    return writer.getvalue()


def decode_leave_group(reader: Reader, version: int) -> ErrorCode:
    """The group's error, else our own."""
    reader.int32()  # throttle time
    error = error_code(reader.int16())
    if version >= 3:
        for _ in range(reader.array()):
            reader.string()
            reader.nullable_string()
            error = error or error_code(reader.int16())
            reader.tags()
    reader.tags()
    raise_if_moved(error, "leave")
    return error
