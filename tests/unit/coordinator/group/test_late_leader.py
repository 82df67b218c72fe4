"""A partition of `__consumer_offsets` whose log leads late, after a write that hung."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.coordinator.runtime._shard_table import ACTIVE, LOADING, NOT_OWNER
from kbroker.coordinator.runtime.loader import LATE_MS
from kbroker.errors import ErrorCode
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import OFFSETS_TOPIC, ClusterImage, ImageDelta
from tests.unit.coordinator.group.test_store import (
    COUNT,
    ELSEWHERE,
    NODE,
    TOPIC_ID,
    Node,
    image,
    offset,
)

EPOCH = 1


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Follows what it has written when it led."""
    before = Node(tmp_path / "data")
    before.lead(*[NODE] * COUNT)
    assert before.write(image("g", 3)) is ErrorCode.NONE
    assert before.table.commit("g", [offset("orders", 0, 7)]) == 0
    before.stop()
    node = Node(tmp_path / "data")
    node.lead(*[ELSEWHERE] * COUNT)
    yield node
    node.stop()


def elect(node: Node, leader: int = NODE, epoch: int = EPOCH) -> None:
    """The image says so, and no log has it yet."""
    topic = new_topic_image(OFFSETS_TOPIC, TOPIC_ID, [(leader,)] * COUNT, {})
    partitions = tuple(replace(each, leader_epoch=epoch) for each in topic.partitions)
    topic = replace(topic, partitions=partitions)
    node.store.follow(ClusterImage().with_topics([topic]), ImageDelta(changed=(topic,)))


def load(node: Node) -> None:
    """After the pause."""
    node.clock.advance(LATE_MS)
    for _ in node.loader.work_off():
        pass


def tell(node: Node) -> None:
    for log in node.open.values():
        log.set_leadership(NODE, True, EPOCH, 1)


def test_it_is_loaded_when_it_leads(node: Node) -> None:
    elect(node)
    for _ in range(3):
        load(node)
        assert node.states() == [LOADING] * COUNT
    tell(node)
    load(node)
    assert node.states() == [ACTIVE] * COUNT
    assert node.groups.loaded == [image("g", 3)]
    assert node.table.offset("g", "orders", 0) == offset("orders", 0, 7)


def test_one_that_is_lost_meanwhile_is_not_loaded(node: Node) -> None:
    elect(node)
    load(node)
    elect(node, ELSEWHERE, EPOCH + 1)
    tell(node)
    load(node)
    assert node.states() == [NOT_OWNER] * COUNT
    assert not node.groups.loaded and not node.loader._late


def test_the_thread_looks_again(node: Node) -> None:
    elect(node)
    node.loader.start()
    node.clock.wait_for_sleepers(1)
    tell(node)
    node.clock.advance(LATE_MS)
    node.await_load()


@pytest.mark.parametrize("again", ["before", "meanwhile"])
def test_an_empty_partition_is_active_after_its_older_term_was_unloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    node = Node(tmp_path / "empty")
    states: list[int] = []

    def unload(lost: Callable[[str], bool]) -> None:
        if again == "meanwhile":
            node.lead(*[NODE] * COUNT)
        states.append(node.table.shard_state(0))

    monkeypatch.setattr(node.groups, "unload", unload)
    node.lead(*[NODE] * COUNT)
    node.lead(ELSEWHERE, *[NODE] * (COUNT - 1))
    if again == "before":
        node.lead(*[NODE] * COUNT)  # the loader has not unloaded the partition yet
    for _ in node.loader.work_off():
        pass
    (state,) = states
    assert state == LOADING
    assert node.states() == [ACTIVE] * COUNT
    node.stop()


def test_an_unload_of_another_number_of_partitions_is_one_of_each(node: Node) -> None:
    node.loader.unload([0], 1)
    assert node.loader.unloads(7, 50) and not node.loader.unloads(7, 1)
    for _ in node.loader.work_off():
        pass
    assert not node.loader.unloads(7, 50)
