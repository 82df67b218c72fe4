"""Fetches that a Processor serves by itself, and those that it must leave to a handler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kbroker.log.opening.loader import Checkpointed
from kbroker.testing.file_faults import Fault, FileFaults
from tests.support.led_log import open_led_log
from tests.support.record_batches import build_batch, parse_batches
from tests.unit.engine.wire import Ask, fetch, fetch_frame, fetched_in, produce_one
from tests.unit.net.harness import NODE_ID, Client, Rig, Topic, eventually

BATCH = build_batch([b"x" * 100])
OLD_BATCHES = 64
BATCHES = OLD_BATCHES + 256  # the newest are found in memory
LONG_MS = 600_000
ROLL_MS = 6000


def runs(rig: Rig) -> int:
    """What handlers have been woken for."""
    return sum(handler["runs"] for handler in rig.hot.statistics()["handlers"])


def is_served_by_a_processor(rig: Rig, client: Client, asks: list[Ask], **options: Any) -> bool:
    before = runs(rig)
    answer = fetch(client, 12, asks, **options)
    assert all(part.records for part in answer.partitions.values())
    return runs(rig) == before


def test_records_in_memory_need_no_handler(rig: Rig) -> None:
    topic = rig.create("t", partitions=16)
    for log in topic.logs:
        log.append(BATCH)
    client = rig.client()
    few = [Ask(topic, index) for index in range(16)]
    # A handler that is awake has it; it sleeps again in a moment.
    eventually(lambda: is_served_by_a_processor(rig, client, few), "served by its Processor")
    before = rig.hot.statistics()["fetch_requests"]
    fetch(client, 12, few)
    statistics = rig.hot.statistics()
    assert statistics["fetch_requests"] == before + 1
    assert statistics["fetch_bytes"] == len(BATCH) * statistics["fetch_partitions"]


def read_in_order(
    rig: Rig, client: Client, topic: Topic, max_bytes: int, offset: int = 0
) -> Iterator[bool]:
    """Of each fetch of the older part of a log, whether a Processor served it."""
    while offset < OLD_BATCHES:
        before = runs(rig)
        records = fetch(client, 12, [Ask(topic, offset=offset, max_bytes=max_bytes)]).only.records
        batches = parse_batches(records, records=False)
        assert batches[0].base_offset == offset
        offset = batches[-1].last_offset + 1
        yield runs(rig) == before


@pytest.mark.parametrize("size", [3_000, 10_000, 20_000])
def test_a_reader_of_older_records_in_order_needs_no_handler(rig: Rig, size: int) -> None:
    topic = rig.create("t")
    for _ in range(BATCHES):
        topic.logs[0].append(build_batch([b"x" * size]))
    client = rig.client()

    def served() -> list[bool]:
        return list(read_in_order(rig, client, topic, 16_384))

    eventually(lambda: all(served()), "all of them by its Processor")


@pytest.mark.parametrize("size", [500, 3_000])
def test_a_reader_that_begins_within_a_segment_needs_one_handler(rig: Rig, size: int) -> None:
    """Which looks for the first place in the index, and notes it and the next one."""
    topic = rig.create("t")
    for _ in range(BATCHES):
        topic.logs[0].append(build_batch([b"x" * size]))
    client = rig.client()
    first = iter(range(3, OLD_BATCHES // 2))  # another one each time: those are not known yet

    def served() -> list[bool]:
        offset = next(first)
        _, *others = read_in_order(rig, client, topic, 16 * size, offset)
        return [*others, *read_in_order(rig, client, topic, 16 * size, offset)]

    eventually(lambda: all(served()), "the others, and all of the next reader, by a Processor")


def test_many_partitions_are_a_handlers(rig: Rig) -> None:
    topic = rig.create("t", partitions=17)
    for log in topic.logs:
        log.append(BATCH)
    client = rig.client()
    for _ in range(20):
        assert not is_served_by_a_processor(rig, client, [Ask(topic, i) for i in range(17)])


def test_much_to_send_is_a_handlers(rig: Rig) -> None:
    topic = rig.create("t", partitions=2)
    topic.logs[0].append(build_batch([b"x" * 300_000]))
    topic.logs[1].append(build_batch([b"x" * 200_000]))
    client = rig.client()
    small, large = [Ask(topic, 1)], [Ask(topic, 0)]
    eventually(lambda: is_served_by_a_processor(rig, client, small), "served by its Processor")
    for _ in range(20):
        before = rig.hot.statistics()["fetch_requests"]
        assert not is_served_by_a_processor(rig, client, large)
        assert rig.hot.statistics()["fetch_requests"] == before + 1


def test_a_session_of_many_partitions_is_a_handlers(rig: Rig) -> None:
    topic = rig.create("t", partitions=17)
    client = rig.client()
    full = fetch(client, 12, [Ask(topic, i) for i in range(17)], session=(0, 0))
    for epoch in range(1, 20):
        topic.logs[0].append(BATCH)
        before = runs(rig)
        assert fetch(client, 12, [], session=(full.session_id, epoch)).error == 0
        assert runs(rig) > before
    assert rig.hot.statistics()["fetch_requests"] == 20


def test_a_fetch_that_has_to_wait_is_counted_once(rig: Rig) -> None:
    topic = rig.create("t")
    client = rig.client()
    client.send(fetch_frame(12, [Ask(topic)], max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    assert rig.hot.statistics()["fetch_requests"] == 1
    assert produce_one(rig.client(), topic, BATCH).error == 0
    assert fetched_in(12, client.receive()).only.records


def test_a_processor_waits_for_no_roll(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(handlers=4)
    rolling, other = rig.create("rolling"), rig.create("other")
    for topic in (rolling, other):
        topic.logs[0].append(BATCH)
    stuck, neighbour = rig.client(), rig.client()
    eventually(lambda: is_served_by_a_processor(rig, stuck, [Ask(rolling)]), "at once")
    with FileFaults(Fault(("open",), "rolling-0", delay_ms=ROLL_MS)) as faults:
        roll = threading.Thread(target=rolling.logs[0].roll)
        roll.start()
        eventually(lambda: any(seen.operation == "open" for seen in faults.look()), "it rolls")
        stuck.send(fetch_frame(12, [Ask(rolling)]))
        stuck.all_delivered()
        for _ in range(20):
            assert fetch(neighbour, 12, [Ask(other)]).only.records
        assert roll.is_alive(), "the neighbour waited for another partition's roll"
        assert fetched_in(12, stuck.receive()).only.records
        roll.join()


def test_processors_that_come_later_do_so_too(rig: Rig) -> None:
    topic = rig.create("t")
    topic.logs[0].append(BATCH)
    rig.server.resize(2)
    rig.hot.cover_processors()
    for client in (rig.client(), rig.client()):  # acceptors take turns
        eventually(lambda c=client: is_served_by_a_processor(rig, c, [Ask(topic)]), "at once")


def test_others_do_not_wait_for_the_headers_of_a_segment(
    make_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    """Of one that was there at the start: they are read before its bytes are sent for the first
    time, and those of 50 MB take 30 ms."""
    topic_id = uuid4()
    written = open_led_log(tmp_path / "old-0", "old", 0, topic_id, {})
    written.set_leadership(NODE_ID, True, 0, 1)
    for _ in range(2_000):
        written.append(BATCH)
    end = written.log_end_offset
    written.close(clean=True)
    rig = make_rig(handlers=4)
    small = rig.create("small")
    small.logs[0].append(BATCH)
    log = open_led_log(
        tmp_path / "old-0", "old", 0, topic_id, {},
        Checkpointed(clean=True, recovery_point=end, high_watermark=end),
    )  # fmt: skip
    log.set_leadership(NODE_ID, True, 0, 1)
    old = rig.topics["old"] = Topic("old", topic_id, [log])
    rig.table.publish([("old", topic_id.bytes, False, [log])], [])
    reader, neighbour = rig.client(), rig.client()
    with FileFaults(Fault(("read", "read_now"), "old-0/", nth=20, hangs=True)) as faults:
        reader.send(fetch_frame(12, [Ask(old)]))
        eventually(lambda: faults.hung == 1, "the headers are being read")
        for _ in range(20):
            assert fetch(neighbour, 12, [Ask(small)]).only.records
        assert faults.let_go() == 1
        records = fetched_in(12, reader.receive()).only.records
    assert records is not None and len(records) == 2_000 * len(BATCH)
