"""Delegation tokens, as our clients create, list, renew and remove them (KIP-48).

A token's HMAC is its password, so it is in no text that an object here shows of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol import messages
from kbroker.protocol.wire import Reader
from kbroker.security.delegation_token import DelegationToken
from kbroker.security.session import Principal


class KnownToken(NamedTuple):
    token: DelegationToken
    hmac: bytes

    def __repr__(self) -> str:
        return f"<KnownToken {self.token.token_id}>"


def encode_create_token(
    version: int, owner: Principal | None, renewers: Sequence[Principal], lifetime_ms: int
) -> bytes:
    """`owner` None: who asks. `lifetime_ms` -1: as long as the broker allows."""
    table = messages.create_delegation_token
    return table.Request(
        owner_principal_type=None if owner is None else owner.type,
        owner_principal_name=None if owner is None else owner.name,
        renewers=[
            table.CreatableRenewers(principal_type=each.type, principal_name=each.name)
            for each in renewers
        ],
        max_lifetime_ms=lifetime_ms,
    ).encode(version)


def decode_create_token(reader: Reader, version: int) -> KnownToken:
    answer = messages.create_delegation_token.Response.decode(reader.raw(reader.left), version)
    _check(answer.error_code)
    owner = Principal(answer.principal_type, answer.principal_name)
    requester = owner
    if answer.token_requester_principal_name:
        requester = Principal(
            answer.token_requester_principal_type, answer.token_requester_principal_name
        )
    times = answer.issue_timestamp_ms, answer.max_timestamp_ms, answer.expiry_timestamp_ms
    return KnownToken(DelegationToken(answer.token_id, owner, requester, (), *times), answer.hmac)


def encode_describe_tokens(version: int, owners: Sequence[Principal] | None) -> bytes:
    """None: all that the client may see."""
    table = messages.describe_delegation_token
    asked = None if owners is None else [
        table.DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name)
        for each in owners
    ]  # fmt: skip
    return table.Request(owners=asked).encode(version)


def decode_describe_tokens(reader: Reader, version: int) -> list[KnownToken]:
    answer = messages.describe_delegation_token.Response.decode(reader.raw(reader.left), version)
    _check(answer.error_code)
    found = []
    for each in answer.tokens:
        owner = Principal(each.principal_type, each.principal_name)
        requester = owner
        if each.token_requester_principal_name:
            requester = Principal(
                each.token_requester_principal_type, each.token_requester_principal_name
            )
        renewers = tuple(Principal(one.principal_type, one.principal_name) for one in each.renewers)
        times = each.issue_timestamp, each.max_timestamp, each.expiry_timestamp
        token = DelegationToken(each.token_id, owner, requester, renewers, *times)
        found.append(KnownToken(token, each.hmac))
    return found


def encode_renew_token(version: int, hmac: bytes, period_ms: int) -> bytes:
    """-1: for as long as the broker allows."""
    table = messages.renew_delegation_token
    return table.Request(hmac=hmac, renew_period_ms=period_ms).encode(version)


def decode_renew_token(reader: Reader, version: int) -> int:
    """When it expires."""
    answer = messages.renew_delegation_token.Response.decode(reader.raw(reader.left), version)
    _check(answer.error_code)
    return answer.expiry_timestamp_ms


def encode_expire_token(version: int, hmac: bytes, period_ms: int) -> bytes:
    """-1: it is removed at once."""
    table = messages.expire_delegation_token
    return table.Request(hmac=hmac, expiry_time_period_ms=period_ms).encode(version)


def decode_expire_token(reader: Reader, version: int) -> int:
    """When it expires, or has been removed."""
    answer = messages.expire_delegation_token.Response.decode(reader.raw(reader.left), version)
    _check(answer.error_code)
    return answer.expiry_timestamp_ms


_WORDS = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers have no delegation.token.secret.key",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "only a client that authenticates, and not with a token, may ask for this"
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "it needs CreateTokens on that user",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "its owner and its renewers alone may do this",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such token",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "it has expired",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "owners and renewers are written as User:NAME",
    ErrorCode.POLICY_VIOLATION: "there are too many tokens, or its principals are too long",
}


def _check(code: int) -> None:
    if code != ErrorCode.NONE:
        error = ErrorCode.for_code(code)
        raise KafkaError(error, _WORDS.get(error, ""))
