"""DescribeGroups (15): state, members and assignments of groups, for tools.

A group that does not exist, or is of another protocol, is "Dead" without an error up to version 5;
since version 6 it is GROUP_ID_NOT_FOUND (KIP-1043). Subscriptions and assignments are returned for
a stable group only.

A client of kbroker may ask why members have gone, and which ones a rebalance waits for: what the
log does not say of a group.

Any handler thread; takes each group's lock for the copying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.coordinator.group.states import GroupState
from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import denied, operations_of
from kbroker.handlers.metadata_topics import OPERATIONS_NOT_ASKED
from kbroker.handlers.repeats import NAMED_TOO_OFTEN, answers_of
from kbroker.handlers.reply import short_message
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.describe_groups import DescribedGroup, Request, Response

_SINCE_MESSAGE: Final = 6


def handle(services: Services, call: Call[Request]) -> None:
    names = call.message.groups
    hidden = denied(services, call, Operation.DESCRIBE, ResourceType.GROUP, names)
    # Kafka answers first what needs no looking up; for one that asks for "" it is the order.
    wanted = call.message.include_authorized_operations
    operations = operations_of(services, call, ResourceType.GROUP, wanted=wanted)
    found = answers_of(
        call,
        sorted(call.message.groups, key=bool),
        lambda group_id: (
            _nothing(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
            if group_id in hidden
            else _described(services, call, group_id, operations)
        ),
        lambda group_id: _nothing(group_id, ErrorCode.INVALID_REQUEST, NAMED_TOO_OFTEN),
    )
    call.answer(messages.describe_groups.Response(groups=found))


def _described(
    services: Services, call: Call[Request], group_id: str, operations: Callable[[str], int]
) -> DescribedGroup:
    found = _found(services, call, group_id, operations)
    if call.message.with_departures:
        table = messages.describe_groups
        found.departures = [
            table.Departure(time_ms=each.time_ms, member_id=each.member_id, why=each.why.value)
            for each in services.groups.departures.of(group_id)
        ]
        found.awaited = list(services.groups.awaited(group_id))
    return found


def _found(
    services: Services, call: Call[Request], group_id: str, operations: Callable[[str], int]
) -> DescribedGroup:
    table = messages.describe_groups
    group = services.groups.describe(group_id)
    if group is None or isinstance(group, ErrorCode):
        if group is not None and group is not ErrorCode.GROUP_ID_NOT_FOUND:
            return _nothing(group_id, group, None)
        is_new = call.version >= _SINCE_MESSAGE
        code = ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.NONE
        words = "is not a classic group." if group is None else "not found."
        return table.DescribedGroup(
            error_code=code,
            error_message=short_message(f"Group {group_id} {words}"),
            group_id=group_id,
            group_state=GroupState.DEAD.label,
            authorized_operations=OPERATIONS_NOT_ASKED if code else operations(group_id),
        )
    return table.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.label,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            table.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.subscription,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=operations(group_id),
    )


def _nothing(group_id: str, code: ErrorCode, message: str | None) -> DescribedGroup:
    return messages.describe_groups.DescribedGroup(
        error_code=code, error_message=message, group_id=group_id
    )


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    def failed(group_id: str) -> DescribedGroup:
        return _nothing(group_id, code, message)

    found = answers_of(call, call.message.groups, failed, failed)
    return messages.describe_groups.Response(groups=found)
