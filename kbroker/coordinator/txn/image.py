"""What a transactional id is, as a record of `__transaction_state` says it, and how it changes.

Each function returns the image after one move of the table (`states.py`); what it returns is
written to the log first and holds from then on. Pure: times and new producer ids are arguments.

Epochs are int16. The last one that a client gets is 32766: then InitProducerId begins a new
producer id, and so does each outcome that raises the epoch, which announces it in its record and
goes on with it in the record after that (KIP-360, KIP-890). Markers and fences may use 32767, which
no client gets. An id that has it, of a log that another broker wrote, keeps it for its markers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kbroker.coordinator.txn.states import State
from kbroker.errors import InvariantError
from kbroker.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
EPOCH_MAX: Final = 2**15 - 1
RAISES_EPOCHS: Final = 2  # the level of transaction.version from which on each outcome raises it

Partitions = frozenset[TopicPartition]
NO_PARTITIONS: Final[Partitions] = frozenset()


class Pair(NamedTuple):
    """A producer id and its epoch, as a client has them."""

    producer_id: int
    epoch: int


NO_PAIR: Final = Pair(NO_PRODUCER_ID, NO_EPOCH)


class TransactionImage(NamedTuple):
    """A transactional id in one state.

    `last_epoch` is in no record: it is the epoch that a client may repeat an InitProducerId with.
    `client_version` is the transaction.version that the client of the transaction goes by.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    update_ms: int
    start_ms: int = NO_TIME
    partitions: Partitions = NO_PARTITIONS
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    client_version: int = 0

    @property
    def pair(self) -> Pair:
        return Pair(self.producer_id, self.epoch)


class Limits(NamedTuple):
    """`epoch_max`: the last epoch of a producer id; a simulation has a smaller one."""

    epoch_max: int = EPOCH_MAX

    def is_used_up(self, epoch: int) -> bool:
        """Whether no client may get a higher epoch of this producer id."""
        return epoch >= self.epoch_max - 1

    def is_last(self, epoch: int) -> bool:
        """Whether there is no higher epoch, for markers neither."""
        return epoch >= self.epoch_max

    def raised(self, epoch: int) -> int:
        return min(epoch + 1, self.epoch_max)


LIMITS: Final = Limits()


def created(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionImage:
    return TransactionImage(
        producer_id, 0, timeout_ms, State.EMPTY, now_ms, previous_producer_id=producer_id
    )


def renewed(
    image: TransactionImage, timeout_ms: int, now_ms: int, *, last_epoch: int, fresh_id: int | None
) -> TransactionImage:
    """`last_epoch`: that the client says it has, or NO_EPOCH. `fresh_id`: where the epochs are used
    up, a producer id that no client has had."""
    pair = image.pair._replace(epoch=image.epoch + 1) if fresh_id is None else Pair(fresh_id, 0)
    return _empty(image, pair, last_epoch, timeout_ms, now_ms)


def repeated(image: TransactionImage, timeout_ms: int, now_ms: int) -> TransactionImage:
    return _empty(image, image.pair, image.last_epoch, timeout_ms, now_ms)


def _empty(
    image: TransactionImage, pair: Pair, last_epoch: int, timeout_ms: int, now_ms: int
) -> TransactionImage:
    return image._replace(
        producer_id=pair.producer_id,
        epoch=pair.epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=State.EMPTY,
        update_ms=now_ms,
        start_ms=NO_TIME,
        partitions=NO_PARTITIONS,
        previous_producer_id=image.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def joined(
    image: TransactionImage, partitions: Partitions, client_version: int, now_ms: int
) -> TransactionImage:
    """With these partitions; the first ones begin the transaction."""
    is_open = image.state is State.ONGOING
    return image._replace(
        state=State.ONGOING,
        partitions=image.partitions | partitions if is_open else partitions,
        start_ms=image.start_ms if is_open else now_ms,
        update_ms=now_ms,
        client_version=client_version,
        previous_producer_id=image.producer_id,
    )


def fenced(
    image: TransactionImage,
    version: int,
    now_ms: int,
    limits: Limits = LIMITS,
    *,
    raised: bool,
    fresh_id: int | None = None,
) -> TransactionImage:
    """To be aborted by the coordinator. `raised`: an earlier fence has raised the epoch and could
    not be written. From version 2 on the producer that is fenced may ask for the raised epoch, as
    Apache Kafka 4.3 lets it; another one that asks meanwhile gets a higher one."""
    return image._replace(
        state=State.PREPARE_ABORT,
        epoch=image.epoch if raised else limits.raised(image.epoch),
        last_epoch=image.epoch if version >= RAISES_EPOCHS else NO_EPOCH,
        update_ms=now_ms,
        client_version=version,
        previous_producer_id=image.producer_id,
        next_producer_id=NO_PRODUCER_ID if fresh_id is None else fresh_id,
    )


def prepared(
    image: TransactionImage,
    to: State,
    version: int,
    now_ms: int,
    limits: Limits = LIMITS,
    fresh_id: int | None = None,
) -> TransactionImage:
    """`version`: of the client's EndTxn. From 2 on the markers have the raised epoch. An abort of
    nothing begins with itself."""
    image = image._replace(
        state=to,
        update_ms=now_ms,
        start_ms=image.start_ms if image.state is State.ONGOING else now_ms,
        client_version=version,
        previous_producer_id=image.producer_id,
    )
    if version < RAISES_EPOCHS:
        return image
    return image._replace(
        epoch=limits.raised(image.epoch),
        last_epoch=image.epoch,
        next_producer_id=NO_PRODUCER_ID if fresh_id is None else fresh_id,
    )


def marker_version(image: TransactionImage, limits: Limits = LIMITS) -> int:
    """The version of transactions that the markers of an outcome have. From 2 on a partition wants
    an epoch above that of the records, which the last epoch may not be."""
    return 0 if limits.is_last(image.epoch) else image.client_version


def pair_after(image: TransactionImage) -> Pair:
    """The pair that the client has from the outcome on."""
    if image.next_producer_id != NO_PRODUCER_ID:
        return Pair(image.next_producer_id, 0)
    return image.pair


def completed(image: TransactionImage, now_ms: int) -> TransactionImage:
    pair = pair_after(image)
    return image._replace(
        producer_id=pair.producer_id,
        epoch=pair.epoch,
        state=_COMPLETE[image.state],
        update_ms=now_ms,
        partitions=NO_PARTITIONS,
        previous_producer_id=image.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


_COMPLETE: Final = {
    State.PREPARE_COMMIT: State.COMPLETE_COMMIT,
    State.PREPARE_ABORT: State.COMPLETE_ABORT,
}


def require_sound(image: TransactionImage, limits: Limits = LIMITS) -> TransactionImage:
    """InvariantError for an image that no record may have."""
    if not 0 <= image.epoch <= limits.epoch_max or image.producer_id < 0:
        raise InvariantError(f"a transactional id with producer {image.pair}")
    return image
