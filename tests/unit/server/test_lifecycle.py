"""The lifecycle: orders up and down, failures in either direction, and stops that come early."""

from __future__ import annotations

import logging
import threading

import pytest

from kbroker.server.lifecycle import Lifecycle, Step


class Broker:
    """Steps that write down what happened to them."""

    def __init__(self, *names: str, fail_start: str = "", fail_stop: tuple[str, ...] = ()) -> None:
        self.events: list[str] = []
        self.fail_start = fail_start
        self.fail_stop = fail_stop
        self.lifecycle = Lifecycle([self.step(name) for name in names])

    def step(self, name: str) -> Step:
        def start() -> None:
            self.events.append(f"+{name}")
            if name == self.fail_start:
                raise OSError(f"{name} cannot start")

        def stop() -> None:
            self.events.append(f"-{name}")
            if name in self.fail_stop:
                raise OSError(f"{name} cannot stop")

        return Step(name, start, stop)


def test_up_in_order_and_down_in_reverse() -> None:
    broker = Broker("store", "log", "net")
    assert broker.lifecycle.start()
    assert broker.lifecycle.started == ("store", "log", "net")
    assert broker.lifecycle.stop() == []
    assert broker.events == ["+store", "+log", "+net", "-net", "-log", "-store"]
    assert broker.lifecycle.started == ()


def test_both_are_idempotent_and_a_stopped_one_stays_down() -> None:
    broker = Broker("a", "b")
    broker.lifecycle.start()
    assert broker.lifecycle.start()
    broker.lifecycle.stop()
    broker.lifecycle.stop()
    assert not broker.lifecycle.start()
    assert broker.events == ["+a", "+b", "-b", "-a"]


def test_a_start_that_is_given_up_ends_after_the_step_it_is_at() -> None:
    broker = Broker("a", "b", "c", fail_stop=("a",))
    steps = [
        broker.step("a"),
        Step("give up", lambda: broker.lifecycle.give_up()),
        broker.step("c"),
    ]
    broker.lifecycle = Lifecycle(steps)
    assert not broker.lifecycle.start()
    assert broker.events == ["+a", "-a"]
    assert [name for name, _ in broker.lifecycle.stop()] == ["a"]  # as the status is to say


def test_a_failing_start_stops_the_started_parts_and_is_the_callers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker("store", "log", "net", "admin", fail_start="net", fail_stop=("log",))
    caplog.set_level(logging.ERROR, logger="kbroker.server")
    with pytest.raises(OSError, match="net cannot start"):
        broker.lifecycle.start()
    assert broker.events == ["+store", "+log", "+net", "-log", "-store"]
    assert "log cannot stop" in caplog.text


def test_a_failing_stop_hides_nothing(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker("a", "b", "c", fail_stop=("a", "c"))
    broker.lifecycle.start()
    with caplog.at_level(logging.ERROR, logger="kbroker.server"):
        failures = broker.lifecycle.stop()
    assert [(name, str(error)) for name, error in failures] == [
        ("c", "c cannot stop"),
        ("a", "a cannot stop"),
    ]
    assert broker.events[-3:] == ["-c", "-b", "-a"]
    assert "step 'c' failed" in caplog.text
    assert "step 'a' failed" in caplog.text


def test_stop_before_start_keeps_everything_down() -> None:
    broker = Broker("a")
    broker.lifecycle.stop()
    assert not broker.lifecycle.start()
    assert broker.events == []


def test_an_interrupt_during_a_start_stops_the_started_parts() -> None:
    events: list[str] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    lifecycle = Lifecycle([Step("a", stop=lambda: events.append("-a")), Step("b", interrupted)])
    with pytest.raises(KeyboardInterrupt):
        lifecycle.start()
    assert events == ["-a"]


def test_a_stop_from_another_thread_waits_for_the_step_and_ends_the_start() -> None:
    inside, go_on = threading.Event(), threading.Event()
    events: list[str] = []

    def slow() -> None:
        inside.set()
        go_on.wait(60)

    lifecycle = Lifecycle(
        [
            Step("slow", slow, lambda: events.append("-slow")),
            Step("next", lambda: events.append("+next")),
        ]
    )
    results: list[bool] = []
    starter = threading.Thread(target=lambda: results.append(lifecycle.start()))
    starter.start()
    assert inside.wait(60)
    stopper = threading.Thread(target=lifecycle.stop)
    stopper.start()
    # The stop is asked for before the step goes on: the flag is the first thing it sets.
    while not lifecycle._stopping:
        pass
    go_on.set()
    starter.join(60)
    stopper.join(60)
    assert (results, events) == ([False], ["-slow"])


def test_a_step_may_ask_for_the_end_of_the_whole() -> None:
    broker = Broker("a", "b")

    def quit_at_once() -> None:
        lifecycle.stop()

    quits = Step("quits", quit_at_once, broker.step("quits").stop)
    lifecycle = Lifecycle([broker.step("a"), quits, broker.step("b")])
    assert not lifecycle.start()
    assert broker.events == ["+a", "-a", "-quits"]


def test_names_are_unique() -> None:
    with pytest.raises(ValueError, match="two steps of one name"):
        Lifecycle([Step("a"), Step("a")])
