"""CreatePartitions (37): more partitions for a topic, decided and done by the controller.

The count in a request is the total, and must be larger than the present one. Clients go on
producing and fetching meanwhile; the log of a new partition is open before Metadata lists the
partition. Every topic has its own error; one that was named twice is refused once. If the time-out
is over already, that is the answer and nothing is done; if it ends while the controller works, only
the waiting stops.

Any handler thread, then the controller's or the timer's; `Call` sees to one answer. Holds no lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied
from kbroker.handlers.delayed import await_decision
from kbroker.handlers.mutations import Mutations
from kbroker.handlers.reply import short_message
from kbroker.metadata.controller.decisions import MorePartitions, TopicResult
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.create_partitions import (
        CreatePartitionsTopic,
        Request,
        Response,
    )


_HIDDEN: Final = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def handle(services: Services, call: Call[Request]) -> None:
    request = call.message
    if request.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    if not request.topics:
        call.answer(_response(()))
        return
    names = [topic.name for topic in request.topics]
    hidden = denied(services, call, Operation.ALTER, ResourceType.TOPIC, names)
    topics = [_wanted(topic) for topic in request.topics if topic.name not in hidden]
    refused = [TopicResult.failed(name, _HIDDEN) for name in sorted(hidden)]
    if not topics:
        call.answer(_response(refused))
        return

    mutations = Mutations(services, call)

    def finish(results: Sequence[TopicResult]) -> Response:
        response = _response([*refused, *results])
        response.throttle_time_ms = call.throttled(mutations.throttle_ms)
        return response

    done = await_decision(services.purgatories.topic, call, request.timeout_ms, finish)
    services.controller.create_partitions(topics, request.validate_only, done, mutations.charge)


def _wanted(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = [tuple(each.broker_ids) for each in topic.assignments]
    return MorePartitions(topic.name, topic.count, assignments)


def _response(results: Sequence[TopicResult]) -> Response:
    table = messages.create_partitions
    # Of a topic that was named twice both results are the same refusal.
    by_name = {result.name: result for result in results}
    return table.Response(
        results=[
            table.CreatePartitionsTopicResult(
                name=name,
                error_code=result.error,
                # The bare name of a code says nothing that the code does not.
                error_message=None
                if result.message == result.error.name
                else short_message(result.message),
            )
            for name, result in by_name.items()
            if name is not None
        ]
    )
