"""Which thread computes large assignments of which groups."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.coordinator.groups import Groups
from kbroker.purgatory.timer import Timer


def test_an_assignment_of_a_share_group_delays_no_consumer_group() -> None:
    config, clock = BrokerConfig.load(None, {}, []), ManualClock()
    listener: Any = SimpleNamespace(wake=None, await_followers=None)
    groups = Groups(lambda: config, clock, Timer(clock), lambda topic, index: None, listener)
    computing, may_end, done = threading.Event(), threading.Event(), threading.Event()

    def compute() -> None:
        computing.set()
        may_end.wait(60)

    try:
        assert groups.share_groups()._around.beside(compute)
        assert computing.wait(60)
        assert groups.consumer_groups().beside(done.set)
        assert done.wait(60)
    finally:
        may_end.set()
        groups.share_groups()
        groups.stop()
    _, *threads = groups.threads
    assert len(threads) == 2
    assert not any(thread.is_alive() for thread in threads)
