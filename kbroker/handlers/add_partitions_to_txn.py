"""AddPartitionsToTxn (24): partitions go into a transaction, before anything is written to them.

Up to version 3 a client sends it, with one transaction; from version 4 on a broker does, with many,
each to be added or only to be verified. Where a partition cannot be added, none of its transaction
is: it has its own error, and the others OPERATION_NOT_ATTEMPTED. If a request names a transactional
id twice, its last transaction counts.

Any handler thread; the answer comes when the last transaction of the request is in the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.txn.image import RAISES_EPOCHS, Pair
from kbroker.coordinator.txn.own_requests import Verdicts
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied, may
from kbroker.handlers.reply import failures
from kbroker.handlers.transactions import NO_TRANSACTIONS, fencing_error, remembering
from kbroker.metadata.image import INTERNAL_TOPICS
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.coordinator.txn.coordinator import TransactionCoordinator
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import ClusterImage
    from kbroker.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTopicResult,
        Request,
        Response,
    )

SINCE_BROKERS: Final = 4
_FENCED_SINCE: Final = 2
_CLIENT_VERSION: Final = 0  # of transactions, as the record has it

# Of one transaction: an error for each partition, or one for all.
Verdict = ErrorCode | Mapping[TopicPartition, ErrorCode]


def handle(services: Services, call: Call[Request]) -> None:
    request = call.message
    if services.transactions is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, NO_TRANSACTIONS)
    coordinator = services.transactions.coordinator
    if call.version >= SINCE_BROKERS:
        _handle_brokers(services, call, coordinator)
        return
    transactional_id = request.v3_and_below_transactional_id
    write = Operation.WRITE
    if not may(services, call, write, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    pair = Pair(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    partitions = _partitions(request.v3_and_below_topics)
    hidden = _hidden(services, call, partitions)
    refused = _refused(services.controller.image, partitions, hidden, of_client=True)

    def answer(verdict: Verdict) -> None:
        results = _results(request.v3_and_below_topics, verdict, call.version)
        call.answer_made(
            lambda: messages.add_partitions_to_txn.Response(results_by_topic_v3_and_below=results)
        )

    if refused:
        answer(refused)
    elif not (name := request.v3_and_below_transactional_id):
        answer(ErrorCode.INVALID_REQUEST)
    elif coordinator is None:
        answer(ErrorCode.NOT_COORDINATOR)
    else:
        coordinator.add_partitions(
            name,
            pair,
            frozenset(partitions),
            _CLIENT_VERSION,
            remembering(coordinator, name, call, answer),
        )


def _handle_brokers(
    services: Services, call: Call[Request], coordinator: TransactionCoordinator | None
) -> None:
    table = messages.add_partitions_to_txn
    asked = {each.transactional_id: each for each in call.message.transactions}
    image = services.controller.image

    def answer(verdicts: Mapping[str, Verdict]) -> None:
        call.answer_made(
            lambda: table.Response(
                results_by_transaction=[
                    table.AddPartitionsToTxnResult(
                        transactional_id=name,
                        topic_results=_results(each.topics, verdicts[name], call.version),
                    )
                    for name, each in asked.items()
                ]
            )
        )

    verdicts = Verdicts(len(asked), answer, failures)
    if not asked:
        call.answer(table.Response())
    for name, each in asked.items():
        with verdicts.of(name) as put:
            pair = Pair(each.producer_id, each.producer_epoch)
            partitions = _partitions(each.topics)
            # The other broker has asked for the rights of its client.
            refused = _refused(image, partitions, frozenset(), of_client=False)
            if refused:
                put(refused)
            elif coordinator is None:
                put(ErrorCode.NOT_COORDINATOR)
            elif each.verify_only:
                put(coordinator.verify_partitions(name, pair, partitions))
            else:
                coordinator.add_partitions(name, pair, frozenset(partitions), RAISES_EPOCHS, put)


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """At the top where the version has an error there, else at each partition."""
    topics = call.message.v3_and_below_topics
    return messages.add_partitions_to_txn.Response(
        error_code=code, results_by_topic_v3_and_below=_results(topics, code, call.version)
    )


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _hidden(
    services: Services, call: Call[Request], partitions: Sequence[TopicPartition]
) -> frozenset[str]:
    """The topics to which the client may not write."""
    names = dict.fromkeys(each.topic for each in partitions)
    return denied(services, call, Operation.WRITE, ResourceType.TOPIC, names)


def _refused(
    image: ClusterImage,
    partitions: Sequence[TopicPartition],
    hidden: frozenset[str],
    *,
    of_client: bool,
) -> Mapping[TopicPartition, ErrorCode]:
    """Errors of all partitions if one of them cannot be added; else empty."""
    errors: dict[TopicPartition, ErrorCode] = {}
    for each in partitions:
        if each.topic in hidden or (of_client and each.topic in INTERNAL_TOPICS):
            errors[each] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(each.topic, each.partition) is None:
            errors[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not errors:
        return errors
    return {each: errors.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], verdict: Verdict, version: int
) -> list[AddPartitionsToTxnTopicResult]:
    """One error for all is answered as it was asked, errors of their own once for each topic."""
    table = messages.add_partitions_to_txn
    if isinstance(verdict, ErrorCode):
        listed = [(topic.name, [(each, verdict) for each in topic.partitions]) for topic in topics]
    else:
        codes: dict[str, list[tuple[int, ErrorCode]]] = {}
        for place, code in verdict.items():
            codes.setdefault(place.topic, []).append((place.partition, code))
        listed = list(codes.items())
    return [
        table.AddPartitionsToTxnTopicResult(
            name=name,
            results_by_partition=[
                table.AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=fencing_error(code, version, _FENCED_SINCE),
                )
                for index, code in found
            ],
        )
        for name, found in listed
    ]
