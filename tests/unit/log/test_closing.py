"""A clean stop of many logs: the volume is synced once, and failures are not forgotten."""

from __future__ import annotations

import errno
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.log.engine.partition_log import PartitionLog
from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE
from kbroker.log.upkeep.closing import SYNC_VOLUME_LOGS_MIN, close_logs
from kbroker.testing.file_faults import FileFaults
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import Record, build_batch

TOPIC = uuid.UUID(int=1)
LATER_MS = 2_000


class Synced:
    """In place of the call; counts."""

    def __init__(self, error: int = 0) -> None:
        self.error = error
        self.paths: list[str] = []

    def __call__(self, path: str) -> None:
        self.paths.append(path)
        if self.error:
            raise OSError(self.error, "no")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LedLogManager]:
    made = LedLogManager([tmp_path / "data"], recovery_threads=3)
    made.start()
    yield made
    made.stop()


def written(manager: LedLogManager, count: int, *, producer_id: int = -1) -> list[LedLog]:
    logs = [manager.open("t", index, TOPIC, {}) for index in range(count)]
    for log in logs:
        log.set_leadership(1, True, 0, 1)
        sequence = 0 if producer_id >= 0 else -1
        log.append(
            build_batch(
                [b"x"],
                producer_id=producer_id,
                producer_epoch=0 if sequence == 0 else -1,
                base_sequence=sequence,
            )
        )
    return logs


def test_many_logs_are_one_sync(manager: LedLogManager, tmp_path: Path) -> None:
    logs = written(manager, SYNC_VOLUME_LOGS_MIN, producer_id=7)
    sync = Synced()
    assert close_logs(tmp_path / "data", logs, 3, sync=sync)
    assert sync.paths == [str(tmp_path / "data")]
    assert all(log.recovery_point == log.log_end_offset == 1 for log in logs)
    assert not any(log.online for log in logs)
    assert all((log.path / f"{1:020d}.snapshot").exists() for log in logs)


def test_epochs_that_no_batch_tells_any_more_are_synced_before_they_replace_others(
    manager: LedLogManager, tmp_path: Path
) -> None:
    logs = written(manager, SYNC_VOLUME_LOGS_MIN)
    logs[5].log.cleaned_to = 1
    with FileFaults() as faults:
        assert close_logs(tmp_path / "data", logs, 3, sync=Synced())
    synced = [each.path for each in faults.seen if each.operation == "sync"]
    assert [path for path in synced if path.endswith(".tmp")] == [f"{logs[5].epochs.path}.tmp"]


def test_a_few_logs_are_synced_by_themselves(manager: LedLogManager, tmp_path: Path) -> None:
    logs = written(manager, SYNC_VOLUME_LOGS_MIN - 1)
    sync = Synced()
    assert close_logs(tmp_path / "data", logs, 2, sync=sync)
    assert sync.paths == []
    assert all(log.recovery_point == 1 for log in logs)


def test_logs_with_nothing_new_need_no_sync(manager: LedLogManager, tmp_path: Path) -> None:
    logs = written(manager, SYNC_VOLUME_LOGS_MIN)
    for log in logs:
        log.flush(whole=True)
        log.epochs.settle(1)
    sync = Synced()
    assert close_logs(tmp_path / "data", logs, 2, sync=sync)
    assert sync.paths == []


def test_a_volume_that_cannot_be_synced_costs_only_time(
    manager: LedLogManager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = written(manager, SYNC_VOLUME_LOGS_MIN)
    assert close_logs(tmp_path / "data", logs, 2, sync=Synced(errno.ENOSYS))
    assert all(log.recovery_point == 1 for log in logs)
    assert "cannot be synced as a whole" in caplog.text


def test_a_write_that_had_failed_leaves_no_mark(
    manager: LedLogManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = written(manager, SYNC_VOLUME_LOGS_MIN)
    whole = PartitionLog.flush

    def flush(log: PartitionLog, *, volume_synced: bool = False, **how: bool) -> int:
        if volume_synced and log is logs[3].log:
            raise OSError(errno.EIO, "the device said no")
        return whole(log, volume_synced=volume_synced, **how)

    monkeypatch.setattr(PartitionLog, "flush", flush)
    manager.stop()
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).exists()


def test_the_real_call_and_a_start_after_it(tmp_path: Path) -> None:
    manager = LedLogManager([tmp_path / "data"], recovery_threads=3)
    manager.start()
    written(manager, SYNC_VOLUME_LOGS_MIN)
    manager.stop()
    again = LedLogManager([tmp_path / "data"])
    again.start()
    assert again.clean
    assert again.open("t", 5, TOPIC, {}).log_end_offset == 1
    again.stop()


@pytest.mark.parametrize("count", [1, SYNC_VOLUME_LOGS_MIN])
def test_an_entry_that_a_close_adds_to_a_time_index_is_synced_with_it(
    manager: LedLogManager, tmp_path: Path, count: int
) -> None:
    """Or a power cut after a clean stop leaves zeros for its last entry."""
    logs = written(manager, count)
    assert logs[0].append(build_batch([Record(b"later", timestamp_ms=LATER_MS)])).error == 0
    index = logs[0].log.path / f"{0:020d}.timeindex"
    said: list[bool] = []

    def look(operation: str, path: str) -> None:
        if operation == "sync" and path == str(index):
            said.append(last_entry in index.read_bytes())

    def sync_volume(_path: str) -> None:
        said.append(last_entry in index.read_bytes())

    last_entry = struct.pack(">qi", LATER_MS, 1)
    with FileFaults(before=look):
        assert close_logs(tmp_path, [log.log for log in logs], 1, sync=sync_volume)
    assert said == [True]
    assert index.read_bytes().endswith(last_entry)
