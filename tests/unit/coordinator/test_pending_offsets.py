"""Offsets that a transaction has committed: pending, then they hold or are dropped."""

from __future__ import annotations

import tracemalloc

import pytest

from kbroker.coordinator.group._groups import CommittedOffset, GroupTable, offset_key
from kbroker.coordinator.group.seams import Committer
from kbroker.coordinator.runtime._shard_table import Written
from kbroker.errors import ErrorCode
from kbroker.protocol.record_batch import decode_batches
from tests.support.led_log import LedLog
from tests.support.record_batches import Record, build_batch
from tests.unit.coordinator.tables import ID, committed, reloaded

UNSTABLE = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
NOT_THERE = (-1, 0)
TOPIC = "orders"


def fetched(
    table: GroupTable, *partitions: int, stable: bool = True, group: str = "g"
) -> list[tuple[int, int]]:
    """The offset and the error of each partition; of no partitions: of all that there are."""
    wanted = [(TOPIC, b"".join(each.to_bytes(4) for each in partitions))] if partitions else None
    code, topics, _ = table.fetch(
        group, wanted, flexible=False, leader_epochs=False, stable=Written() if stable else None
    )
    assert code == 0
    found: list[tuple[int, int]] = []
    for _, data in topics:
        at = 4
        for _ in range(int.from_bytes(data[:4])):
            offset = int.from_bytes(data[at + 4 : at + 12], signed=True)
            at += 14 + int.from_bytes(data[at + 12 : at + 14])
            found.append((offset, int.from_bytes(data[at : at + 2])))
            at += 2
        assert at == len(data)
    return found


def pend(table: GroupTable, producer_id: int, *offsets: CommittedOffset, group: str = "g") -> None:
    assert table.commit_in_transaction(group, offsets, producer_id, 0) == 0


def end(table: GroupTable, log: LedLog, producer_id: int, *, committed: bool) -> set[str]:
    return table.marker_written(0, producer_id, committed, log.log_end_offset)


def test_the_batch_is_the_producer_s(table: GroupTable, log: LedLog) -> None:
    assert table.commit_in_transaction("g", [committed(0, 5), committed(1, 6)], 7, 3) == 0
    (batch,) = decode_batches(log.read(0, to_log_end=True))
    assert batch.transactional and not batch.control
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, -1)
    assert len(batch.records) == 2


def test_pending_offsets_are_unstable_until_their_marker(table: GroupTable, log: LedLog) -> None:
    table.commit("g", [committed(0, 1), committed(1, 2)])
    pend(table, 7, committed(0, 10), committed(2, 30))
    assert table.pending("g") == {(TOPIC, 0), (TOPIC, 2)}
    assert fetched(table, 0, 1, 2, 3) == [(-1, UNSTABLE), (2, 0), (-1, UNSTABLE), NOT_THERE]
    assert fetched(table, 0, 1, 2, 3, stable=False) == [(1, 0), (2, 0), NOT_THERE, NOT_THERE]
    # Of all offsets those that are there, as Apache Kafka.
    assert fetched(table) == [(-1, UNSTABLE), (2, 0)]
    assert fetched(table, 0, group="another") == [NOT_THERE]
    assert end(table, log, 7, committed=True) == {"g"}
    assert table.pending("g") == frozenset()
    assert fetched(table, 0, 1, 2) == [(10, 0), (2, 0), (30, 0)]
    assert fetched(table) == [(10, 0), (2, 0), (30, 0)]


def test_an_abort_drops_the_pending_offsets_of_its_producer(table: GroupTable, log: LedLog) -> None:
    table.commit("g", [committed(0, 1)])
    pend(table, 7, committed(0, 10))
    pend(table, 8, committed(1, 20))
    assert end(table, log, 7, committed=False) == set()
    assert fetched(table, 0, 1) == [(1, 0), (-1, UNSTABLE)]
    assert end(table, log, 8, committed=True) == {"g"}
    assert fetched(table, 0, 1) == [(1, 0), (20, 0)]


def test_the_later_record_wins_and_not_the_later_marker(table: GroupTable, log: LedLog) -> None:
    pend(table, 7, committed(0, 10))
    table.commit("g", [committed(0, 99)])
    assert end(table, log, 7, committed=True) == {"g"}
    assert fetched(table, 0) == [(99, 0)]


