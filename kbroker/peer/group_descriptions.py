"""Groups of every type as one kind of value: classic, consumer, share and streams groups.

Each type has a request of its own, which takes several groups: `describe_listed` sends one of each
type to each coordinator, all at the same time. A group that is of no type, or may not be described,
has its error. Members are others' text and bytes. Owner: the client's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.cluster import Ask
from kbroker.peer.consumer_protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from kbroker.peer.group_messages import raise_if_moved
from kbroker.peer.messages import error_code
from kbroker.protocol import messages as tables
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.groups import Groups, Listed
    from kbroker.protocol.messages import (
        consumer_group_describe,
        describe_groups,
        share_group_describe,
        streams_group_describe,
    )
    from kbroker.protocol.wire import Reader

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
DEAD: Final = "Dead"
_NOT_THERE: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class GroupMember(NamedTuple):
    """`assigned`: partitions, of a streams group none; `tasks`: those of a streams group. `epoch`:
    -1 for a classic group. `subscribed`: topics, or a pattern. `target`: what a member of a
    consumer group is to get."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int
    subscribed: tuple[str, ...]
    assigned: tuple[TopicPartition, ...]
    tasks: tuple[str, ...] = ()
    target: tuple[TopicPartition, ...] = ()


class GroupDescription(NamedTuple):
    """`protocol`: the assignor, or the protocol that a classic group has agreed on. `epoch`: -1 for
    a classic group."""

    error: ErrorCode
    message: str | None
    group: str
    kind: str
    state: str
    protocol_type: str
    protocol: str
    epoch: int
    assignment_epoch: int
    members: tuple[GroupMember, ...]


Decoded = dict[str, GroupDescription]


class _Type(NamedTuple):
    api_key: ApiKey
    encode: Callable[[int, Sequence[str]], bytes]
    decode: Callable[[Reader, int], Decoded]


def describe_listed(client: Client, listed: Iterable[Listed]) -> Decoded:
    """By name. A group whose coordinator cannot be asked, or does not know the type, is left
    out."""
    shares: dict[tuple[int, str], list[str]] = {}
    for each in listed:
        kind = each.group.group_type or _guessed(each.group.protocol_type)
        shares.setdefault((each.coordinator, kind.lower()), []).append(each.group.group)
    asks = [
        Ask(
            client.cluster.brokers[node_id],
            _TYPES[kind].api_key,
            _encoder(_TYPES[kind], names),
            _TYPES[kind].decode,
        )
        for (node_id, kind), names in shares.items()
        if kind in _TYPES and node_id in client.cluster.brokers
    ]
    described: Decoded = {}
    for answer in client.cluster.ask_all(asks, of_all=False):
        if not isinstance(answer, KafkaError):
            described |= answer
    return described


def describe_group(groups: Groups, name: str) -> GroupDescription | None:
    """Of whichever type it is; None: there is no such group. KafkaError: it is not to be
    described."""
    for kind in (CONSUMER, CLASSIC, SHARE, STREAMS):
        asked = _TYPES[kind]
        try:
            found = groups.at_coordinator(
                name, asked.api_key, _encoder(asked, [name]), asked.decode
            ).get(name)
        except KafkaError as error:
            if error.code not in _NOT_THERE:
                raise
            continue
        if found is None or found.error in _NOT_THERE:
            continue
        if found.error is not ErrorCode.NONE:
            why = f"group '{name}'" + (f": {found.message}" if found.message else "")
            raise KafkaError(found.error, why)
        if kind is not CLASSIC or found.state != DEAD:
            return found
    return None


def _guessed(protocol_type: str) -> str:
    """Of a broker that is too old to say: it has these two types at most."""
    return SHARE if protocol_type == SHARE else CLASSIC


def _encoder(asked: _Type, names: Sequence[str]) -> Callable[[int], bytes]:
    return lambda version: asked.encode(version, names)


# --- each type ------------------------------------------------------------------------------------


def _encode_classic(version: int, names: Sequence[str]) -> bytes:
    return tables.describe_groups.Request(groups=list(names)).encode(version)


def decode_classic(reader: Reader, version: int) -> Decoded:
    return {
        group.group_id: GroupDescription(
            _error(group.error_code, group.group_id),
            group.error_message,
            group.group_id,
            CLASSIC,
            group.group_state,
            group.protocol_type,
            group.protocol_data,
            -1,
            -1,
            tuple([_classic_member(member, group.protocol_type) for member in group.members]),
        )
        for group in tables.describe_groups.Response.read(reader, version).groups
    }


