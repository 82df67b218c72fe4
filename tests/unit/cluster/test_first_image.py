"""A broker without a first image: requests wait for it, and so does its ready line."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.clock import SystemClock
from kbroker.cluster.cluster_member import ClusterMember
from kbroker.cluster.first_image import FirstImage
from kbroker.config import BrokerConfig
from kbroker.errors import MetadataStoreError
from kbroker.failures import Failures
from kbroker.handlers.forwarding import CLIENT_ID
from kbroker.metadata.image import NO_CONTROLLER, ClusterImage
from kbroker.observe.readiness import RUNNING, Readiness
from kbroker.types import ApiKey


class Asked:
    """As much of a request as decides whether it waits."""

    def __init__(
        self, api_key: int, client_id: str | None = "c", listener: str = "OUTSIDE"
    ) -> None:
        self.api_key = api_key
        self.client_id = client_id
        self.listener = listener


def first_image() -> FirstImage:
    return FirstImage(Failures("replication"), "INSIDE")


def dispatch_of(first: FirstImage, done: list[int]) -> Callable[[Any], None]:
    return first.held(lambda request: done.append(request.api_key))


def test_work_that_needs_metadata_waits_for_it_and_keeps_its_order() -> None:
    first, done = first_image(), list[int]()
    dispatch = dispatch_of(first, done)
    for key in (ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.CREATE_TOPICS):
        dispatch(Asked(key))
    dispatch(Asked(ApiKey.UPDATE_METADATA, CLIENT_ID, "INSIDE"))
    dispatch(Asked(ApiKey.DELETE_TOPICS, CLIENT_ID))  # any client can use this client id
    assert done == [ApiKey.API_VERSIONS, ApiKey.UPDATE_METADATA]
    assert not first.has_come
    first.came()
    assert done[2:] == [ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS]
    first.came()
    dispatch(Asked(ApiKey.METADATA))
    assert done[5:] == [ApiKey.METADATA]
    assert first.wait(0)


def test_a_caller_that_waits_in_vain_is_let_go() -> None:
    first, done = first_image(), list[int]()
    request = Asked(ApiKey.METADATA)
    dispatch_of(first, done)(request)
    assert not first.wait(1)
    gone = weakref.ref(request)
    del request
    assert gone() is None  # it was dropped, which closes its connection
    late = Asked(ApiKey.METADATA)
    dispatch_of(first, done)(late)
    gone = weakref.ref(late)
    del late
    assert gone() is None
    first.came()
    assert done == []


def test_no_request_waits_when_the_start_was_given_up() -> None:
    first = first_image()
    first.given_up = True
    assert not first.wait(60_000)
    first.came()
    assert first.wait(60_000)


def test_one_that_fails_keeps_no_other_from_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    failures, done = Failures("replication"), list[int]()
    first = FirstImage(failures, "INSIDE")

    def fail(request: Any) -> None:
        raise ValueError(f"{request.api_key} went wrong")

    for key, dispatch in (
        (ApiKey.METADATA, first.held(fail)),
        (ApiKey.CREATE_TOPICS, dispatch_of(first, done)),
        (ApiKey.LIST_GROUPS, first.held(fail)),
        (ApiKey.DELETE_TOPICS, dispatch_of(first, done)),
    ):
        dispatch(Asked(key))
    first.came()
    assert done == [ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS]
    assert failures.count == 2
    assert "went wrong" in caplog.text


class Controller:
    """As much of a controller as a member of a cluster asks."""

    def __init__(self, controller_id: int) -> None:
        self.image = ClusterImage(controller_id=controller_id)
        self.informed = False


def member_of(known: Controller) -> ClusterMember:
    config = BrokerConfig.load(overrides=["node.id=1", "initial.broker.registration.timeout.ms=1"])
    unused: Any = None
    controller: Any = known
    return ClusterMember(
        config,
        SystemClock(),
        unused,
        unused,
        unused,
        unused,
        lambda: controller,
        unused,
        Failures("replication"),
    )


@pytest.mark.parametrize(
    ("controller_id", "said"),
    [
        (NO_CONTROLLER, "there was no controller for 1 ms"),
        (2, "broker 2, the controller, did not say what holds for 1 ms"),
    ],
)
def test_a_start_without_an_image_ends_with_a_line(controller_id: int, said: str) -> None:
    with pytest.raises(MetadataStoreError, match=said):
        member_of(Controller(controller_id)).await_image()


def test_a_registered_broker_with_an_image_is_ready() -> None:
    controller = Controller(2)
    member = member_of(controller)
    readiness = Readiness([], informed=member.informed)
    readiness.phase = RUNNING
    assert not member.shows()
    (check,) = readiness.checks()
    assert (check.ok, check.detail) == (False, "not registered, or without metadata")
    controller.informed = True
    assert member.shows()
    member.first_image.came()
    member.await_image()
    assert readiness.checks()[0].ok
    controller.informed = False  # its session is over: it serves its image, but is not ready
    assert member.shows() and not readiness.checks()[0].ok
