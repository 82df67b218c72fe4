"""The FIFO of response slots: each rule by itself, then all of it against a plain list."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kbroker._state import ResponseSlots, Status


def test_responses_leave_in_request_order() -> None:
    slots = ResponseSlots(64, 1 << 20)
    for request_id in range(5, 8):
        assert slots.push(request_id, 100) is Status.OK
    assert slots.fill(7, "third") is Status.OK
    assert slots.fill(6, "second") is Status.OK
    assert not slots.head_ready
    assert slots.pop() is Status.NOT_READY
    assert slots.fill(5, "first") is Status.OK
    assert slots.head_ready
    assert [slots.pop() for _ in range(3)] == [
        (5, "first", 100),
        (6, "second", 100),
        (7, "third", 100),
    ]
    assert slots.pop() is Status.EMPTY


def test_a_ready_response_after_a_waiting_one_waits() -> None:
    slots = ResponseSlots(4, 1000)
    slots.push(1, 10)
    assert slots.push(2, 10, "metadata") is Status.OK
    assert not slots.head_ready
    slots.fill(1, "produce")
    assert slots.pop() == (1, "produce", 10)
    assert slots.pop() == (2, "metadata", 10)


def test_bound_by_count() -> None:
    slots = ResponseSlots(3, 1 << 20)
    for request_id in range(3):
        assert slots.room == 3 - request_id
        assert slots.push(request_id, 1) is Status.OK
    assert slots.room == 0
    assert slots.push(3, 1) is Status.FULL
    assert (len(slots), slots.bytes) == (3, 3)
    slots.fill(0, "x")
    slots.pop()
    assert slots.room == 1
    assert slots.push(3, 1) is Status.OK


def test_bound_by_bytes_admits_one_request_beyond() -> None:
    slots = ResponseSlots(64, 1000)
    assert slots.push(0, 5000) is Status.OK, "an empty queue takes a request of any size"
    assert slots.room == 0
    assert slots.push(1, 1) is Status.FULL
    slots.fill(0, "x")
    slots.pop()
    assert slots.push(1, 999) is Status.OK
    assert slots.room == 63
    assert slots.push(2, 2) is Status.OK
    assert slots.room == 0


def test_ids_grow_by_one_while_cached_and_never_repeat() -> None:
    slots = ResponseSlots(8, 1000)
    assert slots.push(10, 1) is Status.OK
    assert slots.push(10, 1) is Status.BAD_ID
    assert slots.push(12, 1) is Status.BAD_ID
    assert slots.push(11, 1, "b") is Status.OK
    slots.fill(10, "a")
    slots.pop()
    slots.pop()
    assert slots.push(11, 1) is Status.BAD_ID
    assert slots.push(40, 1) is Status.OK, "ids skipped while nothing was cached took no slot"
    assert slots.push(41, 1) is Status.OK


def test_the_last_id_of_all_is_refused() -> None:
    slots = ResponseSlots(8, 1000)
    assert slots.push(2**64 - 1, 1) is Status.BAD_ID
    assert slots.push(2**64 - 2, 1) is Status.OK
    assert slots.push(2**64 - 1, 1) is Status.BAD_ID
    assert slots.fill(0, "x") is Status.BAD_ID


def test_fill_wants_a_cached_id_once() -> None:
    slots = ResponseSlots(8, 1000)
    assert slots.fill(0, "x") is Status.BAD_ID
    slots.push(5, 1)
    for absent in (0, 4, 6, 2**64 - 1):
        assert slots.fill(absent, "x") is Status.BAD_ID
    assert slots.fill(5, None) is Status.BAD_ARGUMENT
    assert slots.fill(5, "x") is Status.OK
    assert slots.fill(5, "y") is Status.ALREADY_FILLED
    assert slots.pop() == (5, "x", 1)
    assert slots.fill(5, "x") is Status.BAD_ID


def test_the_ring_is_allocated_late_grows_in_place_and_is_given_back() -> None:
    slots = ResponseSlots(1000, 1 << 20)
    assert slots.capacity == 0
    for request_id in range(6):
        slots.push(request_id, 1, str(request_id))
    for _ in range(5):  # moves the head, so that growth has to straighten a wrapped ring
        slots.pop()
    for request_id in range(6, 106):
        assert slots.push(request_id, 1, str(request_id)) is Status.OK
    assert slots.capacity == 128
    assert slots.release() is Status.NOT_EMPTY
    assert [slots.pop() for _ in range(101)] == [(i, str(i), 1) for i in range(5, 106)]
    assert slots.release() is Status.OK
    assert slots.capacity == 0
    assert slots.push(106, 1) is Status.OK


def test_discard_takes_slots_without_an_answer_too() -> None:
    slots = ResponseSlots(8, 1000)
    slots.push(0, 7)
    slots.push(1, 8, "b")
    assert slots.discard() == (0, None, 7)
    assert slots.discard() == (1, "b", 8)
    assert slots.discard() is Status.EMPTY
    assert slots.bytes == 0


@pytest.mark.parametrize("bounds", [(0, 1), (1, 0), ((1 << 20) + 1, 1)])
def test_bounds_out_of_range_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="bounds"):
        ResponseSlots(*bounds)


class Answer:
    """Something a weak reference can watch."""


def test_no_reference_is_kept_or_lost() -> None:
    slots = ResponseSlots(8, 1000)
    answers = [Answer() for _ in range(4)]
    watched = [weakref.ref(answer) for answer in answers]
    for request_id in range(3):
        slots.push(request_id, 1)
        slots.fill(request_id, answers[request_id])
    slots.push(3, 1, answers[3])
    answers.clear()
    gc.collect()
    assert all(ref() is not None for ref in watched), "the queue keeps what it was given"
    slots.pop()
    slots.discard()
    gc.collect()
    assert [ref() is None for ref in watched] == [True, True, False, False]
    del slots
    gc.collect()
    assert all(ref() is None for ref in watched)


COUNT_MAX, BYTES_MAX = 20, 500


class SlotsModel(RuleBasedStateMachine):
    """The C ring against a list of [id, response, bytes]."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = ResponseSlots(COUNT_MAX, BYTES_MAX)
        self.model: list[list[Any]] = []
        self.next_id = 0

    def full(self) -> bool:
        return len(self.model) >= COUNT_MAX or sum(slot[2] for slot in self.model) >= BYTES_MAX

    @rule(size=st.integers(0, 200), ready=st.booleans(), skip=st.integers(0, 3))
    def push(self, size: int, ready: bool, skip: int) -> None:
        request_id = self.next_id + skip
        response = f"r{request_id}" if ready else None
        status = self.slots.push(request_id, size, response)
        if self.full():
            assert status is Status.FULL
        elif self.model and skip:
            assert status is Status.BAD_ID
        else:
            assert status is Status.OK
            self.model.append([request_id, response, size])
            self.next_id = request_id + 1

    @rule(distance=st.integers(-30, 30))
    def fill(self, distance: int) -> None:
        request_id = max(0, self.next_id + distance)
        status = self.slots.fill(request_id, f"r{request_id}")
        held = [slot for slot in self.model if slot[0] == request_id]
        if not held:
            assert status is Status.BAD_ID
        elif held[0][1] is not None:
            assert status is Status.ALREADY_FILLED
        else:
            assert status is Status.OK
            held[0][1] = f"r{request_id}"

    @precondition(lambda self: self.model)
    @rule(place=st.integers(0, COUNT_MAX - 1))
    def fill_one_that_waits(self, place: int) -> None:
        slot = self.model[place % len(self.model)]
        self.fill(slot[0] - self.next_id)

    @rule()
    def pop(self) -> None:
        taken = self.slots.pop()
        if not self.model:
            assert taken is Status.EMPTY
        elif self.model[0][1] is None:
            assert taken is Status.NOT_READY
        else:
            assert taken == tuple(self.model.pop(0))

    @rule()
    def discard(self) -> None:
        taken = self.slots.discard()
        assert taken == (tuple(self.model.pop(0)) if self.model else Status.EMPTY)

    @rule()
    def release(self) -> None:
        assert self.slots.release() is (Status.NOT_EMPTY if self.model else Status.OK)

    @invariant()
    def agree(self) -> None:
        assert len(self.slots) == len(self.model)
        assert self.slots.bytes == sum(slot[2] for slot in self.model)
        assert self.slots.head_ready == bool(self.model and self.model[0][1] is not None)
        assert self.slots.room == (0 if self.full() else COUNT_MAX - len(self.model))


TestSlotsModel = SlotsModel.TestCase
TestSlotsModel.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
