"""Create, Renew, Expire and DescribeDelegationToken (38-41): tokens that act for their owner.

Errors come in the order of Apache Kafka 4.3. A client that has not authenticated, or did so with a
token, gets DELEGATION_TOKEN_REQUEST_NOT_ALLOWED from all four. Then, to create a token:
DELEGATION_TOKEN_AUTHORIZATION_FAILED for another owner without the right to it,
INVALID_PRINCIPAL_TYPE, and DELEGATION_TOKEN_AUTH_DISABLED if there is no
`delegation.token.secret.key`. Renew and Expire name a token by its HMAC;
`metadata/controller/token_changes.py` has their other errors. Times in a refusal are -1 if a client
is not let in, 0 if the controller refuses, as there.

Any broker describes tokens: those that the client owns, has asked for or may renew, and those that
it has a right to. The HMAC of each is in the answer, as in Apache Kafka's: a client that may
describe a token may use it.

An owner of another type than User is refused (INVALID_PRINCIPAL_TYPE): a client would log in with
that token as the user of the same name.

Any handler thread, then the controller's; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied, may
from kbroker.metadata.controller.token_changes import (
    SECRET,
    CreateToken,
    ExpireToken,
    RenewToken,
)
from kbroker.protocol import messages
from kbroker.security.delegation_token import USER, DelegationToken, hmac_of
from kbroker.security.rights import Operation, ResourceType
from kbroker.security.session import ANONYMOUS, Principal

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages import (
        create_delegation_token,
        describe_delegation_token,
        expire_delegation_token,
        renew_delegation_token,
    )

_DISABLED: Final = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
# The errors of the controller.
_REFUSALS: Final = frozenset(
    {
        _DISABLED,
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
        ErrorCode.DELEGATION_TOKEN_EXPIRED,
        ErrorCode.POLICY_VIOLATION,
    }
)


def handle_create(services: Services, call: Call[create_delegation_token.Request]) -> None:
    requester, owner = call.session.principal, _owner(call)
    code = _not_at_the_door(call)
    if code is None and (owner.type, owner.name) != (requester.type, requester.name):
        rights = Operation.CREATE_TOKENS, ResourceType.USER
        if not may(services, call, *rights, str(owner)):
            code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    renewers = tuple(Principal(each.principal_type, each.principal_name)
                     for each in call.message.renewers)  # fmt: skip
    if code is None and any(each.type != USER for each in (owner, *renewers)):
        code = ErrorCode.INVALID_PRINCIPAL_TYPE
    if code is not None:
        call.fail(code)
        return
    secret = services.config[SECRET]

    def done(token: DelegationToken | KafkaError) -> None:
        if isinstance(token, KafkaError):
            call.fail(token.code, token.message)
            return
        _name(call, token)
        call.answer_made(lambda: _created(token, secret))

    lifetime_ms = call.message.max_lifetime_ms
    event = CreateToken(owner, requester, renewers, lifetime_ms, done)
    services.controller.change_tokens(event)


def create_failure(
    call: Call[create_delegation_token.Request], code: ErrorCode, message: str | None
) -> create_delegation_token.Response:
    """It names the owner and the requester."""
    owner, requester = _owner(call), call.session.principal
    time_ms = _time_of(code)
    return messages.create_delegation_token.Response(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=time_ms,
        expiry_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
    )


def renew_failure(
    call: Call[renew_delegation_token.Request], code: ErrorCode, message: str | None
) -> renew_delegation_token.Response:
    table = messages.renew_delegation_token
    return table.Response(error_code=code, expiry_timestamp_ms=_time_of(code))


def expire_failure(
    call: Call[expire_delegation_token.Request], code: ErrorCode, message: str | None
) -> expire_delegation_token.Response:
    table = messages.expire_delegation_token
    return table.Response(error_code=code, expiry_timestamp_ms=_time_of(code))


def _time_of(code: ErrorCode) -> int:
    return 0 if code in _REFUSALS else -1


def handle_renew(services: Services, call: Call[renew_delegation_token.Request]) -> None:
    if (code := _not_at_the_door(call)) is not None:
        call.fail(code)
        return
    table, message = messages.renew_delegation_token, call.message

    def answered(token: DelegationToken) -> renew_delegation_token.Response:
        return table.Response(error_code=ErrorCode.NONE, expiry_timestamp_ms=token.expires_ms)

    services.controller.change_tokens(
        RenewToken(
            message.hmac, call.session.principal, message.renew_period_ms, _done(call, answered)
        )
    )


def handle_expire(services: Services, call: Call[expire_delegation_token.Request]) -> None:
    if (code := _not_at_the_door(call)) is not None:
        call.fail(code)
        return
    table, period_ms = messages.expire_delegation_token, call.message.expiry_time_period_ms

    def answered(token: DelegationToken) -> expire_delegation_token.Response:
        return table.Response(error_code=ErrorCode.NONE, expiry_timestamp_ms=token.expires_ms)

    services.controller.change_tokens(
        ExpireToken(call.message.hmac, call.session.principal, period_ms, _done(call, answered))
    )


def handle_describe(services: Services, call: Call[describe_delegation_token.Request]) -> None:
    code = _not_at_the_door(call)
    secret = services.config[SECRET]
    if code is None and not secret:
        code = _DISABLED
    if code is not None:
        call.fail(code)
        return
    tokens = [_described(each, secret) for each in _to_describe(services, call)]
    call.answer(
        messages.describe_delegation_token.Response(error_code=ErrorCode.NONE, tokens=tokens)
    )


def _to_describe(
    services: Services, call: Call[describe_delegation_token.Request]
) -> list[DelegationToken]:
    """Those that were asked for and that the client may see. The authorizer is asked twice, about
    all owners and then about all tokens that are left, and not once for each."""
    principal = call.session.principal
    asked = call.message.owners
    owners = None if asked is None else {
        Principal(each.principal_type, each.principal_name) for each in asked
    }  # fmt: skip
    wanted = [
        token
        for token in services.controller.image.tokens.values()
        if owners is None or not owners.isdisjoint((token.owner, token.requester, *token.renewers))
    ]
    others = [token for token in wanted if not token.is_own(principal)]
    owners_of_others = dict.fromkeys(str(token.owner) for token in others)
    operation, type_ = Operation.DESCRIBE_TOKENS, ResourceType.USER
    hidden = denied(services, call, operation, type_, owners_of_others, quiet=True)
    left = [token.token_id for token in others if str(token.owner) in hidden]
    operation, type_ = Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN
    unseen = denied(services, call, operation, type_, left, quiet=True)
    return [token for token in wanted if token.token_id not in unseen]


def _not_at_the_door(call: Call[Any]) -> ErrorCode | None:
    principal = call.session.principal
    if principal == ANONYMOUS or principal.by_token:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return None


def _owner(call: Call[create_delegation_token.Request]) -> Principal:
    kind, name = call.message.owner_principal_type, call.message.owner_principal_name
    return Principal(kind, name) if kind is not None and name else call.session.principal


def _done(
    call: Call[Any], answered: Callable[[DelegationToken], Any]
) -> Callable[[DelegationToken | KafkaError], None]:
    def done(token: DelegationToken | KafkaError) -> None:
        if isinstance(token, KafkaError):
            call.fail(token.code, token.message)
            return
        _name(call, token)
        call.answer_made(lambda: answered(token))

    return done


def _name(call: Call[Any], token: DelegationToken) -> None:
    """For the audit log."""
    if call.watch is not None:
        from kbroker.handlers.audited import name_subject  # few brokers have an audit log

        name_subject(call, token.token_id)


def _created(token: DelegationToken, secret: str) -> create_delegation_token.Response:
    return messages.create_delegation_token.Response(
        error_code=ErrorCode.NONE,
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=hmac_of(secret, token.token_id),
    )


def _described(
    token: DelegationToken, secret: str
) -> describe_delegation_token.DescribedDelegationToken:
    table = messages.describe_delegation_token
    return table.DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac_of(secret, token.token_id),
        renewers=[
            table.DescribedDelegationTokenRenewer(
                principal_type=each.type, principal_name=each.name
            )
            for each in token.renewers
        ],
    )
