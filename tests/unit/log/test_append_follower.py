"""What a leader sent, appended as it is: offsets, epochs, bytes; and what is refused of it."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kbroker import limits
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine.producer_snapshots import decode, framed
from kbroker.log.looking._tools import crc32c
from kbroker.testing.file_faults import Fault, FileFaults
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import build_batch, parse_batches, seal
from tests.unit.log.conftest import OpenLog

EPOCH = 5
CONTROL = 0x20
AT_CRC = 17
AT_ATTRIBUTES = 21
AT_PRODUCER_ID = 43


def stored(
    offset: int, values: Iterable[bytes] = (b"v",), epoch: int = EPOCH, **batch: int
) -> bytes:
    """A batch as it is in a leader's log."""
    sent = build_batch(list(values), **batch)  # type: ignore[arg-type]
    return struct.pack(">q", offset) + sent[8:12] + struct.pack(">i", epoch) + sent[16:]


def following(open_log: OpenLog, **settings: int) -> LedLog:
    log = open_log(lead=False, **settings)
    log.set_leadership(2, False, EPOCH, 2)
    return log


def bytes_of(log: LedLog) -> bytes:
    return b"".join(
        path.read_bytes() for path in sorted(log.path.iterdir()) if path.suffix == ".log"
    )


def refused(log: LedLog, data: bytes, epoch: int = EPOCH) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(data, epoch)
    return caught.value.code


def test_bytes_offsets_and_epochs_are_the_leaders(open_log: OpenLog) -> None:
    log = following(open_log)
    sent = stored(0, [b"a", b"b"], 3) + stored(2, [b"c"], 3) + stored(3, [b"d"], 5)
    assert log.append_as_follower(sent, EPOCH) == log.log_end_offset == 4
    assert bytes_of(log) == sent
    assert log.epochs.entries == [(3, 0), (5, 3)]
    statistics = log.statistics()
    assert statistics["writes"] == 2  # one for each epoch
    assert (statistics["appended_bytes"], statistics["replicated_bytes"]) == (0, len(sent))


def test_nothing_is_readable_before_the_leader_says_so(open_log: OpenLog) -> None:
    log = following(open_log)
    log.append_as_follower(stored(0) + stored(1) + stored(2), EPOCH)
    assert log.high_watermark == 0
    log.follow_bounds(EPOCH, 2, 0)
    assert log.high_watermark == 2
    log.follow_bounds(EPOCH, 9, 1)
    assert (log.high_watermark, log.log_start_offset) == (3, 1)
    log.follow_bounds(EPOCH, 1, 0)  # a new leader may know less for a while
    assert (log.high_watermark, log.log_start_offset) == (3, 1)
    log.follow_bounds(EPOCH, 9, 7)
    assert log.log_start_offset == 3


def test_a_batch_that_is_cut_off_at_the_end_is_left_out(open_log: OpenLog) -> None:
    whole, cut = stored(0, [b"first"]), stored(1, [b"second"])
    log = following(open_log)
    for size in range(len(cut)):
        assert log.append_as_follower(whole * (size == 0) + cut[:size], EPOCH) == 1
    assert log.append_as_follower(cut, EPOCH) == 2
    assert log.append_as_follower(b"", EPOCH) == 2
    assert bytes_of(log) == whole + cut


def test_gaps_stay_and_readers_step_over_them(open_log: OpenLog) -> None:
    """A compacted leader's log has no batch at some offsets."""
    log = following(open_log, index_interval_bytes=0)
    for sent in (stored(0), stored(10), stored(11) + stored(40), stored(41)):
        log.append_as_follower(sent, EPOCH)
    log.follow_bounds(EPOCH, 42, 0)
    log.set_leadership(1, True, EPOCH + 1, 1)
    expected = {0: 0, 1: 10, 9: 10, 10: 10, 11: 11, 12: 40, 40: 40, 41: 41}
    for offset, base_offset in expected.items():
        for _ in range(2):  # as looked up, and as noted then
            assert parse_batches(log.read(offset, 1))[0].base_offset == base_offset, offset
    assert log.append(build_batch()).base_offset == 42


def test_segments_roll_by_size_and_all_is_there_after_a_restart(open_log: OpenLog) -> None:
    settings = {"segment_bytes": 300, "index_interval_bytes": 0}
    log = following(open_log, **settings)
    sent = [stored(n, [b"%06d" % n]) for n in range(40)]
    for at in range(0, 40, 8):
        log.append_as_follower(b"".join(sent[at : at + 8]), EPOCH)
    assert bytes_of(log) == b"".join(sent)
    assert log.statistics()["segments"] > 5
    log.close(clean=False)
    again = open_log(lead=False, **settings)
    assert (again.log_end_offset, again.epochs.entries) == (40, [(EPOCH, 0)])


