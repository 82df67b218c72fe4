"""Markers of transactions: where they go, what is tried again, and when a transaction is over."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from kbroker.clock import SystemClock
from kbroker.cluster.transaction_markers import Marker, Outcome, TransactionMarkers
from kbroker.coordinator.txn.seams import MarkerOrder
from kbroker.errors import ErrorCode
from kbroker.failures import Failures
from kbroker.log.log_workers import LogWorkers
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import BrokerImage, ClusterImage
from kbroker.purgatory.timer import Timer
from kbroker.types import TopicPartition

NODE, SECOND, THIRD, AWAY = 1, 2, 3, 9
HERE, AT_SECOND, AT_THIRD, AT_AWAY = (TopicPartition("t", index) for index in range(4))
NONE: Final = ErrorCode.NONE


class World:
    """One broker's markers, the partitions of topic `t`, and requests that wait for answers."""

    def __init__(self) -> None:
        self.lead(NODE, SECOND, THIRD, AWAY)
        self.here: list[tuple[MarkerOrder, TopicPartition, Callable[[ErrorCode], None]]] = []
        self.requests: list[tuple[int, Sequence[Marker], Callable[[Outcome], None]]] = []
        self.later: list[Callable[[], object]] = []
        self.failures = Failures("markers")
        self.over: list[str] = []
        self.may_wait: list[bool] = []  # for logs, the threads on which transactions were over
        self.on_worker: list[tuple[TopicPartition, Callable[[], object]]] = []
        self.markers = TransactionMarkers(
            NODE, lambda: self.image, lambda *how: self.here.append(how), self, self._call_later,
            self.failures, lambda *work: self.on_worker.append(work),
        )  # fmt: skip

    def work(self) -> None:
        """What was given to workers."""
        on_worker, self.on_worker[:] = self.on_worker[:], []
        for _, call in on_worker:
            call()

    def lead(self, *leaders: int) -> None:
        topic = new_topic_image("t", uuid.UUID(int=5), [(each,) for each in leaders], {})
        brokers = [BrokerImage(each) for each in (NODE, SECOND, THIRD)]
        self.image = ClusterImage().with_topics([topic]).with_brokers(brokers)

    def _call_later(self, delay_ms: int, call: Callable[[], object]) -> Callable[[], object]:
        self.later.append(call)
        return lambda: None

    def send(
        self,
        node_id: int,
        markers: Sequence[Marker],
        done: Callable[[Outcome], None],
        *,
        slow: bool,
    ) -> None:
        self.requests.append((-node_id if slow else node_id, markers, done))

    def order(
        self,
        name: str,
        *places: TopicPartition,
        producer_id: int | None = None,
        may_wait: bool = True,
    ) -> None:
        producer_id = sum(name.encode()) if producer_id is None else producer_id
        order = MarkerOrder(name, producer_id, 3, 7, True, 2, frozenset(places))

        def over(may_wait: bool) -> None:
            self.over.append(name)
            self.may_wait.append(may_wait)

        self.markers.send(order, over, may_wait=may_wait)

    def answer(self, code: ErrorCode | None = NONE) -> None:
        """The first request; None: it is lost."""
        _, markers, done = self.requests.pop(0)
        if code is None:
            done(None)
        else:
            done({(m.order.producer_id, place): code for m in markers for place in m.partitions})

    def run_later(self) -> None:
        later, self.later = self.later, []
        for call in later:
            call()

    def sent(self) -> list[tuple[int, dict[str, tuple[TopicPartition, ...]]]]:
        return [
            (node_id, {m.order.transactional_id: m.partitions for m in markers})
            for node_id, markers, _ in self.requests
        ]


def test_markers_are_sent_at_once_and_a_transaction_ends_with_its_last_one() -> None:
    world = World()
    world.order("a", HERE, AT_SECOND, AT_THIRD)
    assert world.sent() == [(SECOND, {"a": (AT_SECOND,)}), (THIRD, {"a": (AT_THIRD,)})]
    world.here.pop()[2](NONE)
    world.answer()
    assert not world.over
    world.answer()
    assert world.over == ["a"] and not world.later


def test_markers_that_come_meanwhile_leave_together() -> None:
    world = World()
    for name in "abc":
        world.order(name, AT_SECOND)
    assert world.sent() == [(SECOND, {"a": (AT_SECOND,)})]
    assert world.markers.waiting == (2, 0)
    world.answer()
    assert world.sent() == [(SECOND, {"b": (AT_SECOND,), "c": (AT_SECOND,)})]
    world.answer()
    assert world.over == ["a", "b", "c"]


