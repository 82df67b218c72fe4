"""The controller's decisions on partitions, by its knowledge of brokers and their logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast
from uuid import UUID

import pytest

from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.events import ShutDown
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.controller.partition_changes import PartitionChanges
from kbroker.metadata.controller.partition_states import clean_elections
from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.image import (
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    ImageDelta,
    PartitionImage,
)
from kbroker.types import TopicPartition

NAME = TopicPartition("t", 0)


class Nodes:
    """The store, where everything can be written."""

    def __init__(self) -> None:
        self.written: list[PartitionImage] = []

    def set_partitions(self, changed: Sequence[PartitionImage]) -> list[PartitionImage]:
        self.written += changed
        return [replace(each, partition_epoch=each.partition_epoch + 1) for each in changed]


NODES = cast("MetadataNodes", Nodes())


def image(leader: int, *isr: int) -> ClusterImage:
    """Brokers 1 and 2 in their first starts."""
    topic = new_topic_image("t", UUID(int=1), [(1, 2)], {})
    partition = replace(topic.partitions[0], leader=leader, isr=isr)
    return (
        ClusterImage()
        .with_brokers([BrokerImage(1, epoch=11), BrokerImage(2, epoch=12)])
        .with_topics([replace(topic, partitions=(partition,))])
    )


def changes(image: ClusterImage) -> PartitionChanges:
    propagation = Propagation(lambda image, delta: ())
    propagation.catch_up(image, ImageDelta(created=tuple(image.topics.values())))
    return PartitionChanges(propagation, clean_elections, 1)


def test_an_unknown_broker_may_have_started_again_unseen() -> None:
    """The controller before let it lead, and was gone before it sent this one the image."""
    stored = image(2, 2, 1)
    known = {1: stored.brokers[1]}
    now = changes(stored).elect(NODES, stored, known).topics["t"].partitions[0]
    assert (now.leader, now.isr, now.leader_epoch) == (1, (1,), 1)


def test_a_log_that_others_cannot_use_is_not_waited_for_before_a_stop() -> None:
    stored = image(1, 1)
    decided = changes(stored)
    stop = ShutDown(1, 11, lambda left: None)
    assert decided.shut_down(NODES, stop) == [NAME]
    decided.note_closed(NODES, 2, [NAME])
    assert decided.shut_down(NODES, stop) == []


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("isr", "leader"), [((1, 2), 2), ((1,), NO_LEADER)])
def test_a_log_that_a_new_controller_cannot_use_is_led_elsewhere_in_another_epoch(
    isr: tuple[int, ...], leader: int, fails: bool
) -> None:
    """It has no leader once it has not opened, in the epoch of ours: that is written never."""
    stored, nodes = image(1, *isr), Nodes()
    propagation = Propagation(lambda image, delta: () if fails else [NAME], node_id=1)
    propagation.failing = frozenset([NAME] if fails else ())
    decided = PartitionChanges(propagation, clean_elections, 1)
    delta = ImageDelta(created=tuple(stored.topics.values()), from_store=True)
    decided.catch_up(cast("MetadataNodes", nodes), stored, delta)
    now = propagation.image.topics["t"].partitions[0]
    assert (now.leader, now.leader_epoch, now.isr) == (leader, 1, isr[1:] or isr)
    assert [(each.leader, each.leader_epoch) for each in nodes.written] == [(leader, 1)]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("isr", "in_sync"), [((2, 1), (2,)), ((2,), (2,))])
def test_a_log_that_a_new_controller_cannot_use_itself_is_not_in_sync(
    isr: tuple[int, ...], in_sync: tuple[int, ...], fails: bool
) -> None:
    """Another broker leads, and its producers do not wait for that log, which may be read for
    long."""
    stored, nodes = image(2, *isr), Nodes()
    propagation = Propagation(lambda image, delta: () if fails else [NAME], node_id=1)
    propagation.failing = frozenset([NAME] if fails else ())
    decided = PartitionChanges(propagation, clean_elections, 1)
    delta = ImageDelta(created=tuple(stored.topics.values()), from_store=True)
    decided.catch_up(cast("MetadataNodes", nodes), stored, delta)
    now = propagation.image.topics["t"].partitions[0]
    assert (now.leader, now.leader_epoch, now.isr) == (2, 0, in_sync)
    assert [each.isr for each in nodes.written] == ([in_sync] if isr != in_sync else [])
