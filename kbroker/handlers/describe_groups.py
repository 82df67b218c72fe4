"""DescribeGroups (15): state, members and assignments of groups, for tools.

A group that is not there is "Dead" without an error up to version 5; since version 6 it is
GROUP_ID_NOT_FOUND (KIP-1043). Subscriptions and assignments are shown of a stable group only.

Any handler thread; takes each group's lock for the copying.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.group.messages import GroupDescription
from kbroker.coordinator.group.states import GroupState
from kbroker.errors import ErrorCode
from kbroker.handlers.metadata_cache import OPERATIONS_NOT_ASKED
from kbroker.handlers.repeats import NAMED_TOO_OFTEN, answers_of
from kbroker.handlers.reply import told
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services

_SINCE_THROTTLE: Final = 1
_SINCE_OPERATIONS: Final = 3
_SINCE_INSTANCE: Final = 4
_SINCE_MESSAGE: Final = 6
# Bits of the operations that exist for a group: read, delete, describe, and describe and alter
# its configs (KIP-430); without authorizers everybody may do all of them.
GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def decode(request: ColdRequest) -> tuple[list[str], bool]:
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.DESCRIBE_GROUPS, version))
    groups = [reader.string() for _ in range(reader.array())]
    wanted = version >= _SINCE_OPERATIONS and reader.boolean()
    reader.tags()
    return groups, wanted


def handle(services: Services, request: ColdRequest) -> None:
    groups, wanted = decode(request)
    version = request.api_version
    # Kafka tells first of what needs no looking up; for one that asks for "" it is the order.
    answers = answers_of(
        request,
        sorted(groups, key=bool),
        lambda group_id: _described(services, version, group_id, wanted=wanted),
        lambda group_id: _nothing(version, group_id, ErrorCode.INVALID_REQUEST, NAMED_TOO_OFTEN),
    )
    request.respond(_encode(version, answers))


def _described(services: Services, version: int, group_id: str, *, wanted: bool) -> bytes:
    found = services.groups.describe(group_id)
    if not isinstance(found, ErrorCode):
        operations = GROUP_OPERATIONS if wanted else OPERATIONS_NOT_ASKED
        return _encoded(version, found, found.state.label, operations=operations)
    if found is not ErrorCode.GROUP_ID_NOT_FOUND:
        return _nothing(version, group_id, found, None)
    dead = GroupDescription(group_id, GroupState.DEAD, "", "", ())
    code = found if version >= _SINCE_MESSAGE else ErrorCode.NONE
    operations = GROUP_OPERATIONS if wanted and not code else OPERATIONS_NOT_ASKED
    message = f"Group {group_id} not found."
    return _encoded(version, dead, GroupState.DEAD.label, code, message, operations)


def _nothing(version: int, group_id: str, code: ErrorCode, message: str | None) -> bytes:
    described = GroupDescription(group_id, GroupState.DEAD, "", "", ())
    return _encoded(version, described, "", code, message)


def _encode(version: int, answers: Sequence[bytes]) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.DESCRIBE_GROUPS, version))
    if version >= _SINCE_THROTTLE:
        out.int32(0)
    out.array(len(answers))
    for answer in answers:
        out.raw(answer)
    out.tags()
    return out.getvalue()


def _encoded(
    version: int,
    group: GroupDescription,
    state: str,
    code: ErrorCode = ErrorCode.NONE,
    message: str | None = None,
    operations: int = OPERATIONS_NOT_ASKED,
) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.DESCRIBE_GROUPS, version))
    out.int16(code)
    if version >= _SINCE_MESSAGE:
        out.string(told(message))
    out.string(group.group_id)
    out.string(state)
    out.string(group.protocol_type)
    out.string(group.protocol)
    out.array(len(group.members))
    for member in group.members:
        out.string(member.member_id)
        if version >= _SINCE_INSTANCE:
            out.string(member.instance_id)
        out.string(member.client_id)
        out.string(member.client_host)
        out.bytes(member.subscription)
        out.bytes(member.assignment)
        out.tags()
    if version >= _SINCE_OPERATIONS:
        out.int32(operations)
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    groups, _ = decode(request)
    version = request.api_version

    def failed(group_id: str) -> bytes:
        return _nothing(version, group_id, code, message or None)

    return _encode(version, answers_of(request, groups, failed, failed))
