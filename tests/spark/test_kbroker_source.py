"""The data source `kbroker` beside Spark's Kafka source: equal rows, offsets and losses."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.compression import Codec
from kbroker.peer.client import Client
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from kbroker.testing.plain import PlainBroker
from kbroker.types import TopicPartition
from spark_jobs import kbroker_source
from tests.spark.conftest import create

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

NOON_MS = 1_700_000_000_000
SOURCES = ("kafka", "kbroker")
Fill = Callable[..., None]


@pytest.fixture(autouse=True)
def source(spark: Any) -> None:
    kbroker_source.register(spark)


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.translate(str.maketrans("[]", "--"))[:200]
    create(client, name, 3)
    yield name
    client.delete_topics([name])


@pytest.fixture
def fill(client: Client) -> Fill:
    """Records of every shape into all partitions, in batches of every codec."""

    def do(topic: str, count: int, seed: int = 1) -> None:
        chosen = random.Random(seed)
        for partition in range(3):
            for codec in Codec:
                records = [
                    Record(
                        key=chosen.choice([None, b"", b"k\xff"]),
                        value=chosen.choice([None, b"", chosen.randbytes(20)]),
                        headers=chosen.choice([(), (("h", b"1"), ("h", None))]),
                        timestamp_ms=NOON_MS + chosen.randrange(10**6),
                    )
                    for _ in range(count)
                ]
                Producer(client, topic, partition=partition, codec=codec).send(records)

    return do


def batch(spark: Any, bootstrap: str, kind: str, topic: str, **options: str) -> Any:
    return spark.read.format(kind).options(**{
        "kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options,
    }).load()  # fmt: skip


def stream(
    spark: Any, bootstrap: str, kind: str, topic: str, place: Path, **options: str
) -> list[dict[str, Any]]:
    """Available-now into a directory; each batch's progress."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
    query = (
        spark.readStream.format(kind)
        .options(startingOffsets="earliest", **given)
        .load()
        .writeStream.format("parquet")
        .option("path", str(place / "rows"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    if query.exception() is not None:
        raise query.exception()
    return [json.loads(one.json) for one in query.recentProgress if one.numInputRows]


def rows(frame: Any) -> list[Any]:
    return list(frame.orderBy("topic", "partition", "offset").collect())


def test_a_batch_is_equal_to_the_kafka_sources(
    spark: Any, shared_broker: PlainBroker, topic: str, fill: Fill
) -> None:
    fill(topic, 20)
    theirs, ours = (
        batch(spark, shared_broker.bootstrap, kind, topic, includeHeaders="true")
        for kind in SOURCES
    )
    assert ours.schema == theirs.schema
    found = rows(ours)
    assert found == rows(theirs)
    assert len(found) == 20 * 3 * len(Codec)


def test_offsets_cut_a_batch_where_the_kafka_source_cuts(
    spark: Any, shared_broker: PlainBroker, topic: str, fill: Fill
) -> None:
    """In the midst of record batches; -2 is the beginning, -1 the end."""
    fill(topic, 20)
    between = {
        "startingOffsets": json.dumps({topic: {"0": 7, "1": -2, "2": 20 * len(Codec)}}),
        "endingOffsets": json.dumps({topic: {"0": 33, "1": 1, "2": -1}}),
    }
    theirs, ours = (
        rows(batch(spark, shared_broker.bootstrap, kind, topic, **between)) for kind in SOURCES
    )
    assert [(row.partition, row.offset) for row in ours] == [
        *((0, offset) for offset in range(7, 33)), (1, 0),
    ]  # fmt: skip
    assert ours == theirs


def test_a_stream_lands_the_same_rows_in_batches_of_the_same_offsets(
    spark: Any, shared_broker: PlainBroker, topic: str, fill: Fill, tmp_path: Path
) -> None:
    fill(topic, 10)
    found = {}
    for kind in SOURCES:
        done = stream(spark, shared_broker.bootstrap, kind, topic, tmp_path / kind,
                      maxOffsetsPerTrigger="60")  # fmt: skip
        found[kind] = rows(spark.read.parquet(str(tmp_path / kind / "rows")))
        (last,) = done[-1]["sources"]
        assert _offsets(last["endOffset"]) == {topic: dict.fromkeys("012", 10 * len(Codec))}
        assert all(0 < one["numInputRows"] <= 63 for one in done), kind
        assert len(done) >= 3
        assert _offsets(last["latestOffset"]) == _offsets(last["endOffset"])
    assert found["kbroker"] == found["kafka"]
    assert len(found["kbroker"]) == 30 * len(Codec)


def _offsets(found: Any) -> Any:
    return json.loads(found) if isinstance(found, str) else found


def test_a_stream_goes_on_where_its_checkpoint_ends_and_ends_where_it_began_to(
    spark: Any, shared_broker: PlainBroker, topic: str, fill: Fill, tmp_path: Path
) -> None:
    fill(topic, 4, seed=1)
    stream(spark, shared_broker.bootstrap, "kbroker", topic, tmp_path)
    assert stream(spark, shared_broker.bootstrap, "kbroker", topic, tmp_path) == []
    fill(topic, 3, seed=2)
    stream(spark, shared_broker.bootstrap, "kbroker", topic, tmp_path)
    landed = rows(spark.read.parquet(str(tmp_path / "rows")))
    assert landed == rows(batch(spark, shared_broker.bootstrap, "kafka", topic))


def test_records_that_are_gone_end_the_query_and_are_named(
    spark: Any, shared_broker: PlainBroker, client: Client, topic: str, fill: Fill, tmp_path: Path
) -> None:
    fill(topic, 4)
    stream(spark, shared_broker.bootstrap, "kbroker", topic, tmp_path)
    fill(topic, 4)
    before = 4 * len(Codec)
    client.delete_records({TopicPartition(topic, 1): before + 3})
    with pytest.raises(Exception, match=rf"lost: {topic}-1 begins at {before + 3}, {before} to"):
        stream(spark, shared_broker.bootstrap, "kbroker", topic, tmp_path)


def test_a_loss_that_is_accepted_is_gone_over_by_both_sources(
    spark: Any, shared_broker: PlainBroker, client: Client, topic: str, fill: Fill, tmp_path: Path
) -> None:
    """Retention overtook one partition; then the topic is made anew, shorter than it was read."""
    landed = {}
    fill(topic, 4)
    for kind in SOURCES:
        stream(spark, shared_broker.bootstrap, kind, topic, tmp_path / kind, failOnDataLoss="false")
    fill(topic, 4)
    client.delete_records({TopicPartition(topic, 1): 4 * len(Codec) + 3})
    for kind in SOURCES:
        stream(spark, shared_broker.bootstrap, kind, topic, tmp_path / kind, failOnDataLoss="false")
    client.delete_topics([topic])
    create(client, topic, 3)
    for number in range(2):
        fill(topic, 1, seed=number)
        for kind in SOURCES:
            place = tmp_path / kind
            stream(spark, shared_broker.bootstrap, kind, topic, place, failOnDataLoss="false")
            landed[kind] = rows(spark.read.parquet(str(place / "rows")))
    assert landed["kbroker"] == landed["kafka"]
    assert len(landed["kbroker"]) == 3 * 8 * len(Codec) - 3 + 3 * len(Codec)


def test_a_topic_made_anew_ends_the_query(
    spark: Any, shared_broker: PlainBroker, client: Client, topic: str, fill: Fill, tmp_path: Path
) -> None:
    fill(topic, 4)
    stream(spark, shared_broker.bootstrap, "kbroker", topic, tmp_path)
    client.delete_topics([topic])
    create(client, topic, 3)
    fill(topic, 1)
    with pytest.raises(Exception, match=r"lost: .* the topic was made anew"):
        stream(spark, shared_broker.bootstrap, "kbroker", topic, tmp_path)


def test_a_time_that_spark_does_not_have_is_null(
    spark: Any, shared_broker: PlainBroker, client: Client, topic: str
) -> None:
    stamps = [0, -5_000, NOON_MS, -(2**62)]
    Producer(client, topic, partition=0).send(
        [Record(key=None, value=b"v", timestamp_ms=stamp) for stamp in stamps]
    )
    found = rows(batch(spark, shared_broker.bootstrap, "kbroker", topic))
    seconds = [row.timestamp.timestamp() if row.timestamp else None for row in found]
    assert seconds == [0, -5, NOON_MS / 1000, None]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "never-made-this"}, "never-made-this"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "127.0.0.1:1"),
        ({"kafka.group.id": "g"}, "no option kafka.group.id"),
    ],
)
def test_trouble_is_said(
    spark: Any, shared_broker: PlainBroker, options: dict[str, str], said: str
) -> None:
    more = {"kafka.default.api.timeout.ms": "2000", **options}
    with pytest.raises(Exception, match=said):
        batch(spark, shared_broker.bootstrap, "kbroker", "t", **more).collect()
