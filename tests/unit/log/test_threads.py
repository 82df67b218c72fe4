"""Appends, reads, searches, flushes and rolls at once: every answer is right at its moment."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from kbroker.errors import ErrorCode, KafkaError
from tests.support.record_batches import Record, build_batch, parse_batches
from tests.unit.log.conftest import OpenLog

GROUPS = 120
TRIMMED_GROUPS = 400


def test_all_at_once(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=30_000, index_interval_bytes=500)
    rng = random.Random(1)
    batches = [
        build_batch(
            [
                Record(b"x" * rng.randint(1, 300), timestamp_ms=rng.randint(0, 10**6))
                for _ in range(rng.randint(1, 5))
            ]
        )
        for _ in range(100)
    ]
    log.append(batches[0])
    done = threading.Event()
    failures: list[BaseException] = []
    offsets: list[int] = []

    def until_done(turn: Callable[[random.Random], None], seed: int) -> None:
        mine = random.Random(seed)
        try:
            while not done.is_set():
                turn(mine)
        except BaseException as error:
            failures.append(error)

    def append(seed: int) -> None:
        mine = random.Random(seed)
        for _ in range(GROUPS):
            results = log.append_group(mine.sample(batches, 6))
            assert all(result.error == 0 for result in results)
            offsets.extend(result.base_offset for result in results)

    def read(mine: random.Random) -> None:
        end = log.high_watermark
        offset = mine.randrange(max(0, end - 500) if mine.random() < 0.5 else 0, end)
        found = parse_batches(log.read(offset, mine.choice([1, 1_000, 50_000])))
        assert found[0].base_offset <= offset <= found[0].last_offset
        assert log.readable_bytes(offset, 1 << 40) > 0

    def search(mine: random.Random) -> None:
        wanted = mine.randint(0, 10**6)
        found = log.offset_for_time(wanted)
        assert found is None or found[1] >= wanted
        assert log.offset_of_max_timestamp() is not None

    def tidy(mine: random.Random) -> None:
        log.flush(active=mine.random() < 0.5)
        log.write_snapshot()
        assert log.statistics()["size_bytes"] > 0
        log.roll()

    appenders = [threading.Thread(target=append, args=(seed,)) for seed in (2, 3)]
    others = [
        threading.Thread(target=until_done, args=(turn, seed))
        for seed, turn in enumerate((read, read, search, tidy))
    ]
    for thread in (*others, *appenders):
        thread.start()
    for thread in appenders:
        thread.join()
    done.set()
    for thread in others:
        thread.join()
    assert failures == []
    assert len(set(offsets)) == len(offsets) == 2 * GROUPS * 6
    offset = 0
    while data := log.read(offset):
        for batch in parse_batches(data):
            assert batch.base_offset == offset
            offset = batch.last_offset + 1
    assert offset == log.log_end_offset


def test_records_are_deleted_under_readers_and_writers(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=4_000, index_interval_bytes=300)
    batch = build_batch([Record(b"x" * 100, timestamp_ms=n) for n in range(3)])
    log.append(batch)
    done = threading.Event()
    failures: list[BaseException] = []

    def until_done(turn: Callable[[random.Random], None], seed: int) -> None:
        mine = random.Random(seed)
        try:
            while not done.is_set():
                turn(mine)
        except BaseException as error:
            failures.append(error)
            done.set()

    def read(mine: random.Random) -> None:
        start = log.log_start_offset
        offset = mine.randint(max(0, start - 5), log.high_watermark)
        try:
            lent = log.borrow(offset, mine.choice([1, 1_000, 50_000]))
        except KafkaError as error:
            # Below where the start is by now, which is at or after where it was.
            assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
            assert offset < log.log_start_offset
            return
        found = parse_batches(lent.read())
        lent.release()
        assert not found or found[0].base_offset <= offset <= found[0].last_offset
        log.readable_bytes(offset, 1 << 40)

    def search(mine: random.Random) -> None:
        start = log.log_start_offset
        found = log.offset_for_time(mine.randint(0, 2))
        assert found is None or found[0] >= start

    def delete(mine: random.Random) -> None:
        before = log.log_start_offset
        try:
            after = log.delete_records(mine.randint(before, log.high_watermark + 1))
        except KafkaError as error:
            assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            assert before <= after <= log.log_start_offset

    def trim(mine: random.Random) -> None:
        for path in log.trim():
            path.unlink()
        log.flush(active=mine.random() < 0.5)

    threads = [
        threading.Thread(target=until_done, args=(turn, seed))
        for seed, turn in enumerate((read, read, search, delete, trim))
    ]
    for thread in threads:
        thread.start()
    for _ in range(TRIMMED_GROUPS):
        if done.is_set():
            break
        assert all(result.error == 0 for result in log.append_group([batch] * 3))
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    start, end = log.log_start_offset, log.log_end_offset
    assert end == (TRIMMED_GROUPS * 3 + 1) * 3
    log.trim()
    offset = start
    while data := log.read(offset):
        offset = parse_batches(data)[-1].last_offset + 1
    assert offset == end
    bases = sorted(int(path.stem) for path in log.path.glob("*.log"))
    assert bases[0] <= start and all(base > start for base in bases[1:])
