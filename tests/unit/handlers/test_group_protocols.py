"""APIs of consumer groups where there are none: UNSUPPORTED_VERSION in the body, first of all."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, request_of

UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION
PROTOCOLS = "group.coordinator.rebalance.protocols"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("level", "protocols"), [(0, "classic,consumer,streams"), (1, "classic,share")]
)
def test_the_body_says_that_it_is_not_served(version: int, level: int, protocols: str) -> None:
    broker = FakeBroker(overrides=[f"{PROTOCOLS}={protocols}"])
    features = broker.controller.image.features.changed({"group.version": level})
    broker.controller.publish(broker.controller.image.with_features(features))
    asked = {"group_id": "g", "member_id": "m", "member_epoch": 0, "topic_partitions": ()}
    answer = broker.call(request_of(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **asked))
    assert (answer.error_code.value, answer.error_message) == (UNSUPPORTED, None)
    assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)
    groups = {"group_ids": ("g", "h", "g"), "include_authorized_operations": True}
    answer = broker.call(request_of(ApiKey.CONSUMER_GROUP_DESCRIBE, version, **groups))
    assert [(each.group_id, each.error_code.value) for each in answer.groups] == [
        ("g", UNSUPPORTED), ("h", UNSUPPORTED),
    ]  # fmt: skip
    assert {each.authorized_operations for each in answer.groups} == {-(2**31)}
