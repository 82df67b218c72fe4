"""What a request does to the state of a share-partition: an answer, and a record or none.

Each decision is a function of the request, the state of that moment, the topics and the time. It
changes nothing: the record is applied when the log has it (`coordinator.py`). The checks are in the
order of Apache Kafka 4.3: the request itself, whether there is a state, the leader epoch, the state
epoch, the topic.

Source: KIP-932, KIP-1226 (delivery complete count), and answers of Apache Kafka 4.3.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.coordinator.share.batches import join_done, merge, prune, put
from kbroker.coordinator.share.images import NO_COUNT, NO_EPOCH, NO_START
from kbroker.coordinator.share.records import Snapshot, Update, Value, is_sound
from kbroker.coordinator.share.requests import (
    Answer,
    Asked,
    Delete,
    Forget,
    Initialize,
    Read,
    Renew,
    Summarize,
    Write,
    failed,
)
from kbroker.coordinator.share.seams import Outcome, ReadState, Summary
from kbroker.errors import ErrorCode
from kbroker.outside_text import can_be_told

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.coordinator.share.state import ShareState

INVALID: Final = ErrorCode.INVALID_REQUEST
_DONE: Final = Outcome()
_FIRST_SNAPSHOT: Final = 0
# Of one state, of 20 bytes each: a snapshot fits into a record of 1 MB. A leader has fewer ranges
# (SHARE_RANGES_MAX), of which one may be several batches here until they are joined.
STATE_BATCHES_MAX: Final = 45_000
_NO_LEADER: Final = 0  # has read it

# Whether a topic of this id has this partition.
Exists = Callable[["UUID", int], bool]


class Decision(NamedTuple):
    """`value`: the record to write; None with `deletes` is a tombstone, without it nothing."""

    answer: Answer
    value: Value | None = None
    deletes: bool = False

    @property
    def writes(self) -> bool:
        return self.value is not None or self.deletes


class _Refused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def decide(
    asked: Asked,
    state: ShareState | None,
    exists: Exists,
    *,
    now_ms: int,
    updates_max: int,
) -> Decision:
    """`updates_max`: updates of one snapshot; what is written after that is another snapshot."""
    try:
        if not can_be_told(asked.key.group_id):
            raise _Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "The group id is too long.")
        if asked.key.partition < 0:
            raise _Refused(INVALID, "The partition id cannot be a negative number.")
        match asked:
            case Initialize():
                return _initialize(asked, state, exists, now_ms)
            case Read():
                return _read(asked, state, exists, now_ms, updates_max)
            case Write():
                return _write(asked, state, exists, now_ms, updates_max)
            case Delete():
                return _delete(asked, state, exists)
            case Forget():
                return Decision(_DONE, deletes=state is not None)
            case Summarize():
                return _summarize(asked, state, exists)
            case Renew():
                return _renew(asked, state, exists, now_ms)
    except _Refused as refused:
        return Decision(failed(asked, refused.code, refused.message))


def _check_leader(leader_epoch: int, state: ShareState) -> None:
    if leader_epoch < state.leader_epoch:
        raise _Refused(ErrorCode.FENCED_LEADER_EPOCH, FENCED_LEADER_WORDS)


def _check_state_epoch(state_epoch: int, state: ShareState) -> None:
    if state_epoch != NO_EPOCH and state_epoch < state.state_epoch:
        raise _Refused(ErrorCode.FENCED_STATE_EPOCH, FENCED_STATE_WORDS)


def _check_topic(asked: Asked, exists: Exists) -> None:
    if not exists(asked.key.topic_id, asked.key.partition):
        raise _Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_WORDS)


def _initialize(
    asked: Initialize, state: ShareState | None, exists: Exists, now_ms: int
) -> Decision:
    if asked.start_offset < NO_START:
        raise _Refused(INVALID, "The start offset cannot be less than -1.")
    if state is not None:
        _check_state_epoch(asked.state_epoch, state)
    _check_topic(asked, exists)
    is_known = state is not None and asked.state_epoch == state.state_epoch
    if is_known and asked.start_offset == NO_START:
        # The group has asked twice, or its request comes late: a leader may have found the start,
        # and members may have had records.
        return Decision(_DONE)
    snapshot = Snapshot(
        _FIRST_SNAPSHOT if state is None else state.snapshot_epoch + 1,
        asked.state_epoch,
        _NO_LEADER,
        asked.start_offset,
        0 if asked.start_offset != NO_START else NO_COUNT,
        now_ms,
        now_ms,
        (),
    )
    return Decision(_DONE, snapshot)


def _read(
    asked: Read, state: ShareState | None, exists: Exists, now_ms: int, updates_max: int
) -> Decision:
    if state is None:
        raise _Refused(INVALID, "Read operation on uninitialized share partition not allowed.")
    _check_leader(asked.leader_epoch, state)
    _check_topic(asked, exists)
    answer = ReadState(
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        batches=tuple(state.batches),
    )
    if asked.leader_epoch == state.leader_epoch:
        return Decision(answer)
    # The leaders before are fenced, also by the next coordinator.
    same = Write(
        asked.key, NO_EPOCH, NO_EPOCH, state.start_offset, (), state.delivery_complete_count
    )
    value = _value(same, state, now_ms, updates_max)
    return Decision(answer, value._replace(leader_epoch=asked.leader_epoch))


def _write(
    asked: Write, state: ShareState | None, exists: Exists, now_ms: int, updates_max: int
) -> Decision:
    if state is None:
        raise _Refused(INVALID, "Write operation on uninitialized share partition not allowed.")
    if asked.leader_epoch != NO_EPOCH:
        _check_leader(asked.leader_epoch, state)
    _check_state_epoch(asked.state_epoch, state)
    _check_topic(asked, exists)
    if asked.start_offset < NO_START:
        raise _Refused(INVALID, "The start offset cannot be less than -1.")
    if not all(map(is_sound, asked.batches)):
        raise _Refused(INVALID, "A batch has no such offsets, state or delivery count.")
    if len(state.batches) + len(asked.batches) > STATE_BATCHES_MAX:
        join_done(state.batches)
    if len(state.batches) + len(asked.batches) > STATE_BATCHES_MAX:
        raise _Refused(INVALID, f"A state has more than {STATE_BATCHES_MAX:,} batches.")
    return Decision(_DONE, _value(asked, state, now_ms, updates_max))


def _value(asked: Write, state: ShareState, now_ms: int, updates_max: int) -> Value:
    """An update; a snapshot of all where there are enough of them. A write leaves the leader epoch
    as the leader's read has set it."""
    if state.updates < updates_max:
        return Update(
            state.snapshot_epoch,
            state.leader_epoch,
            asked.start_offset,
            asked.delivery_complete_count,
            tuple(merge(asked.batches, asked.start_offset)),
        )
    start = state.start_offset if asked.start_offset == NO_START else asked.start_offset
    batches = list(state.batches)
    for each in asked.batches:
        put(batches, each)
    prune(batches, start)
    return state.snapshot(now_ms)._replace(
        start_offset=start,
        delivery_complete_count=asked.delivery_complete_count,
        batches=tuple(batches),
    )


def _delete(asked: Delete, state: ShareState | None, exists: Exists) -> Decision:
    _check_topic(asked, exists)
    return Decision(_DONE, deletes=state is not None)


def _summarize(asked: Summarize, state: ShareState | None, exists: Exists) -> Decision:
    if state is None:
        # A group asks before a topic's states are initialised: that is no error.
        _check_topic(asked, exists)
        return Decision(Summary())
    _check_topic(asked, exists)
    return Decision(
        Summary(
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
    )


def _renew(asked: Renew, state: ShareState | None, exists: Exists, now_ms: int) -> Decision:
    if state is None or state.written_ms > asked.before_ms:
        return Decision(_DONE)
    if not exists(asked.key.topic_id, asked.key.partition):  # its tombstone was refused
        return Decision(_DONE, deletes=True)
    return Decision(_DONE, state.snapshot(now_ms))


FENCED_LEADER_WORDS: Final = (
    "The leader epoch in the request is older than the epoch on the broker."
)
FENCED_STATE_WORDS: Final = (
    "The share coordinator rejected the request because the share-group state epoch did not match."
)
UNKNOWN_TOPIC_WORDS: Final = "This server does not host this topic-partition."
