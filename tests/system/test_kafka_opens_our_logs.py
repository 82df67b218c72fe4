"""Apache Kafka, and its dump tool, over the directories that histories of our logs have left.

A history (`tests/unit/log/power_cut_model.py`) appends with several codecs and producers, rolls,
deletes records, retires, cuts, cleans, stops and starts. Its files are put in the place of the logs
of a stopped Apache Kafka, which opens them after a clean stop, and once more after a crash, where
it reads every batch and makes its indexes again. Of several batches of a producer in a snapshot it
knows the last one.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.log.engine.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    write_offsets,
)
from kbroker.log.engine.producer_snapshots import decode, snapshot_files
from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE
from kbroker.types import TopicPartition
from tests.parity.cases.describe_producers import ask
from tests.parity.talk import Talk
from tests.support import memory
from tests.support.kafka import KafkaBroker
from tests.support.read_topic import EOF_AT_ONCE
from tests.support.snapshots import encode
from tests.system.test_kafka_reads_our_files import dump
from tests.unit.log.power_cut_model import History
from tests.unit.log.rot_model import Found, start
from tests.unit.net.harness import eventually

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

SEEDS = range(900, 906)
STEPS = 60
WAIT_S = 30.0
COMPLAINTS = re.compile(
    r"corrupt|rebuilding index|non-monotonic|invalid|out of order|mismatch|truncat", re.I
)

Logs = dict[str, tuple[Path, Found]]  # by topic: its directory, and what we read of it


@pytest.fixture(scope="module")
def logs() -> Iterator[Logs]:
    with memory.directory() as place:
        made: Logs = {}
        for seed in SEEDS:
            (place / str(seed)).mkdir()
            history = History(seed, place / str(seed))
            history.run(STEPS)
            copy = place / f"copy-{seed}"
            shutil.copytree(history.directory, copy)
            for name, found in start(copy, history.topics).items():
                assert isinstance(found, Found)
                made[f"{name}-{seed}"] = history.directory / f"{name}-0", found
        yield made


def test_the_tool_finds_nothing_wrong(logs: Logs) -> None:
    for suffix, flags in (
        ("log", ["--deep-iteration"]),
        ("index", ["--index-sanity-check"]),
        ("index", ["--verify-index-only"]),
        ("timeindex", []),
        ("snapshot", []),
    ):
        files = [file for path, _ in logs.values() for file in sorted(path.glob(f"*.{suffix}"))]
        assert len(files) >= len(logs)
        printed = dump(*flags, "--files", ",".join(map(str, files)))
        assert "isvalid: false" not in printed
        assert not re.search(r"mismatch|corrupt|not found|out of order|exception", printed, re.I)


def test_apache_kafka_reads_the_records_that_we_read(logs: Logs) -> None:
    expected = {topic: sequences for topic in logs if (sequences := last_sequences(logs, topic))}
    assert len(expected) >= len(SEEDS)
    with KafkaBroker({"offsets.topic.num.partitions": 1}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        # It is to clean and to retire nothing of its own.
        settings = {"retention.ms": "-1", "index.interval.bytes": "200"}
        wanted = [NewTopic(topic, 1, 1, config=settings) for topic in logs]
        for done in admin.create_topics(wanted).values():
            done.result(WAIT_S)
        kafka.stop()
        take_our_places(kafka.data_dir, logs)
        for crash in (False, True):
            if crash:
                (kafka.data_dir / CLEAN_SHUTDOWN_FILE).unlink()
                for index in kafka.data_dir.glob("*-9??-0/*index"):
                    index.unlink()
            before = len(kafka.log_text())
            kafka.start()
            for topic, (_, found) in logs.items():
                assert consumed(kafka, topic, found) == found.records, topic
            assert not complaints(kafka.log_text()[before:])
            if not crash:  # else it knows them by the records, which are older than a day
                assert known_sequences(kafka, expected) == expected
            kafka.stop()


def last_sequences(logs: Logs, topic: str) -> dict[int, int]:
    """By producer, of a log that ends with a snapshot of several batches of each."""
    path, found = logs[topic]
    offset, newest = snapshot_files(path)[-1] if snapshot_files(path) else (-1, path)
    if offset != found.end:
        return {}
    entries = decode(newest.read_bytes())
    last = {entry.producer_id: entry.last_sequence for entry in entries}
    return last if len(entries) > len(last) else {}


def known_sequences(kafka: KafkaBroker, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    host, port = kafka.bootstrap.split(":")
    talk = Talk((host, int(port)), "")
    try:
        answer = talk.quietly(ask(*((topic, [0]) for topic in topics)))
    finally:
        talk.close()
    return {
        topic.name: {each.producer_id: each.last_sequence for each in partition.active_producers}
        for topic in answer.topics
        for partition in topic.partitions
    }


def complaints(text: str) -> list[str]:
    """What it says of our logs, but of indexes that are gone, and of leader epochs: its own are
    lower than ours."""
    ours = [line for line in text.splitlines() if re.search(r"-9\d\d-0\b", line)]
    expected = re.compile("epoch|could not find", re.I)
    return [line for line in ours if COMPLAINTS.search(line) and not expected.search(line)]


def take_our_places(data_dir: Path, logs: Logs) -> None:
    """Our files under its topics' names and ids, and what our checkpoints say of them."""
    starts, ends = {}, {}
    for topic, (path, found) in logs.items():
        place = data_dir / f"{topic}-0"
        for file in place.iterdir():
            if file.name != PARTITION_METADATA_FILE:
                file.unlink()
        for file in path.iterdir():
            if file.name != PARTITION_METADATA_FILE:
                shutil.copy(file, place)
        for _, snapshot in snapshot_files(place):
            # It forgets producers whose last batch is a day old, and a history's are.
            entries = decode(snapshot.read_bytes())
            snapshot.write_bytes(encode(each._replace(timestamp_ms=now_ms()) for each in entries))
        starts[TopicPartition(topic, 0)] = found.start
        ends[TopicPartition(topic, 0)] = found.end
    write_offsets(data_dir / LOG_START_FILE, starts)
    write_offsets(data_dir / HIGH_WATERMARK_FILE, ends)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def bounds(
    consumer: confluent_kafka.Consumer, where: confluent_kafka.TopicPartition
) -> tuple[int, int] | None:
    """None while there is no leader."""
    try:
        return consumer.get_watermark_offsets(where, WAIT_S)
    except confluent_kafka.KafkaException:
        return None


def consumed(
    kafka: KafkaBroker, topic: str, found: Found
) -> dict[int, tuple[bytes | None, bytes | None]]:
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": kafka.bootstrap, "group.id": "g", "check.crcs": True,
        "enable.auto.commit": False, **EOF_AT_ONCE,
    })  # fmt: skip
    try:
        where = confluent_kafka.TopicPartition(topic, 0)
        wanted = found.start, found.end
        # librdkafka asks for the ends in two requests, and gives the one end twice if the other
        # response has no offset. Seen once, right after a start of Kafka's.
        eventually(lambda: bounds(consumer, where) == wanted, f"{topic}: {wanted}")
        where.offset = found.start
        consumer.assign([where])
        records: dict[int, tuple[bytes | None, bytes | None]] = {}
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None
            error, offset = message.error(), message.offset()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                return records
            assert offset is not None
            records[offset] = message.key(), message.value()
    finally:
        consumer.close()
