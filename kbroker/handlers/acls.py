"""DescribeAcls, CreateAcls and DeleteAcls (29-31): there is no authorizer.

Each answers as an Apache Kafka without an authorizer does: SECURITY_DISABLED, for the whole request
or for each rule that was named. Tools know that code: MirrorMaker copies no rules then and goes on.
A field that is 0, which means "unknown", closes the connection, as there.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode
from kbroker.handlers.reply import told
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import ProtocolError, Reader, Writer

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services

NO_AUTHORIZER: Final = "no authorizer is configured"

_UNKNOWN: Final = 0  # of a resource's type, a pattern's, an operation and a permission


def handle_describe(services: Services, request: ColdRequest) -> None:
    request.respond(describe_failure(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))


def handle_create(services: Services, request: ColdRequest) -> None:
    request.respond(create_failure(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))


def handle_delete(services: Services, request: ColdRequest) -> None:
    request.respond(delete_failure(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))


def describe_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    reader = _reader(request)
    _skip_filter(reader)
    reader.tags()
    out = _begin(request)
    _put_error(out, code, message)
    out.array(0)  # rules
    out.tags()
    return out.getvalue()


def create_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    reader = _reader(request)
    count = reader.array()
    for _ in range(count):
        _skip_rule(reader)
    reader.tags()
    result = _empty(request)
    _put_error(result, code, message)
    result.tags()
    return _results(request, count, result.getvalue())


def delete_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    reader = _reader(request)
    count = reader.array()
    for _ in range(count):
        _skip_filter(reader)
        reader.tags()
    reader.tags()
    result = _empty(request)
    _put_error(result, code, message)
    result.array(0)  # rules that matched
    result.tags()
    return _results(request, count, result.getvalue())


def _flexible(request: ColdRequest) -> bool:
    return is_flexible(request.api_key, request.api_version)


def _reader(request: ColdRequest) -> Reader:
    return Reader(request.body, flexible=_flexible(request))


def _empty(request: ColdRequest) -> Writer:
    return Writer(flexible=_flexible(request))


def _skip_filter(reader: Reader) -> None:
    resource_type = reader.int8()
    reader.nullable_string()  # the resource's name
    pattern_type = reader.int8()
    reader.nullable_string()  # the principal
    reader.nullable_string()  # the host
    _check(resource_type, pattern_type, reader.int8(), reader.int8())


def _skip_rule(reader: Reader) -> None:
    resource_type = reader.int8()
    reader.string()  # the resource's name
    pattern_type = reader.int8()
    reader.string()  # the principal
    reader.string()  # the host
    _check(resource_type, pattern_type, reader.int8(), reader.int8())
    reader.tags()


def _check(*kinds: int) -> None:
    if _UNKNOWN in kinds:
        raise ProtocolError("a rule or filter has an unknown element")


def _begin(request: ColdRequest) -> Writer:
    out = _empty(request)
    out.int32(0)  # throttle time
    return out


def _put_error(out: Writer, code: ErrorCode, message: str) -> None:
    out.int16(code)
    out.string(told(message) or None)


def _results(request: ColdRequest, count: int, result: bytes) -> bytes:
    """The same result for each that was named."""
    out = _begin(request)
    out.array(count)
    out.raw(result * count)
    out.tags()
    return out.getvalue()
