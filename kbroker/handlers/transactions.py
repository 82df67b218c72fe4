"""ListTransactions and DescribeTransactions (66, 65), and the way to the transaction coordinator.

Every broker answers for the transactional ids that it coordinates. A list may be filtered by state,
by producer id, by the time for which a transaction is open, and by a pattern, which has to match
the whole id. Names of states are case-sensitive, and those that do not exist are returned. An id
without a transaction counts as one that is open for long, as in Apache Kafka. While a partition of
the state topic is loaded there is no list: COORDINATOR_LOAD_IN_PROGRESS.

Where transactions are not served, the list is empty, and a producer with a transactional id is
refused (`refusal`). FindCoordinator and InitProducerId answer UNSUPPORTED_VERSION then, with the
reason, which the Java client, kafka-python, aiokafka and others take as final. librdkafka takes
TRANSACTIONAL_ID_AUTHORIZATION_FAILED alone as final, so its versions have that code.

A client of kbroker may ask whose client each id was: the client id and the address of the last
request of that id that succeeded here.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied, is_a_broker
from kbroker.handlers.repeats import answers_of
from kbroker.limits import KEPT_CLIENT_ID_CHARS_MAX
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.coordinator.group.expressions import NameExpression
    from kbroker.coordinator.txn.coordinator import TransactionCoordinator
    from kbroker.coordinator.txn.image import TransactionImage
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
_ANY_DURATION: Final = 0


def refusal(request: ColdRequest) -> ErrorCode:
    """The answer to a transactional producer where transactions are not served."""
    if _OF_LIBRDKAFKA.get(ApiKey(request.api_key)) == request.api_version:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.UNSUPPORTED_VERSION


def coordinator_of(services: Services) -> TransactionCoordinator:
    """KafkaError: this broker coordinates no transactional id."""
    if services.transactions is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, NO_TRANSACTIONS)
    coordinator = services.transactions.coordinator
    if coordinator is None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    return coordinator


def remembering(
    coordinator: TransactionCoordinator,
    transactional_id: str,
    call: Call[Any],
    answer: Callable[..., object],
) -> Callable[..., None]:
    """`answer`; where it has no error, the coordinator knows this client as that of the id."""
    client = call.session
    if client.client_id is not None and len(client.client_id) > KEPT_CLIENT_ID_CHARS_MAX:
        client = client._replace(client_id=client.client_id[:KEPT_CLIENT_ID_CHARS_MAX])

    def remember(code: ErrorCode, *result: object) -> None:
        if not code:
            coordinator.remember(transactional_id, client)
        answer(code, *result)

    return remember


def fencing_error(code: ErrorCode, version: int, since: int) -> ErrorCode:
    """Clients before that version do not know PRODUCER_FENCED."""
    if code is ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def handle_list(services: Services, call: Call[list_transactions.Request]) -> None:
    table = messages.list_transactions
    request = call.message
    states = dict.fromkeys(request.state_filters)
    unknown = [state for state in states if state not in _STATES]
    coordinator = None if services.transactions is None else services.transactions.coordinator
    now_ms = services.clock.wall_ms()
    pattern = None if services.transactions is None else request.transactional_id_pattern
    expression = _expression(pattern)
    producer_ids = frozenset(request.producer_id_filters)  # a list would be searched for each id
    if coordinator is not None and coordinator.is_loading:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    found = [
        table.TransactionState(
            transactional_id=name,
            producer_id=image.producer_id,
            transaction_state=image.state.label,
        )
        for name, image in (() if coordinator is None else coordinator.listings())
        if (not states or image.state.label in states)
        and (not producer_ids or image.producer_id in producer_ids)
        and _is_open_for(image, request.duration_filter, now_ms)
    ]
    names = [each.transactional_id for each in found]
    hidden: frozenset[str] = frozenset()
    if not is_a_broker(services, call):
        hidden = denied(
            services, call, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, names, quiet=True
        )
    found = [each for each in found if each.transactional_id not in hidden]
    if expression is not None:  # the ids of others cost the client's requests nothing
        matching = {*expression.matching([each.transactional_id for each in found])}
        found = [each for each in found if each.transactional_id in matching]
    if coordinator is not None and coordinator.is_loading:  # since then
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    call.answer(
        table.Response(
            error_code=ErrorCode.NONE, unknown_state_filters=unknown, transaction_states=found
        )
    )


def _is_open_for(image: TransactionImage, duration_ms: int, now_ms: int) -> bool:
    return duration_ms < _ANY_DURATION or now_ms - image.start_ms > duration_ms


def _expression(pattern: str | None) -> NameExpression | None:
    """What a listed id has to match as a whole (KIP-1152); None: nothing. KafkaError
    INVALID_REGULAR_EXPRESSION: the pattern is none."""
    if not pattern:
        return None
    # For those who use one.
    from kbroker.coordinator.group.expressions import ExpressionError, NameExpression

    try:
        if not pattern.isascii():
            raise ExpressionError("it has characters beyond ASCII, which are not searched for")
        return NameExpression(pattern)
    except ExpressionError as error:
        message = f"The transactional id pattern cannot be used: {error}"
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def handle_describe(services: Services, call: Call[describe_transactions.Request]) -> None:
    table = messages.describe_transactions
    coordinator = None if services.transactions is None else services.transactions.coordinator

    ids = call.message.transactional_ids
    sees_all = is_a_broker(services, call)
    hidden: frozenset[str] = frozenset()
    if not sees_all:
        hidden = denied(services, call, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, ids)

    def described(name: str) -> describe_transactions.TransactionState:
        found: TransactionImage | ErrorCode = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if name in hidden:
            found = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not name:
            found = ErrorCode.INVALID_REQUEST
        elif coordinator is not None:
            found = coordinator.describe(name)
        elif services.transactions is not None:
            found = ErrorCode.NOT_COORDINATOR
        if isinstance(found, ErrorCode):
            return table.TransactionState(error_code=found, transactional_id=name)
        client = coordinator.client_of(name) if coordinator and call.message.with_clients else None
        topics: dict[str, list[int]] = {}
        of_topics = set() if sees_all else {topic for topic, _ in found.partitions}
        left_out = denied(
            services, call, Operation.DESCRIBE, ResourceType.TOPIC, of_topics, quiet=True
        )
        for topic, index in sorted(found.partitions):
            if topic not in left_out:
                topics.setdefault(topic, []).append(index)
        return table.TransactionState(
            error_code=ErrorCode.NONE,
            transactional_id=name,
            transaction_state=found.state.label,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.start_ms,
            producer_id=found.producer_id,
            producer_epoch=found.epoch,
            topics=[
                table.TopicData(topic=topic, partitions=indexes)
                for topic, indexes in topics.items()
            ],
            client_id="" if client is None else client.client_id or "",
            client_host="" if client is None else client.client_host,
        )

    found = answers_of(
        call,
        call.message.transactional_ids,
        described,
        lambda name: table.TransactionState(
            error_code=ErrorCode.INVALID_REQUEST, transactional_id=name
        ),
    )
    call.answer(table.Response(transaction_states=found))
