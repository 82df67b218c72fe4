"""What a waiting produce has its coordinators asked, and what it is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kbroker.engine.verifications import Errors, Verifications, produce_error
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition

A = TopicPartition("t", 0)
B = TopicPartition("t", 1)
LOST = (int(ErrorCode.NOT_ENOUGH_REPLICAS), int(ErrorCode.NETWORK_EXCEPTION))
NONE = (0, 0)


class Hot:
    def __init__(self) -> None:
        self.answered: list[tuple[int, list[tuple[int, int]]]] = []

    def coordinator_answered(self, number: int, errors: list[tuple[int, int]]) -> None:
        self.answered.append((number, list(errors)))


class Coordinator:
    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, list[TopicPartition], bool]] = []
        self.done: list[Callable[[Errors], None]] = []

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Callable[[Errors], None],
    ) -> None:
        self.asked.append((transactional_id, producer_id, producer_epoch, [*partitions], adds))
        self.done.append(done)


@pytest.mark.parametrize(("version", "adds"), [(3, False), (11, False), (12, True), (13, True)])
def test_the_version_says_whether_partitions_are_added(version: int, adds: bool) -> None:
    hot, coordinator = Hot(), Coordinator()
    asked: Any = (5, version, 2, [("x", 7, 3, [A, B], [[0], [1]])])
    Verifications(hot, coordinator.verify).ask(asked)
    assert coordinator.asked == [("x", 7, 3, [A, B], adds)]
    coordinator.done[0]({A: ErrorCode.NONE, B: ErrorCode.INVALID_PRODUCER_EPOCH})
    epoch = int(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert hot.answered == [(5, [NONE, (epoch, epoch)])]


def test_a_request_goes_on_with_the_last_of_its_transactions() -> None:
    hot, coordinator = Hot(), Coordinator()
    asked: Any = (5, 9, 4, [("x", 7, 3, [A, B], [[0, 2], [3]]), ("y", 8, 0, [A], [[1]])])
    Verifications(hot, coordinator.verify).ask(asked)
    coordinator.done[1]({A: ErrorCode.NONE})
    assert hot.answered == []
    coordinator.done[0]({A: ErrorCode.NONE})  # nothing of B
    assert hot.answered == [(5, [NONE, NONE, NONE, LOST])]


def test_a_question_that_raises_leaves_no_request_waiting() -> None:
    hot, coordinator = Hot(), Coordinator()

    def verify(transactional_id: str, *rest: Any, **more: Any) -> None:
        coordinator.verify(transactional_id, *rest, **more)
        if transactional_id == "x":
            raise OSError("no loop")

    asked: Any = (5, 9, 2, [("x", 7, 3, [A], [[0]]), ("y", 8, 0, [A], [[1]])])
    with pytest.raises(OSError, match="no loop"):
        Verifications(hot, verify).ask(asked)
    coordinator.done[0]({A: ErrorCode.NONE})  # too late
    coordinator.done[1]({A: ErrorCode.NONE})
    assert hot.answered == [(5, [LOST, NONE])]


def test_without_a_coordinator_clients_try_again() -> None:
    hot = Hot()
    asked: Any = (5, 9, 1, [("x", 7, 3, [A], [[0]])])
    Verifications(hot).ask(asked)
    code = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert hot.answered == [(5, [(int(ErrorCode.NOT_ENOUGH_REPLICAS), code)])]


@pytest.mark.parametrize(
    ("code", "by_version"),
    [
        (ErrorCode.NONE, {3: 0, 10: 0, 11: 0, 12: 0, 13: 0}),
        (ErrorCode.NETWORK_EXCEPTION, {3: 19, 10: 19, 11: 19, 12: 19, 13: 19}),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {3: 19, 10: 19, 11: 19, 12: 19, 13: 19}),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, {3: 19, 10: 19, 11: 19, 12: 19, 13: 19}),
        (ErrorCode.NOT_COORDINATOR, {3: 19, 10: 19, 11: 19, 12: 19, 13: 19}),
        (ErrorCode.CONCURRENT_TRANSACTIONS, {3: 19, 10: 19, 11: 19, 12: 51, 13: 51}),
        (ErrorCode.TRANSACTION_ABORTABLE, {3: 48, 10: 48, 11: 120, 12: 120, 13: 120}),
        (ErrorCode.INVALID_TXN_STATE, {3: 48, 10: 48, 11: 48, 12: 48, 13: 48}),
        (ErrorCode.INVALID_PRODUCER_EPOCH, {3: 47, 10: 47, 11: 47, 12: 47, 13: 47}),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, {3: 49, 10: 49, 11: 49, 12: 49, 13: 49}),
    ],
)
def test_errors_of_a_coordinator_in_a_produces_answer(
    code: ErrorCode, by_version: dict[int, int]
) -> None:
    assert {version: int(produce_error(code, version)) for version in by_version} == by_version
