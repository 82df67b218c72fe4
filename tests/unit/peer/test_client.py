"""The blocking client and the producer against the fake broker."""

from __future__ import annotations

import itertools
import random
import socket
import threading
from typing import Any

import pytest

from kbroker.clock import NS_PER_MS, ManualClock
from kbroker.compression import Codec
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.peer.address import Address, parse_addresses
from kbroker.peer.client import Client
from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NewTopic
from kbroker.peer.partitioner import StickyPartitioner, partition_for_key
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record, decode_batches, encode_batch
from kbroker.types import ApiKey, TopicPartition
from lab.ports import free_port
from tests.unit.peer.fake_broker import APIS, CLOSE, SILENCE, FakeBroker

T0 = TopicPartition("t", 0)
BATCH = encode_batch([Record(b"k", b"v", timestamp_ms=5)])


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a", [("a", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9093,[fe80::1]", [("::1", 9093), ("fe80::1", 9092)]),
    ],
)
def test_bootstrap_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == [Address(*each) for each in addresses]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a:",
        "a:b",
        "a:0",
        "a:70000",
        ":1",
        "::1",
        "[::1",
        "[::1]x",
        "a:1,",
        "a:²",
        "a:" + "9" * 5000,
    ],
)
def test_bootstrap_addresses_that_are_none(text: str) -> None:
    if text == "a:":
        assert parse_addresses(text) == [Address("a", 9092)]
        return
    with pytest.raises(UserError, match="no broker address"):
        parse_addresses(text)


def test_no_server_there_is_one_line_for_the_user() -> None:
    port = free_port()
    with Client(f"127.0.0.1:{port},127.0.0.1:{port}") as client:
        with pytest.raises(
            UserError, match="Connection refused -> is the broker running"
        ) as raised:
            client.metadata()
        assert "\n" not in str(raised.value)


def test_the_second_bootstrap_address_serves() -> None:
    with FakeBroker() as broker, socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        bootstrap = f"127.0.0.1:{held.getsockname()[1]},{broker.bootstrap}"
        with Client(bootstrap) as client:
            assert client.metadata().cluster_id == "fake"


def test_topics_come_and_go() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        topics = [NewTopic("a", 3, 1, {"retention.ms": "5"}), NewTopic("b")]
        assert [result.error for result in client.create_topics(topics)] == [ErrorCode.NONE] * 2
        again = client.create_topics([NewTopic("a")])
        assert again == [("a", ErrorCode.TOPIC_ALREADY_EXISTS, "there already")]
        assert client.create_topics([NewTopic("c")], validate_only=True)[0].error is ErrorCode.NONE
        assert sorted(client.metadata().topics) == ["a", "b"]
        assert client.partitions("a") == [0, 1, 2]
        configs = {entry.name: entry.value for entry in client.topic_configs("a")}
        assert configs["retention.ms"] == "5"
        assert [result.error for result in client.delete_topics(["a", "zz"])] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert list(client.metadata().topics) == ["b"]


