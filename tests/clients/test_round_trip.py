"""What each library sends, every library gets back: byte for byte, under every codec.

The producing library and the codec vary; all libraries and kcat's own reading elsewhere consume.
The codec is read from the batches on disk, so a broker that decompressed or re-compressed, or a
library that quietly sent plain batches, fails here.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.clients import adapters
from tests.clients.adapters import CLIENTS, CODECS, Client, Received, Record
from tests.support import corpus
from tests.support.batches import Batch

pytestmark = pytest.mark.client

BatchesOf = Callable[..., list[Batch]]

HEADERS: adapters.Headers = (
    ("trace", b"00-4bf9"),
    ("empty", b""),
    ("twice", b"first"),
    ("twice", b"second"),
    ("naïve ключ", bytes(range(256))),
)


def text_records(count: int, now_ms: int) -> list[Record]:
    lines = corpus.lines(1 << 30)
    return [Record(next(lines), key=b"%d" % n, timestamp_ms=now_ms + 7 * n) for n in range(count)]


def odd_records(now_ms: int) -> list[Record]:
    """Records at the edges of the format; text enough around them that compression pays."""
    filler = text_records(40, now_ms)
    odd = [
        Record(b"", key=b""),
        Record(None, key=b"deleted"),
        Record(b"no key"),
        Record(bytes(range(256)) * 5, key=bytes(range(255, -1, -1))),
        Record(b"\x00" * 3000, key=b"\x00"),
        Record(b"with headers", key=b"k", headers=HEADERS),
        Record(b"\xff\xfe\n\r\n", headers=(("", b"an empty name"),)),
    ]
    return [*filler, *(r._replace(timestamp_ms=now_ms + 1000 + n) for n, r in enumerate(odd))]


def as_received(records: list[Record]) -> list[Received]:
    return [
        Received(offset, record.timestamp_ms or 0, record.value, record.key, record.headers)
        for offset, record in enumerate(records)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_every_library_reads_the_records_of_another(
    client: Client, codec: str, topic: str, bootstrap: str, batches_of: BatchesOf
) -> None:
    now_ms = int(time.time() * 1000)
    records = odd_records(now_ms)
    deliveries = client.produce(topic, records, codec=codec, batch_bytes=4096)
    assert [d.offset for d in deliveries] == list(range(len(records)))
    assert {d.error for d in deliveries} == {0}
    for reader in CLIENTS:
        received = list(reader(bootstrap).consume(topic, len(records)))
        assert received == as_received(records), f"read by {reader.name}"
    batches = batches_of(topic)
    assert sum(batch.record_count for batch in batches) == len(records)
    plain = [batch for batch in batches if batch.codec != codec]
    # A library sends a batch plain where compression would not make it smaller: a few records,
    # as its linger leaves them on a machine that is busy.
    assert all(batch.record_count < corpus.RECORDS_THAT_PACK for batch in plain)
    assert len(plain) < len(batches)


def test_idempotent_producers_number_their_batches(
    client: Client, topic: str, batches_of: BatchesOf
) -> None:
    records = text_records(2000, now_ms=1_600_000_000_000)
    for _ in range(2):
        deliveries = client.produce(topic, records, idempotent=True, batch_bytes=4096)
        assert {d.error for d in deliveries} == {0}
    sequences: dict[int, list[tuple[int, int]]] = {}
    for batch in batches_of(topic):
        assert batch.producer_id >= 0 and batch.producer_epoch == 0
        at = sequences.setdefault(batch.producer_id, [])
        at.append((batch.first_sequence, batch.record_count))
    assert len(sequences) == 2  # each producer has an id of its own
    for numbered in sequences.values():
        expected = 0
        for first, count in numbered:
            assert first == expected
            expected += count
        assert expected == len(records)
    assert [r.value for r in client.consume(topic, 4000)] == [r.value for r in records] * 2


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(client: Client, acks: str, topic: str) -> None:
    records = text_records(300, now_ms=1_600_000_000_000)
    deliveries = client.produce(topic, records, acks=acks)
    assert {d.error for d in deliveries} == {0}
    if acks != "0":  # no answer, so no offsets
        assert [d.offset for d in deliveries] == list(range(300))
    assert list(client.consume(topic, 300)) == as_received(records)


def test_keys_choose_partitions_and_order_holds_in_each(
    client: Client, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=4)
    records = [Record(b"%d" % n, key=b"key-%d" % (n % 23)) for n in range(920)]
    deliveries = client.produce(topic, records, partition=None, idempotent=True, batch_bytes=1024)
    written: dict[int, list[bytes | None]] = {}
    home: dict[bytes | None, int] = {}
    for record, delivery in zip(records, deliveries, strict=True):
        assert home.setdefault(record.key, delivery.partition) == delivery.partition
        written.setdefault(delivery.partition, []).append(record.value)
    assert len(written) > 1
    for partition, values in written.items():
        read = client.consume(topic, len(values), partition=partition)
        assert [r.value for r in read] == values


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_large_messages(client: Client, codec: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(max_message_bytes=12_000_000)
    text = b"\n".join(corpus.lines(8_000_000))
    records = [Record(b"before"), Record(text), Record(b"after")]
    deliveries = client.produce(
        topic, records, codec=codec, message_bytes_max=11_000_000, batch_bytes=1_000_000
    )
    assert {d.error for d in deliveries} == {0}
    # More than a consumer asks for: the broker still sends the first batch whole.
    received = list(client.consume(topic, 3, fetch_bytes_max=1_000_000))
    assert [r.value for r in received] == [r.value for r in records]


MESSAGE_TOO_LARGE = 10


def test_a_message_over_the_topics_limit_is_refused(
    client: Client, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(max_message_bytes=100_000)
    with client.producer(message_bytes_max=2_000_000) as producer:
        producer.send(topic, Record(b"x" * 150_000))
        assert [d.error for d in producer.flush()] == [MESSAGE_TOO_LARGE]
        producer.send(topic, Record(b"x" * 50_000))
        assert [(d.error, d.offset) for d in producer.flush()] == [(0, 0)]
