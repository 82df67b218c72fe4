"""What follows from an outcome, on which threads, and after which pauses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import pytest

from kbroker.coordinator.txn.image import Pair
from kbroker.coordinator.txn.states import State
from kbroker.errors import ErrorCode
from kbroker.metadata.image import TRANSACTIONS_TOPIC
from kbroker.types import TopicPartition
from tests.unit.coordinator.txn.world import NONE, World

TV2: Final = 2
LATER: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
STATE: Final = TopicPartition(TRANSACTIONS_TOPIC, 0)


def places(world: World) -> list[TopicPartition]:
    return [place for place, _ in world.on_worker]


def prepared() -> World:
    """With an outcome in the log, whose markers are not written; and workers that are held."""
    world = World()
    pair = world.pair()
    world.add(pair)
    world.markers.holds = True
    world.end(pair)
    world.holds_worker = True
    return world


def test_complete_is_written_by_a_worker_where_the_last_answer_came_on_a_loop() -> None:
    world = prepared()
    world.markers.write(may_wait=False)
    assert world.state() is State.PREPARE_COMMIT and places(world) == [STATE]
    world.work()
    assert world.state() is State.COMPLETE_COMMIT
    world = prepared()
    world.markers.write()
    assert world.state() is State.COMPLETE_COMMIT and not world.on_worker


def test_complete_is_written_again_by_a_worker_after_longer_pauses() -> None:
    world = prepared()
    world.log.refuses = [LATER] * 6
    world.markers.write()
    for times in range(1, 7):
        assert (world.coordinator.completing_again, len(world.pauses_ms)) == (1, times)
        world.run_later()
        assert world.coordinator.completing_again == 0 and places(world) == [STATE]
        world.work()
    assert world.pauses_ms == [100, 200, 400, 800, 1_000, 1_000]
    assert world.state() is State.COMPLETE_COMMIT


def test_markers_that_are_sent_again_are_written_by_workers_after_longer_pauses() -> None:
    world = World()
    pair = world.pair()
    world.add(pair)
    world.log.holds = True
    world.end(pair)
    world.log.epoch = -1  # the partition is about to be unloaded, or its log is late
    world.log.release()
    world.log.holds = False
    for _ in range(3):
        world.run_later()
    world.log.epoch = 8
    world.run_later()
    assert world.pauses_ms == [100, 200, 400, 800]
    assert world.markers.may_wait == [False]
    assert world.state() is State.COMPLETE_COMMIT


def test_outcomes_that_a_load_has_found_are_written_by_workers() -> None:
    world = prepared()
    world.fail_over()
    assert world.markers.may_wait == [True, False] and places(world) == [STATE]
    world.work()
    assert world.state() is State.COMPLETE_COMMIT


def test_an_abort_of_nothing_that_a_load_has_found_is_written_by_a_worker() -> None:
    world = World()
    pair = world.pair()
    world.log.holds = True
    world.end(pair, committed=False, version=TV2)
    world.log.release()
    assert world.state() is State.PREPARE_ABORT  # and Complete is lost
    world.holds_worker = True
    world.fail_over()
    assert not world.markers.orders and places(world) == [STATE]
    world.work()
    assert world.state() is State.COMPLETE_ABORT


def test_an_id_whose_producer_id_came_on_another_thread_is_written_by_a_worker() -> None:
    """It may come on the controller's, or on a loop."""
    world = World()
    world.holds_worker = True
    assert world.init(name="at once") == (NONE, Pair(1_000, 0)) and not world.on_worker

    def elsewhere(done: Callable[[int], None]) -> None:
        thread = threading.Thread(target=done, args=(5,))
        thread.start()
        thread.join()

    world.generate = elsewhere
    assert world.init() is None and places(world) == [STATE]
    world.work()
    assert world.answers == [(NONE, Pair(5, 0))]


def test_a_worker_that_cannot_begin_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = prepared()

    def fails(place: TopicPartition, call: object) -> None:
        raise RuntimeError("no thread")

    with monkeypatch.context() as patched:
        patched.setattr(world.coordinator._outcomes, "_on_worker", fails)
        world.markers.write(may_wait=False)
    assert world.coordinator.failures.count == 1
    world.run_later()
    world.work()
    assert world.state() is State.COMPLETE_COMMIT


class _Idle:
    """An id of which C has left nothing."""

    def take_left(self) -> bool:
        return False

    @property
    def image(self) -> object:
        raise AssertionError("an image was made")


def test_a_look_makes_no_image_of_an_id_of_which_nothing_was_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be many: each is looked at every ten seconds, and by each EndTxn."""
    outcomes = World().coordinator._outcomes
    monkeypatch.setattr(outcomes, "_known", lambda transactional_id: _Idle())
    outcomes.go_on("pay")