def test_two_transactions_of_a_producer_id_are_not_in_one_request() -> None:
    """The response has errors by producer id."""
    world = World()
    world.order("first", AT_THIRD, producer_id=5)
    for name in ("a", "b"):
        world.order(name, AT_SECOND, producer_id=5)
    world.order("c", AT_SECOND, producer_id=6)
    world.answer()
    world.answer()
    assert world.sent() == [(SECOND, {"b": (AT_SECOND,), "c": (AT_SECOND,)})]
    world = World()
    world.order("x", AT_SECOND)
    for name in ("a", "b"):
        world.order(name, AT_SECOND, producer_id=5)
    world.answer()
    assert world.sent() == [(SECOND, {"a": (AT_SECOND,)})]
    world.answer()
    assert world.sent() == [(SECOND, {"b": (AT_SECOND,)})]


def test_errors_that_pass_and_lost_requests_are_tried_again_by_a_newer_image() -> None:
    passing = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, None,
    )  # fmt: skip
    for code in passing:
        world = World()
        world.order("a", AT_SECOND)
        world.answer(code)
        world.lead(NODE, THIRD, THIRD, AWAY)
        assert world.markers.waiting == (0, 1) and len(world.later) == 1
        world.run_later()
        assert world.sent() == [(THIRD, {"a": (AT_SECOND,)})]
        world.answer()
        assert world.over == ["a"]


def test_an_error_that_does_not_pass_by_itself_has_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
        world = World()
        world.order("a", AT_SECOND)
        world.answer(code)
        assert len(world.later) == 1
    assert [each for each in caplog.messages if "t-1" in each] == [
        "t-1 does not take the marker of a: CLUSTER_AUTHORIZATION_FAILED; it is sent again until"
        " it does"
    ]


def test_slow_followers_hold_up_the_markers_of_their_own_partitions_only() -> None:
    for code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
        world = World()
        world.lead(NODE, SECOND, SECOND, SECOND)
        world.order("a", AT_SECOND)
        world.answer(code)
        world.run_later()
        world.order("b", AT_SECOND, AT_THIRD)
        world.order("c", AT_AWAY)
        assert world.sent() == [(-SECOND, {"a": (AT_SECOND,)}), (SECOND, {"b": (AT_THIRD,)})]
        slow = world.requests.pop(0)
        world.answer()
        world.answer()
        assert world.over == ["c"]
        world.requests.append(slow)
        world.answer()
        world.answer()  # the slow one of b
        assert world.over == ["c", "a", "b"]
        world.order("d", AT_SECOND)
        assert world.sent() == [(SECOND, {"d": (AT_SECOND,)})]  # slow no more


def test_a_broker_that_is_away_holds_up_its_own_transactions_only() -> None:
    world = World()
    world.order("away", AT_AWAY, AT_SECOND)
    world.order("here", HERE)
    world.answer()
    world.here.pop()[2](NONE)
    for _ in range(3):
        world.run_later()
    assert world.over == ["here"]
    world.lead(NODE, SECOND, THIRD, SECOND)
    world.run_later()
    world.answer()
    assert world.over == ["here", "away"]


def test_a_partition_that_was_deleted_needs_no_marker() -> None:
    world = World()
    world.order("a", HERE, TopicPartition("gone", 0))
    assert not world.over
    world.here.pop()[2](NONE)
    assert world.over == ["a"]
    world.order("b", TopicPartition("gone", 0), TopicPartition("t", 99))
    assert world.over == ["a", "b"]