def _classic_member(
    member: describe_groups.DescribedGroupMember, protocol_type: str
) -> GroupMember:
    subscribed: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE:
        # Bytes of another protocol: the member is listed without them. During a rebalance it has no
        # subscription, and still what it was assigned before.
        with suppress(ProtocolError):
            subscribed = tuple(decode_subscription(member.member_metadata))
        with suppress(ProtocolError):
            assigned = tuple(decode_assignment(member.member_assignment))
    return GroupMember(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, -1,
        subscribed, assigned,
    )  # fmt: skip


def _encode_consumer(version: int, names: Sequence[str]) -> bytes:
    request = tables.consumer_group_describe.Request(
        group_ids=list(names), include_authorized_operations=False
    )
    return request.encode(version)


def decode_consumer(reader: Reader, version: int) -> Decoded:
    return {
        group.group_id: GroupDescription(
            _error(group.error_code, group.group_id),
            group.error_message,
            group.group_id,
            CONSUMER,
            group.group_state,
            PROTOCOL_TYPE,
            group.assignor_name,
            group.group_epoch,
            group.assignment_epoch,
            tuple([_consumer_member(member) for member in group.members]),
        )
        for group in tables.consumer_group_describe.Response.read(reader, version).groups
    }


def _consumer_member(member: consumer_group_describe.Member) -> GroupMember:
    pattern = member.subscribed_topic_regex
    return GroupMember(
        member.member_id, member.instance_id, member.client_id, member.client_host,
        member.member_epoch,
        (*member.subscribed_topic_names, *((pattern,) if pattern else ())),
        _partitions(member.assignment.topic_partitions),
        target=_partitions(member.target_assignment.topic_partitions),
    )  # fmt: skip


def _encode_share(version: int, names: Sequence[str]) -> bytes:
    request = tables.share_group_describe.Request(
        group_ids=list(names), include_authorized_operations=False
    )
    return request.encode(version)


def decode_share(reader: Reader, version: int) -> Decoded:
    return {
        group.group_id: GroupDescription(
            _error(group.error_code, group.group_id),
            group.error_message,
            group.group_id,
            SHARE,
            group.group_state,
            SHARE,
            group.assignor_name,
            group.group_epoch,
            group.assignment_epoch,
            tuple([_share_member(member) for member in group.members]),
        )
        for group in tables.share_group_describe.Response.read(reader, version).groups
    }


def _share_member(member: share_group_describe.Member) -> GroupMember:
    return GroupMember(
        member.member_id, None, member.client_id, member.client_host, member.member_epoch,
        tuple(member.subscribed_topic_names),
        _partitions(member.assignment.topic_partitions),
    )  # fmt: skip


def _encode_streams(version: int, names: Sequence[str]) -> bytes:
    request = tables.streams_group_describe.Request(
        group_ids=list(names), include_authorized_operations=False
    )
    return request.encode(version)


def decode_streams(reader: Reader, version: int) -> Decoded:
    return {
        group.group_id: GroupDescription(
            _error(group.error_code, group.group_id),
            group.error_message,
            group.group_id,
            STREAMS,
            group.group_state,
            STREAMS,
            "",
            group.group_epoch,
            group.assignment_epoch,
            tuple([_streams_member(member) for member in group.members]),
        )
        for group in tables.streams_group_describe.Response.read(reader, version).groups
    }


def _streams_member(member: streams_group_describe.Member) -> GroupMember:
    tasks = tuple(
        f"{task.subtopology_id}_{number}"
        for task in member.assignment.active_tasks
        for number in task.partitions
    )
    return GroupMember(
        member.member_id, member.instance_id, member.client_id, member.client_host,
        member.member_epoch, (), (), tasks,
    )  # fmt: skip


def _partitions(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, index) for topic in topics for index in topic.partitions
    )


def _error(code: int, group: str) -> ErrorCode:
    """A coordinator that has moved or still loads is raised, so that it is asked for again."""
    error = error_code(code)
    raise_if_moved(error, group)
    return error


_TYPES: Final[Mapping[str, _Type]] = {
    CLASSIC: _Type(ApiKey.DESCRIBE_GROUPS, _encode_classic, decode_classic),
    CONSUMER: _Type(ApiKey.CONSUMER_GROUP_DESCRIBE, _encode_consumer, decode_consumer),
    SHARE: _Type(ApiKey.SHARE_GROUP_DESCRIBE, _encode_share, decode_share),
    STREAMS: _Type(ApiKey.STREAMS_GROUP_DESCRIBE, _encode_streams, decode_streams),
}
