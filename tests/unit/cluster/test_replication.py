"""A broker handles the controller's answers to the changes of in-sync sets that it asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from kbroker.clock import ManualClock
from kbroker.cluster.replication import Replication
from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.image_updates import IN_SYNC_VERSION
from kbroker.metadata.controller.in_sync_messages import response_of
from kbroker.metadata.controller.partition_states import InSyncChange
from kbroker.metadata.image import BrokerImage, ClusterImage

US, OTHER = 1, 2
CHANGE = InSyncChange(UUID(int=1), 0, 3, 4, {US: 5})


def replication(controller: Mock, links: Mock) -> Replication:
    controller.image = ClusterImage(controller_id=OTHER).with_brokers([BrokerImage(OTHER)])
    controller.in_step = lambda call: call()
    config = BrokerConfig.load(overrides=[f"node.id={US}"])
    nothing: Any = Mock()
    return Replication(
        config, ManualClock(), links, nothing, nothing, lambda: controller, nothing, nothing
    )


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH])
@pytest.mark.parametrize("active", [True, False])
def test_a_broker_that_the_controller_does_not_know_doubts_its_registration(
    active: bool, code: ErrorCode
) -> None:
    error = KafkaError(code)

    def alter(leader: int, epoch: int, changes: Any, done: Callable[[Any], None]) -> None:
        done([error])

    def forward(broker: Any, key: int, version: int, body: bytes, done: Any) -> None:
        done(response_of([CHANGE], [error]).encode(IN_SYNC_VERSION))

    controller = Mock(active=active, broker_epoch=5, alter_in_sync=alter)
    outcomes: list[Any] = []
    replication(controller, Mock(forward=forward))._ask([CHANGE], outcomes.append)
    assert [each.code for each in outcomes[0]] == [code]
    assert controller.doubt_registration.called is (code is ErrorCode.STALE_BROKER_EPOCH)


def test_a_look_at_in_sync_sets_that_cannot_begin_is_followed_by_others() -> None:
    looks: list[Callable[[], None]] = []
    made = replication(Mock(), Mock())
    controller = made._controller()

    def in_step(call: Callable[[], None]) -> None:
        looks.append(call)
        if len(looks) == 1:
            raise MemoryError

    controller.in_step = in_step  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        made._look()
    made._look()
    assert len(looks) == 2
    made._look()  # which waits for the one before
    assert len(looks) == 2