def test_an_offset_too_far_for_a_segment_begins_one(open_log: OpenLog) -> None:
    far = 1 << 32
    log = following(open_log)
    log.append_as_follower(stored(0) + stored(far) + stored(far + 1), EPOCH)
    assert log.log_end_offset == far + 2
    names = sorted(path.name for path in log.path.iterdir() if path.suffix == ".log")
    assert names == [f"{0:020d}.log", f"{far:020d}.log"]
    log.close(clean=False)
    again = open_log(lead=False, high_watermark=far + 2)
    again.set_leadership(1, True, EPOCH + 1, 1)
    assert again.log_end_offset == far + 2
    assert parse_batches(again.read(1))[0].base_offset == far


def test_an_empty_log_begins_at_such_an_offset(open_log: OpenLog) -> None:
    far = 1 << 32
    log = following(open_log)
    log.append_as_follower(stored(far), EPOCH)
    assert (log.log_start_offset, log.log_end_offset) == (far, far + 1)


def test_producers_are_known_when_it_leads(open_log: OpenLog) -> None:
    log = following(open_log)
    for sequence in range(3):
        log.append_as_follower(
            stored(sequence, producer_id=9, producer_epoch=1, base_sequence=sequence), EPOCH
        )
    log.follow_bounds(EPOCH, 3, 0)
    log.set_leadership(1, True, EPOCH + 1, 1)
    again = build_batch(producer_id=9, producer_epoch=1, base_sequence=2)
    assert log.append(again).base_offset == 2
    following_one = build_batch(producer_id=9, producer_epoch=1, base_sequence=3)
    assert log.append(following_one).base_offset == 3


def test_a_marker_is_no_producers_batch(open_log: OpenLog) -> None:
    log = following(open_log)
    marker = bytearray(stored(0, producer_id=9, producer_epoch=0, base_sequence=-1))
    marker[AT_ATTRIBUTES + 1] |= CONTROL
    log.append_as_follower(
        struct.pack(">q", 0) + seal(bytes(marker))[8:12] + struct.pack(">i", EPOCH)
        + seal(bytes(marker))[16:],
        EPOCH,
    )  # fmt: skip
    assert log.log_end_offset == 1
    assert log.producer_entries() == (1, [])


