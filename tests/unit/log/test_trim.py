"""The front of a log: where it starts, which segments go, and who still reads them."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine import file_operations, producer_snapshots
from kbroker.log.engine.checkpoints import LOG_START_FILE, read_offsets
from kbroker.log.engine.partition_log import FILE_DELETE_DELAY_MS
from kbroker.log.opening.loader import Checkpointed
from kbroker.testing.file_faults import Fault, FileFaults
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog, LedLogManager, open_led_log
from tests.support.record_batches import Record, build_batch, parse_batches
from tests.unit.log.conftest import TOPIC_ID, OpenLog

TOPIC = uuid.UUID(int=1)
SEGMENT = {"segment_bytes": 200}


def fill(log: LedLog, batches: int, records: int = 1) -> None:
    for _ in range(batches):
        log.append(build_batch([Record(b"x" * 20)] * records))


def files(path: Path, suffix: str) -> list[int]:
    return sorted(int(entry.name[:20]) for entry in path.iterdir() if entry.name.endswith(suffix))


def first_offset(log: LedLog, offset: int) -> int:
    return parse_batches(log.read(offset))[0].base_offset


@pytest.mark.parametrize("offset", [11, 12, -2, -(2**63), 2**63 - 1])
def test_offsets_out_of_range(log: LedLog, offset: int) -> None:
    fill(log, 10)
    with pytest.raises(KafkaError) as caught:
        log.delete_records(offset)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.log_start_offset == 0


def test_the_start_moves_forward_at_once_and_never_back(log: LedLog) -> None:
    fill(log, 10)
    for asked, start in ((0, 0), (4, 4), (2, 4), (4, 4), (-1, 10), (3, 10)):
        assert log.delete_records(asked) == start == log.log_start_offset
    for offset in (0, 9):
        with pytest.raises(KafkaError) as caught:
            log.read(offset)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(10) == b""
    fill(log, 1)
    assert first_offset(log, 10) == 10


def test_a_start_inside_a_batch(log: LedLog) -> None:
    fill(log, 3, records=5)
    assert log.delete_records(7) == 7
    assert first_offset(log, 7) == 5  # whole; the client skips what lies before
    with pytest.raises(KafkaError):
        log.read(6)


def test_the_high_watermark_is_the_bound_not_the_logs_end(open_log: OpenLog) -> None:
    log = open_log()
    log.set_leadership(1, True, 1, 2, {2: True})
    fill(log, 4)
    log.set_high_watermark(2)
    assert log.delete_records(-1) == 2
    with pytest.raises(KafkaError):
        log.delete_records(3)


def test_a_log_that_is_not_led_or_cannot_be_read_refuses(log: LedLog) -> None:
    fill(log, 2)
    log.set_leadership(2, False, 1, 1)
    with pytest.raises(KafkaError) as caught:
        log.delete_records(1)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    log.close(clean=False)
    with pytest.raises(KafkaError) as caught:
        log.delete_records(1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.trim() == []


def test_whole_segments_below_the_start_go(open_log: OpenLog) -> None:
    log = open_log(**SEGMENT)
    fill(log, 20)
    bases = files(log.path, ".log")
    assert len(bases) > 5
    assert log.trim() == []
    log.delete_records(bases[3] - 1)
    log.trim()
    assert files(log.path, ".log") == bases[2:]  # the start lies in the third
    log.delete_records(bases[3])
    renamed = log.trim()
    assert files(log.path, ".log") == files(log.path, ".timeindex") == bases[3:]
    assert {path.suffix for path in renamed} == {".deleted"}
    assert all(path.exists() for path in renamed)
    assert log.trim() == []
    read = [batch.base_offset for base in bases[3:] for batch in parse_batches(log.read(base))]
    assert read == list(range(bases[3], 20))


def test_the_active_segment_goes_only_when_nothing_in_it_is_left(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 5)
    log.delete_records(4)
    assert log.trim() == []
    log.delete_records(5)
    assert len(log.trim()) == 3
    assert files(log.path, ".log") == [5]
    assert log.trim() == []  # the new one is empty and stays
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 5, 5)
    assert log.size_bytes == 0 and log.recovery_point == 5
    fill(log, 2)
    assert [batch.base_offset for batch in parse_batches(log.read(5))] == [5, 6]


def test_lent_bytes_can_still_be_read(open_log: OpenLog) -> None:
    log = open_log(**SEGMENT)
    fill(log, 20)
    lent = log.borrow(0)
    log.delete_records(-1)
    for path in log.trim():
        os.unlink(path)
    assert parse_batches(lent.read())[0].base_offset == 0
    lent.release()


def test_times_are_searched_from_the_start_on(log: LedLog) -> None:
    for number in range(10):
        log.append(build_batch([Record(b"x", timestamp_ms=1_000 + number)]))
    log.delete_records(6)
    assert log.offset_for_time(0) == (6, 1_006, 0)
    assert log.offset_for_time(1_008) == (8, 1_008, 0)
    log.delete_records(-1)
    log.trim()
    assert log.offset_for_time(0) is None
    assert log.offset_of_max_timestamp() is None


def test_producers_outlive_their_batches(open_log: OpenLog) -> None:
    log = open_log()
    batch = build_batch([Record(b"x")], producer_id=5, producer_epoch=0, base_sequence=0)
    assert log.append(batch).base_offset == 0
    log.delete_records(-1)
    log.trim()
    log.close(clean=False)
    again = open_log(clean=False)
    assert again.log_start_offset == 1
    assert again.append(batch).base_offset == 0  # the duplicate is known
    assert again.log_end_offset == 1


def test_leader_epochs_below_the_start_are_forgotten(open_log: OpenLog) -> None:
    log = open_log()
    fill(log, 3)
    log.set_leadership(1, True, 1, 1)
    fill(log, 3)
    assert log.epochs.entries == [(0, 0), (1, 3)]
    log.delete_records(4)
    log.trim()
    assert log.epochs.entries == [(1, 4)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("trimmed", [True, False])
def test_opening_again_begins_where_the_checkpoint_says(
    tmp_path: Path, clean: bool, trimmed: bool
) -> None:
    def open_it(checkpointed: Checkpointed) -> LedLog:
        log = open_led_log(tmp_path / "a-0", "a", 0, TOPIC_ID, SEGMENT, checkpointed)
        log.set_leadership(1, True, 0, 1)
        return log

    log = open_it(Checkpointed())
    fill(log, 20)
    log.delete_records(11)
    if trimmed:
        log.trim()
    log.close(clean=clean)
    again = open_it(Checkpointed(clean, 0, 20, 11))
    assert (again.log_start_offset, again.log_end_offset, again.high_watermark) == (11, 20, 20)
    assert first_offset(again, 11) == 11
    assert not list(tmp_path.rglob("*.deleted"))
    again.trim()
    assert files(again.path, ".log")[1] > 11
    again.close()


# --- The manager ----------------------------------------------------------------------------------


class OneDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.manager = self.start()

    def start(self) -> LedLogManager:
        self.manager = LedLogManager([self.path], clock=self.clock)
        self.manager.start()
        return self.manager

    def open(self, index: int = 0, topic_id: uuid.UUID = TOPIC) -> LedLog:
        log = self.manager.open("a", index, topic_id, SEGMENT)
        log.set_leadership(1, True, 0, 1)
        return log

    def die(self) -> None:
        """What is left of a process that was killed: its files and no lock."""
        for directory in self.manager._directories:
            directory.close(clean=False)

    def starts(self) -> dict[TopicPartition, int]:
        return read_offsets(self.path / LOG_START_FILE)

    def round(self) -> None:
        for work in (self.manager.checkpoint, self.manager.remove_deleted):
            for _ in work():
                pass


def test_a_start_that_was_checkpointed_survives_the_process(tmp_path: Path) -> None:
    broker = OneDirectory(tmp_path)
    logs = [broker.open(index) for index in range(3)]
    for log in logs:
        fill(log, 20)
    logs[1].delete_records(13)
    assert broker.starts() == {}
    broker.manager.checkpointing.write_log_starts([logs[1]])
    assert broker.starts() == {TopicPartition("a", 1): 13}
    broker.die()
    broker.start()
    assert [broker.open(index).log_start_offset for index in range(3)] == [0, 13, 0]
    broker.manager.stop()
    assert broker.starts() == {TopicPartition("a", 1): 13}


def test_only_the_starts_that_are_asked_for_are_looked_at(tmp_path: Path) -> None:
    broker = OneDirectory(tmp_path)
    logs = [broker.open(index) for index in range(3)]
    for index, log in enumerate(logs):
        fill(log, 20)
        log.delete_records(10 + index)
    for index, log in enumerate(logs):
        broker.manager.checkpointing.write_log_starts([log])
        new_starts = {TopicPartition("a", each): 10 + each for each in range(index + 1)}
        assert broker.starts() == new_starts
    broker.manager.stop()


def test_segments_go_in_the_background_and_a_minute_later_for_good(tmp_path: Path) -> None:
    broker = OneDirectory(tmp_path)
    log = broker.open()
    fill(log, 20)
    log.delete_records(-1)
    before = len(files(log.path, ".log"))
    broker.round()
    assert files(log.path, ".log") == [20]
    assert len(files(log.path, ".log.deleted")) == before
    broker.clock.advance(FILE_DELETE_DELAY_MS - 1)
    broker.round()
    assert len(files(log.path, ".log.deleted")) == before
    broker.clock.advance(1)
    broker.round()
    assert not list(log.path.glob("*.deleted"))
    broker.manager.stop()


def test_files_of_a_topic_that_was_deleted_meanwhile(tmp_path: Path) -> None:
    broker = OneDirectory(tmp_path)
    log = broker.open()
    fill(log, 20)
    log.delete_records(-1)
    broker.round()
    broker.manager.delete(log)
    broker.clock.advance(FILE_DELETE_DELAY_MS)
    broker.round()
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_dir()] == []
    broker.manager.stop()


@pytest.mark.parametrize("killed", [True, False])
def test_a_new_topic_of_the_same_name_begins_at_zero(tmp_path: Path, killed: bool) -> None:
    broker = OneDirectory(tmp_path)
    log = broker.open()
    fill(log, 20)
    log.delete_records(15)
    broker.manager.checkpointing.write_log_starts([log])
    broker.manager.delete(log)
    if killed:
        broker.die()
        broker.start()
    second = broker.open(topic_id=uuid.UUID(int=2))
    assert second.log_start_offset == 0
    fill(second, 3)
    broker.die()
    broker.start()
    again = broker.open(topic_id=uuid.UUID(int=2))
    assert (again.log_start_offset, again.log_end_offset) == (0, 3)
    broker.manager.stop()


def test_a_file_that_cannot_be_written_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = OneDirectory(tmp_path)
    log = broker.open()
    fill(log, 2)
    log.delete_records(1)

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(28, "disk full")

    with monkeypatch.context() as patch:
        patch.setattr("kbroker.log.opening.data_directory.write_offsets", fail)
        failed = broker.manager.checkpointing.write_log_starts([log])
    assert [(name, error.errno) for name, error in failed.items()] == [(log.name, 28)]
    assert broker.manager.checkpointing.write_log_starts([log]) == {}
    assert broker.starts() == {TopicPartition("a", 0): 1}
    broker.manager.stop()


def test_a_round_that_is_under_way_forgets_no_start(tmp_path: Path) -> None:
    broker = OneDirectory(tmp_path)
    first = broker.open(0)
    fill(first, 5)
    round_under_way = broker.manager.checkpoint()
    next(round_under_way)  # it has looked at which logs there are
    second = broker.open(1)
    fill(second, 5)
    second.delete_records(3)
    broker.manager.checkpointing.write_log_starts([second])
    for _ in round_under_way:
        pass
    assert broker.starts() == {TopicPartition("a", 1): 3}
    broker.manager.stop()


def test_new_logs_go_where_there_are_fewest(tmp_path: Path) -> None:
    manager = LedLogManager([tmp_path / name for name in "xyz"], clock=ManualClock())
    manager.start()
    for index in range(7):
        manager.open("a", index, TOPIC, {})
    assert sorted(len(list((tmp_path / name).glob("a-*"))) for name in "xyz") == [2, 2, 3]
    manager.stop()


@pytest.mark.parametrize("producer_id", [-1, 7], ids=["no-producer", "a-producer"])
@pytest.mark.parametrize("full", [False, True], ids=["", "full"])
def test_the_name_of_the_new_segment_is_on_the_disk_before_others_go(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch, producer_id: int, full: bool
) -> None:
    log = open_log(**SEGMENT)
    for sequence in range(4):
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        log.append(build_batch([Record(b"x" * 80)], **(fields if producer_id >= 0 else {})))
        assert log.write_snapshot() == (producer_id >= 0)
    log.delete_records(-1)
    done: list[tuple[str, list[int]]] = []

    def note(operation: str, do: Callable[..., None], *paths: Path) -> None:
        done.append((operation, files(log.path, ".log")))
        do(*paths)

    for operation in ("sync_directory", "rename"):
        real = getattr(file_operations, operation)
        monkeypatch.setattr(file_operations, operation, partial(note, operation, real))
    if full:

        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(producer_snapshots, "write", refuse)
    before = files(log.path, ".log")
    assert log.trim()
    synced = done.index(("sync_directory", before))
    assert synced < next(at for at, (it, _) in enumerate(done) if it == "rename")


def reopen(log: LedLog, open_log: OpenLog) -> LedLog:
    log.close()
    return open_log(clean=True, leader_epoch=1, **SEGMENT)


def cut(log: LedLog, open_log: OpenLog) -> LedLog:
    log.truncate_to(log.log_end_offset - 1)
    return log


def be_moved(log: LedLog, open_log: OpenLog) -> LedLog:
    log.log.moved_to(log.path)
    return log


@pytest.mark.parametrize("change", [reopen, cut, be_moved])
@pytest.mark.parametrize("number", file_operations.NO_SPACE)
def test_a_full_disk_keeps_no_segment_that_the_snapshot_of_before_covers(
    open_log: OpenLog, number: int, change: Callable[[LedLog, OpenLog], LedLog]
) -> None:
    log = open_log(**SEGMENT)
    for sequence in range(10):
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        log.append(build_batch([Record(b"x" * 20)], **fields))
        if sequence in (4, 9):
            assert log.write_snapshot()
    log = change(log, open_log)
    log.append(build_batch([Record(b"x" * 20)], producer_id=8, producer_epoch=0, base_sequence=0))
    log.delete_records(-1)
    log.epochs.settle(log.log_end_offset)
    with FileFaults(Fault(("write",), ".snapshot", error=number)):
        assert log.trim()
    assert log.log_start_offset >= files(log.path, ".log")[0] >= 4


@pytest.mark.parametrize("number", file_operations.NO_SPACE)
def test_a_disk_too_full_for_a_new_segment_keeps_the_active_one(
    open_log: OpenLog, number: int
) -> None:
    log = open_log(**SEGMENT)
    fill(log, 7)
    active = files(log.path, ".log")[-1]
    log.delete_records(-1)
    with FileFaults(Fault(("open",), f"{7:020d}.log", times=2, error=number)):
        assert log.trim()
        assert files(log.path, ".log") == [active]
        with pytest.raises(OSError, match=f"Errno {number}"):
            log.trim()
    fill(log, 1)
    assert first_offset(log, 7) == 7
    assert log.delete_records(-1) == 8
    assert log.trim()
    assert files(log.path, ".log") == [8]


@pytest.mark.parametrize("number", file_operations.NO_SPACE)
def test_a_disk_too_full_for_epochs_keeps_the_segments_that_they_lack(
    open_log: OpenLog, number: int
) -> None:
    log = open_log(**SEGMENT)
    fill(log, 6)
    log.epochs.settle(log.log_end_offset)
    log.set_leadership(1, True, 3, 1)
    fill(log, 6)
    log.delete_records(-1)
    with FileFaults(Fault(("write",), "leader-epoch", error=number)):
        assert log.trim()
    assert 0 < files(log.path, ".log")[0] <= 6


def test_a_disk_too_full_for_a_snapshot_loses_the_segments_that_the_last_one_covers(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(**SEGMENT)

    def write(first: int) -> None:
        for sequence in range(first, first + 10):
            log.append(
                build_batch(
                    [Record(b"x" * 20)], producer_id=7, producer_epoch=0, base_sequence=sequence
                )
            )

    write(0)
    assert log.write_snapshot()
    known = log.log_end_offset
    write(10)
    log.delete_records(-1)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(producer_snapshots, "write", refuse)
        assert log.trim()
        bases = files(log.path, ".log")
        assert 0 < bases[0] <= known < bases[-1]
        with pytest.raises(OSError, match="No space left"):
            log.trim()
    assert log.trim()  # there is room again
    assert files(log.path, ".log") == [20]
