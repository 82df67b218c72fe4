"""K7: the state that is read after any crash is the fold of its snapshot with the updates after it.

Requests of several leaders, snapshots, renewals, pruning and moves of the coordinator come in any
order. A crash loses some of the last batches that the followers do not have. Beside it runs a
dictionary with an entry for each offset, which knows neither snapshots nor batches: after each
crash the next coordinator reads what that one had after the last batch that is left.
"""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.coordinator.share.coordinator import UPDATES_MAX_KEY
from kbroker.coordinator.share.images import NO_START, SharePartition, StateBatch
from kbroker.coordinator.share.machine import ShareStateReplay
from kbroker.coordinator.share.records import Snapshot, Update, record_of
from kbroker.coordinator.share.requests import Delete, Initialize, Read, Write
from kbroker.coordinator.share.seams import Outcome, ReadState
from kbroker.coordinator.share.state import ShareState
from tests.unit.coordinator.share.world import MemoryLog, World, key_of

KEYS: Final = [key_of(n) for n in range(3)]
BATCH_AT_MOST: Final = 6


@dataclass
class Stated:
    """What a state is by the requests that were done."""

    state_epoch: int
    leader_epoch: int
    start: int
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    def write(self, asked: Write) -> None:
        if asked.start_offset != NO_START:
            self.start = asked.start_offset
        for each in asked.batches:
            rank = each.delivery_count, each.state
            for offset in range(each.first_offset, each.last_offset + 1):
                self.offsets[offset] = max(rank, self.offsets.get(offset, rank))
        self.offsets = {at: rank for at, rank in self.offsets.items() if at >= self.start}


Known = dict[SharePartition, Stated]


def follow(known: Known, asked: Any) -> None:
    """A request that was answered with NONE."""
    key = asked.key
    match asked:
        case Initialize():
            before = known.get(key)
            is_same = before is not None and before.state_epoch == asked.state_epoch
            if not is_same or asked.start_offset != NO_START:
                known[key] = Stated(asked.state_epoch, 0, asked.start_offset)
        case Write():
            known[key].write(asked)
        case Read():
            known[key].leader_epoch = asked.leader_epoch
        case Delete():
            known.pop(key, None)


def offsets_of(answer: ReadState) -> dict[int, tuple[int, int]]:
    return {
        offset: (each.delivery_count, each.state)
        for each in answer.batches
        for offset in range(each.first_offset, each.last_offset + 1)
    }


def assert_known(world: World, known: Known) -> None:
    assert world.coordinator.state_count() == len(known)
    for key, stated in known.items():
        answer = world.read(key, stated.leader_epoch)
        assert (answer.state_epoch, answer.start_offset) == (stated.state_epoch, stated.start)
        assert offsets_of(answer) == stated.offsets


keys = st.sampled_from(KEYS)
batches = st.builds(
    lambda first, more, state, count: StateBatch(first, first + more, state, count),
    st.integers(0, 20), st.integers(0, BATCH_AT_MOST), st.sampled_from([0, 2, 4]),
    st.integers(1, 4),
)  # fmt: skip
epochs = st.integers(-1, 4)
requests = st.one_of(
    st.builds(Initialize, keys, st.integers(0, 3), st.sampled_from([NO_START, 0, 4])),
    st.builds(
        lambda key, state, leader, start, some: Write(key, state, leader, start, tuple(some)),
        keys, epochs, epochs, st.sampled_from([NO_START, 0, 3, 9]), st.lists(batches, max_size=4),
    ),
    st.builds(Read, keys, epochs),
    st.builds(Delete, keys),
)  # fmt: skip
acts = st.one_of(
    requests, requests, requests, st.sampled_from(["cold", "prune", "hour", "replicated"]),
    st.tuples(st.just("crash"), st.integers(0, 3)),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(acts, max_size=60), st.sampled_from([0, 1, 2, 5]))
def test_the_next_coordinator_reads_the_state(schedule: list[Any], updates_max: int) -> None:
    log = MemoryLog()
    log.high_watermark = 0
    world = World(log)
    world.settings[UPDATES_MAX_KEY] = updates_max
    known: Known = {}
    after: list[Known] = [{}]  # by the number of batches in the log
    for act in schedule:
        if act == "hour":
            world.clock.advance(hours=1)
        elif act == "cold":
            for _ in world.coordinator.renew_cold():
                pass
        elif act == "prune":
            for _ in world.coordinator.prune():
                pass
        elif act == "replicated":
            log.high_watermark = len(log.records)
        elif isinstance(act, tuple) and act[0] == "crash":
            _, lost = act
            kept = len(log.batches)
            sizes = list(map(len, log.batches))
            while lost and kept and sum(sizes[: kept - 1]) >= log.high_watermark:
                kept, lost = kept - 1, lost - 1
            del log.batches[kept:]
            known = copy.deepcopy(after[kept])
            del after[kept + 1 :]
            log.term += 2
            world = World(log)
            world.settings[UPDATES_MAX_KEY] = updates_max
            world.load()
        else:
            answer = world.ask(act)
            if not answer.code:
                follow(known, act)
        while len(after) <= len(log.batches):  # renewals are batches of their own
            after.append(copy.deepcopy(known))
        after[len(log.batches)] = copy.deepcopy(known)
        assert_known(world, known)
    moved = World(log)
    moved.load()
    assert_known(moved, known)


def test_a_crash_between_the_last_update_and_its_snapshot() -> None:
    world = World()
    world.settings[UPDATES_MAX_KEY] = 2
    world.done(Initialize(KEYS[0], 1, 0))
    for start in range(3):
        world.done(Write(KEYS[0], 1, 1, start, (StateBatch(start + 5, start + 5, 2, 1),)))
    del world.log.batches[-1]
    moved = World(world.log)
    moved.settings[UPDATES_MAX_KEY] = 2
    moved.load()
    assert moved.read(KEYS[0]).start_offset == 1
    assert moved.ask(Write(KEYS[0], 1, 1, 2, (StateBatch(7, 7, 2, 1),))) == Outcome()
    assert moved.read(KEYS[0]) == world.read(KEYS[0])


def replayed(values: list[tuple[SharePartition, Any]]) -> dict[SharePartition, ShareState]:
    found: dict[SharePartition, ShareState] = {}
    replay = ShareStateReplay(found.update)
    for offset, (key, value) in enumerate(values):
        name, data = record_of(key, value)
        replay.record(SimpleNamespace(offset=offset, timestamp_ms=0, key=name, value=data))
    replay.loaded()
    return found


def test_updates_whose_snapshot_is_lost_have_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """A batch that cannot be read has one of its own, which names no share-partition."""
    one, other, pruned = KEYS
    first, second = (
        Snapshot(epoch, 1, 3, start, 0, 0, 0, ()) for epoch, start in ((4, 10), (6, 30))
    )
    update = Update(5, 3, 20, 0, ())
    with caplog.at_level(logging.WARNING, "kbroker.share-state"):
        found = replayed([
            (pruned, update), (one, first), (one, update), (other, update),
            (pruned, second), (one, update),
        ])  # fmt: skip
    assert {key: state.start_offset for key, state in found.items()} == {one: 10, pruned: 30}
    (line,) = (each.getMessage() for each in caplog.records)
    assert line == (
        "what was written for 2 share-partitions is left out, for"
        f" {one.coordinator_key} from offset 2 on: the snapshot before it is not in the log; they"
        " go on as they were before that, and records that were acknowledged may be delivered again"
    )
