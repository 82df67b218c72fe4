"""What a start that fails, a log that cannot be opened, or a second copy does to a data directory.

Everything that a checkpoint says of a log is said again until the log itself says something else,
and the clean-shutdown mark vouches only for logs that were looked at.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from kbroker.errors import DataDirectoryError, KafkaError
from kbroker.log.engine.checkpoints import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from kbroker.log.engine.checkpoints import read_offsets as read
from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE
from kbroker.testing.file_faults import Fault, FileFaults
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog
from tests.support.record_batches import build_batch
from tests.unit.log.test_manager import OTHER, TOPIC, Managers, lead, managers, names, run

__all__ = ["managers"]

CHECKPOINTS = (HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE)


def with_deleted_records(managers: Managers, *indexes: int) -> list[LedLog]:
    """Logs of five records, of which the first three are deleted, and that on file."""
    manager = managers.start()
    logs = [lead(manager.open("words", index, TOPIC, {})) for index in indexes]
    for log in logs:
        for _ in range(5):
            log.append(build_batch())
        log.delete_records(3)
    manager.checkpointing.write_log_starts(logs)
    run(manager)
    return logs


def tree(path: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.name != ".lock"
    }


def test_a_start_that_goes_no_further_leaves_a_clean_directory_as_it_was(
    managers: Managers, tmp_path: Path
) -> None:
    with_deleted_records(managers, 0, 1)
    managers.started[-1].stop()
    before = tree(tmp_path / "data")
    manager = managers.start()
    manager.stop(as_found=True)
    assert tree(tmp_path / "data") == before
    manager = managers.start()
    manager.open("words", 0, TOPIC, {}, new=False)
    manager.stop(as_found=True)
    assert tree(tmp_path / "data") == before
    assert managers.start().open("words", 1, TOPIC, {}, new=False).log_start_offset == 3


def test_a_start_that_goes_no_further_leaves_no_mark_after_a_crash(
    managers: Managers, tmp_path: Path
) -> None:
    with_deleted_records(managers, 0, 1)
    shutil.copytree(tmp_path / "data", tmp_path / "after")
    before = {name: (tmp_path / "after" / name).read_bytes() for name in CHECKPOINTS}
    manager = managers.start("after")
    manager.open("words", 1, TOPIC, {}, new=False)
    manager.stop(as_found=True)
    assert CLEAN_SHUTDOWN_FILE not in names(tmp_path / "after")
    assert {name: (tmp_path / "after" / name).read_bytes() for name in CHECKPOINTS} == before
    manager = managers.start("after")
    assert not manager.clean
    assert manager.open("words", 0, TOPIC, {}, new=False).log_start_offset == 3


def test_a_log_that_cannot_be_opened_keeps_its_lines(managers: Managers, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with_deleted_records(managers, 0, 1)
    managers.started[-1].stop()
    before = {name: read(data / name) for name in CHECKPOINTS}
    os.rename(data / "words-0", tmp_path / "away")
    (data / "words-0").write_text("in the way")
    manager = managers.start()
    with pytest.raises(KafkaError):
        manager.open("words", 0, TOPIC, {}, new=False)
    lead(manager.open("words", 1, TOPIC, {}, new=False), 1).append(build_batch())
    run(manager)
    assert read(data / LOG_START_FILE) == before[LOG_START_FILE]
    manager.stop()
    (data / "words-0").unlink()
    os.rename(tmp_path / "away", data / "words-0")
    for name in CHECKPOINTS:
        assert (
            read(data / name)[TopicPartition("words", 0)]
            == (before[name][TopicPartition("words", 0)])
        )
    manager = managers.start()
    assert manager.open("words", 0, TOPIC, {}, new=False).log_start_offset == 3


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 200])
def test_a_log_that_ends_below_its_start_goes_on_there(
    managers: Managers, tmp_path: Path, segment_bytes: int, clean: bool
) -> None:
    settings = {"segment_bytes": segment_bytes}
    manager = managers.start()
    log = lead(manager.open("words", 0, TOPIC, settings))
    for sequence in range(10):
        log.append(build_batch(producer_id=7, producer_epoch=0, base_sequence=sequence))
    log.delete_records(8)
    manager.checkpointing.write_log_starts([log])
    manager.stop()
    # A power cut may do so to files that were not synced.
    first, *others = sorted(log.path.glob("*.log"))
    for path in others:
        path.unlink()
    os.truncate(first, first.stat().st_size // 2)
    if not clean:
        (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).unlink()
    for end in (8, 9):
        manager = managers.start()
        log = manager.open("words", 0, TOPIC, settings, new=False)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (8, end, end)
        batch = build_batch(producer_id=7, producer_epoch=0, base_sequence=end + 2)
        assert lead(log, 1).append(batch).base_offset == end
        manager.stop()
    assert list(log.path.glob("*.cut"))


def test_a_second_stop_writes_nothing(managers: Managers, tmp_path: Path) -> None:
    with_deleted_records(managers, 0)
    managers.started[-1].stop()
    before = tree(tmp_path / "data")
    managers.started[-1].stop()
    assert tree(tmp_path / "data") == before


def test_a_log_that_cannot_be_begun_leaves_nothing(managers: Managers, tmp_path: Path) -> None:
    manager = managers.start()
    with (
        FileFaults(Fault(("open",), ".timeindex", error=errno.EMFILE)),
        pytest.raises(KafkaError, match="Too many open files"),
    ):
        manager.open("words", 0, TOPIC, {})
    assert "words-0" not in names(tmp_path / "data")
    assert manager.open("words", 0, TOPIC, {}).log_end_offset == 0


def test_a_log_that_was_closed_keeps_its_lines(managers: Managers, tmp_path: Path) -> None:
    (log,) = with_deleted_records(managers, 0)
    manager = managers.started[-1]
    manager.close(log)
    run(manager)
    assert read(tmp_path / "data" / LOG_START_FILE) == {log.name: 3}
    assert manager.open("words", 0, TOPIC, {}).log_start_offset == 3


def test_a_log_that_begins_anew_has_no_lines_of_the_old_one(
    managers: Managers, tmp_path: Path
) -> None:
    with_deleted_records(managers, 0)
    managers.started[-1].stop()
    manager = managers.start()
    log = lead(manager.open("words", 0, OTHER, {}))
    assert log.log_start_offset == 0
    for file in CHECKPOINTS:  # at once: the next start would take them for the new one's
        assert log.name not in read(tmp_path / "data" / file)
    run(manager)
    assert read(tmp_path / "data" / LOG_START_FILE) == {}
    assert read(tmp_path / "data" / HIGH_WATERMARK_FILE) == {log.name: 0}


def test_no_mark_vouches_for_a_log_that_was_not_recovered(
    managers: Managers, tmp_path: Path
) -> None:
    with_deleted_records(managers, 0, 1)
    after = tmp_path / "after"
    shutil.copytree(tmp_path / "data", after)
    file = after / "words-0" / f"{0:020d}.log"
    hidden = file.with_name("hidden")
    os.rename(file, hidden)
    file.mkdir()  # cannot be read as a segment
    manager = managers.start("after")
    manager.open("words", 1, TOPIC, {}, new=False)
    manager.stop()
    assert CLEAN_SHUTDOWN_FILE not in names(after)
    file.rmdir()
    os.rename(hidden, file)
    manager = managers.start("after")
    assert manager.open("words", 0, TOPIC, {}, new=False).log_end_offset == 5
    manager.remember_boot()
    manager.stop()
    assert CLEAN_SHUTDOWN_FILE in names(after)


@pytest.mark.parametrize("name", [*CHECKPOINTS, CLEAN_SHUTDOWN_FILE])
def test_a_directory_in_the_place_of_a_file_is_one_line(
    managers: Managers, tmp_path: Path, name: str
) -> None:
    with_deleted_records(managers, 0)
    managers.started[-1].stop()
    (tmp_path / "data" / name).unlink()
    (tmp_path / "data" / name).mkdir()
    before = tree(tmp_path / "data")
    with pytest.raises(DataDirectoryError, match=name):
        managers.start()
    assert tree(tmp_path / "data") == before
    (tmp_path / "data" / name).rmdir()
    managers.start()  # the lock was let go


def test_the_same_log_in_two_directories_is_refused(managers: Managers, tmp_path: Path) -> None:
    manager = managers.start("a")
    lead(manager.open("words", 0, TOPIC, {})).append(build_batch())
    manager.stop()
    managers.start("b").stop()
    shutil.copytree(tmp_path / "a" / "words-0", tmp_path / "b" / "words-0")
    before = tree(tmp_path)
    with pytest.raises(DataDirectoryError, match="words-0 is in two data directories"):
        managers.start("a", "b")
    assert tree(tmp_path) == before


def test_the_same_log_twice_beside_that_of_another_topic_is_refused(
    managers: Managers, tmp_path: Path
) -> None:
    for name, topic_id in (("one", OTHER), ("two", TOPIC)):
        manager = managers.start(name)
        lead(manager.open("words", 0, topic_id, {})).append(build_batch())
        manager.stop()
    shutil.copytree(tmp_path / "two", tmp_path / "three")
    with pytest.raises(DataDirectoryError, match="in two data directories"):
        managers.start("one", "two", "three")


def test_of_two_topics_with_one_name_the_right_one_is_opened(
    managers: Managers, tmp_path: Path
) -> None:
    for folder, topic, count in (("a", OTHER, 1), ("b", TOPIC, 2)):
        manager = managers.start(folder)
        log = lead(manager.open("words", 0, topic, {}))
        for _ in range(count):
            log.append(build_batch())
        manager.stop()
    manager = managers.start("a", "b")
    log = manager.open("words", 0, TOPIC, {}, new=False)
    assert (log.log_end_offset, log.path) == (2, tmp_path / "b" / "words-0")


def one_character_off(text: str) -> str:
    """As a flipped bit leaves it: another id."""
    at = len(text) - 5
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]


@pytest.mark.parametrize("text", ["", "?", "nothing of the kind", "version: 0\ntopic_id: x\n"])
def test_a_log_without_a_readable_id_is_the_topics_that_the_store_names(
    managers: Managers, tmp_path: Path, text: str
) -> None:
    data = tmp_path / "data"
    with_deleted_records(managers, 0)
    managers.started[-1].stop()
    file = data / "words-0" / "partition.metadata"
    good = file.read_text()
    for clean in (True, False):
        file.write_text(text or one_character_off(good))
        if not clean:
            (data / CLEAN_SHUTDOWN_FILE).unlink()
        manager = managers.start()
        log = manager.open("words", 0, TOPIC, {}, new=False)
        assert (log.log_start_offset, log.log_end_offset) == (3, 5)
        assert file.read_text() == good
        manager.stop()
    assert not [name for name in names(data) if name.endswith("-stray")]


def test_a_new_topic_takes_no_unknown_log(managers: Managers, tmp_path: Path) -> None:
    with_deleted_records(managers, 0)
    managers.started[-1].stop()
    (tmp_path / "data" / "words-0" / "partition.metadata").write_text("?")
    manager = managers.start()
    assert manager.open("words", 0, TOPIC, {}, new=True).log_end_offset == 0
    assert [name for name in names(tmp_path / "data") if name.endswith("-stray")]
