"""DescribeProducers (61): the idempotent producers that a partition remembers.

For each: id, epoch, last sequence and last timestamp; without transactions the coordinator's epoch
and the start of the transaction are -1. Tools that look for hanging transactions begin here. A
partition may remember a hundred thousand, so the log writes them into the answer's form itself, and
what one answer may hold is bounded: a partition beyond the bound has an error instead.

Any handler thread; takes each partition's lock for the copying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker import limits
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import told
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol.wire import Reader, Writer

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services

_NO_PRODUCERS: Final = (0, b"")

Asked = list[tuple[str, list[int]]]


def decode(request: ColdRequest) -> Asked:
    reader = Reader(request.body, flexible=True)
    asked = []
    for _ in range(reader.array()):
        name = reader.string()
        partitions = [reader.int32() for _ in range(reader.array())]
        reader.tags()
        asked.append((name, partitions))
    reader.tags()
    return asked


def handle(services: Services, request: ColdRequest) -> None:
    asked = decode(request)
    out = Writer(flexible=True)
    out.int32(0)  # throttle time
    out.array(len(asked))
    budget = _Budget(limits.DESCRIBED_PRODUCERS_MAX)
    for name, partitions in asked:
        refusal = _refusal(services, name)
        out.string(name)
        out.array(len(partitions))
        for index in partitions:
            code, message, found = ErrorCode.NONE, None, _NO_PRODUCERS
            if refusal is not None:
                code, message = refusal
            else:
                try:
                    found = _producers(services, name, index, budget)
                except KafkaError as error:
                    code = error.code
                    message = error.message if error.message != error.code.name else None
            _write_partition(out, index, code, message, found)
        out.tags()
    out.tags()
    request.respond(out.getvalue())


def _refusal(services: Services, name: str) -> tuple[ErrorCode, str] | None:
    """Why no partition of this topic can be told of."""
    reason = invalid_topic_name(name)
    if reason is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, reason
    if services.controller.image.topic(name) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'"
    return None


class _Budget:
    """How many more producers the answer may hold."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self, count: int) -> None:
        """Raises where the answer would grow too long; from then on always."""
        self._left = -1 if count > self._left else self._left - count
        if self._left < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "too many producers for one answer: ask for fewer partitions at a time",
            )


def _producers(services: Services, topic: str, index: int, budget: _Budget) -> tuple[int, bytes]:
    if services.controller.image.partition(topic, index) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    replica = services.replicas.partition(topic, index)
    if replica is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    budget.take(0)
    found = replica.encode_producers()
    budget.take(found[0])
    return found


def _write_partition(
    out: Writer, index: int, code: ErrorCode, message: str | None, producers: tuple[int, bytes]
) -> None:
    count, encoded = producers
    out.int32(index)
    out.int16(code)
    out.string(told(message))
    out.array(count)
    out.raw(encoded)
    out.tags()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    asked = decode(request)
    out = Writer(flexible=True)
    out.int32(0)
    out.array(len(asked))
    for name, partitions in asked:
        out.string(name)
        out.array(len(partitions))
        for index in partitions:
            _write_partition(out, index, code, message or None, _NO_PRODUCERS)
        out.tags()
    out.tags()
    return out.getvalue()
