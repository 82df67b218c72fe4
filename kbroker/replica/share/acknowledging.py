"""Acknowledgements of one member for one partition: all of them are accepted, or none.

A batch names offsets and a type for all of them, or one for each. Batches come in order. One that
reaches beyond the last record that was handed out, or makes no sense, is INVALID_REQUEST. One with
a record that is not with this member, was acknowledged already or is being acknowledged is
INVALID_RECORD_STATE. Offsets before the start are done with, and no error: the log may have lost
them meanwhile.

Pure; under the lock of the share-partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.replica.share.states import EVENT_OF_TYPE, RENEW_TYPE, Do, Event

if TYPE_CHECKING:
    from kbroker.replica.share.partition import Settings, SharePartition


class Acknowledgement(NamedTuple):
    """As a request has it; both ends included, and one type for all, or one for each offset."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class Outcome(NamedTuple):
    """`code` where it is known; None: it comes with the write that has the token."""

    code: ErrorCode | None
    released: bool = False  # a lock ended by it, so a fetch may look again


class _Piece(NamedTuple):
    first: int
    last: int
    event: Event


def check(batches: Sequence[Acknowledgement], *, renews: bool) -> ErrorCode:
    """What the request alone shows to be wrong. `renews`: it may ask for more time (KIP-1222)."""
    before: int | None = None
    for batch in batches:
        length = batch.last_offset - batch.first_offset + 1
        if length < 1 or (before is not None and batch.first_offset < before):
            return ErrorCode.INVALID_REQUEST
        if len(batch.types) not in (1, length):
            return ErrorCode.INVALID_REQUEST
        kinds = set(batch.types)
        if not kinds <= EVENT_OF_TYPE.keys() or (RENEW_TYPE in kinds and not renews):
            return ErrorCode.INVALID_REQUEST
        before = batch.last_offset
    return ErrorCode.NONE


def not_done(
    partition: SharePartition, batches: Sequence[Acknowledgement]
) -> list[Acknowledgement]:
    """Without those before the start, which may be as many as a request has. Without the lock."""
    start = partition.start
    return [batch for batch in batches if batch.last_offset >= start]


def acknowledge(
    partition: SharePartition,
    owner: int,
    batches: Sequence[Acknowledgement],
    settings: Settings,
    now_ms: int,
    token: Any,
) -> Outcome:
    """`batches` have passed `check`. With an error nothing has changed."""
    ended = partition.end_locks(now_ms, settings)
    pieces: list[_Piece] = []
    for batch in batches:
        code = _pieces_of(partition, batch, settings, pieces)
        if code is not ErrorCode.NONE:
            return Outcome(code, ended)
    if not all(_are_owned(partition, owner, piece) for piece in pieces):
        return Outcome(ErrorCode.INVALID_RECORD_STATE, ended)
    waits = False
    for piece in pieces:
        waits |= _apply(partition, piece, settings, now_ms)
    if not waits:
        return Outcome(ErrorCode.NONE, ended)
    partition.prepared.append(token)
    return Outcome(None, ended)


def _pieces_of(
    partition: SharePartition, batch: Acknowledgement, settings: Settings, pieces: list[_Piece]
) -> ErrorCode:
    """Runs of offsets with one type, added to `pieces`: no more than there are in the window."""
    if batch.last_offset < partition.start:
        return ErrorCode.NONE
    if not partition.ranges:
        return ErrorCode.INVALID_RECORD_STATE
    if batch.last_offset > partition.end:
        return ErrorCode.INVALID_REQUEST
    for first, last, kind in _runs(batch, partition.start):
        if kind == RENEW_TYPE and not settings.renews:
            return ErrorCode.INVALID_RECORD_STATE
        if pieces and first <= pieces[-1].last:  # it was named before
            return ErrorCode.INVALID_RECORD_STATE
        pieces.append(_Piece(first, last, EVENT_OF_TYPE[kind]))
    return ErrorCode.NONE


def _runs(batch: Acknowledgement, start: int) -> Iterator[tuple[int, int, int]]:
    first = max(batch.first_offset, start)
    if len(batch.types) == 1:
        yield first, batch.last_offset, batch.types[0]
        return
    for kind, run in groupby(batch.types[first - batch.first_offset :]):
        length = sum(1 for _ in run)
        yield first, first + length - 1, kind
        first += length


def _are_owned(partition: SharePartition, owner: int, piece: _Piece) -> bool:
    return all(
        partition.ranges.owner[place] == owner
        and partition.cell(place, piece.event).do is not Do.REFUSE
        for place in partition.ranges.overlapping(piece.first, piece.last)
    )


def _apply(partition: SharePartition, piece: _Piece, settings: Settings, now_ms: int) -> bool:
    """True: it waits for a write."""
    for place in partition.ranges.span(piece.first, piece.last):
        if piece.event is Event.RENEW:
            partition.lock(place, now_ms + settings.lock_ms)
            partition.count(
                piece.event, partition.ranges.first[place], partition.ranges.last[place]
            )
        else:
            partition.follow(place, piece.event, settings)
    partition.ranges.join(piece.first, piece.last)
    return piece.event is not Event.RENEW
