"""GroupTable above the high watermark: which commits and removals are answered, and which wait."""

from __future__ import annotations

import random
import struct
import threading
import time

import pytest

from kbroker.coordinator.group._groups import GroupTable
from kbroker.coordinator.runtime._shard_table import Written
from kbroker.errors import ErrorCode
from tests.support.led_log import LedLog
from tests.unit.coordinator.tables import Listener, committed, fetched, opened, reloaded


def test_commits_above_the_high_watermark_are_not_answered(table: GroupTable, log: LedLog) -> None:
    log.set_leadership(1, True, 1, 2, {2: True})
    for offset in (5, 6, 7):
        assert table.commit("g", [committed(0, offset, "text" * offset)]) == 0
    assert table.commit("g", [committed(3, 9)]) == 0
    assert fetched(table, 0, 3) == [-1, -1]
    assert fetched(table) == []
    for end, answered in ((1, [5, -1]), (2, [6, -1]), (3, [7, -1]), (4, [7, 9])):
        log.note_fetch(2, end, 1)
        assert fetched(table, 0, 3) == answered
        assert fetched(table) == [each for each in answered if each >= 0]
    for offset in (8, 9):
        assert table.commit("g", [committed(0, offset)]) == 0
        assert fetched(table, 0) == [7]
    log.note_fetch(2, 5, 1)
    assert fetched(table, 0) == [8]
    # A new leader has it all, and tells what it knows to be safe.
    again = reloaded(log)
    assert fetched(again, 0, 3) == [8, 9]
    assert fetched(again) == [8, 9]
    log.note_fetch(2, 6, 1)
    assert fetched(table) == fetched(again) == [9, 9]
    for each in (table, again):
        assert each.delete_group("g") == 0
        log.note_fetch(2, log.log_end_offset, 1)
        assert each.statistics(0) == (0, 0, 0)


def test_a_commit_removed_above_the_high_watermark_is_answered(
    table: GroupTable, log: LedLog
) -> None:
    """Till the followers have it: a leader without the tombstone would tell it again."""
    log.set_leadership(1, True, 1, 2, {2: True})
    assert table.commit("g", [committed(0, 5, "text"), committed(1, 6)]) == 0
    log.note_fetch(2, 2, 1)
    assert table.remove_offsets("g", [("orders", 0)]) == 0
    assert table.offsets("g") == [committed(1, 6)]  # so see it those who write
    assert table.statistics(0).offsets == 1
    assert fetched(table, 0, 1) == fetched(table) == [5, 6]
    assert table.commit("g", [committed(0, 7)]) == 0
    assert fetched(table, 0, 1) == [5, 6]
    log.note_fetch(2, 3, 1)
    assert fetched(table, 0, 1) == [-1, 6]
    assert fetched(table) == [6]
    log.note_fetch(2, 4, 1)
    assert fetched(table) == [7, 6]
    assert table.delete_group("g", [(b"\0\2group", None)]) == 0
    assert table.offsets("g") == []
    again = reloaded(log)
    for each in (table, again):
        assert each.statistics(0).offsets == 0
        assert sorted(fetched(each)) == [6, 7]
    log.note_fetch(2, log.log_end_offset, 1)
    for each in (table, again):
        assert fetched(each, 0, 1) == [-1, -1]
        assert each.statistics(0) == (0, 0, 0)


def test_a_second_removal_of_the_same_offsets_waits_as_the_first_did(log: LedLog) -> None:
    listener = Listener()
    table, waits = opened(log, listener), listener.waits
    answered: list[ErrorCode] = []

    def remove() -> None:
        written = Written()
        code = table.remove_offsets("g", [("orders", 0)], written=written)
        table.when_replicated(written, code, answered.append)

    remove()
    assert (answered, waits) == ([ErrorCode.NONE], [])
    log.set_leadership(1, True, 1, 2, {2: True})
    assert table.commit("g", [committed(0, 5)]) == 0
    remove()
    remove()
    assert [how[1:3] for how in waits] == [(1, 0)] * 2
    assert log.log_end_offset == 2
    log.note_fetch(2, 2, 1)
    remove()
    assert (answered, len(waits)) == ([ErrorCode.NONE] * 2, 2)


def test_a_follower_may_come_up_while_a_group_is_deleted(table: GroupTable, log: LedLog) -> None:
    """The high watermark moves without the shard's lock, between one look at it and the next."""
    log.set_leadership(1, True, 1, 2, {2: True})
    offsets = [[committed(each, 5, topic=name) for each in range(1_000)] for name in "abcde"]
    turn = threading.Barrier(2)
    rounds = range(60)

    def follow() -> None:
        for _ in rounds:
            turn.wait()
            for _ in range(300):
                log.note_fetch(2, log.log_end_offset, 1)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    for _ in rounds:
        for each in offsets:
            assert table.commit("g", each) == 0
        log.note_fetch(2, log.log_end_offset, 1)
        turn.wait()
        assert table.delete_group("g") == 0
    follower.join()
    log.note_fetch(2, log.log_end_offset, 1)
    looks = 0  # each time that the shard is locked some of the tombstones go
    while table.statistics(0) != (0, 0, 0) and looks < len(rounds) * 5_000:
        looks += 1
    assert 0 < looks < len(rounds) * 5_000 / 100


def test_stable_offsets_are_the_last_ones_and_wait_for_the_followers(log: LedLog) -> None:
    listener = Listener()
    table, waits = opened(log, listener), listener.waits
    answered: list[ErrorCode] = []

    def asked(partitions: bytes | None, group: str = "g") -> list[tuple[str, bytes]]:
        wanted = None if partitions is None else [("orders", partitions)]
        stable = Written()
        code, topics, _ = table.fetch(
            group, wanted, flexible=False, leader_epochs=False, stable=stable
        )
        table.when_replicated(stable, code, answered.append)
        return topics

    def answer(*answered: tuple[int, int, str]) -> list[tuple[str, bytes]]:
        rows = [struct.pack(f">iqh{len(m)}sh", p, o, len(m), m.encode(), 0) for p, o, m in answered]
        return [("orders", len(rows).to_bytes(4) + b"".join(rows))]

    both = bytes((0, 0, 0, 0, 0, 0, 0, 3))
    assert asked(both) == answer((0, -1, ""), (3, -1, ""))
    assert (answered, waits) == ([ErrorCode.NONE], [])
    log.set_leadership(1, True, 1, 2, {2: True})
    assert table.commit("g", [committed(0, 5, "text")]) == 0
    assert asked(both) == answer((0, 5, "text"), (3, -1, ""))
    assert asked(None) == answer((0, 5, "text"))
    assert asked(None, "another") == []  # which may have been deleted a moment ago
    assert table.remove_offsets("g", [("orders", 0)]) == 0
    assert asked(both) == answer((0, -1, ""), (3, -1, ""))
    assert asked(None) == []
    assert [how[1:3] for how in waits] == [(0, 0)] * 3 + [(1, 0)] * 2
    log.note_fetch(2, 2, 1)
    assert asked(None) == []
    assert (answered, len(waits)) == ([ErrorCode.NONE] * 2, 5)
    table.close(0)
    asked(both)
    assert answered[2:] == [ErrorCode.NOT_COORDINATOR]


