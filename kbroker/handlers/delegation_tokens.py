"""Create, Renew, Expire and DescribeDelegationToken (38-41): no client may have a token.

A token is given to a user who has authenticated, and no user has over a PLAINTEXT listener: Apache
Kafka answers DELEGATION_TOKEN_REQUEST_NOT_ALLOWED there, before it looks at the request. So does
this broker, whose listeners are all of that kind.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services

_NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
# The user of a connection that has not authenticated.
_USER: Final = "User"
_ANONYMOUS: Final = "ANONYMOUS"
_NO_TIME_MS: Final = -1
_SINCE_OWNER: Final = 3


def handle_create(services: Services, request: ColdRequest) -> None:
    request.respond(create_failure(request, _NOT_ALLOWED, ""))


def handle_renew_or_expire(services: Services, request: ColdRequest) -> None:
    request.respond(renew_or_expire_failure(request, _NOT_ALLOWED, ""))


def handle_describe(services: Services, request: ColdRequest) -> None:
    request.respond(describe_failure(request, _NOT_ALLOWED, ""))


def create_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    reader = _reader(request)
    owner = (_USER, _ANONYMOUS)
    if request.api_version >= _SINCE_OWNER:
        kind, name = reader.nullable_string(), reader.nullable_string()
        if kind is not None and name:
            owner = (kind, name)
    _skip_principals(reader, reader.array())  # who may renew it
    reader.int64()  # the longest time that it may live
    reader.tags()
    out = _begin(request, code)
    _put_principal(out, owner)
    if request.api_version >= _SINCE_OWNER:
        _put_principal(out, (_USER, _ANONYMOUS))
    for _ in range(3):  # issued, expires, expires at the latest
        out.int64(_NO_TIME_MS)
    out.string("")  # the token's id
    out.bytes(b"")
    return _end(out)


def renew_or_expire_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    """The two have the same fields."""
    reader = _reader(request)
    reader.required_bytes()  # the token's code
    reader.int64()  # for how long, or when
    reader.tags()
    out = _begin(request, code)
    out.int64(_NO_TIME_MS)
    return _end(out)


def describe_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    reader = _reader(request)
    _skip_principals(reader, reader.nullable_array() or 0)
    reader.tags()
    out = _begin(request, code)
    out.array(0)  # tokens
    return _end(out)


def _reader(request: ColdRequest) -> Reader:
    flexible = is_flexible(request.api_key, request.api_version)
    return Reader(request.body, flexible=flexible)


def _skip_principals(reader: Reader, count: int) -> None:
    for _ in range(count):
        reader.string()
        reader.string()
        reader.tags()


def _begin(request: ColdRequest, code: ErrorCode) -> Writer:
    out = Writer(flexible=is_flexible(request.api_key, request.api_version))
    out.int16(code)
    return out


def _put_principal(out: Writer, principal: tuple[str, str]) -> None:
    for part in principal:
        out.string(part)


def _end(out: Writer) -> bytes:
    out.int32(0)  # throttle time, the last of these answers
    out.tags()
    return out.getvalue()