def test_a_marker_ends_only_the_offsets_before_it(table: GroupTable, log: LedLog) -> None:
    """The next transaction may have begun when a marker's followers have it."""
    pend(table, 7, committed(0, 10))
    at = log.log_end_offset
    assert table.commit_in_transaction("g", [committed(1, 20)], 8, 0) == 0
    assert table.marker_written(0, 8, True, at) == set()
    assert table.pending("g") == {(TOPIC, 0), (TOPIC, 1)}
    assert table.marker_written(0, 7, True, at) == {"g"}
    assert fetched(table, 0, 1) == [(10, 0), (-1, UNSTABLE)]


def test_a_marker_of_an_unknown_producer_changes_nothing(table: GroupTable, log: LedLog) -> None:
    pend(table, 7, committed(0, 10))
    assert end(table, log, 9, committed=True) == set()
    assert table.pending("g") == {(TOPIC, 0)}
    assert end(table, log, 7, committed=True) == {"g"}
    assert end(table, log, 7, committed=True) == set()


def test_a_load_rebuilds_the_pending_offsets(table: GroupTable, log: LedLog) -> None:
    table.commit("g", [committed(0, 1)])
    pend(table, 7, committed(0, 10))
    pend(table, 8, committed(1, 20), group="h")
    again = reloaded(log)
    assert again.pending("g") == {(TOPIC, 0)}
    assert again.pending_groups(0) == {"g", "h"}
    assert fetched(again, 0) == [(-1, UNSTABLE)]
    assert again.marker_written(0, 7, True, log.log_end_offset) == {"g"}
    assert fetched(again, 0) == [(10, 0)]
    assert again.pending_groups(0) == {"h"}


def test_a_partition_that_is_lost_has_nothing_pending(table: GroupTable) -> None:
    pend(table, 7, committed(0, 10))
    assert table.close(0)
    assert table.pending_groups(0) == set()


@pytest.mark.parametrize("state", [0, 1, 2, 3])  # Empty, PreparingRebalance, Completing, Stable
def test_the_right_to_commit_is_checked_under_the_lock(table: GroupTable, state: int) -> None:
    table.publish_members("g", state=state, generation=4, members=[("m", "i")] if state else [])
    offsets = [committed(0, 10)]

    def commit(member: str, instance: str | None, generation: int) -> int:
        committer = Committer(member, instance, generation, in_transaction=True)
        return table.commit_in_transaction("g", offsets, 7, 0, None, committer)

    refused = int(ErrorCode.ILLEGAL_GENERATION)
    assert commit("", None, -1) == 0
    assert commit("m", "i", 3) == refused
    if state:
        assert commit("m", "other", 4) == refused
        assert commit("x", None, 4) == refused


def test_a_commit_to_a_partition_that_is_not_ours(table: GroupTable) -> None:
    table.close(0)
    code = table.commit_in_transaction("g", [committed(0, 10)], 7, 0)
    assert code == ErrorCode.NOT_COORDINATOR
    assert table.pending("g") == frozenset()


def test_a_topic_of_another_id_is_not_there(table: GroupTable) -> None:
    table.commit("g", [committed(0, 1)])
    pend(table, 7, committed(0, 10))
    code, topics, _ = table.fetch(
        "g", None, flexible=False, leader_epochs=False, stable=Written(),
        topic_id_of=lambda name: bytes(16),
    )  # fmt: skip
    assert (code, topics) == (0, [])
    code, topics, _ = table.fetch(
        "g", None, flexible=False, leader_epochs=False, stable=Written(),
        topic_id_of=lambda name: ID,
    )  # fmt: skip
    assert (code, len(topics)) == (0, 1)


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_under_a_guard_ends_with_the_marker_of_its_log(
    table: GroupTable, log: LedLog, commits: bool
) -> None:
    """Batches of a coordinator are not numbered, so one may follow another."""

    def commit(offset: int, guard: int) -> int:
        return table.commit_in_transaction("g", [committed(0, offset)], 7, 0, guard=guard)

    assert commit(10, 12345) == ErrorCode.INVALID_TXN_STATE  # a guard that is not there
    code, guard = log.begin_verification(7, 0, -1, bumps_epoch=True)
    assert (code, guard > 0) == (ErrorCode.NONE, True)
    assert table.pending("g") == frozenset()
    assert commit(10, guard) == 0
    assert log.begin_verification(7, 0, -1, bumps_epoch=True) == (ErrorCode.NONE, 0)
    assert commit(11, 0) == 0
    assert reloaded(log).pending("g") == {(TOPIC, 0)}
    marker = log.append_marker(7, 1, 0, committed=commits, transaction_version=2)
    assert marker.error is ErrorCode.NONE
    assert table.marker_written(0, 7, commits, marker.offset) == ({"g"} if commits else set())
    for each in (table, reloaded(log)):
        assert each.pending("g") == frozenset()
        assert fetched(each, 0) == [(11, 0) if commits else NOT_THERE]
    assert commit(12, guard) == ErrorCode.INVALID_PRODUCER_EPOCH  # of a zombie
    assert table.pending("g") == frozenset()


