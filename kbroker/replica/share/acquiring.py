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
# Where more deliveries are allowed, the last one is of one record.
_ALONE_ABOVE: Final = 2


class LogBatch(NamedTuple):
    """A batch of the log; both ends included."""

    base_offset: int
    last_offset: int


class Wanted(NamedTuple):
    """What a member asks for."""

    records: int  # at most so many, or as many as make whole batches
    batch_records: int  # batches of the log are joined up to here
    exactly: bool = False  # KIP-1206: never more


class Timed(NamedTuple):
    """Records that no member gets now; both ends included."""

    first_offset: int
    last_offset: int
    until_ms: int | None  # on the monotonic clock; None: they have expired


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
    timed: Sequence[Timed] = (),
) -> list[Acquired]:
    """The owner has these records from now on, until its lock ends.

    `found`: the batches from the offset `read_from` on that a read returned, in order, without
    others between them. `aborted`: those of them that the group does not get. `timed`: records
    that no member gets now, in order.
    """
    partition.end_locks(now_ms, settings)
    if not found:
        return []
    first, horizon = _skip(partition, read_from, found, aborted), found[-1].last_offset
    if first > horizon:
        return []
    _extend(partition, horizon, timed, settings)
    _archive(partition, Event.NOT_THERE, first, found[0].base_offset - 1, settings)
    for batch in aborted:
        _archive(
            partition, Event.NOT_THERE, max(first, batch.base_offset), batch.last_offset, settings
        )
    given = _hand_out(partition, owner, first, found, wanted, settings, now_ms)
    partition.give_back_tail()
    partition.advance()
    return given


def _extend(
    partition: SharePartition, horizon: int, timed: Sequence[Timed], settings: Settings
) -> None:
    """The window reaches as far as it may. Records that wait, or have expired, give their places in
    it to others."""
    at = 0
    while True:
        partition.extend(min(horizon, partition.end + max(0, partition.room(settings))))
        end = partition.end
        while at < len(timed) and timed[at].first_offset <= end:
            _keep_back(partition, timed[at], end, settings)
            if timed[at].last_offset > end:
                break
            at += 1
        if end >= horizon or partition.room(settings) <= 0:
            return


def _keep_back(partition: SharePartition, timed: Timed, end: int, settings: Settings) -> None:
    first, last = max(timed.first_offset, partition.start), min(timed.last_offset, end)
    if timed.until_ms is None:
        _archive(partition, Event.EXPIRED, first, last, settings)
    elif first <= last:
        ranges = partition.ranges
        for place in ranges.span(first, last):
            if ranges.state[place] == State.AVAILABLE:
                partition.put_off(place, timed.until_ms)
        ranges.join(first, last)


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
            partition.follow(place, event, settings)
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
    horizon = found[-1].last_offset
    while left > 0:
        place = _next_available(partition, first, horizon)
        if place is None:
            break
        free = settings.window - partition.acquired
        if free <= 0:  # many delays have ended
            break
        begin, last = max(first, ranges.first[place]), min(ranges.last[place], horizon)
        if ranges.length[place]:
            ends = min(ranges.origin[place] + ranges.length[place] - 1, horizon)
            piece = _piece(partition, begin, ends, settings)
            if piece is not None and given:
                break
            most = min(free, left if wanted.exactly else ends - begin + 1)
            most = most if piece is None else min(most, piece)
            again = _again(partition, owner, begin, ends, most, settings, now_ms)
            given += again
            left -= sum(each.last_offset - each.first_offset + 1 for each in again)
            first = ends + 1
            if piece is not None and again:
                break
            continue
        enough = left if wanted.exactly else min(max(1, wanted.batch_records), left)
        begin, last = _fresh(found, begin, last, enough)
        if first < begin:
            _archive(partition, Event.NOT_THERE, first, begin - 1, settings)
        if last < begin:
            first = begin
            continue
        most = min(free, left) if wanted.exactly else free
        if last - begin >= most:
            last = begin + most - 1
            _keep_whole(partition, found, begin, last)
        given.append(_lock(partition, owner, begin, last, settings, now_ms))
        left -= last - begin + 1
        first = last + 1
    return given


