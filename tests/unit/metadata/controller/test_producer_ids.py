from __future__ import annotations

import threading
from typing import Any

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import PRODUCER_ID_BLOCK_SIZE
from kbroker.metadata.controller import ProducerIdBlock, ProducerIdManager, records
from kbroker.metadata.controller import producer_ids as module
from kbroker.metadata.controller.producer_ids import BlockCallback
from tests.unit.metadata.controller.harness import OneBroker, wait


class FakeController:
    """Blocks on demand: asked for now, delivered when the test says so."""

    def __init__(self, at_once: bool = False) -> None:
        self.at_once = at_once
        self.next = 0
        self.asked: list[tuple[int, BlockCallback]] = []

    def allocate(self, count: int, done: BlockCallback) -> None:
        self.asked.append((count, done))
        if self.at_once:
            self.deliver()

    def deliver(self, error: KafkaError | None = None) -> None:
        count, done = self.asked.pop(0)
        if error is not None:
            done(error)
            return
        first, self.next = self.next, self.next + count
        done(ProducerIdBlock(first, count))


def test_ids_are_counted_through_the_blocks_without_a_gap() -> None:
    controller = FakeController(at_once=True)
    manager = ProducerIdManager(controller.allocate, block_size=7)
    got: list[Any] = []
    for _ in range(50):
        manager.generate(got.append)
    assert got == list(range(50))


def test_a_request_that_comes_before_the_block_waits_for_it() -> None:
    controller = FakeController()
    manager = ProducerIdManager(controller.allocate, block_size=2)
    got: list[Any] = []
    for _ in range(5):
        manager.generate(got.append)
    assert got == [] and len(controller.asked) == 1
    for expected in ([0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4]):
        controller.deliver()
        assert got == expected
    manager.generate(got.append)
    assert got == [0, 1, 2, 3, 4, 5]


def test_the_next_block_is_asked_for_before_this_one_is_used_up() -> None:
    controller = FakeController()
    manager = ProducerIdManager(controller.allocate)
    got: list[Any] = []
    manager.generate(got.append)
    controller.deliver()
    while not controller.asked:
        manager.generate(got.append)
    assert len(got) == PRODUCER_ID_BLOCK_SIZE - PRODUCER_ID_BLOCK_SIZE // 10
    controller.deliver()
    for _ in range(PRODUCER_ID_BLOCK_SIZE):
        manager.generate(got.append)
    assert got == list(range(len(got)))


def test_without_a_block_all_are_answered_to_come_again() -> None:
    controller = FakeController()
    manager = ProducerIdManager(controller.allocate)
    got: list[Any] = []
    manager.generate(got.append)
    manager.generate(got.append)
    controller.deliver(KafkaError(ErrorCode.NOT_CONTROLLER, "gone"))
    assert [each.code for each in got] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    manager.generate(got.append)  # and then it is asked for again
    controller.deliver()
    assert got[2] == 0


def test_waiters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITERS_MAX", 3)
    controller = FakeController()
    manager = ProducerIdManager(controller.allocate)
    got: list[Any] = []
    for _ in range(4):
        manager.generate(got.append)
    assert [each.code for each in got] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    controller.deliver()
    assert got[1:] == [0, 1, 2]


def test_a_waiter_that_fails_does_not_cost_the_others_their_ids() -> None:
    controller = FakeController()
    manager = ProducerIdManager(controller.allocate)

    def failing(_: Any) -> None:
        raise RuntimeError("injected")

    got: list[Any] = []
    manager.generate(failing)
    manager.generate(got.append)
    controller.deliver()
    assert got == [1]


def test_threads_never_get_the_same_id(broker: OneBroker) -> None:
    manager = ProducerIdManager(broker.controller.allocate_producer_ids, block_size=20)
    got: list[int] = []

    def generate() -> None:
        for _ in range(100):
            got.append(wait(manager.generate))

    threads = [threading.Thread(target=generate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(400))


def test_a_block_is_never_given_out_again_after_a_restart(broker: OneBroker) -> None:
    assert broker.take_ids(1000) == ProducerIdBlock(0, 1000)
    assert broker.take_ids(5) == ProducerIdBlock(1000, 5)
    broker.restart()
    assert broker.take_ids(1).first == 1005


def test_the_last_id_is_the_last(broker: OneBroker) -> None:
    broker.take_ids(1)
    broker.embedded.set(
        records.PRODUCER_ID_BLOCK,
        records.encode_producer_id_block(0, records.INT64_MAX - 20, 10),
    )
    assert broker.take_ids(10).first == records.INT64_MAX - 10
    with pytest.raises(KafkaError) as raised:
        broker.take_ids(1)
    assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.controller.active
