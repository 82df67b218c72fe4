"""Sends the outcome of transactions to the leaders of their partitions: WriteTxnMarkers.

    TransactionCoordinator -> send -> a queue for each broker -> one request with all that is queued

A marker is sent at once; what comes while a request to a broker is under way is queued, and leaves
together when that is answered. A partition that this broker leads is written without a socket. A
partition that does not exist any more needs no marker. One without a leader, at a broker that is
away, or with an error that passes is looked for in the newest image again after RETRY_MS, and then
after twice as long each time, up to RETRY_MS_MAX, for ever: its transaction stays as it is, and
others go on. A marker that is written, another leader and another in-sync set end such a pause. A
partition whose followers are slow has a queue
of its broker, and a connection, with others that are slow, until a marker of it is written in time.
A partition that refuses the coordinator's epoch has a marker of a newer one, which leads the
transaction: its order ends with a line. One that refuses the producer's epoch will never take the
marker, and needs none. Apache Kafka gives the order up there, too: where the state topic has lost a
record, its id stays Prepare* for ever. An older coordinator cannot complete with it, as its log has
no followers any more. One that has no room for markers has no records of a transaction, and needs
none.

`done` is called once for each order, when its last partition is off the list. An order that was
dropped, since another broker leads its transactional id, never comes to that; an order that a later
load of the same id has made is another one.

A partition of this broker is written by the thread that sends, if that may wait for logs, else by a
worker. Bound: an order's partition is in one place at a time, a queue, a worker's or those that
wait, so there are no more of them than outcomes have partitions.

Any thread; image, transport and timer are given. Lock: `_lock`, a leaf; nothing is called with it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.coordinator.txn.seams import RETRY_MS, at_once, longer
from kbroker.errors import ErrorCode
from kbroker.log_lines import LogLines
from kbroker.metadata.image import NO_LEADER
from kbroker.once import once

if TYPE_CHECKING:
    from kbroker.coordinator.txn.seams import MarkerOrder, OnWorker, Over
    from kbroker.failures import Failures
    from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage
    from kbroker.purgatory.timer import CallLater
    from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.transactions")

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

    def __init__(self, order: MarkerOrder, done: Over) -> None:
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


class _Leader(NamedTuple):
    """Of a partition, as an image has it: a failed attempt is tried again when it changes."""

    partition: PartitionImage | None
    broker: BrokerImage | None


def _leader(image: ClusterImage, place: TopicPartition) -> _Leader:
    partition = image.partition(*place)
    broker = None if partition is None else image.brokers.get(partition.leader)
    return _Leader(partition, broker)


class _Paused:
    """A partition that is to be looked for again, and the orders that wait for it."""

    __slots__ = ("leader", "left_ms", "sendings")

    def __init__(self, leader: _Leader | None, pause_ms: int) -> None:
        """Without a leader it is looked for with the next look."""
        self.leader = leader
        self.left_ms = pause_ms
        self.sendings: list[_Sending] = []


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
        on_worker: OnWorker = at_once,
    ) -> None:
        """`transport`: to other brokers; None: there are none."""
        self._node_id = node_id
        self._image = image
        self._write_here = write_here
        self._transport = transport
        self._call_later = call_later
        self._failures = failures
        self._on_worker = on_worker
        self._lines = LogLines(logger)
        self._lock = threading.Lock()
        self._sending: set[_Sending] = set()
        self._queues: dict[_Way, _Queue] = {}
        self._slow: set[TopicPartition] = set()
        self._later: dict[TopicPartition, _Paused] = {}
        self._looks = False  # for those, soon
        # The last pause of partitions that have not taken a marker since.
        self._pauses_ms: dict[TopicPartition, int] = {}

    def send(self, order: MarkerOrder, done: Over, *, may_wait: bool) -> None:
        sending = _Sending(order, done)
        with self._lock:
            self._sending.add(sending)
        self._route([(sending, each) for each in sorted(order.partitions)], may_wait=may_wait)

    def drop(self, lost: Callable[[MarkerOrder], bool]) -> None:
        """What is under way may still be written, and is answered to no order."""
        with self._lock:
            for sending in [each for each in self._sending if lost(each.order)]:
                self._sending.discard(sending)

    @property
    def waiting(self) -> tuple[int, int]:
        """Partitions that wait for a request to be answered, and those to be looked for again."""
        with self._lock:
            queued = sum(len(each.waiting) for each in self._queues.values())
            return queued, sum(len(each.sendings) for each in self._later.values())

    # --- where to -------------------------------------------------------------------------------

    def _route(self, places: Sequence[tuple[_Sending, TopicPartition]], *, may_wait: bool) -> None:
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
                    self._pauses_ms.pop(place, None)
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
            self._over(sending, place, may_wait)
        for way in ways:
            self._send_queued(way)
        for sending, place in here:
            if may_wait:
                self._write(sending, place)
            else:
                self._on_worker(place, partial(self._write_if_wanted, sending, place))

    def _wait(self, places: Sequence[tuple[_Sending, TopicPartition]]) -> None:
        if not places:
            return
        try:
            image = self._image()
        except Exception as error:
            self._failures.note("waiting for markers of transactions", error)
            image = None
        with self._lock:
            for sending, place in places:
                paused = self._later.get(place)
                if paused is None:
                    leader = None if image is None else _leader(image, place)
                    before_ms = self._pauses_ms.get(place)
                    pause_ms = RETRY_MS if before_ms is None else longer(before_ms)
                    self._pauses_ms[place] = pause_ms
                    paused = self._later[place] = _Paused(leader, pause_ms)
                paused.sendings.append(sending)
        self._look_soon()

    def _look_soon(self) -> None:
        with self._lock:
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
            self._looks = False
        places: list[tuple[_Sending, TopicPartition]] = []
        try:
            places = self._due()
            self._route(places, may_wait=False)
        except Exception as error:  # a marker that is written twice does no harm
            self._failures.note("sending markers of transactions again", error)
            self._wait(places)
        with self._lock:
            if not self._later:
                return
        self._look_soon()

    def _due(self) -> list[tuple[_Sending, TopicPartition]]:
        image = self._image()
        due: list[tuple[_Sending, TopicPartition]] = []
        with self._lock:
            leaders = {place: _leader(image, place) for place in self._later}
            for place, leader in leaders.items():
                paused = self._later[place]
                paused.left_ms -= RETRY_MS
                has_changed = paused.leader != leader
                if paused.left_ms > 0 and not has_changed:
                    continue
                del self._later[place]
                found = [(each, place) for each in paused.sendings if each in self._sending]
                if has_changed or not found:
                    self._pauses_ms.pop(place, None)
                due += found
        return due

    def _is_reached(self, place: TopicPartition) -> None:
        """It takes markers: those that wait are sent with the next look."""
        with self._lock:
            self._slow.discard(place)
            self._pauses_ms.pop(place, None)
            paused = self._later.get(place)
            if paused is not None:
                paused.left_ms = 0

    # --- this broker ----------------------------------------------------------------------------

    def _write_if_wanted(self, sending: _Sending, place: TopicPartition) -> None:
        """On a worker, perhaps long after it was routed: the order may be over, and its producer
        in the next transaction."""
        with self._lock:
            if sending not in self._sending:
                return
        self._write(sending, place)

    def _write(self, sending: _Sending, place: TopicPartition) -> None:
        """Its answer comes from this thread, or from a handler's: both may wait for logs."""
        try:
            self._write_here(
                sending.order,
                place,
                lambda code: self._answered(sending, place, code, True),
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
                if code is None or not self._settles(sending, place, code):
                    unknown.append((sending, place))
        self._wait(unknown)
        self._send_queued(way)

    def _settles(self, sending: _Sending, place: TopicPartition, code: ErrorCode) -> bool:
        try:
            self._answered(sending, place, code, False)
        except Exception as error:  # others were answered with it; it is sent again
            self._failures.note("an answer to markers of transactions", error)
            return False
        return True

    # --- outcomes -------------------------------------------------------------------------------

    def _answered(
        self, sending: _Sending, place: TopicPartition, code: ErrorCode, may_wait: bool
    ) -> None:
        """`may_wait`: this thread, for logs."""
        if code is ErrorCode.NONE:
            self._is_reached(place)
            self._over(sending, place, may_wait)
        elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self._give_up(sending, place, code)
        elif code is ErrorCode.INVALID_PRODUCER_EPOCH:
            message = "%s-%d has a newer epoch of the producer of %s and needs no marker: %s"
            self._line(message, sending, place, code)
            self._over(sending, place, may_wait)
        elif code in _WITHOUT_MARKERS:
            message = "%s-%d has no room for markers, so it has no records of %s either: %s"
            self._line(message, sending, place, code)
            self._over(sending, place, may_wait)
        else:
            if code in _SLOW:
                with self._lock:
                    self._slow.add(place)
            elif code not in _PASSING:
                message = "%s-%d does not take the marker of %s: %s; it is sent again until it does"
                self._line(message, sending, place, code)
            self._wait([(sending, place)])

    def _over(self, sending: _Sending, place: TopicPartition, may_wait: bool) -> None:
        with self._lock:
            sending.left.discard(place)
            if sending.left or sending not in self._sending:
                return
            self._sending.discard(sending)
        try:
            sending.done(may_wait)
        except Exception as error:  # others were sent with it
            self._failures.note("completing a transaction", error)

    def _give_up(self, sending: _Sending, place: TopicPartition, code: ErrorCode) -> None:
        with self._lock:
            if sending not in self._sending:
                return
            self._sending.discard(sending)
        message = (
            "%s-%d refuses the marker of %s: %s; another coordinator has it,"
            " and the transaction stays as it is here"
        )
        self._line(message, sending, place, code)

    def _line(
        self, message: str, sending: _Sending, place: TopicPartition, code: ErrorCode
    ) -> None:
        name = sending.order.transactional_id
        self._lines.write(logging.WARNING, code.name, message, *place, name, code.name)