def test_a_newer_coordinator_has_the_transaction(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.order("a", AT_SECOND, HERE)
    world.answer(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    world.here.pop()[2](NONE)
    assert not world.over and not world.later
    assert "t-1 refuses the marker of a: TRANSACTION_COORDINATOR_FENCED" in caplog.text


def test_a_partition_with_a_newer_epoch_of_the_producer_needs_no_marker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where the state topic has lost a record: it would refuse the marker for ever."""
    world = World()
    world.order("a", AT_SECOND, HERE)
    world.answer(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert not world.over and not world.later
    world.here.pop()[2](NONE)
    assert world.over == ["a"]
    assert "t-1 has a newer epoch of the producer of a" in caplog.text


def test_a_partition_that_has_no_room_for_markers_needs_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for code in (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION):
        world = World()
        world.order("a", AT_SECOND, HERE)
        world.answer(code)
        assert not world.over and not world.later
        world.here.pop()[2](NONE)
        assert world.over == ["a"]
        assert code.name in caplog.text


def test_orders_that_are_dropped_end_nothing_and_later_ones_of_an_id_do() -> None:
    world = World()
    world.order("a", AT_SECOND)
    world.order("a", AT_SECOND, producer_id=6)  # waits for the request of the first
    world.markers.drop(lambda order: order.transactional_id == "a")
    world.order("a", AT_SECOND)
    world.answer()
    assert not world.over
    assert world.sent() == [(SECOND, {"a": (AT_SECOND,)})]
    world.answer()
    assert world.over == ["a"] and not world.requests


def test_a_write_here_that_raises_is_tried_again() -> None:
    world = World()

    def broken(*how: object) -> None:
        raise OSError("no disk")

    markers = TransactionMarkers(
        NODE, lambda: world.image, broken, None, world._call_later, world.failures
    )
    markers.send(MarkerOrder("a", 1, 0, 0, False, 0, frozenset({HERE})), print, may_wait=True)
    assert (world.failures.count, len(world.later)) == (1, 1)


def test_an_error_loses_no_other_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback, the timer, the image, and a transport that raises after it has answered."""
    world = World()

    def broken(*how: object) -> None:
        raise OSError("no timer")

    order = MarkerOrder("broken", 1, 3, 7, True, 2, frozenset({AT_SECOND}))
    world.markers.send(order, broken, may_wait=True)
    for name in "ab":
        world.order(name, AT_SECOND)
    world.answer()
    assert (world.failures.count, world.sent()) == (
        1, [(SECOND, {"a": (AT_SECOND,), "b": (AT_SECOND,)})],
    )  # fmt: skip
    monkeypatch.setattr(world.markers, "_call_later", broken)
    world.answer(None)
    monkeypatch.undo()
    assert (world.failures.count, world.markers.waiting) == (2, (0, 2))
    world.lead(NODE, AWAY, THIRD, AWAY)
    world.order("c", AT_AWAY)  # sets the timer that the others wait for, too
    image = world.image
    monkeypatch.setattr(world, "image", None)
    world.run_later()
    assert (world.failures.count, world.markers.waiting) == (3, (0, 3))
    world.image = image
    world.lead(NODE, SECOND, THIRD, THIRD)

    def answers_and_raises(*how: object, slow: bool) -> None:
        World.send(world, *how, slow=slow)  # type: ignore[arg-type]
        if how[0] == SECOND:
            world.answer()
            raise OSError("no socket")

    monkeypatch.setattr(world, "send", answers_and_raises)
    world.run_later()
    assert (world.failures.count, world.over) == (4, ["a", "b"])
    world.answer()
    assert world.over == ["a", "b", "c"] and not world.later


REFUSED = ErrorCode.NOT_ENOUGH_REPLICAS


def looks_until_it_is_tried(world: World) -> int:
    for looks in range(1, 100):
        world.run_later()
        world.work()
        if world.here:
            return looks
    raise AssertionError("it is not tried again")


def test_a_pause_becomes_longer_until_a_marker_is_written() -> None:
    """A look every 100 ms; a pause has 1 s at most."""
    world = World()
    world.order("a", HERE)
    pauses = []
    for _ in range(6):
        world.here.pop()[2](REFUSED)
        pauses.append(looks_until_it_is_tried(world))
    assert pauses == [1, 2, 4, 8, 10, 10]
    world.order("b", HERE)  # is tried at once, and waits with the other one
    world.here.pop()[2](REFUSED)
    world.here.pop()[2](NONE)
    assert world.over == ["a"]
    assert looks_until_it_is_tried(world) == 1
    world.here.pop()[2](REFUSED)
    assert looks_until_it_is_tried(world) == 1
    world.here.pop()[2](NONE)
    assert world.over == ["a", "b"]
    world.run_later()
    assert not world.later


def test_a_partition_that_pauses_holds_up_no_other() -> None:
    world = World()
    world.lead(NODE, NODE, THIRD, AWAY)
    world.order("a", HERE)
    for _ in range(4):
        world.here.pop()[2](REFUSED)
        looks_until_it_is_tried(world)
    world.here.pop()[2](REFUSED)
    world.order("b", AT_SECOND)
    world.here.pop()[2](REFUSED)
    assert looks_until_it_is_tried(world) == 1
    ((order, place, done),) = world.here
    assert (order.transactional_id, place) == ("b", AT_SECOND)
    world.here.clear()
    done(NONE)
    assert looks_until_it_is_tried(world) == 9


def new_leader(world: World) -> None:
    world.lead(SECOND, SECOND, THIRD, AWAY)
    world.lead(NODE, SECOND, THIRD, AWAY)
    topic = world.image.topics["t"]
    (first, *others) = topic.partitions
    led_again = replace(first, leader_epoch=first.leader_epoch + 1)
    world.image = world.image.with_topics([replace(topic, partitions=(led_again, *others))])


def new_in_sync_set(world: World) -> None:
    topic = world.image.topics["t"]
    (first, *others) = topic.partitions
    grown = replace(first, partition_epoch=first.partition_epoch + 1)
    world.image = world.image.with_topics([replace(topic, partitions=(grown, *others))])


def new_start(world: World) -> None:
    world.image = world.image.with_brokers([replace(world.image.brokers[NODE], epoch=77)])


@pytest.mark.parametrize("change", [new_leader, new_in_sync_set, new_start])
def test_a_new_marker_ends_a_pause(change: Callable[[World], None]) -> None:
    world = World()
    world.order("a", HERE)
    for _ in range(5):
        world.here.pop()[2](REFUSED)
        looks_until_it_is_tried(world)
    world.here.pop()[2](REFUSED)
    world.run_later()
    assert not world.here
    change(world)
    assert looks_until_it_is_tried(world) == 1
    world.here.pop()[2](REFUSED)
    assert looks_until_it_is_tried(world) == 1  # the first pause of the new one


def test_a_pause_ends_with_its_orders() -> None:
    world = World()
    world.order("a", HERE)
    for _ in range(3):
        world.here.pop()[2](REFUSED)
        looks_until_it_is_tried(world)
    world.here.pop()[2](REFUSED)
    world.markers.drop(lambda order: True)
    for _ in range(8):
        world.run_later()
    assert not world.later and world.markers.waiting == (0, 0)
    world.order("b", HERE)
    world.here.pop()[2](REFUSED)
    assert looks_until_it_is_tried(world) == 1


def test_a_thread_that_may_not_wait_for_a_log_has_a_worker_write() -> None:
    """The timer, which looks again; and one that sends. The answer comes on a thread that may."""
    world = World()
    world.order("a", HERE)
    assert len(world.here) == 1 and not world.on_worker
    world.here.pop()[2](REFUSED)
    world.run_later()
    assert not world.here and [place for place, _ in world.on_worker] == [HERE]
    world.work()
    world.here.pop()[2](NONE)
    world.order("b", HERE, may_wait=False)
    assert not world.here
    world.work()
    world.here.pop()[2](NONE)
    world.order("c", AT_SECOND)
    world.answer()  # on the loop of the requests
    world.order("d", TopicPartition("gone", 0), may_wait=False)
    world.order("e", TopicPartition("gone", 0))
    assert world.over == ["a", "b", "c", "d", "e"]
    assert world.may_wait == [True, True, False, False, True]


def test_an_order_that_was_dropped_is_written_by_no_worker() -> None:
    """The disk may have hung for long: its producer may be in the next transaction by then."""
    world = World()
    world.order("a", HERE, may_wait=False)
    world.markers.drop(lambda order: True)
    world.work()
    assert not world.here


def test_a_log_that_hangs_stops_no_timer() -> None:
    """A marker is refused; the next attempt hangs in the log."""
    world = World()
    timer = Timer(SystemClock())
    hangs, goes_on, passed = Event(), Event(), Event()
    codes = [REFUSED, NONE]

    def write(order: MarkerOrder, place: TopicPartition, done: Callable[[ErrorCode], None]) -> None:
        if len(codes) == 1:
            hangs.set()
            goes_on.wait(60)
        done(codes.pop(0))

    workers = LogWorkers(lambda place: Path("/data/t-0"), SystemClock(), world.failures)
    markers = TransactionMarkers(
        NODE, lambda: world.image, write, None, timer.call_later, world.failures, workers.put
    )
    over = Event()
    order = MarkerOrder("a", 1, 0, 0, False, 0, frozenset({HERE}))
    timer.start()
    try:
        markers.send(order, lambda may_wait: over.set(), may_wait=True)
        assert hangs.wait(30)
        timer.call_later(1, passed.set)
        assert passed.wait(20)
        goes_on.set()
        assert over.wait(30)
    finally:
        goes_on.set()
        timer.stop()
        workers.stop()
    assert world.failures.count == 0