@pytest.mark.parametrize(
    ("data", "code"),
    {
        "an offset that the log has": (stored(1), ErrorCode.OFFSET_OUT_OF_RANGE),
        "an epoch older than the log's": (stored(2, epoch=4), ErrorCode.CORRUPT_MESSAGE),
        "a wrong CRC": (stored(2)[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        "no batch": (bytes(80), ErrorCode.CORRUPT_MESSAGE),
    }.values(),
)  # fmt: skip
def test_a_refused_batch_changes_nothing(open_log: OpenLog, data: bytes, code: ErrorCode) -> None:
    log = following(open_log)
    log.append_as_follower(stored(0) + stored(1), EPOCH)
    before = bytes_of(log)
    assert refused(log, data) is code
    assert (bytes_of(log), log.log_end_offset) == (before, 2)
    assert log.append_as_follower(stored(2), EPOCH) == 3


@pytest.mark.parametrize(
    ("name", "wrong"),
    {
        "a wrong CRC": stored(3)[:-1] + b"?",
        "no batch": bytes(80),
        "an epoch that goes back": stored(3, epoch=EPOCH - 1),
        "an offset that goes back": stored(1),
    }.items(),
)
def test_sound_batches_before_it_are_appended(open_log: OpenLog, name: str, wrong: bytes) -> None:
    """A leader sends what it has from the follower's end on: a batch that it cannot send in another
    way must not keep those before it away."""
    log = following(open_log)
    log.append_as_follower(stored(0) + stored(1), EPOCH)
    assert log.append_as_follower(stored(2) + wrong + stored(4), EPOCH) == 3
    refused(log, wrong + stored(4))
    assert log.log_end_offset == 3
    assert log.append_as_follower(stored(3), EPOCH) == 4


def test_a_producer_that_a_write_has_changed_is_not_evicted_by_it(open_log: OpenLog) -> None:
    """One answer may have more producers than a partition knows. If it cannot be written they are
    what they were before."""
    most, transactional = limits.PRODUCERS_MAX, 0x10
    log = following(open_log, segment_bytes=1 << 30)
    template = stored(0, attributes=transactional, producer_epoch=0, base_sequence=0)

    def batches(first_id: int, start: int, count: int, attributes: int) -> bytes:
        found = bytearray()
        for at in range(count):
            struct.pack_into(">h", data := bytearray(template), AT_ATTRIBUTES, attributes)
            struct.pack_into(">q", data, AT_PRODUCER_ID, first_id + at)
            struct.pack_into(">q", data, 0, start + at)
            struct.pack_into(">I", data, AT_CRC, crc32c(bytes(data[AT_ATTRIBUTES:])))
            found += data
        return bytes(found)

    log.append_as_follower(batches(0, 0, most - 1, transactional), EPOCH)
    log.append_as_follower(batches(most, most - 1, 1, 0), EPOCH)
    before = log.producer_entries()
    again = batches(most, most, 1, 0)
    # Of the oldest 16 are looked at by each new one: after so many it is one of this write.
    others = batches(2 * most, most + 1, most // 16 + 100, 0)
    with FileFaults(Fault(("write",), ".log", error=errno.ENOSPC)):
        assert refused(log, again + others) is ErrorCode.KAFKA_STORAGE_ERROR
    end, entries = log.producer_entries()
    assert (end, len(entries)) == (before[0], most)
    assert sorted(entries) == sorted(before[1])
    assert log.append_as_follower(again + others, EPOCH) == most + 1 + most // 16 + 100


def test_only_the_leader_of_its_epoch_is_followed(open_log: OpenLog) -> None:
    log = following(open_log)
    assert refused(log, stored(0), EPOCH - 1) is ErrorCode.FENCED_LEADER_EPOCH
    assert refused(log, stored(0), EPOCH + 1) is ErrorCode.UNKNOWN_LEADER_EPOCH
    log.set_leadership(1, True, EPOCH + 1, 1)
    assert refused(log, stored(0), EPOCH + 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError):
        log.follow_bounds(EPOCH + 1, 0, 0)
    assert log.log_end_offset == 0


def known(log: LedLog) -> tuple[int, list[Any]]:
    """With every batch that a retry is compared with."""
    end, entries = log.producer_snapshot()
    return end, sorted(decode(framed(entries)))


@pytest.mark.parametrize("seed", range(40))
def test_one_write_with_many_batches_of_a_producer_or_none_of_it(
    open_log: OpenLog, tmp_path: Path, seed: int
) -> None:
    """Idempotent batches, transactions that go on, end and begin again, and other epochs, in one
    write: what is known of the producers is what the leader knows, or what it was before."""
    dice = Random(seed)
    leader = open_led_log(tmp_path / "leader-0", "leader", 0, UUID(int=1), {})
    leader.set_leadership(1, True, EPOCH, 1)
    log = following(open_log)
    sequences: dict[int, int] = {}
    epochs = dict.fromkeys(range(4), 0)
    half = 0
    for step in range(24):
        if step == 12:
            half = len(bytes_of(leader))
        producer = dice.randrange(4)
        if producer > 1 and producer in sequences and dice.random() < 0.3:
            leader.append_marker(
                producer, epochs[producer], 0, committed=dice.random() < 0.5,
                transaction_version=1, now_ms=1,
            )  # fmt: skip
            continue
        if dice.random() < 0.1:
            epochs[producer] += 1
            sequences[producer] = 0
        sequence = sequences.setdefault(producer, 0)
        sequences[producer] += 1
        batch = build_batch(
            [b"v"], producer_id=producer, producer_epoch=epochs[producer], base_sequence=sequence,
            attributes=0x10 if producer > 1 else 0,
        )  # fmt: skip
        try:
            leader.append(batch, guard=-1, now_ms=1)
        except KafkaError:
            sequences[producer] -= 1
    sent = bytes_of(leader)
    log.append_as_follower(sent[:half], EPOCH)
    before = known(log)
    with FileFaults(Fault(("write",), ".log", error=errno.ENOSPC)):
        assert refused(log, sent[half:]) is ErrorCode.KAFKA_STORAGE_ERROR
    assert known(log) == before
    assert log.append_as_follower(sent[half:], EPOCH) == leader.log_end_offset
    assert known(log) == known(leader)
    leader.close(clean=True)


@pytest.mark.parametrize("bytes_max", [-1, 30])
def test_a_write_that_fails_is_as_if_it_had_not_been(open_log: OpenLog, bytes_max: int) -> None:
    log = following(open_log, segment_bytes=300)
    log.append_as_follower(stored(0), EPOCH)

    def sent(start: int) -> bytes:
        return b"".join(
            stored(n, [b"%06d" % n], base_sequence=n - 1, producer_id=9) for n in range(start, 12)
        )

    with FileFaults(Fault(("write",), nth=2, error=errno.ENOSPC, bytes_max=bytes_max)):
        assert refused(log, sent(1)) is ErrorCode.KAFKA_STORAGE_ERROR
    written = log.log_end_offset
    assert 1 < written < 12  # the first of several segments
    assert [each.base_offset for each in parse_batches(bytes_of(log))] == list(range(written))
    assert log.append_as_follower(sent(written), EPOCH) == 12
    assert bytes_of(log) == stored(0) + sent(1)
