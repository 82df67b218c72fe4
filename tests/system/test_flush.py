"""log.flush.* on a real broker: who waits for a disk, what it fails, what a kill finds on it."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.testing.plain import KEEPS_WHAT_IS_OLD
from kbroker.testing.plain import PlainBroker as Broker
from kbroker.types import ApiKey
from tests.parity.cases._configs import BROKER, SET, incremental
from tests.parity.requests import build
from tests.parity.talk import Connection
from tests.support.disk import Disk
from tests.support.record_batches import Record, build_batch, parse_batches
from tests.system.conftest import MakeBroker
from tests.system.test_configs_at_once import change, fetch, produce
from tests.system.test_settings_at_run_time import talk_with

pytestmark = pytest.mark.timeout(120)

KAFKA_STORAGE_ERROR = 56
BATCH = build_batch([Record(b"v", key=b"k")])
EVERY_RECORD = {"flush.messages": "1"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    disk.be("ok")


def flushes(broker: Broker) -> int:
    """LogFlushRateAndTimeMs, by its count."""
    name = "kafka_log_LogFlushStats_LogFlushRateAndTimeMs_count"
    with urllib.request.urlopen(f"{broker.admin}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    assert found, f"{name} is not among the metrics"
    return int(float(found[1]))


def recovery_points(broker: Broker) -> dict[str, int]:
    path = broker.data_dir / "recovery-point-offset-checkpoint"
    if not path.exists():
        return {}
    lines = [line.split() for line in path.read_text().splitlines()[2:]]
    return {f"{topic}-{index}": int(offset) for topic, index, offset in lines}


def produce_frame(topic: str) -> object:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": BATCH}]}]
    return build(ApiKey.PRODUCE, 9, acks=-1, timeout=10_000, topic_data=data)


def error_of(connection: Connection) -> int:
    answer = connection.receive(record=False)
    return int(answer.responses[0].partition_responses[0].error_code.value)


def test_a_slow_disk_delays_only_producers_that_asked_for_a_flush(
    make_broker: MakeBroker, disk: Disk
) -> None:
    settings = {"num.io.threads": 4, **KEEPS_WHAT_IS_OLD}
    broker = make_broker(settings, env=disk.environment()).start()
    talk = talk_with(broker)
    flushed = talk.topic("flushed", configs=EVERY_RECORD)
    quick = talk.topic("quick")
    assert produce(talk, flushed, BATCH).base_offset == 0
    disk.be("hold")
    waiting = [talk.connect() for _ in range(2)]
    for connection in waiting:
        connection.send(produce_frame(flushed))
    for number in range(50):
        assert produce(talk, quick, BATCH).base_offset == number
        assert len(parse_batches(fetch(talk, flushed, 0))) == 1  # no record is read that may go
    for connection in waiting:
        assert connection.receive(record=False, within_ms=1) is None
    disk.be("ok")
    assert [error_of(connection) for connection in waiting] == [0, 0]
    assert len(parse_batches(fetch(talk, flushed, 0))) == 3
    talk.close()


def test_a_sync_that_fails_takes_the_partition_offline(make_broker: MakeBroker, disk: Disk) -> None:
    broker = make_broker(env=disk.environment()).start()
    talk = talk_with(broker)
    flushed = talk.topic("flushed", configs=EVERY_RECORD)
    quick = talk.topic("quick", configs=EVERY_RECORD)
    assert produce(talk, flushed, BATCH).error_code.value == 0
    disk.be("fail")
    assert produce(talk, flushed, BATCH).error_code.value == KAFKA_STORAGE_ERROR
    disk.be("ok")  # the kernel has forgotten; the log has not
    assert produce(talk, flushed, BATCH).error_code.value == KAFKA_STORAGE_ERROR
    assert produce(talk, quick, BATCH).error_code.value == 0
    talk.until(lambda: "writes failed since the last look" in broker.log_text())
    talk.close()
    assert broker.stop() == 0
    assert not (broker.data_dir / ".kafka_cleanshutdown").exists()
    broker.start()  # which reads what the file holds
    talk = talk_with(broker)
    talk.settled(flushed)  # beside what it serves by then
    assert produce(talk, flushed, BATCH).error_code.value == 0
    talk.close()


def test_a_kill_finds_the_recovery_point_at_the_end(make_broker: MakeBroker) -> None:
    broker = make_broker(
        {"log.initial.task.delay.ms": 0, "log.flush.offset.checkpoint.interval.ms": 50,
         "log.retention.ms": -1}
    ).start()  # fmt: skip
    talk = talk_with(broker)
    flushed = talk.topic("flushed", configs=EVERY_RECORD)
    cached = talk.topic("cached")
    before = flushes(broker)
    for _ in range(20):
        assert produce(talk, flushed, BATCH).error_code.value == 0
        assert produce(talk, cached, BATCH).error_code.value == 0
    assert flushes(broker) - before == 20
    talk.until(lambda: recovery_points(broker).get(f"{flushed}-0") == 20)
    assert recovery_points(broker)[f"{cached}-0"] == 0
    talk.close()
    broker.kill9()
    broker.start()
    talk = talk_with(broker)
    talk.settled(flushed, cached)  # after a kill their logs may still be read
    for topic in (flushed, cached):  # the page cache outlives the process
        assert len(parse_batches(fetch(talk, topic, 0))) == 20
    talk.close()


def test_the_settings_change_while_it_serves(make_broker: MakeBroker) -> None:
    broker = make_broker(
        {"log.initial.task.delay.ms": 0, "log.flush.scheduler.interval.ms": 50,
         "log.flush.interval.ms": 3_600_000, "log.retention.ms": -1}
    ).start()  # fmt: skip
    talk = talk_with(broker)
    topic = talk.topic()

    def flushed_by(count: int) -> int:
        before = flushes(broker)
        for _ in range(count):
            assert produce(talk, topic, BATCH).error_code.value == 0
        return flushes(broker) - before

    assert flushed_by(5) == 0
    change(talk, topic, ("flush.messages", SET, "1"))
    assert flushed_by(5) == 5
    change(talk, topic, ("flush.messages", SET, "1000"))
    assert flushed_by(5) == 0
    before = flushes(broker)
    for key, value in (("log.flush.interval.messages", "2"), ("log.flush.interval.ms", "100")):
        asked = incremental(1, (BROKER, "", [(key, SET, value)]))
        assert talk.quietly(asked).responses[0].error_code.value == 0
    # By time now, since the topic's own number goes before the broker's: first what waits for it.
    talk.until(lambda: flushes(broker) == before + 1)
    assert produce(talk, topic, BATCH).error_code.value == 0
    talk.until(lambda: flushes(broker) == before + 2)
    talk.close()


def test_deleted_files_go_when_they_were_said_to(make_broker: MakeBroker) -> None:
    broker = make_broker({"log.segment.delete.delay.ms": 3_600_000}).start()
    talk = talk_with(broker)
    topic = talk.topic()
    assert produce(talk, topic, BATCH).error_code.value == 0
    talk.delete(topic)

    def left() -> list[Path]:
        return list(broker.data_dir.glob("*-delete"))

    assert len(left()) == 1
    asked = incremental(1, (BROKER, "", [("log.segment.delete.delay.ms", SET, "0")]))
    assert talk.quietly(asked).responses[0].error_code.value == 0
    talk.until(lambda: not left())
    talk.close()
