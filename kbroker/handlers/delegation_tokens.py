"""Create, Renew, Expire and DescribeDelegationToken (38-41): no client may have a token.

A token is given to a user who has authenticated, and no user has over a PLAINTEXT listener: Apache
Kafka answers DELEGATION_TOKEN_REQUEST_NOT_ALLOWED there, before it looks at the request. So does
this broker, whose listeners are all of that kind.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.create_delegation_token import Request, Response

# The user of a connection that has not authenticated.
_USER: Final = "User"
_ANONYMOUS: Final = "ANONYMOUS"


def handle(services: Services, call: Call[Any]) -> None:
    call.fail(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def create_failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """It names the owner, and the user who asks."""
    kind, name = call.message.owner_principal_type, call.message.owner_principal_name
    owner = (kind, name) if kind is not None and name else (_USER, _ANONYMOUS)
    return messages.create_delegation_token.Response(
        error_code=code,
        principal_type=owner[0],
        principal_name=owner[1],
        token_requester_principal_type=_USER,
        token_requester_principal_name=_ANONYMOUS,
    )
