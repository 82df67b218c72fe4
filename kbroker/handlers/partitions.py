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
from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import Reply, answer_in_time, told
from kbroker.metadata.controller.decisions import MorePartitions, TopicResult
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services


def handle(services: Services, request: ColdRequest) -> None:
    with Reply(request, failure) as reply:
        _create(services, request, reply)


class _Asked(NamedTuple):
    topics: list[MorePartitions]
    timeout_ms: int
    validate_only: bool


def decode(request: ColdRequest) -> _Asked:
    reader = Reader(request.body, flexible=_flexible(request))
    topics = [_topic(reader) for _ in range(reader.array())]
    asked = _Asked(topics, reader.int32(), reader.boolean())
    reader.tags()
    return asked


def _topic(reader: Reader) -> MorePartitions:
    name, count = reader.string(), reader.int32()
    new = reader.nullable_array()
    assignments = None if new is None else [_brokers(reader) for _ in range(new)]
    reader.tags()
    return MorePartitions(name, count, assignments)


def _brokers(reader: Reader) -> tuple[int, ...]:
    brokers = tuple([reader.int32() for _ in range(reader.array())])
    reader.tags()
    return brokers


def _flexible(request: ColdRequest) -> bool:
    return is_flexible(ApiKey.CREATE_PARTITIONS, request.api_version)


def _create(services: Services, request: ColdRequest, reply: Reply) -> None:
    asked = decode(request)
    if asked.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    def finish(results: Sequence[TopicResult]) -> bytes:
        # Of a topic that was named twice both results are the same refusal.
        by_name = {result.name: result for result in results}
        return _encode(request, by_name)

    if not asked.topics:
        reply.send(partial(finish, ()))
        return
    done = answer_in_time(services, reply, asked.timeout_ms, finish)
    services.controller.create_partitions(asked.topics, asked.validate_only, done)


def _encode(request: ColdRequest, results: Mapping[str | None, TopicResult]) -> bytes:
    out = Writer(flexible=_flexible(request))
    out.int32(0)  # throttle time
    out.array(len(results))
    for name, result in results.items():
        out.string(name)
        out.int16(result.error)
        # The bare name of a code says nothing that the code does not.
        out.string(None if result.message == result.error.name else told(result.message))
        out.tags()
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    names = dict.fromkeys(topic.topic for topic in decode(request).topics)
    results: dict[str | None, TopicResult] = {
        name: TopicResult(name, code, message or None) for name in names
    }
    return _encode(request, results)
