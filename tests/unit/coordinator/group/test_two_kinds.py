"""A log with groups of two kinds under one id: the one with the later record stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kbroker.coordinator.consumer_group.drafts import AnyChange
from kbroker.coordinator.consumer_group.images import GroupImage, TargetEpoch
from kbroker.coordinator.group.group_records import encode_group, group_key
from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.share_group.images import Kind
from kbroker.coordinator.share_group.records import records_of
from kbroker.coordinator.share_group.replay import ShareReplay
from tests.unit.coordinator.group.test_store import COUNT, NODE, Node, image, nodes_of
from tests.unit.net.harness import eventually

SHARE = records_of(
    "g",
    [
        AnyChange(Kind.GROUP, "", GroupImage(3, 0)),
        AnyChange(Kind.TARGET_EPOCH, "", TargetEpoch(3, 0)),
    ],
)
CLASSIC = [(group_key("g"), encode_group(image("g", 4)))]
PLACE = partition_for("g", COUNT)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    with nodes_of(tmp_path) as make:
        yield make


class Shares:
    """Share groups that are loaded, and their loads."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.found: list[str] = []
        node.machine.attach(node.groups, share=self.replay)

    def replay(self) -> ShareReplay:
        return ShareReplay(self._load)

    def _load(self, states: Mapping[str, Any]) -> None:
        self.found += states
        self.node.groups.others.update(states)


def loaded(start: Callable[..., Node]) -> tuple[Node, Shares]:
    node = start()
    shares = Shares(node)
    node.lead(*[NODE] * COUNT)
    node.loader.start()
    eventually(lambda: node.loader.times.loads == 1, "the load is over")
    node.loader.stop()
    return node, shares


@pytest.mark.parametrize("stays", ["share", "classic"])
def test_the_later_group_stays(
    start: Callable[..., Node], caplog: pytest.LogCaptureFixture, stays: str
) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    for records in (CLASSIC, SHARE) if stays == "share" else (SHARE, CLASSIC):
        assert node.table.append(PLACE, records) == 0
    for warnings in (1, 0):  # the tombstones are in the log then
        caplog.clear()
        node, shares = loaded(start)
        assert caplog.text.count("has two groups with the id g") == warnings
        assert shares.found == (["g"] if stays == "share" else [])
        assert len(node.groups.loaded) == (stays == "classic")


def test_a_later_group_of_that_id_keeps_its_records(start: Callable[..., Node]) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    for records in (CLASSIC, SHARE):
        assert node.table.append(PLACE, records) == 0
    node = start()
    Shares(node)
    node.lead(*[NODE] * COUNT)
    replay = node.machine.replay(PLACE)
    for offset, (key, value) in enumerate((*CLASSIC, *SHARE)):
        replay.record(Record(offset, key, value))
    replay.loaded()
    node.groups.others["g"] = object()  # it was deleted, and another one made
    end = node.open[PLACE].log_end_offset
    node.machine.active(PLACE)
    assert node.open[PLACE].log_end_offset == end


class Record:
    timestamp_ms = 0

    def __init__(self, offset: int, key: bytes, value: bytes | None) -> None:
        self.offset, self.key, self.value = offset, key, value
