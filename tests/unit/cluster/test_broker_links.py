"""The way to other brokers where the loop on which it lives cannot start for a while."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import Mock

import pytest

from kbroker.cluster.broker_links import BrokerLinks
from kbroker.cluster.cluster_member import ClusterMember
from kbroker.config import BrokerConfig
from kbroker.metadata.controller.broker_channels import BrokerChannels
from kbroker.metadata.image import BrokerImage, ClusterImage

US, OTHER = 1, 2


class Timer:
    """The pauses that are being made."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def call_later(self, delay_ms: int, call: Callable[[], object]) -> Callable[[], object]:
        self.calls.append(call)
        return Mock()

    def pass_by(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), OSError(24, "files")])
def test_an_image_that_could_not_be_sent_is_sent_when_there_is_a_loop(error: Exception) -> None:
    error_now: list[Exception] = [error]
    begun: list[object] = []

    def submit(work: Coroutine[Any, Any, None]) -> Any:
        if error_now:
            raise error_now[0]
        begun.append(work)
        work.close()

    timer = Timer()
    links = BrokerLinks(submit, timer.call_later, lambda: US)
    channels: BrokerChannels = BrokerChannels(
        US, links, lambda *what: channels.answered(*what), lambda sent: channels.retry(sent),
        random.Random(1),
    )  # fmt: skip
    image = ClusterImage().with_brokers([BrokerImage(OTHER, "h", 9092)]).at_version(3)
    channels.follow(image, 1)
    for _ in range(3):
        assert len(timer.calls) == 1
        timer.pass_by()
    error_now.clear()
    timer.pass_by()
    assert len(begun) == 1 and timer.calls == []


def test_readiness_names_why_other_brokers_are_not_followed() -> None:
    others: Any = Mock()
    config = BrokerConfig.load(overrides=["node.id=1"])
    member = ClusterMember(
        config, others, others, others, others, others, lambda: others, others, others
    )
    assert member.failing == {}
    member.replication.fetchers.failing = "RuntimeError: can't start new thread"
    assert member.failing == {"following other brokers": "RuntimeError: can't start new thread"}
