"""ListGroups (16): the groups of this broker, all or those in some states and of some types.

States (version 4, KIP-518) and types (version 5, KIP-848) are compared without regard to case;
a word that means nothing matches nothing.

Any handler thread; takes each group's lock for a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import denied, may_on_cluster
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.list_groups import ListedGroup, Request


def handle(services: Services, call: Call[Request]) -> None:
    table = messages.list_groups
    states = {state.strip().lower() for state in call.message.states_filter}
    types = {kind.lower() for kind in call.message.types_filter}
    hidden: frozenset[str] = frozenset()
    # Once: no group comes after the check.
    listed = [each for each in services.groups.listings() if not types or each.type in types]
    if listed and not may_on_cluster(services, call, Operation.DESCRIBE, quiet=True):
        ids = [group.group_id for group in listed]
        hidden = denied(services, call, Operation.DESCRIBE, ResourceType.GROUP, ids, quiet=True)
    groups: list[ListedGroup] = [
        table.ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state.label,
            group_type=group.type,
        )
        for group in listed
        if (not states or group.state.label.lower() in states) and group.group_id not in hidden
    ]
    call.answer(table.Response(error_code=ErrorCode.NONE, groups=groups))
