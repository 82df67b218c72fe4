"""A group's partition is verified at the log, then at the transaction's coordinator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from kbroker.cluster.offsets_verification import NO_GUARD_NEEDED, OffsetsVerification
from kbroker.errors import ErrorCode
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.types import TopicPartition

NAME = TopicPartition(OFFSETS_TOPIC, 3)
Errors = dict[TopicPartition, ErrorCode]


class Log:
    def __init__(self, code: ErrorCode = ErrorCode.NONE, guard: int = 9) -> None:
        self.answer = code, guard
        self.begun: list[tuple[int, int, int, bool]] = []
        self.ended = 0

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, bumps_epoch: bool
    ) -> tuple[ErrorCode, int]:
        self.begun.append((producer_id, producer_epoch, base_sequence, bumps_epoch))
        return self.answer

    def end_verification(self, producer_id: int, guard: int, *, refused: bool) -> None:
        assert (producer_id, guard, refused) == (7, 9, True)
        self.ended += 1


class Coordinator:
    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.code = code
        self.asked: list[tuple[str, int, int, list[TopicPartition], bool]] = []

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
        done(dict.fromkeys(partitions, self.code))


def outcome(
    log: Log | None, coordinator: Coordinator, version: int = 4, *, enabled: bool = True
) -> tuple[ErrorCode, int]:
    verification = OffsetsVerification(
        lambda topic, index: log if (topic, index) == NAME else None,
        coordinator.verify,
        lambda: enabled,
    )
    found: list[tuple[ErrorCode, int]] = []
    verification(3, "id", 7, 2, version, lambda code, guard: found.append((code, guard)))
    (only,) = found
    return only


@pytest.mark.parametrize(("version", "adds"), [(0, False), (4, False), (5, True)])
def test_the_coordinator_is_asked_with_a_guard(version: int, adds: bool) -> None:
    log, coordinator = Log(), Coordinator()
    assert outcome(log, coordinator, version) == (ErrorCode.NONE, 9)
    assert log.begun == [(7, 2, -1, adds)]
    assert coordinator.asked == [("id", 7, 2, [NAME], adds)]


def test_an_answer_on_another_thread_goes_on_at_a_worker() -> None:
    """It may be a loop, which may not wait for the log of the offsets."""
    asked: list[Callable[[Errors], None]] = []

    def verify(*what: object, adds: bool, done: Callable[[Errors], None]) -> None:
        asked.append(done)

    on_worker: list[tuple[TopicPartition, Callable[[], object]]] = []
    found: list[tuple[ErrorCode, int]] = []
    verification = OffsetsVerification(
        lambda topic, index: Log(), verify, lambda: True, lambda *work: on_worker.append(work)
    )
    verification(3, "id", 7, 2, 4, lambda code, guard: found.append((code, guard)))
    thread = threading.Thread(target=asked[0], args=({NAME: ErrorCode.NONE},))
    thread.start()
    thread.join()
    ((place, call),) = on_worker
    assert place == NAME and not found
    call()
    assert found == [(ErrorCode.NONE, 9)]


def test_an_open_transaction_needs_no_coordinator() -> None:
    coordinator = Coordinator()
    assert outcome(Log(guard=0), coordinator) == (ErrorCode.NONE, 0)
    fenced = Log(ErrorCode.INVALID_PRODUCER_EPOCH, 0)
    assert outcome(fenced, coordinator) == (ErrorCode.INVALID_PRODUCER_EPOCH, 0)
    assert coordinator.asked == []


def test_the_coordinator_s_error_is_the_answer() -> None:
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert outcome(Log(), Coordinator(abortable)) == (abortable, 9)


def test_the_guard_is_let_go_of_after_the_append() -> None:
    log = Log()
    ended: list[int] = []
    verification = OffsetsVerification(lambda *_: log, Coordinator().verify, lambda: True)
    verification(3, "id", 7, 2, 5, lambda code, guard: ended.append(log.ended))
    assert (ended, log.ended) == ([0], 1)


def test_the_guard_is_let_go_of_where_a_step_fails() -> None:
    log, coordinator = Log(), Coordinator()
    verification = OffsetsVerification(lambda *_: log, coordinator.verify, lambda: True)

    def fails(*given: object, **named: object) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        verification(3, "id", 7, 2, 5, fails)
    assert log.ended == 1
    verification = OffsetsVerification(lambda *_: log, fails, lambda: True)
    with pytest.raises(RuntimeError):
        verification(3, "id", 7, 2, 5, lambda code, guard: None)
    assert log.ended == 2


def test_a_partition_of_another_broker() -> None:
    assert outcome(None, Coordinator())[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_verification_that_is_switched_off_adds_the_partition_instead() -> None:
    log, coordinator = Log(), Coordinator()
    assert outcome(log, coordinator, 4, enabled=False) == (ErrorCode.NONE, NO_GUARD_NEEDED)
    assert log.begun == coordinator.asked == []
    assert outcome(log, coordinator, 5, enabled=False) == (ErrorCode.NONE, 9)
    assert [adds for *_, adds in coordinator.asked] == [True]


def test_an_answer_that_no_worker_takes_is_an_error_for_the_client() -> None:
    """Nothing else would answer its request."""
    asked: list[Callable[[Errors], None]] = []

    def verify(*what: object, adds: bool, done: Callable[[Errors], None]) -> None:
        asked.append(done)

    def on_worker(place: TopicPartition, call: Callable[[], object]) -> None:
        raise RuntimeError("can't start new thread")

    log = Log()
    found: list[tuple[ErrorCode, int]] = []
    raised: list[BaseException] = []
    verification = OffsetsVerification(lambda topic, index: log, verify, lambda: True, on_worker)
    verification(3, "id", 7, 2, 4, lambda code, guard: found.append((code, guard)))

    def answer() -> None:
        try:
            asked[0]({NAME: ErrorCode.NONE})
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=answer)
    thread.start()
    thread.join()
    assert len(raised) == 1 and log.ended
    ((code, _),) = found
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
