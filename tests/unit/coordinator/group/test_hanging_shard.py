"""A write to a partition of `__consumer_offsets` hangs, and the partition is lost beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker.coordinator.runtime._shard_table import ACTIVE, LOADING, NOT_OWNER, partition_for
from kbroker.errors import ErrorCode
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import OFFSETS_TOPIC, ClusterImage, ImageDelta
from tests.support.standing_disk import standing
from tests.unit.coordinator.group.test_store import (
    COUNT,
    ELSEWHERE,
    NODE,
    TOPIC_ID,
    Node,
    image,
    offset,
    start,
)
from tests.unit.net.harness import eventually

__all__ = ["start"]


def follow(node: Node, *leaders: int) -> None:
    """The leaders change; the logs get it later."""
    topic = new_topic_image(OFFSETS_TOPIC, TOPIC_ID, [(leader,) for leader in leaders], {})
    delta = ImageDelta(changed=(topic,))
    node.store.before(delta)
    node.store.follow(ClusterImage().with_topics([topic]), delta)


def look(node: Node) -> None:
    """The controller's thread does its delayed work."""
    later, node.later[:] = node.later[:], []
    for call in later:
        call()


def test_a_partition_whose_write_hangs_is_lost_at_once_and_gained_when_that_is_over(
    start: Callable[..., Node],
) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    node.loader.start()
    mine = partition_for("g", COUNT)
    other = next(each for each in map(str, range(50)) if partition_for(each, COUNT) != mine)
    elsewhere = [ELSEWHERE if index == mine else NODE for index in range(COUNT)]
    with standing(("write", f"{OFFSETS_TOPIC}-{mine}/{0:020}.log")) as disk:
        writing = disk.begin(lambda: node.table.commit("g", [offset("orders", 0, 7)]))
        grouped = disk.begin(lambda: node.write(image("g")))
        disk.soon(lambda: follow(node, *elsewhere))
        assert node.table.shard_state(mine) == NOT_OWNER
        assert disk.soon(lambda: node.store.state_of("g")) is ErrorCode.NOT_COORDINATOR
        # Others are written to, lost and loaded meanwhile.
        assert disk.soon(lambda: node.table.commit(other, [offset("orders", 0, 1)])) == 0
        disk.soon(lambda: follow(node, *[ELSEWHERE] * COUNT))
        disk.soon(lambda: follow(node, *[NODE] * COUNT))
        lost = partition_for(other, COUNT)
        eventually(lambda: node.table.shard_state(lost) == ACTIVE, "the other is loaded")
        assert node.table.shard_state(mine) == NOT_OWNER
        disk.soon(lambda: look(node))
        assert node.table.shard_state(mine) == NOT_OWNER
        assert not any(each("g") for each in node.groups.lost)
        disk.go_on()
        writing.result()
        assert grouped.result() is ErrorCode.NOT_COORDINATOR
    look(node)
    node.await_load()
    eventually(lambda: any(each("g") for each in node.groups.lost), "the coordinator is notified")
    assert node.table.offset("g", "orders", 0) == offset("orders", 0, 7)  # it is in the log
    assert node.write(image("g")) is ErrorCode.NONE
    assert node.later == []


def test_late_partitions_are_looked_at_again_after_a_failure(
    start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    mine = partition_for("g", COUNT)
    with standing(("write", f"{OFFSETS_TOPIC}-{mine}/{0:020}.log")) as disk:
        writing = disk.begin(lambda: node.table.commit("g", [offset("orders", 0, 7)]))
        disk.soon(lambda: follow(node, *[ELSEWHERE] * COUNT))
        disk.soon(lambda: follow(node, *[NODE] * COUNT))
        disk.go_on()
        writing.result()
    with monkeypatch.context() as patch:
        patch.setattr(node.loader, "unload", raises)
        with pytest.raises(MemoryError):
            look(node)
    look(node)
    for _ in node.loader.work_off():
        pass
    assert node.table.shard_state(mine) == ACTIVE
    assert node.table.offset("g", "orders", 0) == offset("orders", 0, 7)
    assert node.later == []


def raises(*_: object) -> None:
    raise MemoryError


def test_a_topic_of_fewer_partitions_waits_for_a_write_to_the_one_before(
    start: Callable[..., Node],
) -> None:
    """What is unloaded then is of the older number of partitions."""
    node = start()
    node.lead(*[NODE] * COUNT)
    last = COUNT - 1
    groups = [f"g{number}" for number in range(50)]
    mine = [each for each in groups if partition_for(each, COUNT) == last]
    before = new_topic_image(OFFSETS_TOPIC, TOPIC_ID, [(NODE,)] * COUNT, {})
    with standing(("write", f"{OFFSETS_TOPIC}-{last}/{0:020}.log")) as disk:
        writing = disk.begin(lambda: node.table.commit(mine[0], [offset("orders", 0, 7)]))
        disk.soon(lambda: node.delete(before))
        disk.soon(lambda: follow(node, NODE))
        disk.soon(lambda: look(node))
        for _ in node.loader.work_off():
            pass
        assert node.table.shard_state(0) == NOT_OWNER
        disk.go_on()
        writing.result()
    node.groups.lost.clear()
    look(node)
    assert node.table.shard_state(0) == LOADING
    for _ in node.loader.work_off():
        pass
    assert [each for each in groups if node.groups.lost[0](each)] == mine
    assert node.table.shard_state(0) == ACTIVE
    assert node.later == []
