"""JoinGroup (11): a member comes into its group, or back to it for the next generation.

The answer comes when all members have joined, from the thread that completes that; until then the
call waits with the group. Versions 0 to 9 differ in what they can say: a rebalance timeout (1), the
id first (4, KIP-394), static members (5, KIP-345), the protocol's type (7), a reason (8), and that
the leader need not assign (9).

Any handler thread; holds no lock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kbroker.coordinator.group.messages import JoinAnswer, JoinAsked
from kbroker.errors import ErrorCode
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.join_group import Request, Response

_SINCE_REBALANCE_TIMEOUT: Final = 1
_SINCE_ID_FIRST: Final = 4
_SINCE_TYPE: Final = 7
_SINCE_SKIP: Final = 9
# Of a member that waits.
_LET_GO: Final[list[Any]] = []


def handle(services: Services, call: Call[Request]) -> None:
    request, session = call.message, call.session
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    rebalance_ms = request.rebalance_timeout_ms
    if call.version < _SINCE_REBALANCE_TIMEOUT:
        rebalance_ms = request.session_timeout_ms
    asked = JoinAsked(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        session.client_id or "",
        f"/{session.client_host}",
        request.protocol_type,
        tuple(protocols.items()),
        request.session_timeout_ms,
        rebalance_ms,
        needs_id=call.version >= _SINCE_ID_FIRST,
        may_skip=call.version >= _SINCE_SKIP,
    )
    request.protocols = _LET_GO  # the call waits with the group, and `asked` has them
    services.groups.join(asked, partial(_answer, call))


def _answer(call: Call[Request], answer: JoinAnswer) -> None:
    table = messages.join_group
    call.answer(
        table.Response(
            error_code=answer.code,
            generation_id=answer.generation,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol or (None if call.version >= _SINCE_TYPE else ""),
            leader=answer.leader,
            skip_assignment=answer.skip_assignment,
            member_id=answer.member_id,
            members=[
                table.Member(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    metadata=member.subscription,
                )
                for member in answer.members
            ],
        )
    )


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """With the member's id, unless the error is ours or the client may not join."""
    known = code not in (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    )
    return messages.join_group.Response(
        error_code=code,
        protocol_name=None if call.version >= _SINCE_TYPE else "",
        leader="",
        member_id=call.message.member_id if known else "",
    )
