"""DeleteRecords (21): a partition's log begins later from now on.

Each partition names the offset that shall be the first one left, -1 standing for the high
watermark, and is answered with the low watermark: the least offset at which the log of a live
replica begins. A log's start never moves back, so an offset below it is no error. Beyond the high
watermark, or below -1, is OFFSET_OUT_OF_RANGE. A topic that is only compacted keeps its records
(POLICY_VIOLATION), an internal one does too (INVALID_TOPIC_EXCEPTION). A partition that is named
more than once is done once, with the last offset given.

The leader's start moves at once and is on file before the answer; segments below it go in the
background (`log/_trim.pyx`). A live follower takes the start from the leader's next answer, puts it
on file, and says so with the fetch after it. The request is answered when all live followers of all
its partitions have done that, because any of them may be the next leader, after a kill, too; or
when the client's time is over, with REQUEST_TIMED_OUT: then the records are deleted here, and
perhaps not at a follower.

Any handler thread; writes a small file, under the data directory's lock. Where it waits
(`requests/_group_write.pyx`) the answer comes from another handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.config import TopicConfig
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import Reply
from kbroker.limits import DELETE_RECORDS_WAIT_MS_MAX
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, LedReplica, Services
    from kbroker.metadata.image import TopicImage

NO_WATERMARK: Final = -1


class _Result(NamedTuple):
    code: ErrorCode
    low_watermark: int = NO_WATERMARK


class _Asked(NamedTuple):
    offsets: dict[TopicPartition, int]  # in the order in which they are named first
    timeout_ms: int


class _Deletion:
    """The answer of one request, while its partitions wait for their followers."""

    def __init__(
        self,
        reply: Reply,
        wanted: Mapping[TopicPartition, int],
        results: dict[TopicPartition, _Result],
    ) -> None:
        self._reply = reply
        self._wanted = wanted
        self._results = results
        self._left = {name for name in wanted if name not in results}

    def await_followers(
        self, services: Services, starts: Mapping[TopicPartition, int], timeout_ms: int
    ) -> None:
        """`starts`: where the logs here begin now."""
        for name, start in starts.items():
            replica = services.replicas.partition(*name)
            if replica is None:  # deleted meanwhile
                self._end(name, _Result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            offset = self._wanted[name] if 0 <= self._wanted[name] < start else start
            low = replica.low_watermark
            if low >= offset:
                self._end(name, _Result(ErrorCode.NONE, low))
            elif timeout_ms <= 0:
                self._end(name, _Result(ErrorCode.REQUEST_TIMED_OUT, low))
            else:
                done = partial(self._settled, name, replica)
                wait_ms = min(timeout_ms, DELETE_RECORDS_WAIT_MS_MAX)
                services.await_low_watermark(replica, offset, wait_ms, done)

    def answer_if_over(self) -> None:
        if not self._left:
            results = {name: self._results[name] for name in self._wanted}
            self._reply.send(lambda: _encode(self._reply.request, results))

    def _settled(self, name: TopicPartition, replica: LedReplica, code: ErrorCode) -> None:
        told = code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
        self._end(name, _Result(code, replica.low_watermark if told else NO_WATERMARK))
        self.answer_if_over()

    def _end(self, name: TopicPartition, result: _Result) -> None:
        # Before it leaves: who sees nothing left sees all results.
        self._results[name] = result
        self._left.discard(name)


def handle(services: Services, request: ColdRequest) -> None:
    reply = Reply(request, failure)
    with reply:
        asked = _asked(request)
        results: dict[TopicPartition, _Result] = {}
        allowed: dict[TopicPartition, int] = {}
        image = services.controller.image
        refusals: dict[str, ErrorCode | None] = {}
        for name, offset in asked.offsets.items():
            topic = image.topic(name.topic)
            if name.topic not in refusals:
                refusals[name.topic] = _refusal(services, topic)
            refusal = refusals[name.topic]
            if topic is None or image.partition(*name) is None:
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
        deletion = _Deletion(reply, asked.offsets, results)
        deletion.await_followers(services, starts, asked.timeout_ms)
        deletion.answer_if_over()


def _flexible(request: ColdRequest) -> bool:
    return is_flexible(ApiKey.DELETE_RECORDS, request.api_version)


def _asked(request: ColdRequest) -> _Asked:
    reader = Reader(request.body, flexible=_flexible(request))
    wanted: dict[TopicPartition, int] = {}
    for _ in range(reader.array()):
        topic = reader.string()
        for _ in range(reader.array()):
            name = TopicPartition(topic, reader.int32())
            wanted[name] = reader.int64()
            reader.tags()
        reader.tags()
    timeout_ms = reader.int32()
    reader.tags()
    return _Asked(wanted, timeout_ms)


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


def _encode(request: ColdRequest, results: Mapping[TopicPartition, _Result]) -> bytes:
    topics: dict[str, list[tuple[int, _Result]]] = {}
    for (topic, index), result in results.items():
        topics.setdefault(topic, []).append((index, result))
    out = Writer(flexible=_flexible(request))
    out.int32(0)  # throttle time
    out.array(len(topics))
    for topic, partitions in topics.items():
        out.string(topic)
        out.array(len(partitions))
        for index, result in partitions:
            out.int32(index)
            out.int64(result.low_watermark)
            out.int16(result.code)
            out.tags()
        out.tags()
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return _encode(request, dict.fromkeys(_asked(request).offsets, _Result(code)))
