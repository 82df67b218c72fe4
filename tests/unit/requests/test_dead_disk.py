"""A disk that neither reads nor writes any more: one handler at least stays for everybody else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from kbroker.testing.file_faults import Fault, FileFaults
from tests.support.record_batches import build_batch, parse_batches
from tests.support.standing_disk import StandingDisk, standing
from tests.unit.net.harness import Rig, Topic, eventually
from tests.unit.requests.wire import Ask, fetch, fetch_frame, produce_frame

SETTINGS = {"segment_bytes": 6_000, "index_interval_bytes": 100}
COUNT = 200
OLD = 20  # in a segment that is full
SLOW_MS = 500


def on_the_disk(rig: Rig, name: str) -> Topic:
    """A topic whose last write was slow."""
    topic = rig.create(name, **SETTINGS)
    for number in range(COUNT - 1):
        topic.logs[0].append(build_batch([b"%06d" % number]))
    with FileFaults(Fault(("write",), f"{name}-0", delay_ms=SLOW_MS)):
        topic.logs[0].append(build_batch([b"%06d" % (COUNT - 1)]))
    return topic


def places(topic: Topic) -> list[tuple[str, str]]:
    active = max(topic.logs[0].path.glob("*.log")).name
    return [
        ("open", f"{topic.name}-0/{0:020}.index"),
        ("write", f"{topic.name}-0/{active}"),
    ]


def stand_at(rig: Rig, disk: StandingDisk, topics: list[Topic]) -> None:
    """A read of each, then a write of each, all of which are in somebody's hands."""
    for at, topic in enumerate(topics):
        rig.client().send(fetch_frame(12, [Ask(topic, 0, OLD)]))
        disk.wait(2 * at)
    for number, topic in enumerate(topics, start=1):
        rig.client().send(produce_frame(9, [(topic, {0: build_batch([b"next"])})]))
        # Set aside, or in the hands of whom it was given to; the reads are both.
        eventually(partial(_are_taken, rig, disk, 2 * len(topics) + number), "nobody has the write")


def _are_taken(rig: Rig, disk: StandingDisk, count: int) -> bool:
    return int(rig.server.statistics()["requests_set_aside"]) + disk.count >= count


@pytest.mark.parametrize("handlers", [2, 4, 8])
def test_others_are_served(make_rig: Callable[..., Rig], handlers: int) -> None:
    rig = make_rig(handlers=handlers)
    fine = rig.create("fine", **SETTINGS)
    fine.logs[0].append(build_batch([b"fine"]))
    topics = [on_the_disk(rig, f"hung{at}") for at in range(handlers // 2)]
    neighbour = rig.client()
    with standing(*[place for topic in topics for place in places(topic)]) as disk:
        stand_at(rig, disk, topics)
        records = disk.soon(lambda: fetch(neighbour, 12, [Ask(fine, 0, 0)])).only.records or b""
        assert parse_batches(records)[0].base_offset == 0
