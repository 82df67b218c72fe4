"""Loads that fail and are begun again, and offsets of open transactions whose topics are gone."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbroker.coordinator.group._groups import CommittedOffset
from kbroker.coordinator.group.machine import GroupReplay
from kbroker.coordinator.runtime._shard_table import LOADING, NOT_OWNER, partition_for
from kbroker.coordinator.runtime.loader import AGAIN_MS, Loader
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.decisions import new_topic_image
from tests.support.led_log import LedLog
from tests.unit.coordinator.group.test_store import (
    COUNT,
    NODE,
    ORDERS,
    OTHER_ORDERS,
    TOPIC_ID,
    Node,
    image,
    nodes_of,
    offset,
)
from tests.unit.net.harness import eventually


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    with nodes_of(tmp_path) as make:
        yield make


def pend(node: Node, *offsets: CommittedOffset, producer_id: int = 7, group: str = "g") -> None:
    assert node.table.commit_in_transaction(group, offsets, producer_id, 0) == 0


def test_a_deleted_topic_takes_offsets_of_open_transactions_along(
    start: Callable[..., Node],
) -> None:
    """They hold neither with a marker that comes later nor after a load that finds both."""
    node = start()
    node.lead(*[NODE] * COUNT)
    node.loader.start()
    stays = offset("orders", 1, 6, OTHER_ORDERS), offset("other", 0, 7, TOPIC_ID)
    pend(node, offset("orders", 0, 5, ORDERS), *stays)
    node.delete(new_topic_image("orders", ORDERS, [(NODE,)], {}))
    eventually(lambda: len(node.table.pending("g")) == 2, "it is not pending any more")
    place = partition_for("g", COUNT)
    node.open[place].append_marker(7, 0, 0, committed=True, transaction_version=0)
    node.table.marker_written(place, 7, True, node.open[place].log_end_offset)
    assert node.table.offsets("g") == list(stays)
    again = start(topics={"orders": OTHER_ORDERS, "other": TOPIC_ID})
    again.lead(*[NODE] * COUNT)
    again.loader.start()
    again.await_load()
    assert again.table.offsets("g") == list(stays)


def test_a_load_forgets_pending_offsets_of_topics_that_are_gone(start: Callable[..., Node]) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    pend(node, offset("orders", 0, 5, ORDERS), offset("orders", 1, 6, OTHER_ORDERS))
    pend(node, offset("orders", 2, 5), offset("gone", 0, 5, TOPIC_ID), producer_id=8)
    left = {("orders", 0), ("orders", 2)}

    def others_are_gone(node: Node) -> bool:
        return node.table.pending("g") == left

    for _ in range(2):  # what was forgotten stays so
        again = start(topics={"orders": ORDERS})
        again.lead(*[NODE] * COUNT)
        again.loader.start()
        again.await_load()
        eventually(partial(others_are_gone, again))


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_that_comes_during_the_load_ends_its_transaction(
    start: Callable[..., Node], *, committed: bool
) -> None:
    """Its offsets have been read, but are not pending yet. A coordinator does not send it again."""
    node = start()
    node.lead(*[NODE] * COUNT)
    pend(node, offset("orders", 0, 5, ORDERS))
    again = start(topics={"orders": ORDERS})
    again.lead(*[NODE] * COUNT)
    place = partition_for("g", COUNT)
    steps = again.loader.work_off()
    while getattr(again.loader._current, "partition", None) != place:
        next(steps)  # in the end to where its records are read and not loaded
    assert again.table.shard_state(place) == LOADING
    marker = again.open[place].append_marker(7, 0, 0, committed=committed, transaction_version=0)
    again.table.marker_written(place, 7, committed, marker.offset)
    for _ in steps:
        pass
    assert again.table.pending("g") == frozenset()
    assert again.table.offsets("g") == ([offset("orders", 0, 5, ORDERS)] if committed else [])


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk"),
    ],
)
def test_a_load_that_failed_for_want_of_something_is_begun_again(
    start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Such as descriptors, for the import of a group of another kind."""
    node = start()
    node.lead(*[NODE] * COUNT)
    assert node.write(image("good")) is ErrorCode.NONE
    assert node.table.commit("good", [offset("orders", 0, 5, ORDERS)]) == 0
    pend(node, offset("orders", 1, 6, ORDERS), group="good")
    again = start()
    again.lead(*[NODE] * COUNT)
    partition = partition_for("good", COUNT)
    fails = 2
    loaded = GroupReplay.loaded

    def fails_twice(replay: GroupReplay) -> None:
        nonlocal fails
        if replay._partition == partition and fails:
            fails -= 1
            raise error
        loaded(replay)

    monkeypatch.setattr(GroupReplay, "loaded", fails_twice)
    again.loader.start()
    for left, pause_ms in ((1, AGAIN_MS), (0, 2 * AGAIN_MS)):
        eventually(partial(given_up, again, partition, lambda left=left: fails == left))
        again.clock.advance(pause_ms)
    again.await_load()
    assert [each.group_id for each in again.groups.loaded] == ["good"]
    assert len(again.table.offsets("good")) == 1 and again.table.pending("good")
    assert [lost("good") for lost in again.groups.lost] == [True, True]


def test_a_load_that_could_not_be_begun_again_is_tried_later(
    start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    assert node.write(image("good")) is ErrorCode.NONE
    again = start()
    again.lead(*[NODE] * COUNT)
    loaded, unload = GroupReplay.loaded, Loader._unload
    failures: list[Exception] = [MemoryError(), MemoryError()]

    def fails(replay: GroupReplay) -> None:
        if replay._partition == partition_for("good", COUNT) and len(failures) == 2:
            raise failures.pop()
        loaded(replay)

    def unload_fails(loader: Loader, job: Any) -> None:
        if failures:
            raise failures.pop()
        unload(loader, job)

    monkeypatch.setattr(GroupReplay, "loaded", fails)
    monkeypatch.setattr(Loader, "_unload", unload_fails)
    again.loader.start()
    for left in (1, 0):
        eventually(lambda left=left: len(failures) == left and bool(again.loader._late))
        again.clock.advance(2 * AGAIN_MS)
    again.await_load()
    assert [each.group_id for each in again.groups.loaded] == ["good"]


def given_up(node: Node, partition: int, holds: Callable[[], bool]) -> bool:
    return holds() and node.table.shard_state(partition) == NOT_OWNER and bool(node.loader._late)


def test_a_failed_load_of_a_partition_that_is_lost_is_not_begun_again(
    start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    assert node.write(image("good")) is ErrorCode.NONE
    again = start()
    again.lead(*[NODE] * COUNT)
    partition = partition_for("good", COUNT)

    def read(*_: object, **how: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr(LedLog, "read", read)
    again.loader.start()
    eventually(partial(given_up, again, partition, lambda: True))
    again.lead(*[NODE + 1 if index == partition else NODE for index in range(COUNT)])
    monkeypatch.undo()
    again.clock.advance(AGAIN_MS)
    again.delete(new_topic_image("nothing", ORDERS, [(NODE,)], {}))
    eventually(lambda: not again.loader._jobs and not again.loader._late)
    assert again.table.shard_state(partition) == NOT_OWNER and not again.groups.loaded
