"""One replica that leads and follows by turns, beside all who read, search and tidy it.

`make test-tsan` and `make test-asan` run this, too: a follower's appends, the bounds that it gets,
cuts of its log, and the followers of a leader come from threads of their own, as they will in a
cluster.
"""

from __future__ import annotations

import contextlib
import random
import struct
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.opening.loader import Checkpointed
from kbroker.replica import _partition_figures
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import Record, build_batch, parse_batches

LEADER, FOLLOWER = 1, 2
TERMS = 12
PIECES = 4
TIMES_MS = 10**6
SETTINGS = (
    {"segment_bytes": 6_000, "index_interval_bytes": 300},
    {"segment_bytes": 20_000, "index_interval_bytes": 100, "flush_messages": 20},
)
# The errors of a reader whose replica has been cut, or does not lead at the moment.
NOT_NOW = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE)

Turn = Callable[[random.Random], object]


def batch_of(mine: random.Random) -> bytes:
    """Each is of another size, so that nothing lies where something else lay."""
    records = [
        Record(b"x" * mine.randint(1, 900), timestamp_ms=mine.randint(0, TIMES_MS))
        for _ in range(mine.randint(1, 4))
    ]
    return build_batch(records)


def as_sent_by_a_leader(mine: random.Random, offset: int, epoch: int) -> bytes:
    sent = b""
    for _ in range(mine.randint(1, 6)):
        batch = batch_of(mine)
        sent += struct.pack(">q", offset) + batch[8:12] + struct.pack(">i", epoch) + batch[16:]
        offset += parse_batches(batch, records=False)[0].record_count
    return sent


def test_leading_and_following_beside_readers(tmp_path: Path) -> None:
    log = open_led_log(tmp_path / "words-0", "words", 0, uuid.UUID(int=1), SETTINGS[0])
    log.set_leadership(LEADER, True, 0, 1)
    log.append(batch_of(random.Random(0)))
    done = threading.Event()
    failures: list[BaseException] = []

    def until_done(turn: Turn, seed: int) -> None:
        mine = random.Random(seed)
        try:
            while not done.wait(0.001):  # or the one who lives has no turn
                turn(mine)
        except BaseException as error:
            failures.append(error)
            done.set()

    threads = [
        threading.Thread(target=until_done, args=each)
        for each in zip(who_looks(log), range(10, 100), strict=False)
    ]
    for thread in threads:
        thread.start()
    try:
        epoch = live(log, done)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    log.flush()  # `flush.messages` may hold the high watermark back
    log.set_leadership(LEADER, True, epoch + 1, 1)
    log.trim()
    left = whole(log)
    epochs = log.epochs.entries
    starts = Checkpointed(log_start_offset=log.log_start_offset)
    log.close(clean=False)
    again = open_led_log(tmp_path / "words-0", "words", 0, uuid.UUID(int=1), SETTINGS[0], starts)
    again.set_leadership(LEADER, True, epoch + 1, 1)
    assert (whole(again), again.epochs.entries) == (left, epochs)
    again.close()


def live(log: LedLog, done: threading.Event) -> int:
    """Term after term: as leader, then as follower of another one that has less; the last epoch."""
    mine = random.Random(1)
    epoch = 0
    for _ in range(TERMS):
        epoch += 1
        for in_sync in (True, False, True):
            log.set_leadership(LEADER, True, epoch, 1 + in_sync, {FOLLOWER: in_sync})
            for _ in range(PIECES):
                log.append_group([batch_of(mine) for _ in range(3)])
        epoch += 1
        log.set_leadership(FOLLOWER, False, epoch, 2)
        log.truncate_to(mine.randint(log.log_start_offset, log.log_end_offset))
        for _ in range(3 * PIECES):
            end = log.append_as_follower(
                as_sent_by_a_leader(mine, log.log_end_offset, epoch), epoch
            )
            log.follow_bounds(epoch, end - mine.randint(0, 5), max(0, end - 200))
        if done.is_set():
            break
    return epoch


def whole(log: LedLog) -> list[tuple[int, int]]:
    """(base offset, epoch) of every batch; no offset is missing between them."""
    found: list[tuple[int, int]] = []
    offset = log.log_start_offset
    while data := log.read(offset):
        for batch in parse_batches(data):
            assert batch.base_offset == offset or not found
            found.append((batch.base_offset, batch.leader_epoch))
            offset = batch.last_offset + 1
    assert offset == log.log_end_offset == log.high_watermark
    return found


def who_looks(log: LedLog) -> list[Turn]:
    """What others do meanwhile, each in a thread of its own."""

    def lead(mine: random.Random) -> None:
        for result in log.append_group([batch_of(mine)]):
            assert result.error in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def fetch_as_follower(mine: random.Random) -> None:
        offset = log.log_end_offset - mine.randint(0, 3)
        with contextlib.suppress(KafkaError):
            log.note_fetch(FOLLOWER, offset, 1)
        assert all(broker == FOLLOWER for broker, *_ in log.followers())

    def read(mine: random.Random) -> None:
        offset = mine.randint(log.log_start_offset, max(log.log_start_offset, log.high_watermark))
        try:
            lent = log.borrow(offset, mine.choice([1, 1_000, 50_000]))
        except KafkaError as error:
            assert error.code in NOT_NOW
            return
        data = lent.read()
        found = parse_batches(data)
        assert not found or found[0].base_offset <= offset <= found[0].last_offset
        log.readable_bytes(offset, 1 << 40)
        assert lent.read() == data  # whatever has become of the log
        lent.release()

    def search(mine: random.Random) -> None:
        wanted = mine.randint(0, TIMES_MS)
        found = log.offset_for_time(wanted)
        assert found is None or found[1] >= wanted
        log.offset_of_max_timestamp()

    def change(mine: random.Random) -> None:
        log.configure(**mine.choice(SETTINGS))

    def tidy(mine: random.Random) -> None:
        log.flush(active=mine.random() < 0.5)
        for path in log.trim():
            path.unlink(missing_ok=True)

    def look(_: random.Random) -> None:
        (figures,) = _partition_figures.read([log])
        assert figures.log_start_offset <= figures.log_end_offset
        assert log.online and log.log.online
        assert log.leader_epoch >= 0
        log.statistics()
        log.encode_producers()

    def delete(mine: random.Random) -> None:
        try:
            log.delete_records(max(0, log.high_watermark - mine.randint(50, 400)))
        except KafkaError as error:
            assert error.code in NOT_NOW

    return [lead, fetch_as_follower, read, read, search, change, tidy, look, delete]
