"""SyncGroup (14): the leader brings the assignment, every member gets its own part.

A follower's answer comes with the leader's sync, from the thread that finds the assignment in the
log. Versions 3 know static members, 5 check the protocol's type and name (KIP-559).

Any handler thread; holds no lock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kbroker.coordinator.group.messages import SyncAnswer, SyncAsked
from kbroker.errors import ErrorCode
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.sync_group import Request

_SINCE_PROTOCOL: Final = 5
# Of a member that waits.
_LET_GO: Final[list[Any]] = []


def handle(services: Services, call: Call[Request]) -> None:
    request = call.message
    if call.version >= _SINCE_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        call.fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return
    asked = SyncAsked(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        tuple((each.member_id, each.assignment) for each in request.assignments),
    )
    request.assignments = _LET_GO  # the call waits with the group, and `asked` has them
    services.groups.sync(asked, partial(_answer, call))


def _answer(call: Call[Request], answer: SyncAnswer) -> None:
    call.answer(
        messages.sync_group.Response(
            error_code=answer.code,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol,
            assignment=answer.assignment,
        )
    )
