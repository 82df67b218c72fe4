"""Spark Structured Streaming reads topics and writes one, through its own Kafka connector.

One session for the run (tests/support/spark_session.py). The connector's offsets live in
checkpoints; in the deprecated mode the driver finds them as a member of a group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients import adapters
from tests.clients.adapters import Confluent, Record

pytestmark = [pytest.mark.client, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

DEPRECATED = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
MakeTopic = Callable[..., str]
Rows = list[tuple[str, int, str]]


@pytest.fixture(params=["false", "true"])
def mode(spark: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """Whether the driver finds offsets as a member of a group: the session is shared."""
    spark.conf.set(DEPRECATED, request.param)
    yield request.param
    spark.conf.unset(DEPRECATED)


class Stream:
    """A stream from topics to this process, run until it has read what is there."""

    def __init__(self, spark: Any, bootstrap: str, place: Path, **options: str) -> None:
        self._spark, self._checkpoint = spark, str(place / "checkpoint")
        self._options = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest",
                         **options}  # fmt: skip

    def read(self) -> Rows:
        """Once more from its checkpoint: the rows that came."""
        rows: Rows = []

        def note(batch: Any, number: int) -> None:
            rows.extend((row.topic, row.partition, row.value) for row in batch.collect())

        source = self._spark.readStream.format("kafka").options(**self._options).load()
        query = (
            source.selectExpr("topic", "partition", "CAST(value AS STRING) AS value")
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return sorted(rows)


def write(bootstrap: str, topic: str, *values: str, partition: int = 0) -> Rows:
    Confluent(bootstrap).produce(topic, [Record(v.encode()) for v in values], partition)
    return [(topic, partition, value) for value in values]


def test_subscribe(
    spark: Any, bootstrap: str, make_topic: MakeTopic, tmp_path: Path, mode: str
) -> None:
    one, two = make_topic(2), make_topic()
    stream = Stream(spark, bootstrap, tmp_path, subscribe=f"{one},{two}")
    first = write(bootstrap, one, "a", "b") + write(bootstrap, one, "c", partition=1)
    first += write(bootstrap, two, "d")
    assert stream.read() == sorted(first)
    assert stream.read() == []
    again = write(bootstrap, one, "e", partition=1) + write(bootstrap, two, "f", "g")
    assert stream.read() == sorted(again)


def test_subscribe_pattern(
    spark: Any,
    bootstrap: str,
    make_topic: MakeTopic,
    admin: adapters.Admin,
    tmp_path: Path,
    mode: str,
) -> None:
    stem = make_topic()
    stream = Stream(spark, bootstrap, tmp_path, subscribePattern=f"{re.escape(stem)}.*")
    first = write(bootstrap, stem, "a")
    assert stream.read() == first
    admin.create(f"{stem}-later", 1)  # one that matches comes into being
    later = write(bootstrap, f"{stem}-later", "b") + write(bootstrap, stem, "c")
    assert stream.read() == sorted(later)
    admin.delete(f"{stem}-later")


def test_batch_by_offsets_with_headers_and_times(
    spark: Any, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    noon_ms = 1_700_000_000_000
    records = [Record(b"%d" % n, b"k", (("n", b"%d" % n),), noon_ms + 1000 * n) for n in range(10)]
    Confluent(bootstrap).produce(topic, records)
    source = spark.read.format("kafka").options(**{
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "includeHeaders": "true",
        "startingOffsets": f'{{"{topic}": {{"0": 3}}}}',
        "endingOffsetsByTimestamp": f'{{"{topic}": {{"0": {noon_ms + 8000}}}}}',
    })  # fmt: skip
    rows = source.load().orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(3, 8))
    assert [bytes(row.headers[0].value) for row in rows] == [b"%d" % n for n in range(3, 8)]
    assert [row.timestamp.timestamp() for row in rows] == [noon_ms / 1000 + n for n in range(3, 8)]


def test_sink(spark: Any, bootstrap: str, make_topic: MakeTopic) -> None:
    """Spark's producer: idempotent, acks=all."""
    topic = make_topic()
    pairs = [(f"key {n}", f"value {n}") for n in range(100)]
    frame = spark.createDataFrame(pairs, ["key", "value"])
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    frame.write.format("kafka").options(**options).save()
    found = Confluent(bootstrap).consume(topic, 100)
    wanted = {(key.encode(), value.encode()) for key, value in pairs}
    assert {(record.key, record.value) for record in found} == wanted
