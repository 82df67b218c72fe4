"""Sends the outcome of transactions to the leaders of their partitions: WriteTxnMarkers.

    TransactionCoordinator -> send -> a queue for each broker -> one request with all that is queued

A marker is sent at once; what comes while a request to a broker is under way is queued, and leaves
together when that is answered. A partition that this broker leads is written without a socket. A
partition that does not exist any more needs no marker. One without a leader, at a broker that is
away, or with an error that passes is looked for in the newest image again after RETRY_MS, for ever:
its transaction stays as it is, and others go on. A partition whose followers are slow has a queue
of its broker, and a connection, with others that are slow, until a marker of it is written in time.
A partition that refuses the producer's epoch or the coordinator's has a newer marker already, so
another coordinator leads the transaction: its order ends with a line. One that has no room for
markers has no records of a transaction, and needs none.

`done` is called once for each order, when its last partition is off the list. An order that was
dropped, since another broker leads its transactional id, never comes to that; an order that a later
load of the same id has made is another one.

Any thread; image, transport and timer are given. Lock: `_lock`, a leaf; nothing is called with it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.errors import ErrorCode
from kbroker.log_lines import LogLines
from kbroker.metadata.image import NO_LEADER
from kbroker.once import once

if TYPE_CHECKING:
    from kbroker.coordinator.txn.seams import MarkerOrder
    from kbroker.failures import Failures
    from kbroker.metadata.image import ClusterImage
    from kbroker.purgatory.timer import CallLater
    from kbroker.types import TopicPartition

RETRY_MS: Final = 100

logger: Final = logging.getLogger("kbroker.transactions")

_REPLACED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
_WITHOUT_MARKERS: Final = frozenset(
    {ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)
# Errors that pass: the newest image, its leader or its followers will have another answer.
_PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
_SLOW: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})


class Marker(NamedTuple):
    """One outcome, for some of its partitions at one broker; a WriteTxnMarkers request has many."""

    order: MarkerOrder
    partitions: tuple[TopicPartition, ...]


# An error for each partition; or None: it is unknown what has been written.
Outcome = Mapping[tuple[int, "TopicPartition"], ErrorCode] | None


class Transport(Protocol):
    def send(
        self,
        node_id: int,
        markers: Sequence[Marker],
        done: Callable[[Outcome], None],
        *,
        slow: bool,
    ) -> None:
        """WriteTxnMarkers to another broker; `done` once, from any thread, with an error for each
        producer id and partition. Slow partitions must not hold up the others."""
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


class _Way(NamedTuple):
    """To a broker; that of slow partitions is another one."""

    node_id: int
    slow: bool


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
        self._lines = LogLines(logger)
        self._lock = threading.Lock()
        self._sending: set[_Sending] = set()
        self._queues: dict[_Way, _Queue] = {}
        self._slow: set[TopicPartition] = set()
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
        ways: dict[_Way, None] = {}
        gone: list[tuple[_Sending, TopicPartition]] = []
        again: list[tuple[_Sending, TopicPartition]] = []
        with self._lock:
            for sending, place in places:
                if sending not in self._sending:
                    continue
                partition = image.partition(place.topic, place.partition)
                if partition is None:
                    self._slow.discard(place)
                    gone.append((sending, place))
                elif partition.leader == self._node_id:
                    here.append((sending, place))
                elif partition.leader == NO_LEADER or partition.leader not in image.brokers:
                    again.append((sending, place))
                else:
                    way = _Way(partition.leader, place in self._slow)
                    self._queues.setdefault(way, _Queue()).waiting.append((sending, place))
                    ways[way] = None
        self._wait(again)
        for sending, place in gone:
            self._over(sending, place)
        for way in ways:
            self._send_queued(way)
        for sending, place in here:
            self._write(sending, place)

    def _wait(self, places: Sequence[tuple[_Sending, TopicPartition]]) -> None:
        if not places:
            return
        with self._lock:
            self._later.extend(places)
            looks, self._looks = self._looks, True
        if looks:
            return
        try:
            self._call_later(RETRY_MS, self._look)
        except Exception as error:  # those that come later have a look at these, too
            self._failures.note("waiting for markers of transactions", error)
            with self._lock:
                self._looks = False

    def _look(self) -> None:
        with self._lock:
            places, self._later = self._later, []
            self._looks = False
        try:
            self._route(places)
        except Exception as error:  # a marker that is written twice does no harm
            self._failures.note("sending markers of transactions again", error)
            self._wait(places)

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

    def _send_queued(self, way: _Way) -> None:
        with self._lock:
            queue = self._queues[way]
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
        received = once(partial(self._received, way, by_order))
        try:
            self._transport.send(way.node_id, markers, received, slow=way.slow)
        except Exception as error:
            self._failures.note("sending markers of transactions", error)
            received(None)

    def _received(
        self, way: _Way, sent: Mapping[_Sending, Sequence[TopicPartition]], outcome: Outcome
    ) -> None:
        with self._lock:
            self._queues[way].is_sending = False
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
        self._send_queued(way)

    # --- outcomes -------------------------------------------------------------------------------

    def _answered(self, sending: _Sending, place: TopicPartition, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            with self._lock:
                self._slow.discard(place)
            self._over(sending, place)
        elif code in _REPLACED:
            self._give_up(sending, place, code)
        elif code in _WITHOUT_MARKERS:
            message = "%s-%d has no room for markers, so it has no records of %s either: %s"
            self._line(message, sending, place, code)
            self._over(sending, place)
        else:
            if code in _SLOW:
                with self._lock:
                    self._slow.add(place)
            elif code not in _PASSING:
                message = "%s-%d does not take the marker of %s: %s; it is sent again until it does"
                self._line(message, sending, place, code)
            self._wait([(sending, place)])

    def _over(self, sending: _Sending, place: TopicPartition) -> None:
        with self._lock:
            sending.left.discard(place)
            if sending.left or sending not in self._sending:
                return
            self._sending.discard(sending)
        try:
            sending.done()
        except Exception as error:  # others were sent with it
            self._failures.note("completing a transaction", error)

    def _give_up(self, sending: _Sending, place: TopicPartition, code: ErrorCode) -> None:
        with self._lock:
            if sending not in self._sending:
                return
            self._sending.discard(sending)
        message = (
            "%s-%d refuses the marker of %s: %s; another coordinator or a newer producer has it,"
            " and the transaction stays as it is here"
        )
        self._line(message, sending, place, code)

    def _line(
        self, message: str, sending: _Sending, place: TopicPartition, code: ErrorCode
    ) -> None:
        name = sending.order.transactional_id
        self._lines.write(logging.WARNING, code.name, message, *place, name, code.name)