def test_commits_that_wait_for_a_follower_are_not_dearer_the_more_they_are(log: LedLog) -> None:
    def cpu_s(table: GroupTable) -> float:
        before = time.process_time()
        for _ in range(40):
            assert table.commit("g", [committed(0, offset) for offset in range(500)]) == 0
        return time.process_time() - before

    alone_s = cpu_s(opened(log))
    log.set_leadership(1, True, 1, 2, {2: True})
    table = opened(log)
    assert cpu_s(table) < 10 * alone_s
    assert fetched(table, 0) == [-1]
    waiting = table.statistics(0).bytes
    for ahead, answered in ((19_000, 499), (1, 498), (0, 499)):
        log.note_fetch(2, log.log_end_offset - ahead, 1)
        assert fetched(table, 0) == [answered]
    assert table.commit("g", [committed(0, 7)]) == 0
    assert fetched(table, 0) == [499]
    assert table.statistics(0).bytes < waiting // 1_000
    assert table.delete_group("g") == 0
    log.note_fetch(2, log.log_end_offset, 1)
    assert table.statistics(0) == (0, 0, 0)


def test_a_write_while_the_partition_goes_is_not_answered_as_replicated(
    log: LedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.set_leadership(1, True, 1, 2, {2: True})  # and the follower has nothing
    listener = Listener()
    monkeypatch.setattr(
        listener, "await_followers", lambda *how: how[-1](ErrorCode.COORDINATOR_NOT_AVAILABLE)
    )
    table = opened(log, listener)
    answered: list[ErrorCode] = []
    turn = threading.Barrier(2)
    rounds = range(1_000)

    def go() -> None:
        for _ in rounds:
            turn.wait()
            table.close(0)
            turn.wait()

    goes = threading.Thread(target=go)
    goes.start()
    for offset in rounds:
        written = Written()
        turn.wait()
        code = table.commit("g", [committed(each, offset) for each in range(20)], written)
        table.when_replicated(written, code, answered.append)
        turn.wait()
        table.open(0, log)
        table.activate(0)
    goes.join()
    assert len(answered) == len(rounds)
    assert ErrorCode.NONE not in answered


def test_random_steps_are_answered_as_far_as_a_follower_has_come(
    table: GroupTable, log: LedLog
) -> None:
    """Against what the model was at that end of the log; then as another leader loads it."""
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    log.set_leadership(1, True, 1, 2, {2: True})
    model: dict[str, dict[int, int]] = {group: {} for group in "abc"}
    ends: list[tuple[int, dict[str, dict[int, int]]]] = [(0, {group: {} for group in "abc"})]
    at = 0
    for step in range(600):
        group = draw.choice("abc")
        partitions = draw.sample(range(6), draw.randrange(1, 4))
        kind = draw.random()
        if kind < 0.5:
            assert table.commit(group, [committed(each, step, "m" * 9) for each in partitions]) == 0
            model[group] |= dict.fromkeys(partitions, step)
        elif kind < 0.9:
            assert table.remove_offsets(group, [("orders", each) for each in partitions]) == 0
            model[group] = {p: o for p, o in model[group].items() if p not in partitions}
        else:
            assert table.delete_group(group) == 0
            model[group] = {}
        ends.append((log.log_end_offset, {each: dict(had) for each, had in model.items()}))
        if draw.random() < 0.3:
            at = draw.randrange(at, len(ends))
            log.note_fetch(2, ends[at][0], 1)
        for each, had in ends[at][1].items():
            wanted = [had.get(partition, -1) for partition in range(6)]
            assert fetched(table, *range(6), group=each) == wanted, f"seed {seed}"
            assert fetched(table, group=each) == [o for o in wanted if o >= 0], f"seed {seed}"
            found = {offset.partition: offset.offset for offset in table.offsets(each)}
            assert found == model[each], f"seed {seed}"
        assert table.statistics(0).offsets == sum(map(len, model.values())), f"seed {seed}"
    again = reloaded(log)
    for each, had in ends[at][1].items():
        wanted = [had.get(partition, -1) for partition in range(6)]
        assert fetched(again, *range(6), group=each) == wanted, f"seed {seed}"
    for known in (table, again):
        for group in "abc":
            known.delete_group(group)
        log.note_fetch(2, log.log_end_offset, 1)
        assert known.statistics(0) == (0, 0, 0), f"seed {seed}"
