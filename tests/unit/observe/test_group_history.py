"""The rebalances of a group, from the records that its coordinator has written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker.coordinator.group.consumer_records import Kind, RecordKey, encode_key
from kbroker.coordinator.group.group_records import encode_group, group_key
from kbroker.coordinator.group.images import GroupImage, MemberImage
from kbroker.observe.group_history import Batch, History, Rebalance, history_of
from kbroker.protocol.record_batch import Record
from tests.unit.coordinator.consumer_group.world import GROUP, SESSION_MS, Records, World, topic_of


class Recorded:
    """A consumer group whose batches have times."""

    def __init__(self) -> None:
        self.world = World()
        self.world.create(topic_of("t", 4), topic_of("u", 2))
        self.batches: list[Batch] = []
        self.world.log.on_append = self._appended

    def _appended(self, records: Records) -> None:
        when = self.world.clock.monotonic_ms()
        self.batches.append(Batch(when, [Record(*each) for each in records]))

    def history(self, first: int = 0) -> History:
        names = {topic.topic_id: name for name, topic in self.world.image.topics.items()}
        return history_of(GROUP, self.batches[first:], names)


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def causes(rebalance: Rebalance) -> list[tuple[str, str | None, str]]:
    return [(each.what, each.member_id, each.text) for each in rebalance.causes]


def two_members(recorded: Recorded) -> int:
    """`b` has come 1 s after `a`, and has its half; their epoch."""
    world = recorded.world
    topic = world.id_of("t")
    world.join("a")
    world.pass_ms(1_000)
    world.join("b")
    world.pass_ms(500)
    world.beat("a", 2, owned={topic: frozenset(range(4))})
    world.beat("a", 2, owned={topic: frozenset((0, 1))})
    world.pass_ms(200)
    return world.beat("b", 3).epoch


def test_each_member_that_comes_is_a_rebalance(recorded: Recorded) -> None:
    assert two_members(recorded) == 3
    found = recorded.history()
    assert (found.kind, found.state, found.epoch, found.assignment_epoch) == (
        "consumer", "Stable", 3, 3,
    )  # fmt: skip
    first, second = found.rebalances
    assert causes(first) == [("joined", "a", "")]
    assert (first.epoch, first.members, first.moved) == (2, 1, 4)
    assert causes(second) == [("joined", "b", "")]
    assert (second.epoch, second.members, second.moved) == (3, 2, 2)
    assert (second.time_ms - first.time_ms, second.stable_ms) == (1_000, second.time_ms + 700)
    assert not found.waiting


def test_partitions_that_a_member_has_to_give_up_for_another(recorded: Recorded) -> None:
    world = recorded.world
    world.join("a")
    world.join("b")
    world.beat("a", 2, owned={world.id_of("t"): frozenset(range(4))})
    since = world.clock.monotonic_ms()
    world.pass_ms(100)
    found = recorded.history()
    assert found.state == "Reconciling"
    assert found.rebalances[-1].stable_ms is None
    gives, waits = sorted(found.waiting, key=lambda each: each.member_id)
    assert (gives.member_id, gives.what, gives.partitions, gives.since_ms) == (
        "a", "has to give up", [("t", 2), ("t", 3)], since,
    )  # fmt: skip
    assert (waits.member_id, waits.what, waits.partitions, waits.holder) == (
        "b", "waits for", [("t", 2), ("t", 3)], "a",
    )  # fmt: skip


CHANGES: dict[str, tuple[Callable[[World], object], list[tuple[str, str | None, str]]]] = {
    "leaves": (lambda world: world.beat("b", -1), [("gone", "b", "")]),
    "times out": (
        lambda world: [world.pass_ms(SESSION_MS - 1_000), world.beat("a", 3), world.pass_ms(1_000)],
        [("gone", "b", "")],
    ),
    "subscribes": (
        lambda world: world.beat("b", 3, topics=("t", "u")),
        [("subscribes otherwise", "b", "+u")],
    ),
    "a topic grows": (
        lambda world: [world.create(topic_of("t", 6)), world.beat("a", 3)],
        [("topics changed", None, "t: 4 -> 6 partitions")],
    ),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_each_cause(recorded: Recorded, change: str) -> None:
    two_members(recorded)
    do, wanted = CHANGES[change]
    do(recorded.world)
    last = recorded.history().rebalances[-1]
    assert (last.epoch, causes(last)) == (4, wanted)


def test_a_static_member_that_comes_back_is_no_rebalance(recorded: Recorded) -> None:
    recorded.world.join("a", instance_id="i")
    recorded.world.beat("a", -2, instance_id="i")
    found = recorded.history()
    (waiting,) = found.waiting
    assert (waiting.member_id, waiting.what) == ("a", "is to come back under its instance id")
    recorded.world.join("a2", instance_id="i")
    found = recorded.history()
    assert not found.waiting
    (only,) = found.rebalances
    assert causes(only) == [("joined", "a", ""), ("came back", "a2", "in place of a")]


def test_a_pattern_that_matches_more(recorded: Recorded) -> None:
    world = recorded.world
    world.join("a", topics=(), pattern="[tuv]")
    world.work_beside()
    assert world.beat("a", 1).epoch == 2
    world.create(topic_of("v", 1))
    world.pass_ms(20_000)
    world.beat("a", 2)
    world.work_beside()
    _, first, second = recorded.history().rebalances
    assert causes(first) == [("a pattern matches others", None, "'[tuv]': +t +u")]
    assert causes(second) == [("a pattern matches others", None, "'[tuv]': +v")]


def test_a_log_that_compaction_has_cut(recorded: Recorded) -> None:
    """Any rest of it is read without failing, and the newest is there."""
    two_members(recorded)
    recorded.world.beat("b", -1)
    whole = recorded.history()
    for first in range(len(recorded.batches)):
        found = recorded.history(first)
        assert found.rebalances[-1:] == whole.rebalances[-1:] or first > 0
        assert found.kind in ("", "consumer")


def test_a_group_that_is_gone_and_others_records(recorded: Recorded) -> None:
    two_members(recorded)
    assert not history_of("another", recorded.batches, {}).kind
    recorded.world.beat("a", -1)
    recorded.world.beat("b", -1)
    recorded.world.group.delete(print, unless=lambda: False, gone=lambda: None)
    assert recorded.history().state == "Dead"
    key = encode_key(RecordKey(Kind.MEMBER, GROUP, "a"))
    odd = [Record(key, b"\0\7"), Record(b"\0", b""), Record(None, None)]
    recorded.batches.append(Batch(9, odd))
    assert recorded.history().state == "Dead"


def test_a_classic_group() -> None:
    def member(number: int, subscription: bytes = b"") -> MemberImage:
        return MemberImage(f"m{number}", None, "c", "/h", 1, 1, subscription, b"")

    def generation(number: int, *members: MemberImage) -> Batch:
        image = GroupImage(GROUP, "consumer", number, "range", "m1", 0, members)
        return Batch(number * 1_000, [Record(group_key(GROUP), encode_group(image))])

    found = history_of(
        GROUP,
        [
            generation(1, member(1)),
            generation(2, member(1), member(2)),
            generation(2, member(1), member(2)),
            generation(3, member(2, b"x")),
        ],
        {},
    )
    assert (found.kind, found.epoch, found.assignment_epoch) == ("classic", 3, None)
    assert [causes(each) for each in found.rebalances] == [
        [("joined", "m1", "")],
        [("joined", "m2", "")],
        [("gone", "m1", ""), ("subscribes otherwise", "m2", "")],
    ]
    assert [each.time_ms for each in found.rebalances] == [1_000, 2_000, 3_000]
