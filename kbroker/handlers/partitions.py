"""CreatePartitions (37): more partitions for a topic, decided and done by the controller.

The count in a request is the whole one, and must be more than there are. Clients go on producing
and fetching meanwhile; whoever sees a new partition in Metadata finds its log open. Every topic has
its own error, one that was named twice is refused once. A time-out that is over already is answered
as such and nothing is done; one that ends while the controller works stops only the waiting.

Any handler thread, then the controller's or the timer's; `Reply` sees to one answer. Holds no lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import Reply, answer_in_time, timeout_ms_of, told
from kbroker.metadata.controller.decisions import MorePartitions, TopicResult
from kbroker.protocol import cold
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services


def handle(services: Services, request: ColdRequest) -> None:
    with Reply(request, failure) as reply:
        _create(services, request, reply)


def _create(services: Services, request: ColdRequest, reply: Reply) -> None:
    asked = cold.decode(request)
    timeout_ms = timeout_ms_of(asked)
    if timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    wanted = [_wanted(topic) for topic in asked.topics]

    def finish(results: Sequence[TopicResult]) -> bytes:
        # Of a topic that was named twice both results are the same refusal.
        by_name = {result.name: result for result in results}
        return _encode(request.api_version, by_name)

    if not wanted:
        reply.send(partial(finish, ()))
        return
    done = answer_in_time(services, reply, timeout_ms, finish)
    services.controller.create_partitions(wanted, asked.validate_only, done)


def _wanted(topic: Any) -> MorePartitions:
    assignments = topic.assignments
    if assignments is not None:
        assignments = [assignment.broker_ids for assignment in assignments]
    return MorePartitions(topic.name, topic.count, assignments)


def _encode(version: int, results: Mapping[str | None, TopicResult]) -> bytes:
    module = cold.response_module(ApiKey.CREATE_PARTITIONS, version)
    topics = tuple(
        module.CreatePartitionsTopicResult(
            name=name,
            error_code=result.error,
            # The bare name of a code says nothing that the code does not.
            error_message=None if result.message == result.error.name else told(result.message),
        )
        for name, result in results.items()
    )
    return cold.encode(module.CreatePartitionsResponse(throttle_time=cold.NO_TIME, results=topics))


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    names = dict.fromkeys(topic.name for topic in cold.decode(request).topics)
    results = {name: TopicResult(name, code, message or None) for name in names}
    return _encode(request.api_version, results)
