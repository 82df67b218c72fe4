"""Create, Renew, Expire and DescribeDelegationToken (38-41): no client may have a token.

There are no tokens here. So each client gets what Apache Kafka answers where none has been switched
on: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for one that has not authenticated, or did so with a token;
DELEGATION_TOKEN_AUTH_DISABLED for any other. What may be wrong with CreateDelegationToken is looked
at before that, as there.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import may
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType
from kbroker.security.session import ANONYMOUS, Principal

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.create_delegation_token import Request, Response

_USER: Final = "User"


def handle(services: Services, call: Call[Any]) -> None:
    call.fail(_not_at_the_door(call) or ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def handle_create(services: Services, call: Call[Request]) -> None:
    owner, requester = _owner(call), call.session.principal
    code = _not_at_the_door(call)
    if code is None and (owner.type, owner.name) != (requester.type, requester.name):
        rights = Operation.CREATE_TOKENS, ResourceType.USER
        if not may(services, call, *rights, str(owner)):
            code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if code is None and any(each.principal_type != _USER for each in call.message.renewers):
        code = ErrorCode.INVALID_PRINCIPAL_TYPE
    call.fail(code or ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def _not_at_the_door(call: Call[Any]) -> ErrorCode | None:
    principal = call.session.principal
    if principal == ANONYMOUS or principal.by_token:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return None


def _owner(call: Call[Request]) -> Principal:
    kind, name = call.message.owner_principal_type, call.message.owner_principal_name
    return Principal(kind, name) if kind is not None and name else call.session.principal


def create_failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """It names the owner, and the user who asks."""
    owner, requester = _owner(call), call.session.principal
    return messages.create_delegation_token.Response(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )
