"""Which cell of the table a request meets, and what is to be written for it.

    image, request -> Decision: an error, an answer, or the next image to be written

Pure: no clock, no lock, no log. An image is None where the id is unknown; `pending` says that a
write of it is under way. A decision that needs a new producer id says so (`NEEDS_PRODUCER_ID`) and
is asked for again with one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kbroker.coordinator.txn import image as images
from kbroker.coordinator.txn.image import (
    LIMITS,
    NO_PAIR,
    RAISES_EPOCHS,
    Limits,
    Pair,
    Partitions,
    TransactionImage,
)
from kbroker.coordinator.txn.states import TABLE, Cell, Do, Event, State
from kbroker.errors import ErrorCode, InvariantError


class Decision(NamedTuple):
    """`image` is to be written; None with FORGET is a tombstone, with others nothing is written.

    `answer` is what the client gets when that is done.
    """

    do: Do
    code: ErrorCode = ErrorCode.NONE
    image: TransactionImage | None = None
    answer: Pair = NO_PAIR
    needs_producer_id: bool = False


NEEDS_PRODUCER_ID: Final = Decision(Do.RENEW, needs_producer_id=True)

Known = TransactionImage | None


def _cell(image: Known, event: Event, *, pending: bool) -> Cell:
    state = State.NONE if image is None else image.state
    if pending:
        state = State.PENDING
    cell = TABLE[state, event]
    if cell.do is Do.NEVER:
        raise InvariantError(f"{event.name} of an id that is {state.label}")
    return cell


def _needs_id(image: TransactionImage, fresh_id: int | None, limits: Limits) -> bool:
    return fresh_id is None and limits.is_used_up(image.epoch)


# --- InitProducerId -------------------------------------------------------------------------------


def init_event(image: Known, pair: Pair, limits: Limits = LIMITS) -> Event:
    if pair == NO_PAIR:
        return Event.INIT
    if image is None:
        return Event.INIT_FOREIGN
    is_before = pair.producer_id == image.previous_producer_id and limits.is_used_up(pair.epoch)
    if pair.producer_id != image.producer_id and not is_before:
        return Event.INIT_FOREIGN
    if pair == image.pair:
        return Event.INIT_CURRENT
    return Event.INIT_LAST if pair.epoch == image.last_epoch else Event.INIT_OLD


def init(
    image: Known,
    pair: Pair,
    timeout_ms: int,
    version: int,
    now_ms: int,
    *,
    pending: bool = False,
    fence_failed: bool = False,
    fresh_id: int | None = None,
    limits: Limits = LIMITS,
) -> Decision:
    """`version` is the level of transaction.version, by which the coordinator itself aborts."""
    cell = _cell(image, init_event(image, pair, limits), pending=pending)
    if cell.do is Do.REFUSE:
        return Decision(cell.do, cell.code)
    if image is None:
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        after = images.created(fresh_id, timeout_ms, now_ms)
    elif cell.do is Do.FENCE:
        code = ErrorCode.CONCURRENT_TRANSACTIONS
        return _fence(image, version, now_ms, fence_failed, fresh_id, limits, code)
    elif cell.do is Do.REPEAT and not limits.is_last(image.epoch):
        after = images.repeated(image, timeout_ms, now_ms)
    elif _needs_id(image, fresh_id, limits):
        return NEEDS_PRODUCER_ID
    else:
        used_up = limits.is_used_up(image.epoch)
        after = images.renewed(
            image,
            timeout_ms,
            now_ms,
            last_epoch=pair.epoch,
            fresh_id=fresh_id if used_up else None,
        )
    return Decision(cell.do, image=after, answer=after.pair)


def _fence(
    image: TransactionImage,
    version: int,
    now_ms: int,
    failed: bool,
    fresh_id: int | None,
    limits: Limits,
    code: ErrorCode,
) -> Decision:
    raises = version >= RAISES_EPOCHS
    if raises and _needs_id(image, fresh_id, limits):
        return NEEDS_PRODUCER_ID
    used_up = raises and limits.is_used_up(image.epoch)
    after = images.fenced(
        image, version, now_ms, limits, raised=failed, fresh_id=fresh_id if used_up else None
    )
    return Decision(Do.FENCE, code, after)


# --- partitions -----------------------------------------------------------------------------------


def add(
    image: Known,
    pair: Pair,
    partitions: Partitions,
    client_version: int,
    now_ms: int,
    *,
    pending: bool = False,
) -> Decision:
    event = Event.ADD
    if image is None or pair.producer_id != image.producer_id:
        event = Event.ADD_FOREIGN
    elif pair.epoch != image.epoch:
        event = Event.ADD_OLD
    elif partitions <= image.partitions:
        event = Event.ADD_KNOWN
    cell = _cell(image, event, pending=pending)
    if image is None or cell.do in (Do.REFUSE, Do.ANSWER):
        return Decision(cell.do, cell.code)
    return Decision(cell.do, image=images.joined(image, partitions, client_version, now_ms))


def verify(image: Known, pair: Pair) -> ErrorCode:
    """Whether a producer may write to partitions of its transaction; which ones are in it is
    another question. The log is asked again by its leader, so a write under way does not count."""
    if image is None or pair.producer_id != image.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if pair.epoch != image.epoch:
        return ErrorCode.PRODUCER_FENCED
    if image.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE


# --- EndTxn ---------------------------------------------------------------------------------------


def end_event(
    image: Known, pair: Pair, *, committed: bool, raises: bool, limits: Limits = LIMITS
) -> Event:
    """`raises`: by EndTxn 5, each outcome raises the epoch. The epoch before is that of a retry if
    such an outcome was the last; else InitProducerId has raised it, for another producer."""
    if image is None:
        return Event.END_FOREIGN_AND_RAISE if raises else Event.END_FOREIGN
    if pair == image.pair:
        if raises:
            return Event.COMMIT_AND_RAISE if committed else Event.ABORT_AND_RAISE
        return Event.COMMIT if committed else Event.ABORT
    is_known = pair.producer_id == image.producer_id
    if not raises:
        return Event.END_OLD if is_known else Event.END_FOREIGN
    if image.client_version >= RAISES_EPOCHS and _is_before(image, pair, limits):
        return Event.COMMIT_AGAIN if committed else Event.ABORT_AGAIN
    return Event.END_OLD_AND_RAISE if is_known else Event.END_FOREIGN_AND_RAISE


def _is_before(image: TransactionImage, pair: Pair, limits: Limits) -> bool:
    """Whether an outcome has made the current pair of this one."""
    if pair.producer_id == image.producer_id:
        return pair.epoch == image.epoch - 1
    is_previous = pair.producer_id == image.previous_producer_id
    return is_previous and limits.is_used_up(pair.epoch) and image.epoch == 0


def end(
    image: Known,
    pair: Pair,
    version: int,
    now_ms: int,
    *,
    committed: bool,
    pending: bool = False,
    fresh_id: int | None = None,
    limits: Limits = LIMITS,
) -> Decision:
    """`version` is that of the client's EndTxn: 2 for EndTxn 5, else 0."""
    raises = version >= RAISES_EPOCHS
    event = end_event(image, pair, committed=committed, raises=raises, limits=limits)
    cell = _cell(image, event, pending=pending)
    if image is None or cell.do is Do.REFUSE:
        return Decision(cell.do, cell.code)
    if cell.do is Do.ANSWER:
        if raises and limits.is_last(image.epoch):
            # A fence below version 2 has used the last epoch, which no client may have.
            return Decision(Do.REFUSE, ErrorCode.PRODUCER_FENCED)
        return Decision(cell.do, answer=image.pair)
    if raises and _needs_id(image, fresh_id, limits):
        return NEEDS_PRODUCER_ID
    used_up = limits.is_used_up(image.epoch)
    after = images.prepared(image, cell.to, version, now_ms, limits, fresh_id if used_up else None)
    return Decision(cell.do, image=after, answer=images.pair_after(after))


# --- the coordinator's own ------------------------------------------------------------------------


def time_out(
    image: TransactionImage,
    version: int,
    now_ms: int,
    *,
    pending: bool = False,
    fence_failed: bool = False,
    fresh_id: int | None = None,
    limits: Limits = LIMITS,
) -> Decision:
    """The id is to be asked about only if it `is_late`."""
    cell = _cell(image, Event.TIMEOUT, pending=pending)
    if cell.do is not Do.FENCE:
        return Decision(cell.do)
    return _fence(image, version, now_ms, fence_failed, fresh_id, limits, ErrorCode.NONE)


def is_late(image: TransactionImage, now_ms: int) -> bool:
    """By the wall clock; see `timeouts.py`."""
    return image.state is State.ONGOING and image.start_ms + image.timeout_ms < now_ms


def complete(image: TransactionImage, now_ms: int) -> Decision:
    cell = _cell(image, Event.MARKED, pending=False)
    if cell.do is not Do.COMPLETE:
        return Decision(cell.do)
    return Decision(cell.do, image=images.completed(image, now_ms))


def expire(image: TransactionImage, *, pending: bool = False) -> Decision:
    """The id is to be asked about only if it was not used for long."""
    return Decision(_cell(image, Event.EXPIRE, pending=pending).do)
