"""Where consumers start and how they wait: offsets, seeking by time, long polls, append time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.clients.adapters import BEGINNING, END, Client, Record
from tests.support.batches import Batch

pytestmark = pytest.mark.client

T0_MS = 1_700_000_000_000


def numbered(count: int) -> list[Record]:
    return [Record(b"%d" % n, timestamp_ms=T0_MS + 10 * n) for n in range(count)]


def test_offsets_of_an_empty_and_of_a_filled_partition(client: Client, topic: str) -> None:
    with client.consumer() as consumer:
        assert consumer.offsets(topic, 0) == (0, 0)
        client.produce(topic, numbered(25))
        assert consumer.offsets(topic, 0) == (0, 25)


@pytest.mark.parametrize("batch_bytes", [1, 600, 1 << 20], ids=["single", "some", "one"])
def test_reading_starts_at_any_offset(client: Client, topic: str, batch_bytes: int) -> None:
    """Inside a batch too, where the broker sends the whole batch and the client drops its head."""
    client.produce(topic, numbered(200), batch_bytes=batch_bytes)
    for start in (0, 1, 77, 198, 199):
        received = list(client.consume(topic, 200 - start, offset=start))
        assert [r.offset for r in received] == list(range(start, 200))
        assert received[0].value == b"%d" % start


def test_the_end_is_where_new_records_come(client: Client, topic: str) -> None:
    client.produce(topic, numbered(10))
    with client.consumer(topic, offset=10) as consumer, client.producer() as producer:
        producer.send(topic, Record(b"new"))
        producer.flush()
        (record,) = consumer.poll(30)
        assert (record.offset, record.value) == (10, b"new")
    assert [r.offset for r in client.consume(topic, 1, offset=BEGINNING)] == [0]


@pytest.mark.parametrize("batch_bytes", [1, 600, 1 << 20], ids=["single", "some", "one"])
def test_seeking_by_time_is_exact(client: Client, topic: str, batch_bytes: int) -> None:
    client.produce(topic, numbered(500), batch_bytes=batch_bytes)
    with client.consumer() as consumer:
        for asked, expected in (
            (T0_MS - 1, 0),
            (T0_MS, 0),
            (T0_MS + 1, 1),
            (T0_MS + 2500, 250),
            (T0_MS + 2501, 251),
            (T0_MS + 4990, 499),
            (T0_MS + 4991, None),
        ):
            assert consumer.offset_for_time(topic, 0, asked) == expected, asked - T0_MS


def test_seeking_by_time_when_timestamps_go_back(client: Client, topic: str) -> None:
    """The first record in offset order that is late enough, not the closest in time."""
    stamps = [0, 50, 20, 90, 10, 90, 100]
    for stamp in stamps:
        client.produce(topic, [Record(b"%d" % stamp, timestamp_ms=T0_MS + stamp)])
    with client.consumer() as consumer:
        for asked, expected in ((0, 0), (1, 1), (50, 1), (51, 3), (90, 3), (91, 6), (101, None)):
            assert consumer.offset_for_time(topic, 0, T0_MS + asked) == expected, asked


def test_a_parked_fetch_is_answered_when_a_record_comes(client: Client, topic: str) -> None:
    """Each record is sent when the one before it has arrived, so every one meets a waiting fetch:
    twenty are woken, and not one of them has waited for its end."""
    wait_ms = 20_000
    waited_s = []
    with (
        client.producer(linger_ms=0) as producer,
        client.consumer(topic, offset=0, wait_ms_max=wait_ms) as consumer,
    ):
        for n in range(20):
            producer.send(topic, Record(b"%d" % n))
            producer.flush()
            sent = time.monotonic()
            (record,) = consumer.poll(60)
            waited_s.append(time.monotonic() - sent)
            assert record.value == b"%d" % n
    assert len(waited_s) == 20 and max(waited_s) < wait_ms / 2000


def test_append_time(
    client: Client, make_topic: Callable[..., str], batches_of: Callable[..., list[Batch]]
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    client.produce(topic, numbered(50), codec="gzip")
    after_ms = int(time.time() * 1000)
    received = list(client.consume(topic, 50))
    assert [r.value for r in received] == [b"%d" % n for n in range(50)]
    assert all(before_ms <= r.timestamp_ms <= after_ms for r in received)
    assert all(batch.log_append_time for batch in batches_of(topic))


def test_end_of_an_empty_partition(client: Client, topic: str) -> None:
    with client.consumer(topic, offset=END) as consumer:
        assert consumer.poll(0.2) == []
