"""The streaming job against a broker: what lands, and where it goes on."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.peer.client import Client
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from kbroker.testing.plain import KEEPS_WHAT_IS_OLD, PlainBroker
from kbroker.types import TopicPartition
from lab.ports import free_port
from spark_jobs import live
from spark_jobs.errors import JobError, Locked, LostRange
from spark_jobs.schema import METRICS, PROGRESS_TOPIC
from spark_jobs.source import BrokerAway
from tests.spark.conftest import Landing, Send, create

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(180)]


def values(landing: Landing, table: str = "plain") -> list[bytes]:
    return [bytes(row.value) for row in landing.rows(table)]


def test_lands_the_records_that_are_there_and_goes_on(landing: Landing, send: Send) -> None:
    send("first", [b"a", b"b"], partitions=2)
    send("first", [b"c"], partition=1)
    assert landing.run("--topic", "first") == []
    assert landing.offsets("plain") == [(0, 0), (0, 1), (1, 0)]
    landing.run("--topic", "first")
    send("first", [b"d"], partition=1)
    assert landing.run("--topic", "first", "--max-records", "1") == []
    rows = landing.rows("plain")
    assert [bytes(row.value) for row in rows] == [b"a", b"b", b"c", b"d"]
    assert {row.source_topic for row in rows} == {"first"}
    assert [row.event_time for row in rows] == [row.source_time for row in rows]


def sample(**fields: Any) -> bytes:
    whole = {"schema_version": 1, "event_time_ms": time.time_ns() // 1_000_000, "broker_id": 1,
             "run_ms": 1, **fields}  # fmt: skip
    return json.dumps(whole).encode()


@pytest.fixture
def samples(client: Client) -> Iterator[str]:
    """The topic of samples, which is not there before or after the test."""
    yield METRICS.topic
    client.delete_topics([METRICS.topic])


def test_a_record_that_cannot_be_read_is_set_aside(
    landing: Landing, send: Send, samples: str
) -> None:
    topic = samples
    send(topic, [sample(sequence=1), b"{oops", sample(sequence=2, schema_version=9)])
    send(topic, [sample(sequence=1), sample(sequence=3, topic=5), sample(sequence=4)])
    assert landing.run("--topic", topic) == []
    assert [row.sequence for row in landing.rows("metrics")] == [1, 4]  # 1 was sent twice
    assert landing.offsets("metrics") == [(0, 0), (0, 3), (0, 5)]
    assert [(row.source_offset, row.reason) for row in landing.rows("quarantine")] == [
        (1, "not JSON"), (2, "unknown schema_version 9"), (4, "field topic is not string"),
    ]  # fmt: skip


def test_live_windows(landing: Landing, send: Send, samples: str) -> None:
    """Sums grow from batch to batch; what a writer sent twice, in one batch or in two, counts once,
    and what is too late for them is in the raw table all the same."""
    minute_ms = time.time_ns() // 60_000_000_000 * 60_000
    numbers = itertools.count()

    def counted(ago_minutes: int, count: int, partition: int = 0) -> bytes:
        return sample(event_time_ms=minute_ms - 60_000 * ago_minutes, partition=partition,
                      metric_name="PartitionMessages", topic="orders", message_count=count,
                      bytes_in=10 * count, sequence=next(numbers))  # fmt: skip

    def windows() -> list[tuple[int, int, int, int]]:
        found = live.windows(landing.spark, landing.tables).collect()
        return sorted(
            (round(minute_ms / 60_000 - row.window_start.timestamp() / 60), row.partition,
             row.message_count, row.bytes_in) for row in found
        )  # fmt: skip

    again, unnumbered = counted(1, 5), sample(
        event_time_ms=minute_ms, partition=2, metric_name="PartitionMessages", topic="orders",
        message_count=50, bytes_in=0, sequence=None,
    )  # fmt: skip
    send(samples, [again, again, counted(1, 2), counted(0, 1), counted(0, 4, 1), b"{oops"])
    send(samples, [unnumbered, unnumbered])
    landing.run("--topic", samples, "--live")
    assert windows() == [(0, 0, 1, 10), (0, 1, 4, 40), (0, 2, 100, 0), (1, 0, 7, 70)]
    send(samples, [counted(0, 2), again, counted(60, 9)])
    landing.run("--topic", samples, "--live")
    assert windows() == [(0, 0, 3, 30), (0, 1, 4, 40), (0, 2, 100, 0), (1, 0, 7, 70)]
    late = [row.message_count for row in landing.rows("metrics", repeats=True) if row.late]
    assert late == [9]


def test_an_old_checkpoint_is_left_alone(landing: Landing, send: Send) -> None:
    """One that was restored from a backup: its next batches have other ranges."""
    checkpoints = Path(landing.tables, "_checkpoints")
    send("restored", [b"a"])
    landing.run("--topic", "restored")
    shutil.copytree(checkpoints, checkpoints.with_name("backup"))
    send("restored", [b"b"])
    landing.run("--topic", "restored")
    shutil.rmtree(checkpoints)
    checkpoints.with_name("backup").rename(checkpoints)
    send("restored", [b"c"])
    (line,) = landing.run("--topic", "restored")
    assert "the checkpoint is not where the table ends" in line
    assert values(landing) == [b"a", b"b", b"c"]


def test_a_topic_made_anew_is_another_one(landing: Landing, send: Send, client: Client) -> None:
    """With more records than before, so that offsets alone would not tell."""
    topic, records = "anew", 5
    send(topic, [b"old"] * 3)
    landing.run("--topic", topic)
    client.delete_topics([topic])
    send(topic, [b"new"] * records)
    with pytest.raises(LostRange) as refused:
        landing.run("--topic", topic)
    assert "re-created" in refused.value.message and "from offset 3 on" in refused.value.message
    assert refused.value.exit_code == 4
    assert values(landing) == [b"old"] * 3
    said = landing.run("--topic", topic, "--accept-loss")
    assert "accepted a gap" in said[0]
    assert sorted(values(landing)) == [b"new"] * records + [b"old"] * 3
    assert landing.run("--topic", topic) == []


def test_retention_that_overtook(landing: Landing, send: Send, client: Client) -> None:
    topic = "overtaken"
    send(topic, [b"%d" % n for n in range(4)])
    landing.run("--topic", topic)
    send(topic, [b"%d" % n for n in range(4, 10)])
    client.delete_records({TopicPartition(topic, 0): 8})
    with pytest.raises(LostRange) as refused:
        landing.run("--topic", topic)
    assert "missing: partition 0: offsets 4 to 7;" in refused.value.message
    landing.run("--topic", topic, "--accept-loss")
    assert [row.source_offset for row in landing.rows("plain")] == [0, 1, 2, 3, 8, 9]
    from spark_jobs import tables

    ((gap,),) = tables.gaps(landing.spark, landing.tables).values()
    assert (gap.topic, dict(gap.ranges)) == (topic, {0: (4, 8)})


def test_an_upgrade_begins_where_the_old_version_ended(landing: Landing, send: Send) -> None:
    send("upgraded", [b"a", b"b"])
    landing.run("--topic", "upgraded")
    send("upgraded", [b"c"])
    landing.run("--topic", "upgraded", version=2)
    assert values(landing) == [b"a", b"b", b"c"]
    names = [path.name for path in Path(landing.tables, "_checkpoints", "upgraded").iterdir()]
    assert sorted(names) == ["plain-v1", "plain-v2"]


def test_partitions_that_came_later(landing: Landing, send: Send, client: Client) -> None:
    """And a checkpoint that is lost: nothing lands twice, and the line says so."""
    send("grown", [b"a"])
    landing.run("--topic", "grown")
    client.create_partitions({"grown": 3})
    send("grown", [b"b", b"c"], partition=2)
    assert landing.run("--topic", "grown") == []
    assert landing.offsets("plain") == [(0, 0), (2, 0), (2, 1)]
    shutil.rmtree(Path(landing.tables, "_checkpoints"))
    send("grown", [b"d"], partition=1)
    (line,) = landing.run("--topic", "grown")
    assert "there is no checkpoint; a new one begins where the table ends" in line
    assert landing.offsets("plain") == [(0, 0), (1, 0), (2, 0), (2, 1)]


def test_a_stamp_that_the_connector_cannot_read(landing: Landing, client: Client) -> None:
    """It stays in the topic, so trying again is no way out: one line that says what is."""
    create(client, "stamped")
    Producer(client, "stamped").send([Record(None, b"a", timestamp_ms=-(2**62))])
    with pytest.raises(JobError, match="--source kbroker reads it as null"):
        landing.run("--topic", "stamped")
    landing.run("--topic", "stamped", "--source", "kbroker")
    (row,) = landing.rows("plain")
    assert (bytes(row.value), row.source_time) == (b"a", None)
    assert abs((row.event_time - row.landed_at).total_seconds()) < 300


def test_a_topic_that_is_not_there(landing: Landing) -> None:
    assert landing.run("--topic", "nowhere") == ["nowhere: there is no such topic yet"]
    assert landing.rows("plain") == []


class Going:
    """The job as it goes on, in a thread; stopped when the block ends."""

    def __init__(self, landing: Landing, *more: str) -> None:
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._landing = landing
        self._thread = threading.Thread(target=self._run, args=more)

    def _run(self, *more: str) -> None:
        try:
            self._landing.run("--trigger", "0.2", *more, stop=self._stop)
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Going:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def ended(self) -> BaseException | None:
        """What it ended with by itself."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self._error

    def wait(self, condition: Any, what: str, wait_s: float = 60) -> None:
        deadline_s = time.monotonic() + wait_s
        while not condition():
            assert self._thread.is_alive(), f"the job ended: {self._error!r}"
            assert time.monotonic() < deadline_s, f"{what}; it said {self._landing.said}"
            time.sleep(0.1)


