"""The messages of our client about groups from outside: who coordinates, lists, describes, commits.

As `messages`; which versions stands in `versions`. What a member itself says is in
`member_messages`. Errors of one group or one partition are part of the result, except that a
coordinator which has moved or still loads (14, 15, 16) is raised, so that it is asked for anew.
Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import error_code, read_by_topic, request_writer, write_by_topic
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey, TopicPartition

COORDINATOR_MOVED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
GROUP_KEY: Final = 0
NO_GENERATION: Final = -1
NO_OFFSET: Final = -1


class Coordinator(NamedTuple):
    node_id: int
    host: str
    port: int


class ListedGroup(NamedTuple):
    """`state` is empty where the broker is too old to say (before ListGroups 4)."""

    group: str
    protocol_type: str
    state: str


class DescribedMember(NamedTuple):
    """`metadata` and `assignment` are the members' own bytes: see `consumer_protocol`."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    error: ErrorCode
    message: str | None
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


class Committed(NamedTuple):
    """What a group has committed for a partition; offset -1 is nothing."""

    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode


class MemberIdentity(NamedTuple):
    """Who commits: a member of a generation, or, as here, nobody in particular."""

    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None


def raise_if_moved(error: ErrorCode, group: str) -> None:
    if error in COORDINATOR_MOVED:
        raise KafkaError(error, f"group '{group}'")


def encode_find_coordinator(version: int, group: str) -> bytes:
    writer = request_writer(ApiKey.FIND_COORDINATOR, version)
    writer.string(group)
    writer.int8(GROUP_KEY)
    writer.tags()
    return writer.getvalue()


def decode_find_coordinator(reader: Reader, version: int) -> Coordinator:
    reader.int32()  # throttle time
    error = error_code(reader.int16())
    message = reader.nullable_string()
    if error is not ErrorCode.NONE:
        raise KafkaError(error, message or "no coordinator")
    coordinator = Coordinator(reader.int32(), reader.string(), reader.int32())
    reader.tags()
    return coordinator


def encode_list_groups(version: int, states: Sequence[str] = ()) -> bytes:
    """Of every type; an old broker does not filter, so the caller does that as well."""
    writer = request_writer(ApiKey.LIST_GROUPS, version)
    if version >= 4:
        writer.array(len(states))
        for state in states:
            writer.string(state)
    if version >= 5:
        writer.array(0)  # types: every one
    writer.tags()
    return writer.getvalue()


def decode_list_groups(reader: Reader, version: int) -> list[ListedGroup]:
    reader.int32()  # throttle time
    error = error_code(reader.int16())
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "the broker refused to list groups")
    groups: list[ListedGroup] = []
    for _ in range(reader.array()):
        name, protocol_type = reader.string(), reader.string()
        groups.append(ListedGroup(name, protocol_type, reader.string() if version >= 4 else ""))
        if version >= 5:
            reader.string()  # type
        reader.tags()
    return groups


def encode_describe_groups(version: int, groups: Sequence[str]) -> bytes:
    writer = request_writer(ApiKey.DESCRIBE_GROUPS, version)
    writer.array(len(groups))
    for group in groups:
        writer.string(group)
    if version >= 3:
        writer.boolean(False)  # authorized operations
    writer.tags()
    return writer.getvalue()


def decode_describe_groups(reader: Reader, version: int) -> list[DescribedGroup]:
    reader.int32()  # throttle time
    groups: list[DescribedGroup] = []
    for _ in range(reader.array()):
        error = error_code(reader.int16())
        message = reader.nullable_string() if version >= 6 else None
        name, state, protocol_type, protocol = (reader.string() for _ in range(4))
        members = tuple([_decode_member(reader, version) for _ in range(reader.array())])
        if version >= 3:
            reader.int32()  # authorized operations
        reader.tags()
        raise_if_moved(error, name)
        groups.append(DescribedGroup(error, message, name, state, protocol_type, protocol, members))
    return groups


def _decode_member(reader: Reader, version: int) -> DescribedMember:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 4 else None
    client_id, host = reader.string(), reader.string()
    metadata, assignment = reader.nullable_bytes() or b"", reader.nullable_bytes() or b""
    reader.tags()
    return DescribedMember(member_id, instance_id, client_id, host, metadata, assignment)


def encode_offset_fetch(
    version: int,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> bytes:
    """`None` asks for everything that the group has committed. `require_stable`: the answer waits
    until its followers have that."""
    writer = request_writer(ApiKey.OFFSET_FETCH, version)
    writer.string(group)
    if partitions is None:
        writer.array(None)
    else:
        write_by_topic(writer, partitions)
    if version >= 7:
        writer.boolean(require_stable)
    writer.tags()
    return writer.getvalue()


def decode_offset_fetch(reader: Reader, version: int) -> dict[TopicPartition, Committed]:
    if version >= 3:
        reader.int32()  # throttle time

    def of_partition() -> Committed:
        offset = reader.int64()
        epoch = reader.int32() if version >= 5 else -1
        metadata = reader.nullable_string() or ""
        return Committed(offset, epoch, metadata, error_code(reader.int16()))

    committed = read_by_topic(reader, of_partition)
    error = error_code(reader.int16())
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "the committed offsets")
    reader.tags()
    return committed


def encode_offset_commit(
    version: int, group: str, offsets: Mapping[TopicPartition, int], member: MemberIdentity
) -> bytes:
    writer = request_writer(ApiKey.OFFSET_COMMIT, version)
    writer.string(group)
    writer.int32(member.generation)
    writer.string(member.member_id)
    if version >= 7:
        writer.string(member.instance_id)
    if version <= 4:
        writer.int64(-1)  # retention: the broker's

    def offset(where: TopicPartition) -> None:
        writer.int64(offsets[where])
        if version >= 6:
            writer.int32(-1)  # leader epoch: unknown
        writer.string("")  # metadata

    write_by_topic(writer, offsets, offset)
    writer.tags()
    return writer.getvalue()


def decode_offset_commit(reader: Reader, version: int) -> dict[TopicPartition, ErrorCode]:
    if version >= 3:
        reader.int32()  # throttle time
    return _partition_errors(reader)


def _partition_errors(reader: Reader) -> dict[TopicPartition, ErrorCode]:
    errors = read_by_topic(reader, lambda: error_code(reader.int16()))
    for where, error in errors.items():
        if error in COORDINATOR_MOVED:
            raise KafkaError(error, str(where))
    return errors


def encode_delete_groups(version: int, groups: Sequence[str]) -> bytes:
    writer = request_writer(ApiKey.DELETE_GROUPS, version)
    writer.array(len(groups))
    for group in groups:
        writer.string(group)
    writer.tags()
    return writer.getvalue()


def decode_delete_groups(reader: Reader, version: int) -> dict[str, ErrorCode]:
    reader.int32()  # throttle time
    errors: dict[str, ErrorCode] = {}
    for _ in range(reader.array()):
        group = reader.string()
        errors[group] = error_code(reader.int16())
        raise_if_moved(errors[group], group)
        reader.tags()
    return errors


def encode_offset_delete(version: int, group: str, partitions: Iterable[TopicPartition]) -> bytes:
    writer = request_writer(ApiKey.OFFSET_DELETE, version)
    writer.string(group)
    write_by_topic(writer, partitions)
    return writer.getvalue()


def decode_offset_delete(reader: Reader, version: int) -> dict[TopicPartition, ErrorCode]:
    error = error_code(reader.int16())
    reader.int32()  # throttle time
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "the group's offsets")
    return _partition_errors(reader)
