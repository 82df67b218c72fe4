"""Which offsets expire, and when: the published rules cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.coordinator.group._groups import CommittedOffset
from kbroker.coordinator.group.expiration import GroupAge, OffsetExpiration, expired
from kbroker.coordinator.group.states import GroupState
from kbroker.coordinator.group.subscriptions import subscribed_topics
from kbroker.errors import ErrorCode
from kbroker.failures import Failures

RETENTION = 100
NOW = 1_000


def committed(commit_ms: int, topic: str = "t", expire_ms: int = -1) -> CommittedOffset:
    return CommittedOffset(topic, 0, 5, -1, "", commit_ms, expire_ms, None)


def goes(age: GroupAge, offset: CommittedOffset) -> bool:
    return expired(age, [offset], NOW, RETENTION) == [offset]


@pytest.mark.parametrize(
    ("since_ms", "commit_ms", "gone"),
    [
        (900, 10, True),
        (901, 10, False),  # empty for less than the retention
        (10, 900, True),
        (10, 901, False),  # committed by hand after the members had gone
        (-1, 900, True),  # of a record without a time: its commit's
        (-1, 901, False),
    ],
)
def test_of_an_empty_group(since_ms: int, commit_ms: int, gone: bool) -> None:
    age = GroupAge(GroupState.EMPTY, "consumer", since_ms, None)
    assert goes(age, committed(commit_ms)) is gone


def test_of_a_group_of_offsets_only() -> None:
    age = GroupAge(GroupState.EMPTY, "", 990, None)
    assert goes(age, committed(900))
    assert not goes(age, committed(901))


def test_of_a_stable_group() -> None:
    age = GroupAge(GroupState.STABLE, "consumer", 0, frozenset({"used"}))
    assert goes(age, committed(900, "unused"))
    assert not goes(age, committed(901, "unused"))
    assert not goes(age, committed(0, "used"))
    assert not goes(age._replace(topics=None), committed(0, "unused"))


@pytest.mark.parametrize(
    "state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.DEAD]
)
def test_never_while_the_group_is_on_its_way(state: GroupState) -> None:
    assert not goes(GroupAge(state, "consumer", 0, frozenset()), committed(0))


def test_a_time_of_its_own() -> None:
    age = GroupAge(GroupState.EMPTY, "consumer", 999, None)
    assert goes(age, committed(999, expire_ms=NOW))
    assert not goes(age, committed(0, expire_ms=NOW + 1))
    stable = GroupAge(GroupState.STABLE, "consumer", 0, frozenset({"t"}))
    assert not goes(stable, committed(0, expire_ms=1))


@pytest.mark.parametrize(
    ("protocol_type", "subscriptions", "topics"),
    [
        ("consumer", [bytes.fromhex("0003 00000002 000161 000162 ff")], {"a", "b"}),
        ("consumer", [bytes.fromhex("0000 00000001 000161"), bytes.fromhex("0001 00000001 000162")],
         {"a", "b"}),
        ("consumer", [], set()),
        ("consumer", [b""], None),
        ("consumer", [bytes.fromhex("0000 7fffffff 000161")], None),
        ("consumer", [bytes.fromhex("ffff 00000000")], None),
        ("connect", [bytes.fromhex("0000 00000001 000161")], None),
        ("", [], None),
    ],
)  # fmt: skip
def test_subscribed_topics(
    protocol_type: str, subscriptions: Sequence[bytes], topics: set[str] | None
) -> None:
    assert subscribed_topics(protocol_type, subscriptions) == topics


class Table:
    """One partition of groups, as the task sees it."""

    partition_count = 1

    def __init__(self, offsets: dict[str, list[CommittedOffset]]) -> None:
        self.kept = offsets
        self.limits: list[int] = []
        self.in_transactions: dict[str, frozenset[tuple[str, int]]] = {}

    def pending(self, group_id: str) -> frozenset[tuple[str, int]]:
        return self.in_transactions.get(group_id, frozenset())

    def groups(self, partition: int) -> list[str]:
        return list(self.kept)

    def offsets(self, group_id: str) -> list[CommittedOffset]:
        return self.kept.get(group_id, [])

    def expirable(
        self, partition: int, before_ms: int, now_ms: int
    ) -> list[tuple[str, list[CommittedOffset]]]:
        return [
            (group_id, [each for each in offsets if each.commit_ms <= before_ms])
            for group_id, offsets in self.kept.items()
        ]

    def remove_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]], *, committed_until_ms: int = -1
    ) -> int:
        self.limits.append(committed_until_ms)
        self.kept[group_id] = [
            each for each in self.kept[group_id] if (each.topic, each.partition) not in partitions
        ]
        return 0


class Groups:
    def __init__(self, ages: dict[str, GroupAge]) -> None:
        self.ages = ages
        self.deleted: list[str] = []

    def age_of(self, group_id: str) -> GroupAge | None:
        return self.ages.get(group_id)

    def empty_groups(self) -> list[str]:
        return [name for name, age in self.ages.items() if age.state is GroupState.EMPTY]

    def delete(
        self,
        group_id: str,
        done: Callable[[ErrorCode], object],
        *,
        unless: Callable[[], bool] = lambda: False,
    ) -> None:
        assert not unless()
        self.deleted.append(group_id)
        done(ErrorCode.NONE)


def test_a_round_removes_expired_offsets_and_groups_with_nothing_left() -> None:
    minute = 60_000
    clock = ManualClock(start_wall_ms=100 * minute)
    old, fresh = committed(80 * minute), committed(95 * minute, "fresh")
    table = Table({"old": [old], "mixed": [old, fresh], "busy": [old], "bare": []})
    empty = GroupAge(GroupState.EMPTY, "consumer", 0, None)
    busy = GroupAge(GroupState.STABLE, "consumer", 0, frozenset({"t"}))
    groups = Groups({"old": empty, "mixed": empty, "busy": busy, "bare": empty})
    config: dict[str, Any] = {"offsets.retention.minutes": 10}
    task = OffsetExpiration(table, groups, clock, lambda: config, Failures("groups"))
    for _ in task.run():
        pass
    assert table.kept == {"old": [], "mixed": [fresh], "busy": [old], "bare": []}
    assert table.limits == [80 * minute, 80 * minute]
    assert groups.deleted == ["old", "bare"]
    assert (task.expired_offsets, task.deleted_groups) == (2, 2)


def test_offsets_that_a_transaction_may_still_commit_keep_their_partition_and_group() -> None:
    minute = 60_000
    clock = ManualClock(start_wall_ms=100 * minute)
    empty = GroupAge(GroupState.EMPTY, "consumer", 0, None)
    kept, old = committed(80 * minute, "kept"), committed(80 * minute)
    table = Table({"g": [kept, old], "bare": []})
    table.in_transactions = {"g": frozenset({("kept", 0)}), "bare": frozenset({("t", 3)})}
    groups = Groups({"g": empty, "bare": empty})
    config: dict[str, Any] = {"offsets.retention.minutes": 10}
    task = OffsetExpiration(table, groups, clock, lambda: config, Failures("groups"))
    for _ in task.run():
        pass
    assert table.kept["g"] == [kept]
    assert groups.deleted == []
    table.in_transactions.clear()
    for _ in task.run():
        pass
    assert table.kept["g"] == []
    assert groups.deleted == ["g", "bare"]


def test_a_group_that_raises_does_not_keep_the_others_from_their_turn() -> None:
    minute = 60_000
    clock = ManualClock(start_wall_ms=100 * minute)
    empty = GroupAge(GroupState.EMPTY, "consumer", 0, None)
    table = Table({"bad": [committed(80 * minute)], "good": [committed(80 * minute)]})
    groups = Groups({"bad": empty, "worse": empty, "good": empty, "bare": empty})
    config: dict[str, Any] = {"offsets.retention.minutes": 10}
    failures = Failures("groups")
    remove, delete = table.remove_offsets, groups.delete

    def remove_but(group_id: str, *args: Any, **settings: Any) -> int:
        if group_id == "bad":
            raise MemoryError
        return remove(group_id, *args, **settings)

    def delete_but(group_id: str, *args: Any, **settings: Any) -> None:
        if group_id == "worse":
            raise MemoryError
        delete(group_id, *args, **settings)

    table.remove_offsets, groups.delete = remove_but, delete_but  # type: ignore[assignment]
    task = OffsetExpiration(table, groups, clock, lambda: config, failures)
    for _ in task.run():
        pass
    assert list(filter(table.kept.get, table.kept)) == ["bad"]
    assert groups.deleted == ["good", "bare"]
    assert failures.count == 2
