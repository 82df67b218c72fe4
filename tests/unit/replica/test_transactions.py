"""Transactions of one partition: markers, guards, the last stable offset, the aborted ones."""

from __future__ import annotations

import errno
import struct
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.log.engine.producer_snapshots import decode, framed
from kbroker.log.opening.loader import Checkpointed
from kbroker.replica._committed_read import aborted_transactions
from kbroker.testing.file_faults import Fault, FileFaults
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import Record, build_batch, parse_batches, seal, varint
from tests.support.snapshots import packed
from tests.unit.log.conftest import TOPIC_ID, OpenLog

TRANSACTIONAL = 0x10
NOW_MS = 1_700_000_000_000
MARKER_BYTES = 78


@pytest.fixture
def log(open_log: OpenLog) -> LedLog:
    return open_log()


@dataclass
class Written:
    """Aborted transactions (producer, first offset, marker), open ones, sequences."""

    aborted: list[tuple[int, int, int]]
    open: dict[int, int]
    sequences: dict[int, int]


def batch(
    producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1, transactional: bool = True
) -> bytes:
    return build_batch(
        [Record(value=b"v", timestamp_ms=NOW_MS)] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL if transactional else 0,
    )


def plain(count: int = 1) -> bytes:
    return build_batch([Record(value=b"v", timestamp_ms=NOW_MS)] * count)


def append(log: LedLog, data: bytes, *, guard: int = -1) -> int:
    return log.append(data, guard=guard, now_ms=NOW_MS).base_offset


def refused(log: LedLog, data: bytes, *, guard: int = -1) -> int:
    return log.append_group([data], guard=guard, now_ms=NOW_MS)[0].error


def end(
    log: LedLog,
    producer_id: int,
    *,
    epoch: int = 0,
    committed: bool = True,
    version: int = 0,
    coordinator_epoch: int = 0,
) -> ErrorCode:
    return log.append_marker(
        producer_id, epoch, coordinator_epoch, committed=committed, transaction_version=version,
        now_ms=NOW_MS,
    ).error  # fmt: skip


def entry(log: LedLog, producer_id: int) -> tuple[int, ...]:
    """Epoch, last sequence, coordinator epoch, first offset of the open transaction."""
    (found,) = (each for each in log.producer_entries()[1] if each.producer_id == producer_id)
    return (
        found.producer_epoch,
        found.last_sequence,
        found.coordinator_epoch,
        found.transaction_first_offset,
    )


def index_of(log: LedLog, base_offset: int = 0) -> list[tuple[int, ...]]:
    path = log.path / f"{base_offset:020d}.txnindex"
    data = path.read_bytes() if path.exists() else b""
    return [each for each in struct.iter_unpack(">hqqqq", data)]


def test_an_open_transaction_holds_the_last_stable_offset(log: LedLog) -> None:
    append(log, plain())
    assert append(log, batch(7, 0, count=2)) == 1
    append(log, plain())
    assert (log.high_watermark, log.last_stable_offset) == (4, 1)
    assert [each.base_offset for each in parse_batches(log.read(0, read_committed=True))] == [0]
    append(log, batch(8, 0))
    assert end(log, 7) is ErrorCode.NONE
    assert log.last_stable_offset == 4
    assert entry(log, 7) == (0, 1, 0, -1)
    assert entry(log, 8) == (0, 0, -1, 4)
    assert end(log, 8, committed=False) is ErrorCode.NONE
    assert log.last_stable_offset == log.high_watermark == log.log_end_offset == 7
    assert index_of(log) == [(0, 8, 4, 6, 7)]
    assert aborted_transactions(log, 0) == [(8, 4)]
    assert aborted_transactions(log, 6) == [(8, 4)]


def test_a_marker_without_data_is_in_no_index(log: LedLog) -> None:
    assert end(log, 7, committed=False) is ErrorCode.NONE
    assert index_of(log) == []
    assert aborted_transactions(log, 0) == []
    assert log.last_stable_offset == 1