def test_goes_on_and_waits_for_its_topic(landing: Landing, send: Send) -> None:
    with Going(landing, "--topic", "later") as job:
        job.wait(lambda: "later: there is no such topic yet" in landing.said, "said nothing")
        send("later", [b"a"])
        job.wait(lambda: values(landing) == [b"a"], "did not land")
        send("later", [b"b"])
        job.wait(lambda: values(landing) == [b"a", b"b"], "did not go on")
        with pytest.raises(Locked, match="another job"):
            Landing(landing.spark, landing.bootstrap, Path(landing.tables).parent).run(
                "--topic", "later"
            )


def test_made_anew_under_a_running_query(landing: Landing, send: Send, client: Client) -> None:
    """With as many records as before, so that offsets alone would not tell."""
    topic = "anew-running"
    send(topic, [b"old"] * 3)
    with Going(landing, "--topic", topic) as job:
        job.wait(lambda: len(values(landing)) == 3, "did not land")
        client.delete_topics([topic])
        send(topic, [b"new"] * 5)
        error = job.ended()
    assert isinstance(error, LostRange), error
    assert values(landing) == [b"old"] * 3


def test_a_broker_that_is_away_is_waited_for(spark: Any, tmp_path: Path) -> None:
    quickly = ("--kafka-option", "default.api.timeout.ms=1500",
               "--kafka-option", "request.timeout.ms=1000")  # fmt: skip
    with (
        PlainBroker(KEEPS_WHAT_IS_OLD, port=free_port()) as broker,
        Client(broker.bootstrap) as client,
    ):
        landing = Landing(spark, broker.bootstrap, tmp_path)
        Producer(client, "patient").send([Record(None, b"a")])
        with Going(landing, "--topic", "patient", *quickly) as job:
            job.wait(lambda: values(landing) == [b"a"], "did not land")
            broker.kill9()
            job.wait(lambda: any("waiting for it" in line for line in landing.said), "was silent")
            broker.start()
            with Client(broker.bootstrap) as after:
                Producer(after, "patient").send([Record(None, b"b")])
            job.wait(lambda: values(landing) == [b"a", b"b"], "did not go on")
        broker.kill9()
        with pytest.raises(BrokerAway, match="no broker answers"):
            landing.run("--topic", "patient", "--wait", "0", *quickly)


