"""When a broker begins to coordinate states of share groups, and begins again after a failure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kbroker.clock import SystemClock
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.features import SHARE_VERSION, FinalizedFeatures
from kbroker.metadata.image import SHARE_STATE_TOPIC, ClusterImage, ImageDelta
from kbroker.server.share_groups import Given, ShareGroupsOnDemand
from tests.unit.handlers.support import FakeRequest
from tests.unit.net.harness import Gate, cold_frame, eventually, running

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


def given(later: Later, hot: Any) -> Given:
    nothing: Any = None
    return Given(
        lambda: SimpleNamespace(node_id=1),  # type: ignore[arg-type, return-value]
        SystemClock(), later, nothing, hot,  # type: ignore[arg-type]
        lambda: later,  # type: ignore[arg-type, return-value]
        nothing, nothing, nothing, nothing, nothing,
    )  # fmt: skip


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def shares(later: Later, monkeypatch: pytest.MonkeyPatch) -> ShareGroupsOnDemand:
    monkeypatch.setattr(States, "starts", [])
    monkeypatch.setattr("kbroker.cluster.share_state.ShareStates", States)
    made = ShareGroupsOnDemand(given(later, None))
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


def test_a_handler_does_the_work_of_answers(later: Later, tmp_path: Path) -> None:
    gate, done = Gate(), threading.Event()
    with running(tmp_path, dispatch=gate) as rig:
        shares = ShareGroupsOnDemand(given(later, rig.hot))
        shares.call_soon(done.set)
        assert done.wait(60)
        client = rig.client()
        client.send(cold_frame())
        gate.wait_for(1)
        (request,) = gate.held
        forwarded: Any = FakeRequest(0, 0, b"")
        assert not shares.has_left(request) and not shares.has_left(forwarded)
        client.reset()
        eventually(lambda: shares.has_left(request), "the client has left")
