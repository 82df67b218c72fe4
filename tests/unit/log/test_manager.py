"""The log manager: locks, clean and unclean starts, checkpoints, removals."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import DataDirectoryError, ErrorCode, KafkaError
from kbroker.log.engine.checkpoints import read_offsets
from kbroker.log.opening.data_directory import DataDirectory, partition_of
from kbroker.log.upkeep.producer_expiry import PRODUCER_EXPIRATION
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import build_batch, parse_batches

TOPIC = uuid.UUID(int=1)
OTHER = uuid.UUID(int=2)


class Managers:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        self.started: list[LedLogManager] = []

    def start(self, *names: str, **settings: Any) -> LedLogManager:
        paths = [self.root / name for name in names or ("data",)]
        manager = LedLogManager(paths, clock=self.clock, **settings)
        manager.start()
        self.started.append(manager)
        return manager


@pytest.fixture
def managers(tmp_path: Path) -> Iterator[Managers]:
    made = Managers(tmp_path)
    yield made
    for manager in made.started:
        manager.stop()


def lead(log: LedLog, epoch: int = 0) -> LedLog:
    log.set_leadership(1, True, epoch, 1)
    return log


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def run(manager: LedLogManager) -> None:
    for work in (manager.checkpoint, manager.checkpoint_recovery_points, manager.remove_deleted):
        for _ in work():
            pass


@pytest.mark.parametrize("clean", [True, False])
def test_logs_of_topics_that_are_no_more_are_set_aside(
    managers: Managers, tmp_path: Path, clean: bool
) -> None:
    data = tmp_path / "data"
    manager = managers.start()
    for topic, topic_id in (("kept", TOPIC), ("gone", OTHER)):
        lead(manager.open(topic, 0, topic_id, {})).append(build_batch([b"precious"]))
    manager.stop(as_found=not clean)
    manager = managers.start()
    kept = manager.open("kept", 0, TOPIC, {})

    def is_here(name: TopicPartition, topic_id: uuid.UUID) -> bool:
        return topic_id in (TOPIC, uuid.UUID(int=3))

    manager.set_aside_strays(is_here)
    assert "gone-0" not in names(data) and kept.online
    (stray,) = [name for name in names(data) if name.endswith("-stray")]
    assert stray.startswith("gone-0.")
    assert b"precious" in (data / stray / f"{0:020d}.log").read_bytes()
    # Who has the name next begins at 0, and what is aside is left there.
    again = manager.open("gone", 0, uuid.UUID(int=3), {})
    assert (again.log_end_offset, again.high_watermark) == (0, 0)
    manager.set_aside_strays(is_here)
    assert {"kept-0", "gone-0", stray} <= names(data)


def test_a_log_survives_a_clean_stop(managers: Managers, tmp_path: Path) -> None:
    data = tmp_path / "data"
    manager = managers.start()
    log = lead(manager.open("words", 0, TOPIC, {}))
    log.append(build_batch([b"a", b"b"]))
    manager.stop()
    assert ".kafka_cleanshutdown" in names(data)
    assert (data / "replication-offset-checkpoint").read_text() == "0\n1\nwords 0 2\n"
    assert (data / "recovery-point-offset-checkpoint").read_text() == "0\n1\nwords 0 2\n"

    manager = managers.start()
    assert ".kafka_cleanshutdown" not in names(data)
    log = manager.open("words", 0, TOPIC, {})
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (2, 2, 2)
    assert lead(log, 1).append(build_batch()).base_offset == 2


def test_a_log_survives_a_crash(managers: Managers, tmp_path: Path) -> None:
    manager = managers.start()
    for index in range(3):
        log = lead(manager.open("words", index, TOPIC, {"segment_bytes": 200}))
        for _ in range(5 + index):
            log.append(build_batch([b"a" * 60]))
    run(manager)
    shutil.copytree(tmp_path / "data", tmp_path / "after")
    active = max((tmp_path / "after" / "words-1").glob("*.log"))
    active.write_bytes(active.read_bytes()[:-1])

    manager = managers.start("after", recovery_threads=2)
    ends = []
    for index in range(3):
        log = manager.open("words", index, TOPIC, {"segment_bytes": 200})
        assert log.recovery_point > 0
        ends.append(log.log_end_offset)
        lead(log, 1)
        assert parse_batches(log.read(log.log_end_offset - 1))[0].base_offset > 0
    assert ends == [5, 5, 7]


def test_one_process_at_a_time(managers: Managers, tmp_path: Path) -> None:
    manager = managers.start()
    with pytest.raises(DataDirectoryError) as caught:
        managers.start("free", "data")
    assert caught.value.exit_code == 5
    assert str(os.getpid()) in caught.value.message
    managers.start("free")  # it was let go again

    code = (
        "import sys; from pathlib import Path; from tests.support.led_log import LedLogManager;"
        "LedLogManager([Path(sys.argv[1])]).start()"
    )
    held = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "data")], capture_output=True, text=True
    )
    assert "is in use by pid" in held.stderr
    manager.stop()
    free = subprocess.run([sys.executable, "-c", code, str(tmp_path / "data")])
    assert free.returncode == 0


def test_a_directory_that_cannot_be_used(managers: Managers, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataDirectoryError, match="cannot be used"):
        managers.start("file")


def test_deleted_logs_go_later(managers: Managers, tmp_path: Path) -> None:
    data = tmp_path / "data"
    manager = managers.start(segment_delete_delay_ms=1_000)
    log = lead(manager.open("words", 0, TOPIC, {}))
    log.append(build_batch())
    manager.delete(log)
    assert not log.online
    (gone,) = [name for name in names(data) if name.endswith("-delete")]
    assert gone.startswith("words-0.")
    fresh = lead(manager.open("words", 0, OTHER, {}))
    assert fresh.log_end_offset == 0
    run(manager)
    assert gone in names(data)
    managers.clock.advance(1_000)
    run(manager)
    assert gone not in names(data)
    assert "words-0" in names(data)


def test_logs_that_a_crash_left_to_delete_go_at_the_next_round(
    managers: Managers, tmp_path: Path
) -> None:
    left = tmp_path / "data" / "words-0.abc-delete"
    left.mkdir(parents=True)
    (left / "file").write_bytes(b"x")
    run(managers.start())
    assert not left.exists()


def test_topic_directories_without_a_topic(managers: Managers, tmp_path: Path) -> None:
    data = tmp_path / "data"
    manager = managers.start()
    for index in (0, 1):
        manager.open("words", index, TOPIC, {})
    manager.open("other", 0, OTHER, {})
    shutil.copytree(data, tmp_path / "after")

    manager = managers.start("after")
    open_one = manager.open("words", 1, TOPIC, {})
    manager.delete_topic_directories({OTHER: "words"})
    assert {"words-0", "words-1"} <= names(tmp_path / "after")
    manager.delete_topic_directories({TOPIC: "words"})
    assert {"words-1", "other-0"} == {n for n in names(tmp_path / "after") if n[-2:-1] == "-"}
    assert open_one.online


def test_a_directory_lists_the_logs_of_some_topics(tmp_path: Path) -> None:
    for name in ("a-0", "a-10", "a-b-0", "b-0", "a", "a-x", "a-0.delete"):
        (tmp_path / name).mkdir()
    directory = DataDirectory(tmp_path)
    assert {str(name) for name in directory.logs()} == {"a-0", "a-10", "a-b-0", "b-0"}
    assert {str(name) for name in directory.logs({"a", "none"})} == {"a-0", "a-10"}


def test_another_topics_log_is_set_aside(managers: Managers, tmp_path: Path) -> None:
    manager = managers.start()
    log = lead(manager.open("words", 0, TOPIC, {}))
    log.append(build_batch([b"precious"]))
    manager.stop()
    manager = managers.start()
    assert manager.open("words", 0, OTHER, {}).log_end_offset == 0
    (stray,) = [n for n in names(tmp_path / "data") if n.endswith("-stray")]
    assert b"precious" in (tmp_path / "data" / stray / f"{0:020d}.log").read_bytes()


def test_a_log_that_cannot_be_opened_is_one_partitions_trouble(
    managers: Managers, tmp_path: Path
) -> None:
    manager = managers.start()
    (tmp_path / "data" / "words-0").write_bytes(b"a file, not a directory")
    with pytest.raises(KafkaError) as caught:
        manager.open("words", 0, TOPIC, {})
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    manager.open("words", 1, TOPIC, {})
    with pytest.raises(KafkaError, match="open already"):
        manager.open("words", 1, TOPIC, {})


def test_new_logs_go_where_there_are_fewest(managers: Managers, tmp_path: Path) -> None:
    manager = managers.start("a", "b")
    for index in range(6):
        manager.open("words", index, TOPIC, {})
    counts = [len([n for n in names(tmp_path / d) if n.startswith("words")]) for d in "ab"]
    assert counts == [3, 3]
    manager.stop()
    manager = managers.start("b", "a")
    for index in range(6):
        assert manager.open("words", index, TOPIC, {}).log_end_offset == 0
    assert counts == [3, 3]


def test_background_rounds(managers: Managers, tmp_path: Path) -> None:
    data = tmp_path / "data"
    manager = managers.start()
    log = lead(manager.open("words", 0, TOPIC, {"segment_bytes": 200}))
    for sequence in range(6):
        log.append(build_batch([b"a" * 50], producer_id=3, producer_epoch=0,
                               base_sequence=sequence))  # fmt: skip
    run(manager)
    name = TopicPartition("words", 0)
    assert read_offsets(data / "recovery-point-offset-checkpoint") == {name: log.active_base_offset}
    assert read_offsets(data / "replication-offset-checkpoint") == {name: 6}
    assert [int(p.stem) for p in (data / "words-0").glob("*.snapshot")] == [6]
    stamp = (data / "replication-offset-checkpoint").stat().st_mtime_ns
    run(manager)
    assert (data / "replication-offset-checkpoint").stat().st_mtime_ns == stamp

    assert log.statistics()["producers"] == 1
    managers.clock.advance(PRODUCER_EXPIRATION["producer.id.expiration.check.interval.ms"])
    run(manager)
    assert log.statistics()["producers"] == 0
    assert manager.statistics()["logs"] == 1


@pytest.mark.parametrize("cut", [LedLog.truncate_to, LedLog.begin_again])
def test_a_part_that_is_cut_is_promised_to_no_later_start(
    managers: Managers, tmp_path: Path, cut: Callable[[LedLog, int], None]
) -> None:
    """Or what came in its place, and went with the power, would not be missed."""
    manager = managers.start()
    log = lead(manager.open("words", 0, TOPIC, {"segment_bytes": 200}))
    other = lead(manager.open("other", 0, TOPIC, {}))
    for each in (log, other):
        for _ in range(6):
            each.append(build_batch([b"a" * 50]))
    log.flush()
    run(manager)
    file = tmp_path / "data" / "recovery-point-offset-checkpoint"
    name = TopicPartition("words", 0)
    promised = read_offsets(file)[name]
    assert promised > 2
    cut(log, promised)
    run(manager)
    stamp = file.stat().st_mtime_ns
    assert read_offsets(file)[name] <= promised
    cut(log, 2)
    assert file.stat().st_mtime_ns > stamp
    assert read_offsets(file)[name] <= log.settled_recovery_point <= 2


def test_failed_writes_are_reported_once(
    managers: Managers, caplog: pytest.LogCaptureFixture
) -> None:
    manager = managers.start()
    log = lead(manager.open("words", 0, TOPIC, {"segment_index_bytes": 1_200}))
    batch = build_batch([b"a" * 50])
    log.append(batch)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.size_bytes + 1, before[1]))
    try:
        for _ in range(3):
            with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
                log.append(batch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    run(manager)
    run(manager)
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(logged) == 1
    assert "words-0: 3 writes failed" in logged[0]


def test_damaged_checkpoints_only_cost_time(managers: Managers, tmp_path: Path) -> None:
    manager = managers.start()
    lead(manager.open("words", 0, TOPIC, {})).append(build_batch())
    manager.stop()
    for name in names(tmp_path / "data"):
        if name.endswith("checkpoint"):
            (tmp_path / "data" / name).write_bytes(b"\xff\xff")
    log = managers.start().open("words", 0, TOPIC, {})
    assert log.log_end_offset == 1


@pytest.mark.parametrize(
    ("name", "partition"),
    [("words-0", ("words", 0)), ("a-b-12", ("a-b", 12)), ("words", None), ("-1", None),
     ("words-01", None), ("words-x", None), ("words--1", ("words-", 1)), ("words-\u0661", None),
     ("words-99999999999", None), ("words-0.abc-delete", None)],
)  # fmt: skip
def test_directory_names(name: str, partition: tuple[str, int] | None) -> None:
    assert partition_of(name) == partition
