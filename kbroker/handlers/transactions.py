"""ListTransactions and DescribeTransactions (66, 65), and how a transactional producer is refused.

There are no transactions: the list is empty, and an id that is named is TRANSACTIONAL_ID_NOT_FOUND,
as an Apache Kafka without any answers. States that do not exist are named in the answer. A pattern
for transactional ids is not compiled, since there is nothing that it could match.

A producer with a transactional id asks FindCoordinator first, and InitProducerId after it. Both
answer UNSUPPORTED_VERSION with the reason, which the Java client, kafka-python, aiokafka and others
take as final; the Java client shows the reason. librdkafka would ask again until its time is up:
it takes TRANSACTIONAL_ID_AUTHORIZATION_FAILED alone as final. So the versions that librdkafka uses
have that code, and the reason beside it, which librdkafka shows.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode
from kbroker.handlers.repeats import answers_of
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbroker.handlers.services import ColdRequest, Services

NO_TRANSACTIONS: Final = "this broker does not serve transactions"

_STATES: Final = frozenset(
    {
        *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
        *("Dead", "PrepareEpochFence"),
    }
)
_SINCE_DURATION: Final = 1
_SINCE_PATTERN: Final = 2
_OF_LIBRDKAFKA: Final = {ApiKey.FIND_COORDINATOR: 2, ApiKey.INIT_PRODUCER_ID: 4}


def refusal(request: ColdRequest) -> ErrorCode:
    """What a transactional producer is answered."""
    if _OF_LIBRDKAFKA.get(ApiKey(request.api_key)) == request.api_version:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.UNSUPPORTED_VERSION


def decode_list(request: ColdRequest) -> list[str]:
    """The states that are asked for."""
    reader = Reader(request.body, flexible=True)
    states = [reader.string() for _ in range(reader.array())]
    for _ in range(reader.array()):
        reader.int64()  # a producer's id
    if request.api_version >= _SINCE_DURATION:
        reader.int64()
    if request.api_version >= _SINCE_PATTERN:
        reader.nullable_string()
    reader.tags()
    return states


def handle_list(services: Services, request: ColdRequest) -> None:
    unknown = dict.fromkeys(state for state in decode_list(request) if state not in _STATES)
    request.respond(_encode_list(ErrorCode.NONE, unknown))


def _encode_list(code: ErrorCode, unknown_states: Iterable[str]) -> bytes:
    out = Writer(flexible=True)
    out.int32(0)  # throttle time
    out.int16(code)
    states = list(unknown_states)
    out.array(len(states))
    for state in states:
        out.string(state)
    out.array(0)  # transactions
    out.tags()
    return out.getvalue()


def list_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return _encode_list(code, ())


def decode_describe(request: ColdRequest) -> list[str]:
    """The transactional ids that are asked for."""
    reader = Reader(request.body, flexible=True)
    ids = [reader.string() for _ in range(reader.array())]
    reader.tags()
    return ids


def handle_describe(services: Services, request: ColdRequest) -> None:
    request.respond(describe_failure(request, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ""))


def describe_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    found = answers_of(
        request,
        decode_describe(request),
        # An id that is empty is a mistake of the request, whatever is known of others.
        lambda name: _nothing_known(name, code if name else ErrorCode.INVALID_REQUEST),
        lambda name: _nothing_known(name, ErrorCode.INVALID_REQUEST),
    )
    out = Writer(flexible=True)
    out.int32(0)  # throttle time
    out.array(len(found))
    out.raw(b"".join(found))
    out.tags()
    return out.getvalue()


def _nothing_known(transactional_id: str, code: ErrorCode) -> bytes:
    out = Writer(flexible=True)
    out.int16(code)
    out.string(transactional_id)
    out.string("")  # the state
    out.int32(0)  # the time-out
    out.int64(0)  # when it began
    out.int64(0)  # the producer's id
    out.int16(0)  # and epoch
    out.array(0)  # topics
    out.tags()
    return out.getvalue()
