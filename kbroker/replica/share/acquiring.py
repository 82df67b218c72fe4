"""Records for a member: which of those that a read has found it gets.

The order is that of the offsets. Records that were never delivered are handed out in whole batches
of the log, several of them up to the batch size of the request, so that a client acknowledges them
together; a member gets at least one batch, and none after it has as many records as it asked for. A
batch that is available again is handed out as it is. With the record limit (KIP-1206) a member gets
exactly as many records as it asked for, at most.

A record that keeps its consumers from acknowledging anything is to be found (KAFKA-17541): from
half of the permitted deliveries on a batch is handed out alone, and in ever smaller pieces, for the
last delivery each record by itself.

Offsets of the window that the read does not find are archived: the log has no such record any more.
So are records of aborted transactions that a group with read_committed does not get. Offsets
between two batches belong to the first one, and its member acknowledges them as gaps.

Pure; under the lock of the share-partition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.replica.share.states import Event, State

if TYPE_CHECKING:
    from kbroker.replica.share.partition import Settings, SharePartition

_THROTTLED_SINCE_LEAST: Final = 2


class LogBatch(NamedTuple):
    """A batch of the log; both ends included."""

    base_offset: int
    last_offset: int


class Wanted(NamedTuple):
    """What a member asks for."""

    records: int  # at most so many, or as many as make whole batches
    batch_records: int  # batches of the log are joined up to here
    exactly: bool = False  # KIP-1206: never more


class Acquired(NamedTuple):
    """Records of one delivery count; both ends included."""

    first_offset: int
    last_offset: int
    delivery_count: int


def acquire(
    partition: SharePartition,
    owner: int,
    read_from: int,
    found: Sequence[LogBatch],
    wanted: Wanted,
    settings: Settings,
    now_ms: int,
    aborted: Sequence[LogBatch] = (),
) -> list[Acquired]:
    """The owner has these records from now on, until its lock ends.

    `found`: the batches from the offset `read_from` on that a read returned, in order, without
    others between them. `aborted`: those of them that the group does not get.
    """
    partition.end_locks(now_ms, settings)
    if not found:
        return []
    first, horizon = _skip(partition, read_from, found, aborted), found[-1].last_offset
    if first > horizon:
        return []
    room = partition.start + settings.window - 1
    partition.extend(min(horizon, max(room, partition.end)))
    _archive(partition, Event.NOT_THERE, first, found[0].base_offset - 1, settings)
    for batch in aborted:
        _archive(
            partition, Event.NOT_THERE, max(first, batch.base_offset), batch.last_offset, settings
        )
    given = _hand_out(partition, owner, first, found, wanted, settings, now_ms)
    partition.give_back_tail()
    partition.advance()
    return given


def _skip(
    partition: SharePartition,
    read_from: int,
    found: Sequence[LogBatch],
    aborted: Sequence[LogBatch],
) -> int:
    """Where there is something to hand out, or to archive. An empty window does not grow by records
    that no member gets, however many they are."""
    first = max(read_from, partition.start)
    if partition.ranges or first != partition.start:
        return first
    begins = max(first, found[0].base_offset)
    for batch in aborted:
        if batch.base_offset > begins:
            break
        begins = max(begins, batch.last_offset + 1)
    if begins > first:
        partition.skip_to(begins, Event.NOT_THERE)
    return begins


def _archive(
    partition: SharePartition, event: Event, first: int, last: int, settings: Settings
) -> None:
    if last < first:
        return
    ranges = partition.ranges
    for place in ranges.overlapping(first, last):
        if ranges.state[place] == State.AVAILABLE:
            break
    else:
        return
    for place in ranges.span(first, last):
        if ranges.state[place] == State.AVAILABLE:
            partition.follow(place, event, settings.deliveries)
    ranges.join(first, last)


def _hand_out(
    partition: SharePartition,
    owner: int,
    first: int,
    found: Sequence[LogBatch],
    wanted: Wanted,
    settings: Settings,
    now_ms: int,
) -> list[Acquired]:
    given: list[Acquired] = []
    ranges, left = partition.ranges, wanted.records
    until_ms, horizon = now_ms + settings.lock_ms, found[-1].last_offset
    throttled_since = max(_THROTTLED_SINCE_LEAST, -(-settings.deliveries // 2))
    while left > 0:
        place = _next_available(partition, first)
        if place is None or ranges.first[place] > horizon:
            break
        begin, count = max(first, ranges.first[place]), ranges.count[place]
        last = min(ranges.last[place], horizon)
        if count >= settings.deliveries:
            _archive(partition, Event.USED_UP, begin, last, settings)
            first = last + 1
            continue
        is_throttled = count >= throttled_since
        if is_throttled:
            if given:
                break
            last = min(last, begin + _piece(ranges.length[place], count, settings) - 1)
        elif ranges.length[place] == 0:
            begin, last = _fresh(found, begin, last, wanted.batch_records, left)
            if first < begin:
                _archive(partition, Event.NOT_THERE, first, begin - 1, settings)
            if last < begin:
                first = begin
                continue
        if wanted.exactly:
            last = min(last, begin + left - 1)
        given.append(_lock(partition, owner, begin, last, until_ms))
        left -= last - begin + 1
        first = last + 1
        if is_throttled:
            break
    return given


def _next_available(partition: SharePartition, first: int) -> int | None:
    ranges = partition.ranges
    try:
        return ranges.state.index(State.AVAILABLE, ranges.find(first))
    except ValueError:
        return None


def _piece(length: int, count: int, settings: Settings) -> int:
    """Of a batch that was delivered so often."""
    if count >= settings.deliveries - 1:
        return 1
    throttled_since = max(_THROTTLED_SINCE_LEAST, -(-settings.deliveries // 2))
    return max(1, length >> (count - throttled_since + 1))


def _fresh(
    found: Sequence[LogBatch], begin: int, last: int, batch_records: int, left: int
) -> tuple[int, int]:
    """Whole batches of the log among offsets that were never delivered: from, to. With from after
    to, nothing is there before from."""
    at = bisect_left(found, begin, key=lambda batch: batch.last_offset)
    if at == len(found) or found[at].base_offset > last:
        return last + 1, last
    begin = max(begin, found[at].base_offset)
    enough = min(max(1, batch_records), left)
    while at < len(found) and found[at].last_offset < last:
        if found[at].last_offset - begin + 1 >= enough:
            # What lies before the next batch of the log is a gap, and goes with this one.
            return begin, min(last, found[at + 1].base_offset - 1)
        at += 1
    return begin, last


def _lock(partition: SharePartition, owner: int, begin: int, last: int, until_ms: int) -> Acquired:
    ranges = partition.ranges
    was_fresh = ranges.length[ranges.find(begin)] == 0
    (place,) = ranges.span(begin, last)
    ranges.state[place] = State.ACQUIRED
    ranges.count[place] += 1
    ranges.owner[place] = owner
    if was_fresh:
        ranges.origin[place] = begin
        ranges.length[place] = min(last - begin + 1, 2**31 - 1)
    partition.lock(place, until_ms)
    return Acquired(begin, last, ranges.count[place])