def both(table: GroupTable, log: LedLog) -> list[GroupTable]:
    """As it is, and as another broker loads it."""
    return [table, reloaded(log)]


@pytest.mark.parametrize("commits", [True, False])
def test_a_group_that_is_deleted_has_nothing_pending(
    table: GroupTable, log: LedLog, commits: bool
) -> None:
    """An offset that was committed before has one tombstone, one that is only pending as well."""
    table.commit("g", [committed(0, 1), committed(1, 2)])
    pend(table, 7, committed(0, 10), committed(2, 30))
    pend(table, 8, committed(2, 31), committed(3, 40))
    pend(table, 8, committed(0, 50), group="h")
    before = log.log_end_offset
    assert table.delete_group("g", [(b"\0\2g", None)]) == 0
    assert log.log_end_offset - before == 5
    for each in both(table, log):
        assert each.pending("g") == frozenset() and each.pending_groups(0) == {"h"}
        assert fetched(each, 0, 1, 2, 3) == [NOT_THERE] * 4
    pend(table, 7, committed(1, 60))  # of a new group
    for producer_id in (7, 8):
        marker = log.append_marker(producer_id, 0, 0, committed=commits, transaction_version=0)
        assert marker.error is ErrorCode.NONE
        table.marker_written(0, producer_id, commits, marker.offset)
    for each in both(table, log):
        last = (60, 0) if commits else NOT_THERE
        assert fetched(each, 0, 1, 2, 3) == [NOT_THERE, last, NOT_THERE, NOT_THERE]
        assert fetched(each, 0, group="h") == [(50, 0) if commits else NOT_THERE]


def test_offsets_that_are_removed_are_not_pending_either(table: GroupTable, log: LedLog) -> None:
    """One that was committed before, and one that is only pending."""
    table.commit("g", [committed(0, 1), committed(1, 2)])
    pend(table, 7, committed(0, 10), committed(1, 20), committed(2, 30))
    pend(table, 7, committed(2, 31), group="h")
    before = log.log_end_offset
    assert table.remove_offsets("g", [(TOPIC, 0), (TOPIC, 2), (TOPIC, 9)]) == 0
    assert log.log_end_offset - before == 2
    for each in both(table, log):
        assert each.pending("g") == {(TOPIC, 1)} and each.pending("h") == {(TOPIC, 2)}
    marker = log.append_marker(7, 0, 0, committed=True, transaction_version=0)
    table.marker_written(0, 7, True, marker.offset)
    for each in both(table, log):
        assert fetched(each, 0, 1, 2) == [NOT_THERE, (20, 0), NOT_THERE]
        assert fetched(each, 2, group="h") == [(31, 0)]


def test_an_offset_that_expires_leaves_pending_ones_alone(table: GroupTable) -> None:
    """So does one for another topic of that name; one of a topic that is gone takes them along."""
    pend(table, 7, committed(0, 10))
    assert table.remove_offsets("g", [(TOPIC, 0)], committed_until_ms=5_000) == 0
    assert table.remove_offsets("g", [(TOPIC, 0)], topic_id=bytes(16)) == 0
    assert table.pending("g") == {(TOPIC, 0)}


@pytest.mark.parametrize("commits", [True, False])
def test_an_offset_that_becomes_pending_does_not_expire(
    table: GroupTable, log: LedLog, commits: bool
) -> None:
    """Between the look at pending offsets and the write. In Apache Kafka it stays, too."""
    table.commit("g", [committed(0, 1), committed(1, 2)])
    pend(table, 7, committed(0, 10))
    assert table.remove_offsets("g", [(TOPIC, 0), (TOPIC, 1)], committed_until_ms=5_000) == 0
    for each in both(table, log):
        assert each.pending("g") == {(TOPIC, 0)}
        assert fetched(each, 0, 1) == [(-1, UNSTABLE), NOT_THERE]
    marker = log.append_marker(7, 0, 0, committed=commits, transaction_version=0)
    table.marker_written(0, 7, commits, marker.offset)
    for each in both(table, log):
        assert fetched(each, 0, 1) == [(10 if commits else 1, 0), NOT_THERE]


