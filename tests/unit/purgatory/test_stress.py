"""Threads that park, wake, force and time out the same operations: each ends exactly once.

A fixed amount of work, no sleeps, and no operation can hang: what no event reaches, the clock does.
The switch interval is set very low, so that the threads interleave inside the lines that matter.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from kbroker.clock import ManualClock
from kbroker.purgatory.delayed_operation import DelayedOperation
from kbroker.purgatory.purgatory import Purgatory
from kbroker.purgatory.timer import Timer

OPERATIONS = 3_000
KEYS = 7
WAKERS = 3


class Counted(DelayedOperation):
    def __init__(self, number: int, positions: list[int]) -> None:
        super().__init__(delay_ms=1 + number % 50)
        self.number = number
        self.positions = positions
        self.wanted = number
        self.inside = 0
        self.overlaps = 0
        self.ends = 0
        self.expirations = 0

    def try_complete(self) -> bool:
        self.inside += 1
        self.overlaps += self.inside != 1
        done = self.positions[self.number % KEYS] > self.wanted and self.force_complete()
        self.inside -= 1
        return done

    def on_complete(self) -> None:
        self.ends += 1

    def on_expiration(self) -> None:
        self.expirations += 1


@pytest.fixture
def interleaved() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_all(*targets: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def guarded(target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.usefixtures("interleaved")
def test_every_operation_ends_exactly_once() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    purgatory = Purgatory("stress", timer)
    positions = [0] * KEYS
    operations = [Counted(number, positions) for number in range(OPERATIONS)]
    parked = threading.Semaphore(0)
    all_parked = threading.Event()
    woken: list[int] = []

    def park(share: int) -> None:
        for operation in operations[share::2]:
            purgatory.try_complete_else_watch(operation, [operation.number % KEYS, "all"])
            parked.release()

    def wake() -> None:
        ended = 0
        while not all_parked.is_set():
            for key in range(KEYS):
                positions[key] += 3
                ended += purgatory.check_and_complete(key)
        woken.append(ended)

    def force() -> None:
        for operation in operations[::5]:
            operation.force_complete()

    def turn() -> None:
        for _ in range(OPERATIONS):
            parked.acquire()
            clock.advance(0.25)
            timer.advance()
        all_parked.set()

    run_all(lambda: park(0), lambda: park(1), force, turn, *[wake] * WAKERS)
    clock.advance(1_000)
    timer.advance()

    assert [operation.ends for operation in operations] == [1] * OPERATIONS
    assert all(operation.expirations <= 1 for operation in operations)
    assert sum(operation.overlaps for operation in operations) == 0
    assert (purgatory.delayed, purgatory.watched, len(timer)) == (0, 0, 0)


@pytest.mark.usefixtures("interleaved")
def test_no_wake_up_is_lost() -> None:
    """One thread parks, one makes the event happen and wakes, once: no timeout may be needed."""
    rounds = 2_000
    timer = Timer(ManualClock())  # never turned: what is lost stays parked
    purgatory = Purgatory("lost", timer)
    positions = [0] * KEYS
    operations = [Counted(number * KEYS, positions) for number in range(rounds)]
    for operation in operations:
        operation.wanted = operation.number // KEYS
    gate = threading.Barrier(2, timeout=60)

    def park() -> None:
        for operation in operations:
            gate.wait()
            purgatory.try_complete_else_watch(operation, ["key"])

    def wake() -> None:
        for number in range(rounds):
            gate.wait()
            positions[0] = number + 1
            purgatory.check_and_complete("key")

    run_all(park, wake)
    assert [operation.ends for operation in operations] == [1] * rounds
    assert (purgatory.delayed, len(timer)) == (0, 0)
