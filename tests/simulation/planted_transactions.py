"""Faults that histories with transactions must find; a plant is described in `plant.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbroker.cluster.transaction_markers import TransactionMarkers
from kbroker.coordinator.groups import Groups
from kbroker.coordinator.runtime import store
from kbroker.coordinator.txn import decisions
from kbroker.coordinator.txn import image as images
from kbroker.coordinator.txn.coordinator import TransactionCoordinator
from kbroker.coordinator.txn.image import Limits, TransactionImage
from kbroker.coordinator.txn.states import State
from kbroker.coordinator.txn.store import TransactionStore
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers import write_txn_markers
from kbroker.handlers.services import led_replica
from kbroker.replica._replica import Replica
from tests.simulation import requests, transaction_clients
from tests.simulation.contents import producer_of
from tests.simulation.plant import Plant
from tests.simulation.requests import Produces
from tests.simulation.transactions import BrokerTransactions

_PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
_write = TransactionStore.write
_verify = BrokerTransactions.verify
_end = decisions.end
_fenced = images.fenced
_fetch = requests.fetch_committed
_marker_written = Groups.marker_written
_written = TransactionCoordinator._written


def _once_written(
    store: TransactionStore, name: str, term: int, image: TransactionImage, done: Any
) -> None:
    """Markers are sent, and a client is answered, before the followers have the outcome."""
    if image.state not in _PREPARED:
        _write(store, name, term, image, done)
        return
    _write(store, name, term, image, lambda code: None)
    done(ErrorCode.NONE)


def _over_at_once(
    markers: TransactionMarkers, order: Any, done: Callable[[bool], object], *, may_wait: bool
) -> None:
    """A transaction is complete before its markers are written; they are sent once."""
    _send(markers, order, lambda may_wait: None, may_wait=may_wait)
    done(may_wait)


_send = TransactionMarkers.send


def _taken_for_written(
    markers: TransactionMarkers, sending: Any, place: Any, code: Any, may_wait: bool
) -> None:
    """A partition that refuses a marker counts as one that has it."""
    markers._over(sending, place, may_wait)


def _left_prepared(coordinator: TransactionCoordinator, *loaded: Any) -> None:
    """An outcome that a load finds is not completed."""


def _not_raised(
    image: TransactionImage, to: State, version: int, *how: Any, **settings: Any
) -> TransactionImage:
    """EndTxn 5 leaves the epoch as it is."""
    after = _prepared(image, to, version, *how, **settings)
    return after._replace(epoch=image.epoch, next_producer_id=images.NO_PRODUCER_ID)


_prepared = images.prepared


def _not_fenced(image: TransactionImage, *how: Any, **settings: Any) -> TransactionImage:
    """The coordinator aborts a transaction, and its producer keeps its epoch."""
    after = _fenced(image, *how, **settings)
    return after._replace(epoch=image.epoch, next_producer_id=images.NO_PRODUCER_ID)


def _the_same_epoch(image: TransactionImage, *how: Any, **settings: Any) -> TransactionImage:
    """A second producer gets the epoch of the first one."""
    after = _renewed(image, *how, **settings)
    return after._replace(epoch=image.epoch) if after.epoch > image.epoch else after


_renewed = images.renewed


def _never(limits: Limits, epoch: int) -> bool:
    """A producer id has epochs without an end."""
    return False


def _unverified(
    transactions: BrokerTransactions, name: str, producer_id: int, epoch: int, partitions: Any,
    *, adds: bool, done: Any,
) -> None:  # fmt: skip
    """A coordinator is not asked whether a partition is in a TV1 transaction."""
    if adds:
        _verify(transactions, name, producer_id, epoch, partitions, adds=adds, done=done)
    else:
        done(dict.fromkeys(partitions, ErrorCode.NONE))


def _in_any_transaction(
    coordinator: TransactionCoordinator, name: str, pair: Any, partitions: Any
) -> Any:
    """A coordinator does not look whether the partition is in the transaction."""
    code = coordinator._state_of(name)
    return code or dict.fromkeys(partitions, ErrorCode.NONE)


def _before_followers(services: Any, replica: Any, offset: int, led_since: int, over: Any) -> None:
    """A marker is answered before the followers have it."""
    over(ErrorCode.NONE)


def _nowhere(services: Any, marker: Any, name: Any, writing: Any) -> None:
    """A broker that does not lead a partition says that it has written the marker."""
    try:
        led_replica(services, name.topic, name.partition, -1)
    except KafkaError:
        writing.over(marker.producer_id, name, ErrorCode.NONE)
    else:
        _write_marker(services, marker, name, writing)


_write_marker = write_txn_markers._write


def _to_the_high_watermark(replica: Replica, offset: int) -> tuple[bytes, list[tuple[int, int]]]:
    """A read_committed fetch is not cut at the last stable offset."""
    return replica.read(offset), _fetch(replica, offset)[1]


def _begun_since(replica: Replica, offset: int) -> tuple[bytes, list[tuple[int, int]]]:
    """An aborted transaction that begins before the fetch is not in its list."""
    data, aborted = _fetch(replica, offset)
    return data, [each for each in aborted if each[1] >= offset]


def _committed_always(
    groups: Groups, partition: int, producer_id: int, committed: bool, offset: int
) -> None:
    """Offsets are committed when their transaction ends, by an abort, too."""
    _marker_written(groups, partition, producer_id, True, offset)


def _complete_first(
    coordinator: TransactionCoordinator, name: str, transaction: Any, decision: Any, answer: Any,
    code: ErrorCode,
) -> None:  # fmt: skip
    """A write that failed is taken for one that is in the log."""
    image = decision.image
    if image is not None and image.state is State.ONGOING:
        code = ErrorCode.NONE
    _written(coordinator, name, transaction, decision, answer, code)


def _goes_on_always(led: Any, partition: Any) -> bool:
    """A broker keeps the state of its ids where others have led between two of its epochs."""
    return True


def _under_any_guard(
    produces: Produces, name: Any, replica: Replica, batch: bytes, acks: int, timeout_ms: int,
    done: Any, how: Any = None,
) -> None:  # fmt: skip
    """A marker leaves the guards of its producer as they are."""
    if how and how["guard"]:
        pair, sequence = producer_of(batch)
        _, guard = replica.begin_verification(*pair, sequence, bumps_epoch=False)
        how = {**how, "guard": guard}
    _append(produces, name, replica, batch, acks, timeout_ms, done, how or {})


_append = Produces._append


PLANTED_IN_TRANSACTIONS: dict[str, Plant] = {
    "outcome-before-followers": Plant(TransactionStore, "write", _once_written, 60),
    "complete-before-markers": Plant(TransactionMarkers, "send", _over_at_once, 60),
    "marker-refused-and-over": Plant(
        TransactionMarkers, "_answered", _taken_for_written, 60, first=3
    ),
    "left-prepared": Plant(TransactionCoordinator, "complete_loaded", _left_prepared, 60),
    "epoch-not-raised": Plant(images, "prepared", _not_raised, 60),
    "timeout-does-not-fence": Plant(images, "fenced", _not_fenced, 60),
    "one-epoch-for-two": Plant(images, "renewed", _the_same_epoch, 60),
    "epochs-without-end": Plant(Limits, "is_used_up", _never, 60),
    "not-verified": Plant(BrokerTransactions, "verify", _unverified, 60, first=74),
    "verified-in-any": Plant(
        TransactionCoordinator, "verify_partitions", _in_any_transaction, 60, first=30
    ),
    "marker-before-followers": Plant(
        write_txn_markers, "_await_followers", _before_followers, 60, first=43
    ),
    "marker-written-nowhere": Plant(write_txn_markers, "_write", _nowhere, 60, first=25),
    "read-to-the-high-watermark": Plant(
        transaction_clients, "fetch_committed", _to_the_high_watermark, 60, first=5
    ),
    "aborted-before-the-fetch": Plant(
        transaction_clients, "fetch_committed", _begun_since, 60, first=14
    ),
    "offsets-of-any-outcome": Plant(Groups, "marker_written", _committed_always, 60, first=91),
    "guard-outlives-its-marker": Plant(Produces, "_append", _under_any_guard, 60, first=26),
    # Images have to be missed while a marker is under way: one history of some thousands.
    "led-in-between": Plant(store._Gain, "goes_on", _goes_on_always, 1, first=5_100_984),
    "added-and-not-written": Plant(
        TransactionCoordinator, "_written", _complete_first, 60, first=18
    ),
}