def test_markers_of_the_first_versions(log: LedLog) -> None:
    append(log, batch(7, 0, epoch=3))
    assert end(log, 7, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(log, 7, epoch=3, coordinator_epoch=4) is ErrorCode.NONE
    assert end(log, 7, epoch=3, coordinator_epoch=3) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert end(log, 7, epoch=3, coordinator_epoch=4) is ErrorCode.NONE
    assert entry(log, 7) == (3, 0, 4, -1)
    assert end(log, 7, epoch=5, coordinator_epoch=4) is ErrorCode.NONE
    assert entry(log, 7) == (5, -1, 4, -1)


def test_a_marker_with_unknown_epochs(log: LedLog) -> None:
    """Of a producer that is not known here both are -1."""
    assert end(log, 7, epoch=-2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(log, 7, coordinator_epoch=-2) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.producer_entries() == (0, [])
    assert end(log, 7, coordinator_epoch=-1) is ErrorCode.NONE


def test_markers_with_an_epoch_for_each_transaction(log: LedLog) -> None:
    append(log, batch(7, 0, epoch=3))
    assert end(log, 7, epoch=3, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(log, 7, epoch=4, version=2) is ErrorCode.NONE
    assert end(log, 7, epoch=4, version=2) is ErrorCode.NONE  # its answer was lost
    assert end(log, 7, epoch=3, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert entry(log, 7) == (4, -1, 0, -1)
    assert refused(log, batch(7, 1, epoch=3)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, batch(7, 1, epoch=4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, batch(7, 0, epoch=4)) == 3
    assert end(log, 7, epoch=32767, version=2) is ErrorCode.NONE


def test_a_plain_batch_in_a_transaction(log: LedLog) -> None:
    append(log, batch(7, 0))
    assert refused(log, batch(7, 1, transactional=False)) == ErrorCode.INVALID_TXN_STATE
    assert append(log, batch(7, 1)) == 1
    end(log, 7)
    assert append(log, batch(7, 2, transactional=False)) == 3


def test_a_batch_needs_a_guard(log: LedLog) -> None:
    assert refused(log, batch(7, 0), guard=0) == ErrorCode.INVALID_TXN_STATE
    code, guard = log.begin_verification(7, 0, 0, bumps_epoch=False)
    assert code is ErrorCode.NONE and guard > 0
    assert log.begin_verification(7, 0, 0, bumps_epoch=False) == (ErrorCode.NONE, guard)
    assert refused(log, batch(7, 0), guard=guard + 1) == ErrorCode.INVALID_TXN_STATE
    assert append(log, batch(7, 0), guard=guard) == 0
    assert log.begin_verification(7, 0, 1, bumps_epoch=False) == (ErrorCode.NONE, 0)
    assert append(log, batch(7, 1), guard=0) == 1
    end(log, 7)
    # A duplicate is one before anything is verified.
    assert log.begin_verification(7, 0, 1, bumps_epoch=False) == (ErrorCode.NONE, 0)
    assert append(log, batch(7, 1), guard=0) == 1
    assert refused(log, batch(7, 2), guard=guard) == ErrorCode.INVALID_TXN_STATE


def test_a_guard_does_not_outlive_a_marker(log: LedLog) -> None:
    _, guard = log.begin_verification(7, 0, 0, bumps_epoch=False)
    end(log, 7, committed=False)
    assert refused(log, batch(7, 0), guard=guard) == ErrorCode.INVALID_TXN_STATE
    _, again = log.begin_verification(7, 0, 0, bumps_epoch=False)
    assert again not in (0, guard)
    assert refused(log, batch(7, 0), guard=guard) == ErrorCode.INVALID_TXN_STATE
    append(log, batch(7, 0), guard=again)


def test_a_marker_leaves_the_guard_of_the_transaction_after_it(log: LedLog) -> None:
    append(log, batch(7, 0, epoch=0))
    _, guard = log.begin_verification(7, 1, 0, bumps_epoch=True)
    end(log, 7, epoch=1, version=2)
    append(log, batch(7, 0, epoch=1), guard=guard)
    _, guard = log.begin_verification(7, 2, 0, bumps_epoch=True)
    end(log, 7, epoch=3, version=2)
    assert log.begin_verification(7, 2, 0, bumps_epoch=True)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, batch(7, 0, epoch=2), guard=guard) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_does_not_pass_one_that_waits(log: LedLog) -> None:
    _, guard = log.begin_verification(7, 0, 0, bumps_epoch=False)
    log.begin_verification(7, 0, 1, bumps_epoch=False)
    assert refused(log, batch(7, 1), guard=guard) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, batch(7, 0), guard=guard)
    append(log, batch(7, 1), guard=guard)


def test_a_write_that_fails_leaves_the_guard(log: LedLog) -> None:
    _, guard = log.begin_verification(7, 0, 0, bumps_epoch=False)
    full = Fault(("write",), ".log", times=2, error=errno.ENOSPC)
    with FileFaults(full):
        assert refused(log, batch(7, 0), guard=guard) == ErrorCode.KAFKA_STORAGE_ERROR
        assert end(log, 7) is ErrorCode.KAFKA_STORAGE_ERROR
    assert append(log, batch(7, 0), guard=guard) == 0
    end(log, 7)
    assert refused(log, batch(7, 1), guard=guard) == ErrorCode.INVALID_TXN_STATE


def test_a_batch_that_comes_while_the_first_is_written(log: LedLog) -> None:
    """The write may fail: then it is not one without a transaction, which would end its producer,
    but one whose verification lasts."""
    _, guard = log.begin_verification(7, 0, 0, bumps_epoch=False)
    meanwhile = []

    def before(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log"):
            for sequence in (1, 0):  # the second is the same batch, from another connection
                meanwhile.append(log.begin_verification(7, 0, sequence, bumps_epoch=False))

    with FileFaults(Fault(("write",), ".log", error=errno.ENOSPC), before=before):
        assert refused(log, batch(7, 0), guard=guard) == ErrorCode.KAFKA_STORAGE_ERROR
    assert meanwhile == [(ErrorCode.NONE, guard)] * 2
    assert refused(log, batch(7, 1), guard=guard) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, batch(7, 0), guard=guard) == 0
    assert append(log, batch(7, 1), guard=guard) == 1


def test_guards_have_a_bound(log: LedLog) -> None:
    """A batch whose transaction cannot be verified now is one that its producer sends again."""

    def begun(producer_id: int) -> tuple[ErrorCode, int]:
        return log.begin_verification(producer_id, 0, 0, bumps_epoch=False)

    def let_go(producer_id: int) -> None:
        log.end_verification(producer_id, guards[producer_id], refused=False)

    most = 10_000
    guards = [begun(producer_id)[1] for producer_id in range(most)]
    assert len({*guards, 0}) == most + 1
    full = (ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    assert begun(most) == full
    assert begun(1) == (ErrorCode.NONE, guards[1])  # two requests have batches of it now
    assert append(log, batch(5, 0), guard=guards[5]) == 0
    assert begun(most)[0] is ErrorCode.NONE
    assert begun(most + 1) == full
    for producer_id in (1, 2, 0, 3):
        let_go(producer_id)
    assert begun(0) == (ErrorCode.NONE, guards[0])  # its batch comes again
    # Of those that nothing waits for that of 2 is the oldest, and gives way, then that of 3.
    for fresh in (most + 1, most + 2):
        assert begun(fresh)[0] is ErrorCode.NONE
    assert begun(most + 3) == full
    for gone in (2, 3):
        assert refused(log, batch(gone, 0), guard=guards[gone]) == ErrorCode.INVALID_TXN_STATE
    assert append(log, batch(0, 0), guard=guards[0]) == 1
    assert append(log, batch(1, 0), guard=guards[1]) == 2


def test_a_verification_that_was_refused_goes_with_its_last_request(log: LedLog) -> None:
    _, guard = log.begin_verification(7, 0, 0, bumps_epoch=False)
    assert log.begin_verification(7, 0, 0, bumps_epoch=False)[1] == guard
    log.end_verification(7, guard, refused=True)
    assert log.begin_verification(7, 0, 0, bumps_epoch=False)[1] == guard
    for _ in range(2):
        log.end_verification(7, guard, refused=True)
    log.end_verification(7, guard, refused=True)  # there is none any more
    _, other = log.begin_verification(7, 0, 0, bumps_epoch=False)
    assert other not in (0, guard)
    log.end_verification(7, guard, refused=True)  # it is not that one
    assert append(log, batch(7, 0), guard=other) == 0


def test_a_marker_needs_no_free_space(log: LedLog) -> None:
    append(log, batch(7, 0))
    log.log.refuse_producers(True)
    assert refused(log, batch(7, 1)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert end(log, 7) is ErrorCode.NONE
    assert log.last_stable_offset == log.log_end_offset == 2


def test_the_first_sequence_of_an_unknown_producer(log: LedLog) -> None:
    _, guard = log.begin_verification(7, 0, 5, bumps_epoch=True)
    assert refused(log, batch(7, 5), guard=guard) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    _, guard = log.begin_verification(8, 0, 5, bumps_epoch=False)
    assert append(log, batch(8, 5), guard=guard) == 0


def test_an_old_epoch_is_answered_before_a_verification(log: LedLog) -> None:
    append(log, batch(7, 0, epoch=4))
    assert log.begin_verification(7, 3, 0, bumps_epoch=False)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, batch(7, 0, epoch=3), guard=0) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_open_transaction_does_not_expire(log: LedLog) -> None:
    append(log, batch(7, 0))
    append(log, batch(8, 0))
    end(log, 8)
    assert log.expire_producers(NOW_MS + 1) == 1
    assert entry(log, 7) == (0, 0, -1, 0)
    assert log.last_stable_offset == 0


def test_a_producer_that_waits_for_a_verification_does_not_expire(log: LedLog) -> None:
    guards = {
        producer_id: log.begin_verification(producer_id, 0, 0, bumps_epoch=False)[1]
        for producer_id in (6, 7, 8, 9)
    }
    for producer_id in (6, 7, 8):
        log.end_verification(producer_id, guards[producer_id], refused=False)
    log.expire_producers(NOW_MS)
    assert append(log, batch(6, 0), guard=guards[6]) == 0  # only now it is known for idle
    log.begin_verification(7, 0, 0, bumps_epoch=False)
    log.end_verification(7, guards[7], refused=False)
    log.expire_producers(NOW_MS)
    assert refused(log, batch(8, 0), guard=guards[8]) == ErrorCode.INVALID_TXN_STATE
    assert append(log, batch(9, 0), guard=guards[9]) == 1
    assert append(log, batch(7, 0), guard=guards[7]) == 2


def test_deleted_records_of_an_open_transaction(log: LedLog) -> None:
    append(log, batch(7, 0, count=4))
    append(log, plain(4))
    log.delete_records(6)
    assert (log.log_start_offset, log.last_stable_offset) == (6, 6)
    assert end(log, 7, committed=False) is ErrorCode.NONE
    assert log.last_stable_offset == 9
    assert index_of(log) == [(0, 7, 0, 8, 9)]
    assert aborted_transactions(log, 6) == [(7, 0)]


def test_a_marker_above_the_high_watermark_does_not_decide(log: LedLog) -> None:
    log.set_leadership(1, True, 1, 2, {2: True})
    append(log, batch(7, 0))
    append(log, plain())
    log.note_fetch(2, 2, 1)
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)
    found = log.append_marker(7, 0, 0, committed=True, transaction_version=0)
    assert (found.offset, found.led_since) == (2, 0)
    append(log, plain())
    assert log.last_stable_offset == 0
    log.note_fetch(2, 3, 2)
    assert (log.high_watermark, log.last_stable_offset) == (3, 3)


def test_a_follower_has_the_same(log: LedLog, tmp_path: Path) -> None:
    append(log, batch(7, 0))
    append(log, batch(8, 0))
    end(log, 7, committed=False)
    follower = open_led_log(tmp_path / "follower", "words", 0, TOPIC_ID, {})
    follower.set_leadership(2, False, 0, 1)
    follower.append_as_follower(log.read(0, to_log_end=True), 0)
    follower.follow_bounds(0, 3, 0)
    assert follower.last_stable_offset == log.last_stable_offset == 1
    assert follower.producer_entries()[1] == log.producer_entries()[1]
    assert index_of(follower) == index_of(log) == [(0, 7, 0, 2, 1)]
    # Cut, the first one is open again, and its entry gone.
    follower.truncate_to(2)
    assert follower.last_stable_offset == 0
    assert entry(follower, 7) == (0, 0, -1, 0)
    assert not list(follower.path.glob("*.txnindex"))
    follower.close(clean=False)


def test_a_follower_takes_no_marker_that_it_cannot_read(log: LedLog, tmp_path: Path) -> None:
    """Its transaction would be open there for ever."""
    append(log, batch(7, 0))
    end(log, 7, committed=False)
    data = bytearray(log.read(0))
    type_at = -MARKER_BYTES + 61 + 8
    assert data[type_at - 1 : type_at + 2] == b"\0\0\x0c"
    data[type_at] = 9
    follower = open_led_log(tmp_path / "follower", "words", 0, TOPIC_ID, {})
    follower.set_leadership(2, False, 0, 1)
    wrong = seal(bytes(data[-MARKER_BYTES:]))
    assert follower.append_as_follower(bytes(data[:-MARKER_BYTES]) + wrong, 0) == 1
    with pytest.raises(KafkaError, match="marker") as caught:
        follower.append_as_follower(wrong, 0)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert follower.log_end_offset == 1
    assert follower.append_as_follower(log.read(1), 0) == 2
    follower.close(clean=False)


@pytest.mark.parametrize("clean", [True, False])
def test_a_marker_of_a_later_version_is_read_again(
    log: LedLog, tmp_path: Path, clean: bool
) -> None:
    """Which has more in its value than we know."""
    append(log, batch(7, 0))
    end(log, 7, committed=False)
    first, marker = log.read(0)[:-MARKER_BYTES], log.read(1)
    key, value = marker[61 + 4 : 61 + 9], marker[61 + 10 : 61 + 16]
    assert (len(key), key[:1], value[:2]) == (5, bytes([8]), bytes(2))
    body = bytes(3) + key + varint(300) + value + bytes(294) + bytes(1)
    records = varint(len(body)) + body
    size = struct.pack(">i", 61 + len(records) - 12)
    later = seal(marker[:8] + size + marker[12:61] + records)
    follower = open_led_log(tmp_path / "follower", "words", 0, TOPIC_ID, {})
    follower.set_leadership(2, False, 0, 1)
    follower.append_as_follower(first + later, 0)
    assert index_of(follower) == [(0, 7, 0, 1, 2)]
    follower.close(clean=clean)
    for path in follower.path.glob("*.snapshot"):
        path.unlink()
    again = open_led_log(
        tmp_path / "follower", "words", 0, TOPIC_ID, {}, Checkpointed(clean, 2 * clean, 2)
    )
    assert again.first_undecided_offset > 2
    assert index_of(again) == [(0, 7, 0, 1, 2)]
    again.close(clean=False)


def _entries(*changed: tuple[int, ...]) -> bytes:
    sound = [(0, 7, 0, 1, 2), (0, 7, 2, 3, 4), (0, 8, 4, 5, 6)]
    sound[: len(changed)] = changed  # type: ignore[assignment]
    return b"".join(struct.pack(">hqqqq", *each) for each in sound)


@pytest.mark.parametrize(
    "damaged",
    [
        _entries()[:-1],
        _entries((0, 7, 0, 1, 2), (0, 7, 2, 1, 4)),
        _entries((0, 7, 2, 3, 4), (0, 7, 0, 1, 2)),
        _entries((1, 7, 0, 1, 2)),
        _entries((0, -7, 0, 1, 2)),
        _entries((0, 7, 1, 1, 2)),
        _entries((0, 7, -1, 1, 2)),
        _entries((0, 7, 0, 1, 3)),
        _entries((0, 7, 0, 1, 2), (0, 7, 2, 3, 4), (0, 8, 4, 6, 7)),
        _entries((0, 0, 0, 0, 0), (0, 0, 0, 0, 0), (0, 0, 0, 0, 0)),
    ],
)
def test_an_index_that_differs_from_its_log_is_made_anew(open_log: OpenLog, damaged: bytes) -> None:
    """After a clean stop, too: of a disk that lost some of it, or put zeros in its place."""
    log = open_log()
    for producer_id, sequence in ((7, 0), (7, 1), (8, 0)):
        append(log, batch(producer_id, sequence))
        end(log, producer_id, committed=False)
    log.close()
    path = log.path / f"{0:020d}.txnindex"
    assert path.read_bytes() == _entries()
    path.write_bytes(damaged)
    again = open_log(clean=True, recovery_point=6, high_watermark=6)
    assert path.read_bytes() == _entries()
    assert aborted_transactions(again, 0) == [(7, 0), (7, 2), (8, 4)]
    assert again.last_stable_offset == 6


def test_an_index_is_made_anew_also_after_a_start_that_failed(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a segment that is flushed: between the look at its index and the replay of its markers
    the file must not be one without entries."""
    log = open_log()
    for producer_id, sequence in ((7, 0), (7, 1), (8, 0)):
        append(log, batch(producer_id, sequence))
        end(log, producer_id, committed=False)
    log.roll()
    append(log, batch(9, 0))
    log.close()
    path = log.path / f"{0:020d}.txnindex"
    path.write_bytes(_entries()[:-5])

    def fails(*given: object) -> None:
        raise OSError(errno.EIO, "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(PartitionLog, "restore_producers", fails)
        with pytest.raises(OSError, match="no answer"):
            open_log(clean=True, recovery_point=7, high_watermark=7)
    again = open_log(clean=True, recovery_point=7, high_watermark=7)
    assert path.read_bytes() == _entries()
    assert aborted_transactions(again, 0) == [(7, 0), (7, 2), (8, 4)]


def test_an_entry_that_cannot_be_taken_back_ends_the_log(log: LedLog) -> None:
    """Its marker was not written: a later start would drop what the transaction commits."""
    append(log, batch(7, 0))
    no_space = Fault(("write",), ".log", error=errno.ENOSPC)
    broken = Fault(("truncate",), ".txnindex", error=errno.EIO)
    with FileFaults(no_space):
        assert end(log, 7, committed=False) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.online and index_of(log) == []
    with FileFaults(no_space, broken):
        assert end(log, 7, committed=False) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.online
    assert end(log, 7) is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("step", [1, -1, 37])
def test_a_long_index_is_read_from_where_the_last_fetch_began(log: LedLog, step: int) -> None:
    """In order, backwards and in turns: each fetch has the transactions of its own data."""
    count = 300
    for number in range(count):
        append(log, batch(7, number))
        assert end(log, 7, committed=False) is ErrorCode.NONE
    turns = [at * step % count for at in range(count)]
    for number in turns:
        found = aborted_transactions(log, 2 * number, 1)
        assert (7, 2 * number) in found
        assert all(first >= 2 * number for _, first in found)


def test_an_index_that_was_cut_is_read_up_to_its_end(log: LedLog) -> None:
    for number in range(200):
        append(log, batch(7, number))
        end(log, 7, committed=False)
    assert (7, 398) in aborted_transactions(log, 398, 1)
    log.truncate_to(200)
    assert aborted_transactions(log, 198, 1) == [(7, 198)]
    append(log, batch(8, 0))
    end(log, 8, committed=False)
    assert aborted_transactions(log, 200, 1) == [(8, 200)]


@pytest.mark.parametrize("seed", range(3))
def test_each_of_several_readers_has_its_aborted_transactions(log: LedLog, seed: int) -> None:
    """Six readers take turns over two producers' transactions, and the log is cut twice."""
    dice = Random(seed)
    now = Written([], {}, {7: 0, 8: 0})
    earlier: list[tuple[int, Written]] = []
    readers = [0] * 6
    for turn in range(500):
        earlier.append((log.log_end_offset, deepcopy(now)))
        producer = dice.choice((7, 7, 8))
        if producer in now.open and dice.random() < 0.6:
            committed = dice.random() < 0.5
            assert end(log, producer, committed=committed) is ErrorCode.NONE
            first = now.open.pop(producer)
            if not committed:
                now.aborted.append((producer, first, log.log_end_offset - 1))
        else:
            now.open.setdefault(producer, append(log, batch(producer, now.sequences[producer])))
            now.sequences[producer] += 1
        if turn in (250, 400):
            chosen = dice.randrange(len(earlier) // 2, len(earlier))
            cut_to, now = earlier[chosen]
            del earlier[chosen:]
            log.truncate_to(cut_to)
        last_stable = min([log.log_end_offset, *now.open.values()])
        for number, place in enumerate(readers):
            at = min(place, log.log_end_offset)
            found = aborted_transactions(log, at, dice.choice((1, 300, 900)))
            ended = [one for one in now.aborted if one[2] >= at]
            assert set(found) <= {one[:2] for one in ended}, (turn, number, at)
            if at < last_stable:
                assert {one[:2] for one in ended if one[1] <= at} <= set(found), (turn, number, at)
            readers[number] = at + dice.choice((1, 1, 2, 5)) if at < last_stable else 0


def test_places_from_before_a_truncation_are_not_used(log: LedLog) -> None:
    def aborted(producer_id: int) -> None:
        append(log, batch(producer_id, 0))
        assert end(log, producer_id, committed=False) is ErrorCode.NONE

    aborted(7)
    for _ in range(3):
        append(log, plain(400))  # more than index.interval.bytes
    aborted(8)
    assert aborted_transactions(log, 2, 1) == []
    assert aborted_transactions(log, 402, 1) == []
    log.truncate_to(2)
    aborted(9)
    assert aborted_transactions(log, 2, 1) == [(9, 2)]


def test_a_snapshot_has_each_batch_that_a_retry_is_compared_with(log: LedLog) -> None:
    """Up to five of a producer, the oldest first; its transaction is in the last one."""
    for sequence in range(7):
        append(log, batch(7, sequence))
    append(log, batch(8, 0, count=2, transactional=False))
    assert end(log, 9, epoch=3, committed=False, version=1) is ErrorCode.NONE
    end_offset, entries = log.producer_snapshot()
    found = decode(framed(entries))
    assert end_offset == 10
    assert [(each.producer_id, each.last_sequence, each[-1]) for each in found] == [
        (7, 2, -1), (7, 3, -1), (7, 4, -1), (7, 5, -1), (7, 6, 0), (8, 1, -1), (9, -1, -1),
    ]  # fmt: skip
    last = {each.producer_id: each for each in found}
    assert log.producer_entries() == (10, list(last.values()))
    assert packed(found) == entries
