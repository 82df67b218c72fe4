"""Requests to share coordinators as messages 83 to 87, and back, for both ends.

    handlers             request -> what is asked of each partition; answers -> response
    share_coordinators   what is asked, of one kind and group -> request; response -> answers

A request has one group, and each of its partitions one answer. What it names twice is asked once:
the later one counts, as in Apache Kafka. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.coordinator.share.images import SharePartition, StateBatch
from kbroker.coordinator.share.requests import (
    Answer,
    Asked,
    Delete,
    Initialize,
    Read,
    Summarize,
    Write,
    failed,
)
from kbroker.coordinator.share.seams import Outcome, ReadState, Summary
from kbroker.errors import ErrorCode
from kbroker.metadata.image import ZERO_UUID
from kbroker.protocol import messages
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.protocol.messages.table import Message, Record


class Api(NamedTuple):
    """One of the five."""

    key: ApiKey
    versions: tuple[int, int]
    asked: Callable[[SharePartition, Any], Asked]  # of a partition of a request
    partition: Callable[[Any], Record]  # of a request, of the question
    topic: str  # the names of the records of a request and a response
    result_topic: str
    result: Callable[[int, Any], Record]  # of a response, of a partition and its answer
    answer: Callable[[Any], Answer]

    @property
    def table(self) -> Any:
        return getattr(messages, self.key.name.lower())


def _batches(stored: Iterable[Any]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in stored
    )


def _written_batches(table: Any, batches: Iterable[StateBatch]) -> list[Any]:
    return [
        table.StateBatch(
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            delivery_state=each.state,
            delivery_count=each.delivery_count,
        )
        for each in batches
    ]


def _write_partition(asked: Write) -> Record:
    table = messages.write_share_group_state
    return table.PartitionData(
        partition=asked.key.partition,
        state_epoch=asked.state_epoch,
        leader_epoch=asked.leader_epoch,
        start_offset=asked.start_offset,
        delivery_complete_count=asked.delivery_complete_count,
        state_batches=_written_batches(table, asked.batches),
        writer_run=asked.run,
        write_number=asked.number,
    )


def _read_result(partition: int, answer: ReadState) -> Record:
    table = messages.read_share_group_state
    if answer.code:
        return _plain_result(table)(partition, answer)
    return table.PartitionResult(
        partition=partition,
        error_code=answer.code,
        state_epoch=answer.state_epoch,
        start_offset=answer.start_offset,
        state_batches=_written_batches(table, answer.batches),
    )


def _summary_result(partition: int, answer: Summary) -> Record:
    table = messages.read_share_group_state_summary
    if answer.code:
        return _plain_result(table)(partition, answer)
    return table.PartitionResult(
        partition=partition,
        error_code=answer.code,
        state_epoch=answer.state_epoch,
        leader_epoch=answer.leader_epoch,
        start_offset=answer.start_offset,
        delivery_complete_count=answer.delivery_complete_count,
    )


def _plain_result(table: Any) -> Callable[[int, Answer], Record]:
    def result(partition: int, answer: Answer) -> Record:
        made: Record = table.PartitionResult(
            partition=partition, error_code=answer.code, error_message=answer.message
        )
        return made

    return result


def _outcome(result: Any) -> Outcome:
    return Outcome(ErrorCode.for_code(result.error_code), result.error_message)


def _read_answer(result: Any) -> ReadState:
    return ReadState(
        ErrorCode.for_code(result.error_code),
        result.error_message,
        result.state_epoch,
        result.start_offset,
        _batches(result.state_batches),
    )


def _summary_answer(result: Any) -> Summary:
    return Summary(
        ErrorCode.for_code(result.error_code),
        result.error_message,
        result.state_epoch,
        result.leader_epoch,
        result.start_offset,
        result.delivery_complete_count,
    )


INITIALIZE: Final = Api(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    (0, 0),
    lambda key, data: Initialize(key, data.state_epoch, data.start_offset),
    lambda asked: messages.initialize_share_group_state.PartitionData(
        partition=asked.key.partition,
        state_epoch=asked.state_epoch,
        start_offset=asked.start_offset,
    ),
    "InitializeStateData",
    "InitializeStateResult",
    lambda *of: _plain_result(messages.initialize_share_group_state)(*of),
    _outcome,
)
READ: Final = Api(
    ApiKey.READ_SHARE_GROUP_STATE,
    (0, 0),
    lambda key, data: Read(key, data.leader_epoch),
    lambda asked: messages.read_share_group_state.PartitionData(
        partition=asked.key.partition, leader_epoch=asked.leader_epoch
    ),
    "ReadStateData",
    "ReadStateResult",
    _read_result,
    _read_answer,
)
WRITE: Final = Api(
    ApiKey.WRITE_SHARE_GROUP_STATE,
    (0, 1),
    lambda key, data: Write(
        key,
        data.state_epoch,
        data.leader_epoch,
        data.start_offset,
        _batches(data.state_batches),
        data.delivery_complete_count,
        data.writer_run,
        data.write_number,
    ),
    _write_partition,
    "WriteStateData",
    "WriteStateResult",
    lambda *of: _plain_result(messages.write_share_group_state)(*of),
    _outcome,
)
DELETE: Final = Api(
    ApiKey.DELETE_SHARE_GROUP_STATE,
    (0, 0),
    lambda key, data: Delete(key),
    lambda asked: messages.delete_share_group_state.PartitionData(partition=asked.key.partition),
    "DeleteStateData",
    "DeleteStateResult",
    lambda *of: _plain_result(messages.delete_share_group_state)(*of),
    _outcome,
)
SUMMARIZE: Final = Api(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    (0, 1),
    lambda key, data: Summarize(key, data.leader_epoch),
    lambda asked: messages.read_share_group_state_summary.PartitionData(
        partition=asked.key.partition, leader_epoch=asked.leader_epoch
    ),
    "ReadStateSummaryData",
    "ReadStateSummaryResult",
    _summary_result,
    _summary_answer,
)
OF_KIND: Final[Mapping[type, Api]] = {
    Initialize: INITIALIZE, Read: READ, Write: WRITE, Delete: DELETE, Summarize: SUMMARIZE,
}  # fmt: skip
OF_KEY: Final[Mapping[ApiKey, Api]] = {api.key: api for api in OF_KIND.values()}


# --- the coordinator's end ------------------------------------------------------------------------


def asked_of(api: Api, request: Any) -> dict[SharePartition, Asked]:
    """The questions of a request. A topic without an id is one that does not exist."""
    found: dict[SharePartition, Asked] = {}
    for topic in request.topics:
        topic_id = topic.topic_id or ZERO_UUID
        for data in topic.partitions:
            key = SharePartition(request.group_id, topic_id, data.partition)
            found[key] = api.asked(key, data)
    return found


def response_of(api: Api, answers: Mapping[SharePartition, Answer]) -> Message:
    table = api.table
    by_topic: dict[UUID, list[Record]] = {}
    for (_, topic_id, partition), answer in answers.items():
        by_topic.setdefault(topic_id, []).append(api.result(partition, answer))
    make = getattr(table, api.result_topic)
    made: Message = table.Response(
        results=[make(topic_id=topic_id, partitions=some) for topic_id, some in by_topic.items()]
    )
    return made


# --- the other end --------------------------------------------------------------------------------


def encode_request(api: Api, asked: Sequence[Asked], version: int) -> bytes:
    """Of one kind and group."""
    table = api.table
    by_topic: dict[UUID, list[Record]] = {}
    for each in asked:
        by_topic.setdefault(each.key.topic_id, []).append(api.partition(each))
    make = getattr(table, api.topic)
    request: Message = table.Request(
        group_id=asked[0].key.group_id,
        topics=[make(topic_id=topic_id, partitions=some) for topic_id, some in by_topic.items()],
    )
    return request.encode(version)


def answers_of(api: Api, asked: Sequence[Asked], response: Any) -> list[Answer]:
    """In the order of `asked`. A partition that the response leaves out
    has an error."""
    found = {
        (topic.topic_id, result.partition): api.answer(result)
        for topic in response.results
        for result in topic.partitions
    }
    return [
        found.get((each.key.topic_id, each.key.partition))
        or failed(each, ErrorCode.NETWORK_EXCEPTION)
        for each in asked
    ]
