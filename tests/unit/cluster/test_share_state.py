"""The share coordinator of one broker, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

from kbroker.clock import ManualClock
from kbroker.cluster.share_state import WORKER_AGAIN_MS, Parts, ShareStates
from kbroker.config import BrokerConfig
from kbroker.failures import Failures
from kbroker.metadata.image import ClusterImage
from kbroker.purgatory.timer import Timer
from kbroker.types import TopicPartition


def test_states_of_deleted_topics_are_looked_for_when_a_worker_can_begin() -> None:
    config, clock, failures = BrokerConfig.load(), ManualClock(), Failures("share state")
    timer = Timer(clock)
    asked: list[TopicPartition] = []
    nothing: Any = Mock()

    def on_worker(place: TopicPartition, call: Callable[[], object]) -> None:
        asked.append(place)
        if len(asked) == 1:
            raise RuntimeError("can't start new thread")
        call()

    def in_step(call: Callable[[], None]) -> None:
        call()

    parts = Parts(
        lambda: config, clock, timer.call_later, in_step, nothing, nothing, on_worker, nothing,
        failures,
    )  # fmt: skip
    states = ShareStates(parts, ClusterImage(), nothing)
    forgot: list[int] = []
    states._when_published(3, lambda: forgot.append(3))
    assert (forgot, failures.count) == ([], 1)
    clock.advance(WORKER_AGAIN_MS)
    timer.advance()
    assert forgot == [3]
    assert asked == [TopicPartition("__share_group_state", 3)] * 2
