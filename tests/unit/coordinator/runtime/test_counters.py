"""The coordinator's runtime serves another machine than groups: it loads, writes and fences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.coordinator.runtime._shard_table import (
    ACTIVE,
    LOADING,
    NOT_OWNER,
    ShardTable,
    Written,
    partition_for,
)
from kbroker.coordinator.runtime.loader import AGAIN_MS, FOLLOWERS_MS, LATE_MS, LONG_WAIT_MS
from kbroker.errors import ErrorCode
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import ClusterImage, ImageDelta
from tests.support.led_log import LedLogManager
from tests.support.record_batches import build_batch
from tests.unit.coordinator.runtime.counters import COUNT, ELSEWHERE, NODE, TOPIC, TOPIC_ID, Node
from tests.unit.coordinator.tables import Listener

NAME = "visits"
PLACE = partition_for(NAME, COUNT)
OTHER = next(f"n{n}" for n in range(99) if partition_for(f"n{n}", COUNT) != PLACE)
FOLLOWER = 3

Start = Callable[..., Node]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    nodes: list[Node] = []

    def make(listener: Listener | None = None) -> Node:
        if nodes:
            nodes[-1].stop()
        nodes.append(Node(tmp_path / "data", listener))
        return nodes[-1]

    yield make
    nodes[-1].stop()


def test_written_records_are_replayed_before_the_partition_is_active(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    counter, other = node.counters.make(NAME), node.counters.make(OTHER)
    for _ in range(3):
        assert node.add(counter) == node.add(other, 10) == [ErrorCode.NONE]
    node = start()
    node.lead(NODE, NODE)
    assert node.store.state_of(NAME) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    walk = node.loader.work_off()
    while ("loaded", 0) not in node.counters.calls:
        next(walk)
    assert node.table.shard_state(0) == LOADING
    for _ in walk:
        pass
    assert node.counters.calls == [
        (call, place) for place in range(COUNT) for call in ("replay", "loaded", "active")
    ]
    assert [node.table.shard_state(place) for place in range(COUNT)] == [ACTIVE] * COUNT
    assert node.values() == {NAME: 3, OTHER: 30}
    assert node.store.state_of(NAME) is ErrorCode.NONE


@pytest.mark.parametrize("waits", [False, True])
def test_a_partition_waits_for_its_followers_to_have_the_loaded_records(
    start: Start, waits: bool
) -> None:
    """Where its machine asks for that (history 4 of those with transactions)."""
    node = start()
    node.lead(NODE, NODE, followers=[FOLLOWER])
    assert node.add(node.counters.make(NAME)) == [ErrorCode.NONE]
    node = start()
    node.counters.waits_for_followers = waits
    node.lead(NODE, NODE, followers=[FOLLOWER])
    log = node.open[PLACE]
    assert log.high_watermark < log.log_end_offset
    node.load()
    assert node.table.shard_state(PLACE) == (LOADING if waits else ACTIVE)
    log.note_fetch(FOLLOWER, log.log_end_offset, 0)
    node.clock.advance(FOLLOWERS_MS)
    node.load()
    assert node.table.shard_state(PLACE) == ACTIVE
    assert node.values() == {NAME: 1}
    assert node.counters.calls.count(("loaded", PLACE)) == 1
    assert node.counters.calls.count(("active", PLACE)) == 1


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_machine_that_fails_to_learn_of_a_load_is_called_again(
    start: Start, is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    node.lead(NODE, NODE)
    for name in (NAME, OTHER):
        assert node.add(node.counters.make(name)) == [ErrorCode.NONE]
    node = start()
    original = node.counters.active
    calls: list[int] = []

    def active(partition: int) -> None:
        calls.append(partition)
        if calls.count(PLACE) == 1 and partition == PLACE:
            raise MemoryError
        original(partition)

    monkeypatch.setattr(node.counters, "active", active)
    node.lead(NODE, NODE)
    node.load()
    assert node.table.shard_state(PLACE) == ACTIVE
    assert node.loader.thread.failures.count == 1
    assert ("active", PLACE) not in node.counters.calls
    if is_lost:
        node.loader.cancel([PLACE])
    for _ in range(2):
        node.clock.advance(AGAIN_MS)
        node.load()
    assert node.counters.calls.count(("active", PLACE)) == (0 if is_lost else 1)
    assert calls.count(PLACE) == (1 if is_lost else 2)
    assert node.loader.times.loads == (1 if is_lost else 2)


def test_a_long_wait_for_followers_is_in_the_log_once(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    node = start()
    node.lead(NODE, NODE, followers=[FOLLOWER])
    assert node.add(node.counters.make(NAME)) == [ErrorCode.NONE]
    node = start()
    node.counters.waits_for_followers = True
    node.lead(NODE, NODE, followers=[FOLLOWER])
    while node.clock.monotonic_ms() < 2 * LONG_WAIT_MS:
        node.load()
        node.clock.advance(FOLLOWERS_MS)
    lines = [each for each in caplog.messages if "its high watermark is" in each]
    assert len(lines) == 1 and f"-{PLACE} is loaded up to offset 1, " in lines[0]
    log = node.open[PLACE]
    log.note_fetch(FOLLOWER, log.log_end_offset, 0)
    node.clock.advance(LATE_MS)
    node.load()
    assert node.table.shard_state(PLACE) == ACTIVE
    assert node.loader.times.longest_ms >= 2 * LONG_WAIT_MS


def test_writes_are_in_the_log_in_the_order_of_the_decisions(start: Start) -> None:
    """Also of one that is decided while another is being written."""
    node = start()
    node.lead(NODE, NODE)
    counter = node.counters.make(NAME)
    codes: list[ErrorCode] = []
    counter.add(lambda code: counter.add(codes.append, 5))
    counter.add(codes.append, 7)
    assert codes == [ErrorCode.NONE] * 2
    log = node.open[PLACE]
    records = node.table.load_batches(PLACE, log.read(0, to_log_end=True)).records
    assert [record.value for record in records] == [b"1", b"6", b"13"]


def test_a_failed_append_is_undone(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    counter = node.counters.make(NAME)
    assert node.add(counter) == [ErrorCode.NONE]
    log = node.open[PLACE]
    log.set_leadership(ELSEWHERE, False, 1, 1)
    assert node.add(counter) == [ErrorCode.NOT_COORDINATOR]
    assert counter.value == log.log_end_offset == 1


def test_with_followers_it_is_done_when_they_have_it(start: Start) -> None:
    listener = Listener()
    node = start(listener)
    node.lead(NODE, NODE, followers=[FOLLOWER])
    codes = node.add(node.counters.make(NAME))
    (replica, last_offset, *_, done) = listener.waits.pop()
    assert (replica, last_offset) == (node.open[PLACE], 0)
    assert codes == [] and listener.woken == [replica]
    done(ErrorCode.NONE)
    assert codes == [ErrorCode.NONE]


def test_a_partition_is_unloaded_while_a_write_waits(start: Start) -> None:
    """The write ends after the unloading, and changes nothing that came later."""
    listener = Listener()
    node = start(listener)
    node.lead(NODE, NODE, followers=[FOLLOWER])
    before = node.counters.make(NAME)
    codes = node.add(before)
    (*_, done) = listener.waits.pop()
    node.lead(ELSEWHERE, ELSEWHERE)
    assert node.table.shard_state(PLACE) == NOT_OWNER
    assert node.store.state_of(NAME) is ErrorCode.NOT_COORDINATOR
    node.load()
    assert node.counters.calls == [("unloaded", 0, 1)] and node.values() == {}
    node.lead(NODE, NODE)
    node.load()
    done(ErrorCode.NOT_COORDINATOR)
    assert codes == [ErrorCode.NOT_COORDINATOR]
    assert node.values() == {NAME: 1} and before.value == 0


def test_an_earlier_incarnation_does_not_write_over_a_later_one(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    before = node.counters.make(NAME)
    assert node.add(before) == [ErrorCode.NONE]
    node.lead(ELSEWHERE, ELSEWHERE)
    node.lead(NODE, NODE)
    node.load()
    after = node.counters.by_name[NAME]
    assert after.incarnation > before.incarnation
    assert node.add(after) == [ErrorCode.NONE]
    assert node.add(before) == [ErrorCode.NOT_COORDINATOR]
    assert node.open[PLACE].log_end_offset == after.value == 2
    ends: list[ErrorCode] = []
    node.store.remove(NAME, lambda: ends.append(ErrorCode.NONE), ends.append)
    assert ends == [ErrorCode.NONE] * 2
    assert node.add(node.counters.make(NAME)) == [ErrorCode.NONE]


def test_a_load_ends_when_its_partition_is_lost(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    assert node.add(node.counters.make(NAME)) == [ErrorCode.NONE]
    node = start()
    node.lead(NODE, NODE)
    walk = node.loader.work_off()
    while ("replay", PLACE) not in node.counters.calls:
        next(walk)
    node.lead(ELSEWHERE, ELSEWHERE)
    for _ in walk:
        pass
    assert ("loaded", PLACE) not in node.counters.calls
    assert node.table.shard_state(PLACE) == NOT_OWNER and node.values() == {}


def test_the_machine_learns_of_deleted_topics_in_the_order_of_its_loads(start: Start) -> None:
    node = start()
    node.lead(NODE, NODE)
    assert node.add(node.counters.make(NAME)) == [ErrorCode.NONE]
    node = start()
    node.lead(NODE, NODE)
    topic = new_topic_image("orders", TOPIC_ID, [(NODE,)], {})
    node.store.follow(ClusterImage(), ImageDelta(deleted=(topic,)))
    node.load()
    assert node.counters.calls[-2:] == [("active", PLACE), ("topic deleted", "orders")]


def test_the_machine_says_how_many_lines_its_unreadable_batches_may_have(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    node = start()
    node.lead(NODE, NODE)
    counter = node.counters.make(NAME)
    unreadable = build_batch([b"v"], codec="gzip", payload=b"not packed at all")
    for _ in range(5):
        node.open[PLACE].append(unreadable, prechecked=True)
    assert node.add(counter) == [ErrorCode.NONE]
    node = start()
    node.lead(NODE, NODE)
    node.load()
    assert node.values() == {NAME: 1}
    assert caplog.text.count("cannot be read, so its records are left out") == 2


def test_nothing_is_written_in_another_term(start: Start) -> None:
    """A term ends when its partition is lost, also if it comes back."""
    node = start()
    node.lead(NODE, NODE)
    term = node.table.term(PLACE)
    record = [(b"\0\x09visits", b"1")]
    assert node.table.append(PLACE, record, None, term) == ErrorCode.NONE
    node.lead(ELSEWHERE, ELSEWHERE)
    node.lead(NODE, NODE)
    node.load()
    assert node.table.term(PLACE) > term
    assert node.table.append(PLACE, record, None, term) == ErrorCode.NOT_COORDINATOR
    assert node.table.append(PLACE, record, None, node.table.term(PLACE)) == ErrorCode.NONE
    assert node.open[PLACE].log_end_offset == 2


def test_a_write_waits_as_long_as_it_says(start: Start) -> None:
    listener = Listener()
    node = start(listener)
    node.lead(NODE, NODE, followers=[FOLLOWER])
    for timeout_ms in (None, 60_000):
        written = Written()
        code = node.table.append(PLACE, [(b"\0\x09n", b"1")], written)
        node.table.when_replicated(written, code, lambda code: None, timeout_ms)
    assert [wait[3] for wait in listener.waits] == [5_000, 60_000]


@pytest.mark.parametrize(
    ("options", "code", "sequence"),
    [({}, ErrorCode.MESSAGE_TOO_LARGE, 0), ({"any_size": True, "base_sequence": -1}, 0, -1)],
)
def test_a_table_has_its_own_bound_and_sequence(
    tmp_path: Path, options: dict[str, Any], code: int, sequence: int
) -> None:
    logs = LedLogManager([tmp_path / "data"])
    logs.start()
    log = logs.open(TOPIC, 0, TOPIC_ID, {"max_message_bytes": 1_000})
    log.set_leadership(NODE, True, 0, 1)
    table = ShardTable(None, **options)
    table.set_partition_count(1)
    table.open(0, log)
    table.activate(0)
    assert table.append(0, [(b"\0\x09n", bytes(2_000))]) == code
    assert table.append(0, [(b"\0\x09n", b"1")]) == ErrorCode.NONE
    batch = log.read(log.log_end_offset - 1)
    assert int.from_bytes(batch[53:57], signed=True) == sequence
    logs.stop()
