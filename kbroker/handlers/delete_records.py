"""DeleteRecords (21): a partition's log begins later from now on.

Each partition names the offset that shall be the first one left, -1 standing for the high
watermark, and is answered with the low watermark: the least offset at which the log of a live
replica begins. A log's start never moves back, so an offset below it is no error. Beyond the high
watermark, or below -1, is OFFSET_OUT_OF_RANGE. A topic that is only compacted keeps its records
(POLICY_VIOLATION), an internal one does too (INVALID_TOPIC_EXCEPTION). A partition that is named
more than once is done once, with the last offset given.

The leader's start moves at once and is on file before the answer; segments below it go in the
background (`log/upkeep/_trim.pyx`). A live follower takes the start from the leader's next answer,
puts it on file, and says so with the fetch after it. The request is answered when all live
followers of all its partitions have done that, because any of them may be the next leader, after a
kill, too; or when the client's time is over, with REQUEST_TIMED_OUT: then the records are deleted
here, and perhaps not at a follower.

Any handler thread; writes a small file, under the data directory's lock. Where it waits
(`engine/apis/_group_write.pyx`) the answer comes from another handler, or from the timer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.config import TopicConfig
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied
from kbroker.limits import DELETE_RECORDS_WAIT_MS_MAX
from kbroker.protocol import messages
from kbroker.purgatory.delayed_operation import DelayedOperation
from kbroker.security.rights import Operation, ResourceType
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import LedReplica, Services
    from kbroker.metadata.image import TopicImage
    from kbroker.protocol.messages.delete_records import PartitionResult, Request, Response
    from kbroker.purgatory.purgatory import Purgatory

NO_WATERMARK: Final = -1
# The watch of a low watermark ends after its operation, so that the time wheel alone ends that.
WATCH_LONGER_MS: Final = 1_000


class _Result(NamedTuple):
    code: ErrorCode
    low_watermark: int = NO_WATERMARK


class DelayedDeleteRecords(DelayedOperation):
    """A request whose partitions wait for their live followers, each watched under its name."""

    __slots__ = ("_call", "_results", "_waiting", "_wanted")

    def __init__(
        self,
        call: Call[Request],
        wanted: Mapping[TopicPartition, int],
        results: dict[TopicPartition, _Result],
    ) -> None:
        super().__init__(min(call.message.timeout_ms, DELETE_RECORDS_WAIT_MS_MAX))
        self._call = call
        self._wanted = wanted
        self._results = results
        self._waiting: dict[TopicPartition, LedReplica] = {}

    def wait(self, services: Services, starts: Mapping[TopicPartition, int]) -> None:
        """Answer now, or when the low watermarks have moved; `starts`: where the logs begin now.

        The low watermarks are watched before this operation is: what they have ended by then is
        seen when it is parked.
        """
        purgatory = services.purgatories.delete_records
        for name, start in starts.items():
            replica = services.replicas.partition(*name)
            if replica is None:  # deleted meanwhile
                self._results[name] = _Result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            offset = self._wanted[name] if 0 <= self._wanted[name] < start else start
            low = replica.low_watermark
            if low >= offset:
                self._results[name] = _Result(ErrorCode.NONE, low)
                continue
            self._waiting[name] = replica
            if self.delay_ms > 0:
                done = partial(self._settled, purgatory, name, replica, offset)
                watch_ms = self.delay_ms + WATCH_LONGER_MS
                services.await_low_watermark(replica, offset, watch_ms, done)
        purgatory.try_complete_else_watch(self, tuple(self._waiting))

    def try_complete(self) -> bool:
        return not self._waiting and self.force_complete()

    def on_complete(self) -> None:
        for name, replica in list(self._waiting.items()):
            late = _Result(ErrorCode.REQUEST_TIMED_OUT, replica.low_watermark)
            self._results.setdefault(name, late)
        self._call.answer(_response({name: self._results[name] for name in self._wanted}))

    def _settled(
        self,
        purgatory: Purgatory,
        name: TopicPartition,
        replica: LedReplica,
        offset: int,
        code: ErrorCode,
    ) -> None:
        low = NO_WATERMARK
        if code is ErrorCode.NONE:  # also where another broker has begun to lead since
            low = max(offset, replica.low_watermark)
        elif code is ErrorCode.REQUEST_TIMED_OUT:
            low = replica.low_watermark
        # The result first: a thread that sees nothing waiting sees all results.
        self._results[name] = _Result(code, low)
        self._waiting.pop(name, None)
        purgatory.check_and_complete(name)


def handle(services: Services, call: Call[Request]) -> None:
    wanted = {
        TopicPartition(topic.name, partition.partition_index): partition.offset
        for topic in call.message.topics
        for partition in topic.partitions
    }
    results: dict[TopicPartition, _Result] = {}
    allowed: dict[TopicPartition, int] = {}
    image = services.controller.image
    refusals: dict[str, ErrorCode | None] = {}
    names = dict.fromkeys(name.topic for name in wanted)
    hidden = denied(services, call, Operation.DELETE, ResourceType.TOPIC, names)
    for name, offset in wanted.items():
        topic = image.topic(name.topic)
        if name.topic not in refusals:
            refusals[name.topic] = _refusal(services, topic)
        refusal = refusals[name.topic]
        if name.topic in hidden:
            results[name] = _Result(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif topic is None or image.partition(*name) is None:
            results[name] = _Result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic.partitions[name.partition].leader != services.node_id:
            results[name] = _Result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif refusal is not None:
            results[name] = _Result(refusal)
        else:
            allowed[name] = offset
    starts: dict[TopicPartition, int] = {}
    for name, found in services.replicas.delete_records(allowed).items():
        if isinstance(found, KafkaError):
            results[name] = _Result(found.code)
        else:
            starts[name] = found
    DelayedDeleteRecords(call, wanted, results).wait(services, starts)


def _refusal(services: Services, topic: TopicImage | None) -> ErrorCode | None:
    """Why no partition of a topic may lose records."""
    if topic is None:
        return None
    if topic.internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    policy = TopicConfig(services.config, topic.configs)["cleanup.policy"]
    if "compact" in policy and "delete" not in policy:
        return ErrorCode.POLICY_VIOLATION
    return None


def _response(results: Mapping[TopicPartition, _Result]) -> Response:
    table = messages.delete_records
    topics: dict[str, list[PartitionResult]] = {}
    for (topic, index), result in results.items():
        topics.setdefault(topic, []).append(
            table.PartitionResult(
                partition_index=index, low_watermark=result.low_watermark, error_code=result.code
            )
        )
    return table.Response(
        topics=[table.TopicResult(name=name, partitions=each) for name, each in topics.items()]
    )


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """One entry for each topic, however often it is named."""
    return _response(
        {
            TopicPartition(topic.name, partition.partition_index): _Result(code)
            for topic in call.message.topics
            for partition in topic.partitions
        }
    )
