from __future__ import annotations

import threading

from kbroker.clock import ManualClock
from kbroker.metadata.controller.event_loop import EventLoop
from tests.unit.metadata.store.harness import WAIT_S, Inbox


def test_events_are_handled_one_by_one_in_order_on_the_loops_thread() -> None:
    inbox: Inbox[int] = Inbox()
    loop: EventLoop[int] = EventLoop("loop-under-test", inbox, 100)
    loop.start()
    for number in range(50):
        assert loop.post(number)
    assert inbox.wait_for(50) == list(range(50))
    assert inbox.threads == {"loop-under-test"}
    loop.stop()


def test_a_full_queue_refuses_and_only_the_urgent_get_in() -> None:
    entered, leave = threading.Event(), threading.Event()
    handled: list[int] = []

    def handle(event: int) -> None:
        entered.set()
        leave.wait(WAIT_S)
        handled.append(event)

    loop: EventLoop[int] = EventLoop("loop-under-test", handle, 2)
    loop.start()
    assert loop.post(0)
    assert entered.wait(WAIT_S)
    assert loop.post(1) and loop.post(2)
    assert not loop.post(3)
    assert loop.post(4, urgent=True)
    assert loop.queued == 3
    leave.set()
    loop.stop(5)
    assert handled == [0, 1, 2, 4, 5]
    assert loop.stopping and not loop.thread.is_alive()
    assert not loop.post(6) and not loop.post(6, urgent=True)


def test_how_long_events_wait_and_take_is_kept() -> None:
    clock = ManualClock()
    loop: EventLoop[int] = EventLoop(
        "loop-under-test", lambda duration_ms: clock.advance(duration_ms), 10, clock=clock
    )
    assert loop.post(30) and loop.post(50)
    clock.advance(20)
    loop.turn()
    loop.turn()
    assert loop.waited.summary((0, 1)) == (((0, 20.0), (1, 50.0)), 2, 70.0)
    assert loop.took.summary((0, 1)) == (((0, 30.0), (1, 50.0)), 2, 80.0)


def test_an_event_that_fails_is_not_the_end_of_the_loop() -> None:
    inbox: Inbox[int] = Inbox()

    def handle(event: int) -> None:
        if event == 0:
            raise RuntimeError("injected")
        inbox(event)

    loop: EventLoop[int] = EventLoop("loop-under-test", handle, 10)
    loop.start()
    loop.post(0)
    loop.post(1)
    assert inbox.wait_for(1) == [1]
    loop.stop()


def test_a_stop_from_the_loops_own_thread_does_not_wait_for_itself() -> None:
    stopped = threading.Event()

    def handle(_: int) -> None:
        loop.stop()
        stopped.set()

    loop: EventLoop[int] = EventLoop("loop-under-test", handle, 10)
    loop.start()
    loop.post(0)
    assert stopped.wait(WAIT_S)
    loop.stop()
    assert not loop.thread.is_alive()


def test_a_loop_that_was_never_started_can_be_stopped() -> None:
    EventLoop[int]("loop-under-test", lambda event: None, 1).stop()
