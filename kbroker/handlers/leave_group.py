"""LeaveGroup (13): members go, so that the others need not wait for their sessions to end.

Since version 3 it is a batch with an error for each member (KIP-345): an administrator removes
static members by their instance, which do not leave by themselves. Version 5 brings reasons, which
go into the log.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.coordinator.group.messages import Leaver
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.coordinator.group.messages import LeaveAnswer
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.leave_group import Request

_SINCE_BATCH: Final = 3


def handle(services: Services, call: Call[Request]) -> None:
    table = messages.leave_group
    request = call.message
    if call.version < _SINCE_BATCH:
        leavers = [Leaver(request.member_id)]
    else:
        leavers = [Leaver(m.member_id, m.group_instance_id, m.reason) for m in request.members]

    def answer(result: LeaveAnswer) -> None:
        code, codes = result
        if call.version < _SINCE_BATCH and codes:
            code = codes[0]
        members = [
            table.MemberResponse(
                member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=each
            )
            for leaver, each in zip(leavers, codes, strict=False)
        ]
        call.answer(table.Response(error_code=code, members=members))

    services.groups.leave(request.group_id, leavers, answer)
