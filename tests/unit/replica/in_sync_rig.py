"""A partition that broker 1 leads, and a controller whose answers a test gives."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.partition_states import InSyncChange
from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage
from kbroker.replica.in_sync import InSyncSets, Outcome
from tests.support.led_log import LedLog
from tests.support.record_batches import build_batch

LEADER, ONE, TWO = 1, 2, 3
LAG_MS = 30_000
BROKERS = {each: BrokerImage(each, "h", 9092, None, 10 * each) for each in (LEADER, ONE, TWO)}
PARTITION = PartitionImage("words", 0, (LEADER, ONE, TWO), (LEADER, ONE, TWO), LEADER, 4, 7)


def image_of(brokers: Mapping[int, BrokerImage], *partitions: PartitionImage) -> ClusterImage:
    """An image with these brokers, and a topic for each of these partitions."""
    image = ClusterImage().with_brokers(brokers.values())
    for number, each in enumerate(partitions, 1):
        topic = new_topic_image(each.topic, uuid.UUID(int=number), [each.replicas], {})
        image = image.with_topics([replace(topic, partitions=(each,))])
    return image


class Rig:
    """A partition that broker 1 leads, and a controller with given answers."""

    def __init__(self, log: LedLog) -> None:
        self.log = log
        self.clock = ManualClock()
        self.asked: list[Sequence[InSyncChange]] = []
        self.answer: Callable[[Outcome], None] = lambda _: None
        self.sets = InSyncSets(LEADER, self._ask, lambda _: None, self.clock, LAG_MS)

    def _ask(self, changes: Sequence[InSyncChange], done: Callable[[Outcome], None]) -> None:
        self.asked.append(changes)
        self.answer = done

    def lead(self, *isr: int, partition_epoch: int = 7, leader_epoch: int = 4) -> PartitionImage:
        image = replace(
            PARTITION, isr=isr, partition_epoch=partition_epoch, leader_epoch=leader_epoch
        )
        self.sets.lead(self.log, image)
        return image

    def fill(self, count: int) -> None:
        for _ in range(count):
            assert self.log.append(build_batch()).error == 0

    def fetch(self, broker: int, offset: int, broker_epoch: int | None = None) -> None:
        epoch = BROKERS[broker].epoch if broker_epoch is None else broker_epoch
        self.log.note_fetch(broker, offset, self.clock.monotonic_ns(), broker_epoch=epoch)

    def look(self, brokers: dict[int, BrokerImage] = BROKERS) -> list[tuple[int, ...]]:
        """The sets that are asked for now."""
        before = len(self.asked)
        self.sets.look(brokers)
        return [tuple(sorted(each.in_sync)) for asked in self.asked[before:] for each in asked]


def assert_refused(rig: Rig, broker: int, broker_epoch: int) -> None:
    with pytest.raises(KafkaError) as refused:
        rig.fetch(broker, rig.log.log_end_offset, broker_epoch)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
