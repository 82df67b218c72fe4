"""A start after a crash reports its progress, and logs that it could not read."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from uuid import UUID

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine.checkpoints import PARTITION_METADATA_FILE
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.log.opening.data_directory import DataDirectory
from kbroker.log.opening.placement import Place
from kbroker.log.opening.recovery import Recovery
from kbroker.log.opening.recovery_progress import REPORT_EVERY_MS
from kbroker.types import TopicPartition
from tests.support.led_log import open_led_log
from tests.support.record_batches import build_batch

TOPIC = UUID(int=7)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_recovery_says_how_far_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, threads: int
) -> None:
    caplog.set_level(logging.INFO, "kbroker.log")
    clock, lock = ManualClock(), threading.Lock()
    for index in range(8):
        log = open_led_log(tmp_path / f"words-{index}", "words", index, TOPIC, {})
        log.set_leadership(1, True, 0, 1)
        log.append(build_batch([b"x" * 1_000_000]))
        log.close(clean=False)
    (tmp_path / "words-6" / PARTITION_METADATA_FILE).write_text("what is this")

    def open_at(
        place: Place, name: TopicPartition, topic_id: UUID, how: object, go_on: object
    ) -> PartitionLog:
        with lock:
            clock.advance(REPORT_EVERY_MS // 2)
        if name.partition == 7:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "segments overlap")
        log: PartitionLog = open_led_log(place.path, *name, topic_id, {}).log
        return log

    recovery = Recovery(DataDirectory(tmp_path), open_at, clock)
    recovery.finish(threads)
    found, _ = recovery.stop()
    assert {name.partition for name in found.logs} == {*range(6)}
    assert {name.partition for name in found.unread} == {7}
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert lines[0].startswith(f"recovering {tmp_path}: ") and " of 8 logs, with " in lines[0]
    assert lines[-1].startswith(f"recovered 8 logs with 6 MB in {tmp_path} in ")
    assert 3 <= len(lines) <= 5
    text = caplog.text
    assert "words-6" in text and "it is read when its topic is opened" in text
    assert "words-7 cannot be recovered: KAFKA_STORAGE_ERROR (56): segments overlap" in text
    for opened in found.logs.values():
        opened.close()


def test_a_directory_without_an_id_is_left_to_its_opening(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kbroker.log")
    (tmp_path / "words-0").mkdir()

    def unused(*_: object) -> PartitionLog:
        raise AssertionError

    Recovery(DataDirectory(tmp_path), unused, ManualClock()).finish(1)
    assert "recovered 1 logs with 0 MB" in caplog.text
