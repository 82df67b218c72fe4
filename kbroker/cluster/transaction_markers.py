"""Sends the outcome of transactions to the leaders of their partitions: WriteTxnMarkers.

    TransactionCoordinator -> send -> a queue for each broker -> one request with all that is queued

A marker is sent at once; what comes while a request to a broker is under way is queued, and leaves
together when that is answered. A partition that this broker leads is written without a socket. A
partition that does not exist any more needs no marker. One without a leader, at a broker that is
away, or with an error that passes is looked for in the newest image again after RETRY_MS, for ever:
its transaction stays as it is, and others go on. A partition that refuses the producer's epoch or
the coordinator's has a newer marker already, so another coordinator leads the transaction.

`done` is called once for each order, when its last partition is off the list. An order that was
dropped, since another broker leads its transactional id, never comes to that; an order that a later
load of the same id has made is another one.

Any thread; image, transport and timer are given. Lock: `_lock`, a leaf; nothing is called with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.errors import ErrorCode
from kbroker.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from kbroker.coordinator.txn.seams import MarkerOrder
    from kbroker.failures import Failures
    from kbroker.metadata.image import ClusterImage
    from kbroker.purgatory.timer import CallLater
    from kbroker.types import TopicPartition

RETRY_MS: Final = 100

# The partition does not need the marker of this coordinator any more.
_GIVEN_UP: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)


class Marker(NamedTuple):
    """One outcome, for some of its partitions at one broker; a WriteTxnMarkers request has many."""

    order: MarkerOrder
    partitions: tuple[TopicPartition, ...]


# An error for each partition; or None: it is unknown what has been written.
Outcome = Mapping[tuple[int, "TopicPartition"], ErrorCode] | None


class Transport(Protocol):
    def send(
        self, node_id: int, markers: Sequence[Marker], done: Callable[[Outcome], None]
    ) -> None:
        """WriteTxnMarkers to another broker; `done` once, from any thread, with an error for each
        producer id and partition."""
        ...


# Writes one marker to a partition of this broker; `done` when its followers have it.
WriteHere = Callable[["MarkerOrder", "TopicPartition", Callable[[ErrorCode], None]], None]


class _Sending:
    """One order, and the partitions that have no marker yet."""

    __slots__ = ("done", "left", "order")

    def __init__(self, order: MarkerOrder, done: Callable[[], object]) -> None:
        self.order = order
        self.left = set(order.partitions)
        self.done = done


class _Queue:
    __slots__ = ("is_sending", "waiting")

    def __init__(self) -> None:
        self.waiting: list[tuple[_Sending, TopicPartition]] = []
        self.is_sending = False


class TransactionMarkers:
    """See the head of this file."""

    def __init__(
        self,
        node_id: int,
        image: Callable[[], ClusterImage],
        write_here: WriteHere,
        transport: Transport | None,
        call_later: CallLater,
        failures: Failures,
    ) -> None:
        """`transport`: to other brokers; None: there are none."""
        self._node_id = node_id
        self._image = image
        self._write_here = write_here
        self._transport = transport
        self._call_later = call_later
        self._failures = failures
        self._lock = threading.Lock()
        self._sending: set[_Sending] = set()
        self._queues: dict[int, _Queue] = {}
        self._later: list[tuple[_Sending, TopicPartition]] = []
        self._looks = False  # for those, soon

    def send(self, order: MarkerOrder, done: Callable[[], object]) -> None:
        sending = _Sending(order, done)
        with self._lock:
            self._sending.add(sending)
        self._route([(sending, each) for each in sorted(order.partitions)])

    def drop(self, lost: Callable[[MarkerOrder], bool]) -> None:
        """What is under way may still be written, and is answered to no order."""
        with self._lock:
            for sending in [each for each in self._sending if lost(each.order)]:
                self._sending.discard(sending)

    @property
    def waiting(self) -> tuple[int, int]:
        """Partitions that wait for a request to be answered, and those to be looked for again."""
        with self._lock:
            return sum(len(each.waiting) for each in self._queues.values()), len(self._later)

    # --- where to -------------------------------------------------------------------------------

    def _route(self, places: Sequence[tuple[_Sending, TopicPartition]]) -> None:
        image = self._image()
        here: list[tuple[_Sending, TopicPartition]] = []
        brokers: dict[int, None] = {}
        gone: list[tuple[_Sending, TopicPartition]] = []
        again: list[tuple[_Sending, TopicPartition]] = []
        with self._lock:
            for sending, place in places:
                if sending not in self._sending:
                    continue
                partition = image.partition(place.topic, place.partition)
                if partition is None:
                    gone.append((sending, place))
                elif partition.leader == self._node_id:
                    here.append((sending, place))
                elif partition.leader == NO_LEADER or partition.leader not in image.brokers:
                    again.append((sending, place))
                else:
                    queue = self._queues.setdefault(partition.leader, _Queue())
                    queue.waiting.append((sending, place))
                    brokers[partition.leader] = None
        self._wait(again)
        for sending, place in gone:
            self._over(sending, place)
        for node_id in brokers:
            self._send_queued(node_id)
        for sending, place in here:
            self._write(sending, place)

    def _wait(self, places: Sequence[tuple[_Sending, TopicPartition]]) -> None:
        if not places:
            return
        with self._lock:
            self._later.extend(places)
            looks, self._looks = self._looks, True
        if not looks:
            self._call_later(RETRY_MS, self._look)

    def _look(self) -> None:
        with self._lock:
            places, self._later = self._later, []
            self._looks = False
        self._route(places)

    # --- this broker ----------------------------------------------------------------------------

    def _write(self, sending: _Sending, place: TopicPartition) -> None:
        try:
            self._write_here(
                sending.order, place, lambda code: self._answered(sending, place, code)
            )
        except Exception as error:
            self._failures.note("writing a transaction's marker", error)
            self._wait([(sending, place)])

    # --- other brokers --------------------------------------------------------------------------

    def _send_queued(self, node_id: int) -> None:
        with self._lock:
            queue = self._queues[node_id]
            if queue.is_sending or self._transport is None:
                return
            places = [each for each in queue.waiting if each[0] in self._sending]
            queue.waiting = []
            queue.is_sending = bool(places)
        if not places:
            return
        by_order: dict[_Sending, list[TopicPartition]] = {}
        later: list[tuple[_Sending, TopicPartition]] = []
        producers: dict[int, _Sending] = {}
        for sending, place in places:
            # The response has an error for each producer id, not for each marker.
            if producers.setdefault(sending.order.producer_id, sending) is sending:
                by_order.setdefault(sending, []).append(place)
            else:
                later.append((sending, place))
        with self._lock:
            queue.waiting[:0] = later
        markers = [Marker(each.order, tuple(found)) for each, found in by_order.items()]
        try:
            self._transport.send(
                node_id, markers, lambda outcome: self._received(node_id, by_order, outcome)
            )
        except Exception as error:
            self._failures.note("sending markers of transactions", error)
            self._received(node_id, by_order, None)

    def _received(
        self, node_id: int, sent: Mapping[_Sending, Sequence[TopicPartition]], outcome: Outcome
    ) -> None:
        with self._lock:
            self._queues[node_id].is_sending = False
        unknown: list[tuple[_Sending, TopicPartition]] = []
        for sending, places in sent.items():
            for place in places:
                code = None
                if outcome is not None:
                    code = outcome.get((sending.order.producer_id, place))
                if code is None:
                    unknown.append((sending, place))
                else:
                    self._answered(sending, place, code)
        self._wait(unknown)
        self._send_queued(node_id)

    # --- outcomes -------------------------------------------------------------------------------

    def _answered(self, sending: _Sending, place: TopicPartition, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self._over(sending, place)
        elif code in _GIVEN_UP:
            self._give_up(sending)
        else:
            self._wait([(sending, place)])

    def _over(self, sending: _Sending, place: TopicPartition) -> None:
        with self._lock:
            sending.left.discard(place)
            if sending.left or sending not in self._sending:
                return
            self._sending.discard(sending)
        sending.done()

    def _give_up(self, sending: _Sending) -> None:
        with self._lock:
            self._sending.discard(sending)
