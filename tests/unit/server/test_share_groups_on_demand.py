"""When a broker begins to coordinate states of share groups, and begins again after a failure."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kbroker.clock import SystemClock
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.features import SHARE_VERSION, FinalizedFeatures
from kbroker.metadata.image import SHARE_STATE_TOPIC, ClusterImage, ImageDelta
from kbroker.server.share_groups import Given, ShareGroupsOnDemand

STATE = new_topic_image(SHARE_STATE_TOPIC, UUID(int=1), [(1,)], {})
RAISED = FinalizedFeatures().changed({SHARE_VERSION: 1})


class Later:
    """The timer and the controller."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []
        self.image = ClusterImage().with_topics([STATE])

    def call_later(self, delay_ms: int, call: Callable[[], object]) -> Callable[[], None]:
        self.calls.append(call)
        return lambda: None

    def in_step(self, call: Callable[[], None]) -> None:
        call()


class States:
    """What is made; its thread cannot start at first."""

    starts: list[str] = []

    def __init__(self, parts: Any, image: Any) -> None:
        pass

    def follow(self, image: Any, delta: Any) -> None:
        pass

    def show(self, image: Any) -> None:
        pass

    def start(self, scheduler: Any) -> None:
        self.starts.append("start")
        if len(self.starts) == 1:
            raise RuntimeError("can't start new thread")


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def shares(later: Later, monkeypatch: pytest.MonkeyPatch) -> ShareGroupsOnDemand:
    monkeypatch.setattr(States, "starts", [])
    monkeypatch.setattr("kbroker.cluster.share_state.ShareStates", States)
    nothing: Any = None
    given = Given(
        lambda: SimpleNamespace(node_id=1),  # type: ignore[arg-type, return-value]
        SystemClock(), later, nothing, nothing,  # type: ignore[arg-type]
        lambda: later,  # type: ignore[arg-type, return-value]
        nothing, nothing, nothing, nothing, nothing,
    )  # fmt: skip
    made = ShareGroupsOnDemand(given)
    made.start()
    return made


def test_a_start_that_fails_is_tried_again(shares: ShareGroupsOnDemand, later: Later) -> None:
    later.image = later.image.with_features(RAISED)
    shares.follow(later.image, ImageDelta(created=(STATE,)))
    assert shares.made is None and shares.failures.count == 1
    (again,) = later.calls
    again()
    assert shares.made is not None and States.starts == ["start", "start"]


def test_a_topic_of_that_name_is_nothing_before_the_feature(
    shares: ShareGroupsOnDemand, later: Later
) -> None:
    shares.follow(later.image, ImageDelta(created=(STATE,)))
    shares.show(later.image)
    assert shares.made is None and not States.starts
    States.starts.append("before")
    shares.show(later.image.with_features(RAISED))
    assert shares.made is not None
