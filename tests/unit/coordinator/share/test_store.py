"""Share state in real logs: written, loaded by the next leader, pruned, and given up."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kbroker.clock import ManualClock
from kbroker.coordinator.runtime._shard_table import ShardTable, partition_for
from kbroker.coordinator.runtime.loader import Loader
from kbroker.coordinator.share.coordinator import ShareCoordinator
from kbroker.coordinator.share.machine import ShareStateMachine
from kbroker.coordinator.share.records import encode_key
from kbroker.coordinator.share.requests import Delete, Initialize, Read, Write
from kbroker.coordinator.share.seams import Outcome
from kbroker.coordinator.share.store import ShareStateStore
from kbroker.errors import ErrorCode
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import SHARE_STATE_TOPIC, ClusterImage, ImageDelta
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog, LedLogManager
from tests.unit.coordinator.share.world import KEY, SETTINGS, TOPIC, batch, key_of

NODE, ELSEWHERE = 1, 2
TOPIC_ID: Final = uuid.UUID(int=0x79)
COUNT: Final = 2
PLACE: Final = partition_for(KEY.coordinator_key, COUNT)
OTHER: Final = next(
    key for key in map(key_of, range(1, 99)) if partition_for(key.coordinator_key, COUNT) != PLACE
)


class Node:
    """One broker with the state topic; rounds are done where they are begun."""

    def __init__(self, path: Path) -> None:
        self.logs = LedLogManager([path])
        self.logs.start()
        self.table = ShardTable(None)
        self.published: list[Callable[[], object]] = []
        self.machine = ShareStateMachine(
            self.table, lambda partition, call: self.published.append(call)
        )
        self.clock = ManualClock()
        self.loader = Loader(self.table, self.machine, self.clock, buffer_bytes=1 << 20)
        self.open: dict[int, LedLog] = {}
        self.store = ShareStateStore(
            self.table, self.loader, lambda _, index: self.open.get(index), NODE,
            delete_records=self._delete_records,
        )  # fmt: skip
        self.topics = {TOPIC}
        self.settings: dict[str, Any] = dict(SETTINGS)
        self.coordinator = ShareCoordinator(
            lambda: self.settings, self.clock, self.store,
            lambda topic_id, _: topic_id in self.topics, lambda _, call: call(),
        )  # fmt: skip
        self.machine.attach(self.coordinator)

    def _delete_records(self, place: TopicPartition, offset: int) -> None:
        self.open[place.partition].delete_records(offset)

    def lead(self, *leaders: int, epoch: int = 0, loads: bool = True) -> None:
        first = not self.open
        topic = new_topic_image(SHARE_STATE_TOPIC, TOPIC_ID, [(each,) for each in leaders], {})
        led = tuple(replace(each, leader_epoch=epoch) for each in topic.partitions)
        topic = replace(topic, partitions=led)
        delta = ImageDelta(created=(topic,)) if first else ImageDelta(changed=(topic,))
        self.store.before(delta)
        for index, leader in enumerate(leaders):
            if index not in self.open:
                self.open[index] = self.logs.open(SHARE_STATE_TOPIC, index, TOPIC_ID, {})
            self.open[index].set_leadership(leader, leader == NODE, epoch, 1)
        self.store.follow(ClusterImage().with_topics([topic]), delta)
        if loads:
            self.load()

    def load(self) -> None:
        """And publish the image."""
        for _ in self.loader.work_off():
            pass
        published, self.published = self.published, []
        for call in published:
            call()

    def ask(self, asked: Any) -> Any:
        answers: list[Any] = []
        self.coordinator.ask(asked, answers.append)
        (answer,) = answers
        return answer

    def stop(self) -> None:
        self.loader.stop()
        self.logs.stop()


Start = Callable[[], Node]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    nodes: list[Node] = []

    def make() -> Node:
        if nodes:
            nodes[-1].stop()
        nodes.append(Node(tmp_path / "data"))
        return nodes[-1]

    yield make
    nodes[-1].stop()


def written(node: Node) -> Node:
    for key in (KEY, OTHER):
        assert node.ask(Initialize(key, 5, 0)) == Outcome()
        assert node.ask(Write(key, 5, 1, 3, (batch(3, 9), batch(11, 12, 0, 2)))) == Outcome()
    return node


def test_states_are_loaded_before_their_partition_is_active(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    node = start()
    node.lead(NODE, NODE)
    states = [written(node).ask(Read(key, 0)) for key in (KEY, OTHER)]
    node = start()
    caplog.set_level("INFO")
    node.lead(NODE, NODE, epoch=1, loads=False)
    assert node.ask(Read(KEY, 1)).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.load()
    assert [node.ask(Read(key, 0)) for key in (KEY, OTHER)] == states
    assert "loaded 2 partitions with 2 share-partitions" in caplog.text


def test_a_partition_that_is_lost_takes_its_states_along(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    written(node)
    leaders = [NODE, NODE]
    leaders[PLACE] = ELSEWHERE
    node.lead(*leaders, epoch=1)
    assert node.ask(Read(KEY, 0)).code is ErrorCode.NOT_COORDINATOR
    assert node.ask(Read(OTHER, 0)).start_offset == 3
    assert node.coordinator.state_count() == 1
    node.lead(NODE, NODE, epoch=2)
    assert node.ask(Read(KEY, 0)).start_offset == 3


def test_a_pruned_log_is_loaded(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    node.settings["share.coordinator.snapshot.update.records.per.snapshot"] = 2
    written(node)
    for at in range(4, 9):
        assert node.ask(Write(KEY, 5, 1, at, ())) == Outcome()
    for _ in node.coordinator.prune():
        pass
    log = node.open[PLACE]
    assert (log.log_start_offset, log.log_end_offset) == (6, 7)
    before = node.ask(Read(KEY, 0))
    node.lead(ELSEWHERE, NODE, epoch=1) if PLACE == 0 else node.lead(NODE, ELSEWHERE, epoch=1)
    node.lead(NODE, NODE, epoch=2)
    assert node.ask(Read(KEY, 0)) == before


def test_states_of_topics_that_are_gone_are_removed_after_a_load(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    written(node)
    node = start()
    node.topics.clear()
    node.lead(NODE, NODE, epoch=1)
    assert node.coordinator.state_count() == 0
    node = start()
    node.lead(NODE, NODE, epoch=2)
    assert node.ask(Read(KEY, 0)).code is ErrorCode.INVALID_REQUEST


def test_records_that_cannot_be_read_are_left_out(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    node = start()
    node.lead(NODE, NODE)
    written(node)
    before = node.ask(Read(KEY, 0))
    for record in (
        (encode_key(0, key_of(5)), b"\0\0\0"),
        (b"\0\7later", b"value"),
        (b"", b"value"),
        (encode_key(1, key_of(6)), None),
        (encode_key(1, KEY), b"\0\1of a version to come"),
    ):
        assert node.table.append(PLACE, [record]) == 0
    node = start()
    node.lead(NODE, NODE, epoch=1)
    assert node.ask(Read(KEY, 0)) == before
    assert node.coordinator.state_count() == 2
    assert caplog.text.count("left out") >= 1


def test_a_state_that_ended_stays_so(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    assert written(node).ask(Delete(KEY)) == Outcome()
    node = start()
    node.lead(NODE, NODE, epoch=1)
    assert node.coordinator.state_count() == 1