def test_partitions_are_added_and_records_deleted() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        topic = broker.add_topic("a", 2)
        topic.partitions[1].end = 9
        none = ErrorCode.NONE
        assert client.create_partitions({"a": 5}, validate_only=True) == [("a", none, None)]
        assert client.partitions("a") == [0, 1]
        assert client.create_partitions({"a": 3, "zz": 3}) == [
            ("a", none, None),
            ("zz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        ]
        assert client.partitions("a") == [0, 1, 2]
        first, second = TopicPartition("a", 0), TopicPartition("a", 1)
        assert client.delete_records({first: 5, second: 4}) == {
            first: (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
            second: (none, 4),
        }
        assert client.delete_records({second: -1}) == {second: (none, 9)}
        broker.script(ApiKey.DELETE_RECORDS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert client.delete_records({second: 2}) == {second: (none, 9)}  # asked once more


def test_an_unknown_topic_is_reported_at_once_unless_it_may_be_created() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        with pytest.raises(KafkaError, match="topic 'new'") as raised:
            client.partitions("new")
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert client.partitions("new", auto_create=True) == [0]


def test_a_topic_that_is_still_being_created_is_waited_for() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        broker.add_topic("t")
        broker.script(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE)
        assert client.partitions("t") == [0]
        assert len(broker.seen(ApiKey.METADATA)) == 2


def test_produce_fetch_and_offsets() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        broker.add_topic("t", 2)
        t1 = TopicPartition("t", 1)
        written = client.produce({T0: BATCH, t1: BATCH})
        assert {result.base_offset for result in written.values()} == {0}
        assert client.produce({T0: BATCH})[T0].base_offset == 1
        fetched = client.fetch({T0: 1, t1: 0}, max_wait_ms=10)
        assert fetched[T0].high_watermark == 2
        (batch,) = decode_batches(fetched[T0].records)
        assert [record.offset for record in batch.records] == [1]
        ends = client.list_offsets({T0: LATEST_TIMESTAMP, t1: LATEST_TIMESTAMP})
        assert [ends[where].offset for where in (T0, t1)] == [2, 1]
        assert client.list_offsets({T0: EARLIEST_TIMESTAMP})[T0].offset == 0


def test_a_lost_connection_and_a_moved_leader_are_tried_again() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        broker.add_topic("t")
        broker.script(ApiKey.PRODUCE, CLOSE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert client.produce({T0: BATCH})[T0].base_offset == 0
        assert len(broker.seen(ApiKey.PRODUCE)) == 3
        broker.script(ApiKey.LIST_OFFSETS, CLOSE)
        assert client.list_offsets({T0: LATEST_TIMESTAMP})[T0].offset == 1
        broker.script(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert client.fetch({T0: 0}) == {}, "the caller asks again, with fresh metadata"
        assert client.fetch({T0: 0})[T0].high_watermark == 1


def test_an_error_that_is_not_retriable_is_the_result() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        broker.add_topic("t")
        broker.script(ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE)
        assert client.produce({T0: BATCH})[T0].error is ErrorCode.MESSAGE_TOO_LARGE
        assert len(broker.seen(ApiKey.PRODUCE)) == 1
        assert client.fetch({T0: 99})[T0].error is ErrorCode.OFFSET_OUT_OF_RANGE


class PausesAtOnce(ManualClock):
    """A pause is the only thing that moves the time, however slow the machine is."""

    def wait_until(self, condition: threading.Condition, deadline_ns: int | None) -> None:
        assert deadline_ns is not None
        self.advance((deadline_ns - self.monotonic_ns()) / NS_PER_MS)


def test_retrying_ends_with_the_last_refusal() -> None:
    clock = PausesAtOnce()
    with FakeBroker() as broker, Client(broker.bootstrap, timeout_ms=10_000, clock=clock) as client:
        broker.add_topic("t")
        broker.script(ApiKey.PRODUCE, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 500)
        with pytest.raises(KafkaError) as raised:
            client.produce({T0: BATCH})
        assert raised.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_silent_broker_times_out() -> None:
    # In the same time it has to connect.
    with FakeBroker() as broker, Client(broker.bootstrap, timeout_ms=2_000) as client:
        broker.script(ApiKey.DESCRIBE_CONFIGS, *[SILENCE] * 50)
        with pytest.raises(KafkaError) as raised:
            client.topic_configs("t")
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_an_older_broker_is_spoken_to_in_its_versions() -> None:
    old = {key: (low, max(low, 4 if high > 4 else low)) for key, (low, high) in APIS.items()}
    old[ApiKey.API_VERSIONS] = (0, 0)
    with FakeBroker(apis=old) as broker, Client(broker.bootstrap) as client:
        client.create_topics([NewTopic("t")])
        client.produce({T0: BATCH})
        assert client.fetch({T0: 0})[T0].high_watermark == 1
        assert {version for key, version, _ in broker.requests if key is ApiKey.FETCH} == {4}


def test_a_broker_that_lacks_an_api() -> None:
    apis = {key: APIS[key] for key in (ApiKey.API_VERSIONS, ApiKey.METADATA)}
    with FakeBroker(apis=apis) as broker, Client(broker.bootstrap) as client:
        with pytest.raises(KafkaError, match="DescribeConfigs not at all") as raised:
            client.topic_configs("t")
        assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


# --- the producer ---


def producer(client: Client, **options: Any) -> Producer:
    return Producer(client, "t", clock=ManualClock(start_wall_ms=1000), **options)


def test_records_go_to_the_partition_of_their_key_in_order() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        broker.add_topic("t", 5)
        records = [Record(b"%d" % (i % 7), b"%d" % i) for i in range(100)]
        assert producer(client).send(records) == 100
        for partition in range(5):
            got = broker.records("t", partition)
            assert [r.value for r in got] == [
                r.value for r in records if r.key and partition_for_key(r.key, 5) == partition
            ]
            assert {r.timestamp_ms for r in got} <= {1000}


def test_batches_close_at_their_bound_and_carry_sequences() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        broker.add_topic("t")
        writer = producer(client, batch_bytes_max=1000, codec=Codec.ZSTD)
        writer.send(Record(None, b"x" * 400) for _ in range(5))
        writer.send([Record(None, b"y" * 5000)])
        batches = [
            next(decode_batches(request.topic_data[0].partition_data[0].records))
            for request in broker.seen(ApiKey.PRODUCE)
        ]
        assert [len(batch.records) for batch in batches] == [2, 2, 1, 1]
        assert [batch.base_sequence for batch in batches] == [0, 2, 4, 5]
        assert {(batch.producer_id, batch.producer_epoch) for batch in batches} == {(4711, 2)}
        assert {batch.codec for batch in batches} == {Codec.ZSTD}


def test_a_batch_sent_again_keeps_its_sequence_and_a_duplicate_is_success() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        broker.add_topic("t")
        writer = producer(client)
        broker.script(ApiKey.PRODUCE, CLOSE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        assert writer.send([Record(None, b"v")]) == 1
        first, second = broker.seen(ApiKey.PRODUCE)
        assert first.topic_data == second.topic_data


@pytest.mark.parametrize("acks", [0, 1])
def test_without_acks_all_there_is_no_producer_id(acks: int) -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        broker.add_topic("t")
        assert producer(client, acks=acks).send([Record(None, b"v")] * 3) == 3
        client.metadata()  # after the produce on the same connection, so it has arrived
        assert not broker.seen(ApiKey.INIT_PRODUCER_ID)
        assert [record.value for record in broker.records("t")] == [b"v"] * 3


def test_a_broker_without_producer_ids_gets_plain_batches() -> None:
    apis = {key: low_high for key, low_high in APIS.items() if key is not ApiKey.INIT_PRODUCER_ID}
    with FakeBroker(apis=apis) as broker, Client(broker.bootstrap) as client:
        assert producer(client).send([Record(None, b"v")]) == 1
        data = broker.seen(ApiKey.PRODUCE)[0].topic_data[0].partition_data[0].records
        assert next(decode_batches(data)).producer_id == -1


def test_a_refused_batch_raises_with_its_partition() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        broker.add_topic("t")
        broker.script(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
        with pytest.raises(KafkaError, match="t-0"):
            producer(client).send([Record(None, b"v")])


def test_a_partition_that_is_not_there() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        broker.add_topic("t", 2)
        with pytest.raises(KafkaError, match="partitions 0-1, not 2"):
            producer(client, partition=2)
        producer(client, partition=1).send([Record(b"k", b"v")])
        assert len(broker.records("t", 1)) == 1


def test_keyless_records_stick_for_a_batch_and_then_move() -> None:
    with FakeBroker() as broker, Client(broker.bootstrap) as client:
        broker.add_topic("t", 4)
        writer = producer(client, partitioner=StickyPartitioner(random.Random(1)))
        used = []
        for number in range(6):
            writer.send([Record(None, b"%d" % number)] * 3)
            partitions = broker.seen(ApiKey.PRODUCE)[-1].topic_data[0].partition_data
            assert len(partitions) == 1
            used.append(partitions[0].index)
        assert all(before != after for before, after in itertools.pairwise(used))
