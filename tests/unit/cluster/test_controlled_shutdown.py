"""What a broker that stops waits for: that others lead, or that the time for it is over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.clock import SystemClock
from kbroker.cluster import controlled_shutdown
from kbroker.cluster.controlled_shutdown import ControlledShutdown
from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.image_updates import SHUTDOWN_KEY, SHUTDOWN_VERSION
from kbroker.metadata.image import NO_CONTROLLER, ZERO_UUID, BrokerImage, ClusterImage
from kbroker.protocol.messages import controlled_shutdown as TABLE
from kbroker.types import TopicPartition

US, OTHER, THIRD = 1, 2, 3
DAY_MS = 86_400_000
NAME = TopicPartition("t", 0)


def image(leader: int, controller_id: int = OTHER) -> ClusterImage:
    replicas = (leader, US if leader == OTHER else OTHER)  # the first one leads
    return (
        ClusterImage(controller_id=controller_id)
        .with_brokers(
            [
                BrokerImage(US, "h", 1, epoch=5),
                BrokerImage(OTHER, "h", 2, epoch=6),
                BrokerImage(THIRD, "h", 3, epoch=7),
            ]
        )
        .with_topics([new_topic_image("t", ZERO_UUID, [replicas], {})])
    )


class World:
    """The controller, here or elsewhere, with its answers; each may bring an image with it."""

    def __init__(self, *answers: list[TopicPartition] | KafkaError, **overrides: object) -> None:
        self._image = image(US)
        self.soon: tuple[int, int] | None = None  # the image that comes after the next look
        self.active = False
        self.broker_epoch = 5
        self.answers = list(answers)
        self.asked = self.doubted = 0
        self.asked_of = US
        self.hangs = False  # the broker that is asked
        self.then: Callable[[], None] = lambda: None
        values = {"node.id": US, "controlled.shutdown.retry.backoff.ms": DAY_MS, **overrides}
        config = BrokerConfig.load(overrides=[f"{key}={it}" for key, it in values.items()])
        peers: Any = self
        controller: Any = self
        self.shutdown = ControlledShutdown(config, SystemClock(), peers, lambda: controller)

    def doubt_registration(self) -> None:
        self.doubted += 1
        self.publish(US)

    @property
    def image(self) -> ClusterImage:
        found, soon, self.soon = self._image, self.soon, None
        if soon is not None:
            self.publish(*soon)
        return found

    def publish(self, leader: int, controller_id: int = OTHER) -> None:
        self._image = image(leader, controller_id)
        self.shutdown.followed()

    def _answer(self) -> list[TopicPartition] | KafkaError:
        self.asked += 1
        self.then()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def shut_down(self, node_id: int, broker_epoch: int, done: Callable[[Any], None]) -> None:
        assert (node_id, broker_epoch) == (US, 5)
        self.asked_of = US
        answer = self._answer()
        if not self.hangs:
            done(answer)

    def forward(
        self, broker: BrokerImage, key: int, version: int, body: bytes, done: Callable[[Any], None]
    ) -> None:
        assert (key, version) == (SHUTDOWN_KEY, SHUTDOWN_VERSION)
        request = TABLE.Request.decode(body, version)
        assert (request.broker_id, request.broker_epoch) == (US, 5)
        self.asked_of = broker.node_id
        answer = self._answer()
        if not self.hangs:
            done(answer if isinstance(answer, KafkaError) else _response(answer).encode(version))


def _response(remaining: list[TopicPartition]) -> TABLE.Response:
    left = [TABLE.RemainingPartition(topic_name=t, partition_index=p) for t, p in remaining]
    return TABLE.Response(error_code=ErrorCode.NONE, remaining_partitions=left)


@pytest.fixture
def last_line(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    caplog.set_level(logging.INFO, "kbroker.server")
    return lambda: caplog.messages[-1]


@pytest.mark.parametrize("active", [True, False])
def test_a_stop_goes_on_when_others_lead(active: bool, last_line: Callable[[], str]) -> None:
    world = World([NAME], [])
    world.active = active
    world.then = lambda: world.publish(OTHER if world.asked == 2 else US)
    world.shutdown.run()
    assert world.asked == 2
    assert "others lead what could be led" in last_line()


def test_without_a_controller_the_next_one_is_asked(last_line: Callable[[], str]) -> None:
    world = World([])
    world.publish(US, NO_CONTROLLER)
    world.soon = (US, OTHER)
    world.then = lambda: world.publish(OTHER)
    world.shutdown.run()
    assert world.asked == 1
    assert "others lead what could be led" in last_line()


@pytest.mark.parametrize("answer", [[NAME], KafkaError(ErrorCode.NOT_CONTROLLER)])
def test_a_stop_does_not_wait_for_ever(
    answer: list[TopicPartition] | KafkaError, last_line: Callable[[], str]
) -> None:
    world = World(answer, **{"controlled.shutdown.retry.backoff.ms": 1})
    world.shutdown.run()
    assert world.asked >= 1
    assert "this broker stops although" in last_line()
    assert ("t-0" if answer == [NAME] else "NOT_CONTROLLER") in last_line()


def test_a_broker_that_the_controller_does_not_know_doubts_its_registration() -> None:
    world = World(KafkaError(ErrorCode.STALE_BROKER_EPOCH), [])
    world.then = lambda: world.publish(OTHER) if world.asked == 2 else None
    world.shutdown.run()
    assert (world.asked, world.doubted) == (2, 1)


def test_a_broker_that_may_not_or_cannot_hand_over_does_not_ask() -> None:
    world = World([NAME], **{"controlled.shutdown.enable": "false"})
    world.shutdown.run()
    unregistered = World([NAME])
    unregistered.broker_epoch = -1
    unregistered.shutdown.run()
    assert world.asked == unregistered.asked == 0


@pytest.mark.parametrize("active", [True, False])
def test_an_answer_that_does_not_come_leaves_time_for_the_next(
    active: bool, last_line: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controlled_shutdown, "ANSWER_MS_MIN", 1)
    backoff = {"controlled.shutdown.retry.backoff.ms": 300}
    world = World([], **backoff, **{"controlled.shutdown.max.retries": 100})
    world.active, world.hangs = active, True

    def then() -> None:
        world.hangs = world.asked < 3
        if not world.hangs:
            world.publish(OTHER)

    world.then = then
    world.shutdown.run()
    assert world.asked == 3
    assert "others lead what could be led" in last_line()
    world = World([], **backoff)
    world.active, world.hangs = active, True
    world.shutdown.run()
    assert "the controller did not answer within 300 ms" in last_line()


@pytest.mark.parametrize("next_one", [US, THIRD])
def test_the_next_controller_is_asked_as_well(next_one: int) -> None:
    world = World([])
    world.publish(OTHER)
    assert world.asked == 0  # it does not stop yet
    world.shutdown.run()
    world.publish(OTHER)
    world.publish(OTHER, NO_CONTROLLER)
    assert (world.asked, world.asked_of) == (1, OTHER)
    world.active = next_one == US
    for _ in range(2):
        world.publish(OTHER, next_one)
        assert (world.asked, world.asked_of) == (2, next_one)