def test_a_pending_offset_of_a_new_topic_outlives_the_old_topic_of_its_name(
    table: GroupTable, log: LedLog
) -> None:
    """An old offset of that partition goes with the outcome; others, and pending offsets of the old
    topic, go at once."""
    new = bytes(reversed(ID))
    table.commit("g", [committed(0, 1), committed(1, 2)])
    pend(table, 7, committed(0, 10)._replace(topic_id=new))
    pend(table, 8, committed(1, 20))
    assert table.remove_offsets("g", [(TOPIC, 0), (TOPIC, 1)], topic_id=ID) == 0
    for each in both(table, log):
        assert each.pending("g") == {(TOPIC, 0)}
    marker = log.append_marker(7, 0, 0, committed=True, transaction_version=0)
    table.marker_written(0, 7, True, marker.offset)
    for each in both(table, log):
        assert [(each.offset, each.topic_id) for each in each.offsets("g")] == [(10, new)]


def test_records_of_a_transaction_that_no_coordinator_writes(table: GroupTable) -> None:
    """As an administrator's producer may: without a value, of a group; and without a key, which
    only a log from elsewhere has. A marker that was written after a load ended the process."""
    records = [
        Record(key=offset_key("g", TOPIC, 0), value=None),
        Record(key=b"\0\2g", value=None),
        Record(key=b"\0\2g", value=b"\0\3"),
        Record(key=None, value=None),
    ]
    batch = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, attributes=0x10)
    assert table.load_batches(0, batch).left_out == []
    assert table.pending_groups(0) == {"g"} and table.pending("g") == {(TOPIC, 0)}
    assert table.remove_offsets("h", [(TOPIC, 0)]) == 0
    assert table.marker_written(0, 7, True, 4) == {"g"}
    assert table.pending("g") == frozenset() and fetched(table, 0) == [NOT_THERE]


def test_a_deletion_that_is_not_written_leaves_pending_offsets(table: GroupTable) -> None:
    pend(table, 7, committed(0, 10))
    too_large = [(b"key", bytes(1 << 21))]
    assert table.delete_group("g", too_large) == ErrorCode.MESSAGE_TOO_LARGE
    assert table.pending("g") == {(TOPIC, 0)}


def test_a_commit_that_is_repeated_takes_no_more_memory(table: GroupTable, log: LedLog) -> None:
    """Of one partition a transaction holds the last offset, as in Apache Kafka."""
    pend(table, 7, committed(0, 0))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for offset in range(1, 1_000):
            pend(table, 7, committed(0, offset))
        grown = tracemalloc.get_traced_memory()[0] - before
        again = reloaded(log)
        loaded = tracemalloc.get_traced_memory()[0] - before - grown
    finally:
        tracemalloc.stop()
    assert grown < 50_000 and loaded < 150_000
    marker = log.append_marker(7, 0, 0, committed=True, transaction_version=0)
    for each in (table, again):
        assert each.pending("g") == {(TOPIC, 0)}
        assert each.marker_written(0, 7, True, marker.offset) == {"g"}
        assert fetched(each, 0) == [(999, 0)]


def test_the_next_transaction_takes_nothing_from_the_one_before(
    table: GroupTable, log: LedLog
) -> None:
    """Its offset of the same partition comes when the first marker is in the log, and is not
    applied yet."""
    pend(table, 7, committed(0, 10))
    first = log.append_marker(7, 0, 0, committed=True, transaction_version=0)
    pend(table, 7, committed(0, 20))
    pend(table, 7, committed(0, 21))
    assert table.marker_written(0, 7, True, first.offset) == {"g"}
    assert table.pending("g") == {(TOPIC, 0)}
    assert fetched(table, 0, stable=False) == [(10, 0)]
    second = log.append_marker(7, 0, 0, committed=False, transaction_version=0)
    assert table.marker_written(0, 7, False, second.offset) == set()
    for each in both(table, log):
        assert fetched(each, 0) == [(10, 0)]


def test_a_later_offset_after_a_tombstone_is_pending_again(table: GroupTable, log: LedLog) -> None:
    pend(table, 7, committed(0, 10), committed(1, 20))
    assert table.remove_offsets("g", [(TOPIC, 0), (TOPIC, 1)]) == 0
    again = reloaded(log)
    assert table.pending("g") == again.pending("g") == frozenset()
    pend(table, 7, committed(0, 11))
    marker = log.append_marker(7, 0, 0, committed=True, transaction_version=0)
    table.marker_written(0, 7, True, marker.offset)
    for each in both(table, log):
        assert fetched(each, 0, 1) == [(11, 0), NOT_THERE]
