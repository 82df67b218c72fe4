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
from kbroker.protocol import messages
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.protocol.messages import describe_transactions, list_transactions

NO_TRANSACTIONS: Final = "this broker does not serve transactions"

_STATES: Final = frozenset(
    {
        *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
        *("Dead", "PrepareEpochFence"),
    }
)
_OF_LIBRDKAFKA: Final = {ApiKey.FIND_COORDINATOR: 2, ApiKey.INIT_PRODUCER_ID: 4}


def refusal(request: ColdRequest) -> ErrorCode:
    """What a transactional producer is answered."""
    if _OF_LIBRDKAFKA.get(ApiKey(request.api_key)) == request.api_version:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.UNSUPPORTED_VERSION


def handle_list(services: Services, call: Call[list_transactions.Request]) -> None:
    states = dict.fromkeys(call.message.state_filters)
    unknown = [state for state in states if state not in _STATES]
    call.answer(
        messages.list_transactions.Response(
            error_code=ErrorCode.NONE, unknown_state_filters=unknown
        )
    )


def handle_describe(services: Services, call: Call[describe_transactions.Request]) -> None:
    call.fail(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


def describe_failure(
    call: Call[describe_transactions.Request], code: ErrorCode, message: str | None
) -> describe_transactions.Response:
    """An id that is empty is a mistake of the request, whatever is known of others."""
    table = messages.describe_transactions

    def unknown(name: str, code: ErrorCode) -> describe_transactions.TransactionState:
        return table.TransactionState(error_code=code, transactional_id=name)

    found = answers_of(
        call,
        call.message.transactional_ids,
        lambda name: unknown(name, code if name else ErrorCode.INVALID_REQUEST),
        lambda name: unknown(name, ErrorCode.INVALID_REQUEST),
    )
    return table.Response(transaction_states=found)