def test_the_jobs_own_progress(landing: Landing, send: Send) -> None:
    send("watched", [b"a", b"b"], partitions=2)
    assert landing.run("--topic", "watched", "--progress") == []
    own = "kbroker.spark.progress"
    assert landing.run("--topic", "watched", "--topic", own, "--progress") == []
    first, batch, last = landing.rows("progress")[:3]
    assert [row.kind for row in (first, batch, last)] == ["start", "batch", "end"]
    assert {row.query_id for row in (first, batch, last)} == {first.query_id}
    assert [row.sequence for row in (first, batch, last)] == [0, 1, 2]
    assert {row.query for row in landing.rows("progress")} == {"plain-v1"}
    assert (batch.topic, batch.source, batch.batch_id) == ("watched", "kafka", 0)
    assert (batch.input_rows, batch.lag_records, batch.partitions) == (2, 0, 2)
    assert (batch.late_rows, batch.quarantined_rows) == (0, 0)
    for figure in ("batch_ms", "planning_ms", "wal_commit_ms", "add_batch_ms",
                   "latest_offset_ms", "commit_offsets_ms", "processed_rows_per_s"):  # fmt: skip
        assert batch[figure] is not None, figure
    assert landing.rows("quarantine") == []


def test_a_progress_that_cannot_be_published_stops_nothing(landing: Landing, send: Send) -> None:
    """Its topic cannot be made: a plain file name is refused by no broker, so the client is."""

    class Refused:
        def publish(self, values: object) -> None:
            raise OSError("no way")

        def close(self) -> None:
            pass

    send("unwatched", [b"a"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_jobs.stream.publisher", lambda spark, endpoint: Refused())
        said = landing.run("--topic", "unwatched", "--progress")
    assert values(landing) == [b"a"]
    assert said[0] == f"{PROGRESS_TOPIC}: no way; the job goes on without its own progress"
    assert said[-1].endswith("3 records were given up")


@pytest.mark.parametrize("source", ["kafka", "kbroker"])
def test_both_sources_land_the_same(landing: Landing, send: Send, source: str) -> None:
    """Each by itself, and one going on where the other ended."""
    topic = f"both-{source}"
    send(topic, [b"a", b"b", b""], partitions=2)
    send(topic, [b"c"], partition=1)
    landing.run("--topic", topic, "--source", source)
    whole = [(row.source_partition, row.source_offset, bytes(row.key), bytes(row.value),
              row.source_time) for row in landing.rows("plain")]  # fmt: skip
    assert [row[:4] for row in whole] == [
        (0, 0, b"k", b"a"), (0, 1, b"k", b"b"), (0, 2, b"k", b""), (1, 0, b"k", b"c"),
    ]  # fmt: skip
    assert all(abs(row[4].timestamp() - time.time()) < 300 for row in whole)
    send(topic, [b"d"], partition=1)
    other = {"kafka": "kbroker", "kbroker": "kafka"}[source]
    landing.run("--topic", topic, "--source", other)
    assert values(landing) == [b"a", b"b", b"", b"c", b"d"]
    assert landing.run("--topic", topic, "--source", source) == []