def _next_available(partition: SharePartition, first: int, last: int) -> int | None:
    """The place of the first range with such offsets."""
    ranges = partition.ranges
    if first > last:
        return None
    try:
        place = ranges.state.index(State.AVAILABLE, ranges.find(first))
    except ValueError:
        return None
    return place if ranges.first[place] <= last else None


def _piece(partition: SharePartition, first: int, last: int, settings: Settings) -> int | None:
    """Of a batch that was delivered before: how many of its records are handed out now. None: all
    that are available."""
    ranges = partition.ranges
    throttled_since = max(_THROTTLED_SINCE_LEAST, -(-settings.deliveries // 2))
    for place in ranges.overlapping(first, last):
        count = ranges.count[place]
        is_available = ranges.state[place] == State.AVAILABLE
        if is_available and throttled_since <= count < settings.deliveries:
            return max(1, ranges.length[place] >> (count - throttled_since + 1))
    return None


def _again(
    partition: SharePartition,
    owner: int,
    first: int,
    last: int,
    most: int,
    settings: Settings,
    now_ms: int,
) -> list[Acquired]:
    """What is available of a batch that was delivered before. A record is alone for its last
    delivery, unless it has two."""
    given: list[Acquired] = []
    ranges = partition.ranges
    while most > 0:
        place = _next_available(partition, first, last)
        if place is None:
            break
        begin, ends = max(first, ranges.first[place]), min(ranges.last[place], last)
        count = ranges.count[place]
        first = ends + 1
        if count >= settings.deliveries:
            _archive(partition, Event.USED_UP, begin, ends, settings)
            continue
        if count == settings.deliveries - 1 and settings.deliveries > _ALONE_ABOVE:
            if not given:
                given.append(_lock(partition, owner, begin, begin, settings, now_ms))
            break
        ends = min(ends, begin + most - 1)
        given.append(_lock(partition, owner, begin, ends, settings, now_ms))
        most -= ends - begin + 1
    return given


def _fresh(found: Sequence[LogBatch], begin: int, last: int, enough: int) -> tuple[int, int]:
    """Whole batches of the log among offsets that were never delivered, until there are enough
    records: from, to. With from after to, nothing is there before from."""
    at = bisect_left(found, begin, key=lambda batch: batch.last_offset)
    if at == len(found) or found[at].base_offset > last:
        return last + 1, last
    begin = max(begin, found[at].base_offset)
    while at < len(found) and found[at].last_offset < last:
        if found[at].last_offset - begin + 1 >= enough:
            # What lies before the next batch of the log is a gap, and goes with this one.
            return begin, min(last, found[at + 1].base_offset - 1)
        at += 1
    return begin, last


def _keep_whole(
    partition: SharePartition, found: Sequence[LogBatch], begin: int, last: int
) -> None:
    """The batch of the log of which a part is acquired, up to this offset, stays together, as in
    Apache Kafka: its rest is handed out apart from the batches after it."""
    ranges = partition.ranges
    at = bisect_left(found, last, key=lambda batch: batch.last_offset)
    ends = min(found[at].last_offset, ranges.last[ranges.find(begin)])
    if ends > last:
        (place,) = ranges.span(begin, ends)
        ranges.origin[place] = begin
        ranges.length[place] = min(ends - begin + 1, 2**31 - 1)


def _lock(
    partition: SharePartition, owner: int, begin: int, last: int, settings: Settings, now_ms: int
) -> Acquired:
    ranges = partition.ranges
    was_fresh = ranges.length[ranges.find(begin)] == 0
    (place,) = ranges.span(begin, last)
    if was_fresh:
        ranges.origin[place] = begin
        ranges.length[place] = min(last - begin + 1, 2**31 - 1)
    partition.give(place, owner, settings, now_ms)
    partition.count(Event.ACQUIRE, begin, last)
    return Acquired(begin, last, ranges.count[place])
