"""One operation: ends once, however many try, and a look asked for during a look is not lost."""

from __future__ import annotations

import threading

import pytest

from kbroker.purgatory.delayed_operation import DelayedOperation


class Probe(DelayedOperation):
    def __init__(self, delay_ms: int = 100) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.looks = 0
        self.ends: list[str] = []

    def try_complete(self) -> bool:
        self.looks += 1
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.ends.append("complete")

    def on_expiration(self) -> None:
        self.ends.append("expiration")


def test_force_complete_is_true_once() -> None:
    operation = Probe()
    assert not operation.completed
    assert operation.force_complete()
    assert operation.completed
    assert not operation.force_complete()
    assert not operation.expire()
    assert not operation.check()
    assert (operation.ends, operation.looks) == (["complete"], 0)


def test_expiration_follows_completion() -> None:
    operation = Probe()
    assert operation.expire()
    assert operation.ends == ["complete", "expiration"]
    operation.run()
    assert operation.ends == ["complete", "expiration"]


def test_check_ends_it_only_when_the_wait_is_over() -> None:
    operation = Probe()
    assert not operation.check()
    operation.ready = True
    assert operation.check()
    assert not operation.check()
    assert (operation.ends, operation.looks) == (["complete"], 2)


def test_an_event_during_a_look_makes_the_one_inside_look_again() -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Probe):
        def try_complete(self) -> bool:
            seen = self.ready  # looks first, then is held up
            self.looks += 1
            if self.looks == 1:
                inside.set()
                go_on.wait(60)
            return seen and self.force_complete()

    operation = Slow()
    results: list[bool] = []
    first = threading.Thread(target=lambda: results.append(operation.check()))
    first.start()
    assert inside.wait(60)
    operation.ready = True
    assert not operation.check()  # does not wait, and leaves the look to the first thread
    assert operation.looks == 1
    go_on.set()
    first.join(10)
    assert (results, operation.looks, operation.ends) == ([True], 2, ["complete"])


def test_a_look_that_raises_can_be_followed_by_another() -> None:
    class Broken(Probe):
        def try_complete(self) -> bool:
            if not self.ready:
                raise KeyError("gone")
            return super().try_complete()

    operation = Broken()
    with pytest.raises(KeyError):
        operation.check()
    operation.ready = True
    assert operation.check()


def test_a_look_may_cause_the_event_it_waits_for() -> None:
    class Reentrant(Probe):
        def try_complete(self) -> bool:
            if self.looks == 0:
                self.looks += 1
                self.ready = True
                assert not self.check()
                return False
            return super().try_complete()

    operation = Reentrant()
    assert operation.check()
    assert operation.ends == ["complete"]


def test_one_step_decides_which_thread_ends_it() -> None:
    """Another caller comes in at the worst moment: right before the lock answers."""
    operation = Probe()
    inner: list[bool] = []

    class Overtaken:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def locked(self) -> bool:
            seen = self.lock.locked()
            self.overtake()
            return seen

        def acquire(self, blocking: bool = True) -> bool:
            self.overtake()
            return self.lock.acquire(blocking)

        def overtake(self) -> None:
            if not inner:
                inner.append(False)
                inner[0] = operation.force_complete()

    operation._once = Overtaken()  # type: ignore[assignment]
    assert not operation.force_complete()
    assert (inner, operation.ends) == ([True], ["complete"])
