"""What is copied out of logs for DescribeProducers and DescribeLogDirs."""

from __future__ import annotations

import struct
import threading
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine._results import ProducerEntry
from kbroker.log.looking._describe import encode_producers, sizes
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import build_batch
from tests.unit.log.conftest import TOPIC_ID

ENTRY = struct.Struct(">qiiqiqx")


def described(log: LedLog) -> list[tuple[int, ...]]:
    count, encoded = encode_producers(log.log)
    assert len(encoded) == count * ENTRY.size
    return list(ENTRY.iter_unpack(encoded))


def test_producers_of_a_log(log: LedLog) -> None:
    assert encode_producers(log.log) == (0, b"")
    log.append(build_batch([b"a"]))
    log.append(build_batch([b"a", b"b"], producer_id=9, producer_epoch=3, base_sequence=0))
    log.append(build_batch([b"c"], producer_id=7, producer_epoch=0, base_sequence=0))
    log.append(build_batch([b"d"], producer_id=9, producer_epoch=3, base_sequence=2))
    assert described(log) == [(7, 0, 0, 1000, -1, -1), (9, 3, 2, 1000, -1, -1)]


def test_a_producer_without_a_batch(log: LedLog) -> None:
    log.restore_producer(ProducerEntry(5, 2, -1, -1, 0, 77, 4, 33))
    assert described(log) == [(5, 2, -1, 77, 4, 33)]


def test_many_producers_while_they_become_more(log: LedLog) -> None:
    def more() -> None:
        for producer_id in range(1000, 3000):
            log.restore_producer(ProducerEntry(producer_id, 0, 0, 0, 0, 5, -1, -1))

    for producer_id in range(1000):
        log.restore_producer(ProducerEntry(producer_id, 0, 0, 0, 0, 5, -1, -1))
    thread = threading.Thread(target=more)
    thread.start()
    while thread.is_alive():
        found = described(log)
        assert [entry[0] for entry in found] == list(range(len(found)))
    thread.join()
    assert len(described(log)) == 3000


def test_a_closed_log_has_none_to_tell(log: LedLog) -> None:
    log.close()
    with pytest.raises(KafkaError) as caught:
        encode_producers(log.log)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_sizes(log: LedLog) -> None:
    assert sizes([]) == []
    assert sizes([log.log]) == [0]
    batch = build_batch([b"a"])
    log.append(batch)
    assert sizes([log.log, log.log]) == [len(batch)] * 2
    with pytest.raises(TypeError):
        sizes([object()])  # type: ignore[type-var]


def test_the_directories_of_a_broker(tmp_path: Path) -> None:
    manager = LedLogManager([tmp_path / "a", tmp_path / "b"])
    manager.start()
    try:
        names = [TopicPartition("t", index) for index in range(1100)]
        logs = [manager.open(*name, TOPIC_ID, {}) for name in names]
        logs[0].set_leadership(1, True, 0, 1)
        batch = build_batch([b"a"])
        logs[0].append(batch)
        first, second = manager.use_of_directories(None)
        assert (first.path, second.path) == (str(tmp_path / "a"), str(tmp_path / "b"))
        assert sorted(name for name, _ in first.logs + second.logs) == names
        assert dict((name, size) for name, size in first.logs)[names[0]] == len(batch)
        assert 0 < first.usable_bytes <= first.total_bytes and not first.failed
        wanted = {names[0], TopicPartition("none", 0)}
        first, second = manager.use_of_directories(wanted)
        assert (first.logs, second.logs) == ([(names[0], len(batch))], [])
        assert all(use.logs == [] for use in manager.use_of_directories(frozenset()))
    finally:
        manager.stop()


def test_a_directory_that_is_gone_has_an_error(tmp_path: Path) -> None:
    manager = LedLogManager([tmp_path / "a"])
    manager.start()
    manager.stop()
    (tmp_path / "a").rename(tmp_path / "gone")
    (use,) = manager.use_of_directories(None)
    assert (use.failed, use.logs, use.total_bytes, use.usable_bytes) == (True, [], -1, -1)
