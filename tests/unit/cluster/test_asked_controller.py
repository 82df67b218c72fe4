"""A controller that hangs answers nothing; a waiting caller learns of the next one."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any
from unittest.mock import Mock

import pytest

from kbroker.cluster.asked_controller import AskedController
from kbroker.cluster.broker_links import BrokerLinks
from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.metadata.controller.image_updates import IN_SYNC_KEY, IN_SYNC_VERSION
from kbroker.metadata.image import NO_CONTROLLER, BrokerImage

Outcome = bytes | KafkaError
FIRST, NEXT = 1, 2


def code_of(outcome: Outcome) -> ErrorCode:
    assert isinstance(outcome, KafkaError)
    return outcome.code


class Asked:
    def __init__(self) -> None:
        self.controller_id = FIRST
        self.failures = Failures("requests to the controller")
        self.asked = AskedController(lambda: self.controller_id, self.failures)
        self.outcomes: list[Outcome] = []
        self.answered = self.asked.ask(FIRST, self.outcomes.append)

    def elect(self, controller_id: int) -> None:
        self.controller_id = controller_id
        self.asked.followed()


def test_an_answer_ends_it() -> None:
    asked = Asked()
    asked.asked.followed()
    asked.answered(b"done")
    asked.elect(NEXT)
    assert asked.outcomes == [b"done"]


def test_requests_to_the_last_controller_are_given_up_once_and_its_answers_dropped() -> None:
    asked = Asked()
    asked.elect(NO_CONTROLLER)
    assert asked.outcomes == []  # it may be elected again
    asked.elect(NEXT)
    asked.answered(b"done after all")
    asked.elect(FIRST)
    assert [code_of(each) for each in asked.outcomes] == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_request_that_is_repeated_while_it_is_given_up_is_not_held_up() -> None:
    asked = Asked()
    again: list[Outcome] = []
    asked.asked.ask(FIRST, lambda outcome: asked.asked.ask(NEXT, again.append)(b"done"))
    asked.elect(NEXT)
    assert again == [b"done"]


def test_a_callback_that_raises_keeps_no_other_request_waiting() -> None:
    def raises(outcome: Outcome) -> None:
        raise ValueError("a callback's own error")

    asked = Asked()
    asked.asked.ask(FIRST, raises)
    asked.asked.ask(FIRST, asked.outcomes.append)
    asked.elect(NEXT)
    assert [code_of(each) for each in asked.outcomes] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert asked.failures.count == 1


def test_a_request_in_flight_to_a_controller_that_hangs_is_given_up_with_the_next_image() -> None:
    controller = [FIRST]

    def hangs(work: Coroutine[Any, Any, None]) -> Any:
        work.close()

    links = BrokerLinks(hangs, Mock(), lambda: controller[0])
    outcomes: list[Outcome] = []
    broker = BrokerImage(FIRST, "h", 1)
    links.forward(broker, IN_SYNC_KEY, IN_SYNC_VERSION, b"", outcomes.append)
    assert outcomes == []
    controller[0] = NEXT
    links.followed()
    assert [code_of(each) for each in outcomes] == [ErrorCode.REQUEST_TIMED_OUT]
    # A caller that read the image just before it changed waits for nothing, either.
    links.forward(broker, IN_SYNC_KEY, IN_SYNC_VERSION, b"", outcomes.append)
    assert len(outcomes) == 2


@pytest.mark.parametrize("informed", [True, False])
def test_a_member_of_a_cluster_gives_up_requests_to_the_controller_before(informed: bool) -> None:
    """Before its first image as well: a broker that is stopped then has asked a controller."""
    from kbroker.cluster.cluster_member import ClusterMember
    from kbroker.config import BrokerConfig

    controller = Mock(informed=informed)
    controller.image.controller_id = FIRST
    submit: Any = Mock()
    others: Any = Mock()
    config = BrokerConfig.load(overrides=["node.id=1"])
    member = ClusterMember(
        config, others, submit, others, others, others, lambda: controller, others, others
    )
    member.replication = member.shutdown = Mock()
    member.first_image = Mock(has_come=False)
    outcomes: list[Outcome] = []
    member.links.forward(BrokerImage(FIRST), IN_SYNC_KEY, IN_SYNC_VERSION, b"", outcomes.append)
    image = Mock(controller_id=NEXT)
    controller.image = image
    published: list[Any] = []
    member.follow(image, published.append)
    assert published == [image] * informed
    assert [code_of(each) for each in outcomes] == [ErrorCode.REQUEST_TIMED_OUT]
    member.shutdown.followed.assert_called_once_with()
    assert member.replication.follow.called == informed
    for call in submit.call_args_list:
        call.args[0].close()


@pytest.mark.parametrize("before", [True, False])
def test_an_image_that_is_published_is_followed_during_work_of_another_thread(before: bool) -> None:
    """The watch may take the office from this controller while its image is published."""
    from kbroker.cluster.cluster_member import ClusterMember
    from kbroker.config import BrokerConfig

    controller = Mock(informed=before)
    others: Any = Mock()
    config = BrokerConfig.load(overrides=["node.id=1"])
    member = ClusterMember(
        config, others, others, others, others, others, lambda: controller, others, others
    )
    member.replication = member.shutdown = member.links = Mock()
    member.links.followed.side_effect = lambda: setattr(controller, "informed", not before)
    member.first_image = Mock(has_come=False)
    published: list[Any] = []
    member.follow(Mock(), published.append)
    assert len(published) == before
    assert member.replication.follow.called == before
    assert member.first_image.came.called == before
