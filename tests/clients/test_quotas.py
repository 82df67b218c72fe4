"""Clients over a quota: unchanged tools set it, librdkafka keeps to it, and others do not notice.

A rate is measured when the first window is over, which a client may use up at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import confluent_kafka
import pytest

from kbroker.cli.main import main
from kbroker.testing.plain import PlainBroker
from kbroker.testing.process import ServerProcess
from kbroker.types import ApiKey
from tests.clients import adapters
from tests.clients.agents.tools import Tools
from tests.clients.test_java import Tool
from tests.parity.requests import build
from tests.parity.talk import Talk
from tests.support.kafka import KafkaBroker
from tests.support.record_batches import build_batch

pytestmark = [pytest.mark.client, pytest.mark.timeout(180)]

CONFIGS: Final = "kafka.admin.ConfigCommand"
SHORT_WINDOW: Final = {"quota.window.num": 3}
WINDOW_S: Final = 3
MEASURED_S: Final = 8
RATE: Final = 400_000  # bytes a second


@pytest.fixture(scope="module")
def broker() -> Iterator[ServerProcess]:
    with PlainBroker(SHORT_WINDOW) as broker:
        yield broker


@pytest.fixture
def bootstrap(broker: ServerProcess) -> str:
    return broker.bootstrap


def quota(bootstrap: str, verb: str, *words: str) -> None:
    assert main(["quota", verb, *words, "-b", bootstrap]) in (0, None)


def make_topic(bootstrap: str, name: str) -> str:
    adapters.Admin(bootstrap, settle=True).create(name, 1)
    return name


# --- tools ----------------------------------------------------------------------------------------


@pytest.mark.java
def test_kafka_configs(tools: Tools, bootstrap: str) -> None:
    tool = Tool(tools, bootstrap)

    def configs(*words: str) -> str:
        return str(tool.run(CONFIGS, *words)).strip()

    alice = ("--entity-type", "users", "--entity-name", "alice")
    client = ("--entity-type", "clients", "--entity-name", "c")
    address = ("--entity-type", "ips", "--entity-name", "192.0.2.1")
    default = ("--entity-type", "users", "--entity-default")
    set_ = ("--alter", "--add-config")
    configs(*alice, *set_, "producer_byte_rate=1024,consumer_byte_rate=2048")
    configs(*alice, *client, *set_, "request_percentage=50")
    configs(*address, *set_, "connection_creation_rate=7")
    configs(*default, *set_, "controller_mutation_rate=3.5")
    listed = configs("--describe", *alice)
    assert "producer_byte_rate=1024.0" in listed and "consumer_byte_rate=2048.0" in listed
    assert "request_percentage=50.0" in configs("--describe", *alice, *client)
    assert "connection_creation_rate=7.0" in configs("--describe", "--entity-type", "ips")
    assert "controller_mutation_rate=3.5" in configs("--describe", "--entity-type", "users")
    removed = "producer_byte_rate,consumer_byte_rate"
    configs(*alice, "--alter", "--delete-config", removed)
    assert "producer_byte_rate" not in configs("--describe", *alice)
    configs(*alice, *client, "--alter", "--delete-config", "request_percentage")
    configs(*address, "--alter", "--delete-config", "connection_creation_rate")
    configs(*default, "--alter", "--delete-config", "controller_mutation_rate")


def test_kbroker_quota(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    quota(bootstrap, "set", "producer_byte_rate=1024", "--user", "ann", "--client-id-default")
    quota(bootstrap, "set", "connection_creation_rate=5", "--ip", "192.0.2.1")
    capsys.readouterr()
    quota(bootstrap, "list")
    listed = capsys.readouterr().out
    assert "user ann and client-id (default)" in listed and "1024" in listed
    quota(bootstrap, "list", "--ip", "192.0.2.1")
    assert "ann" not in (listed := capsys.readouterr().out) and "192.0.2.1" in listed
    quota(bootstrap, "remove", "producer_byte_rate", "--user", "ann", "--client-id-default")
    quota(bootstrap, "remove", "connection_creation_rate", "--ip", "192.0.2.1")
    capsys.readouterr()
    quota(bootstrap, "list")
    assert "192.0.2.1" not in capsys.readouterr().out


# --- librdkafka -----------------------------------------------------------------------------------


class Producing(threading.Thread):
    """As fast as it may; `bytes_sent` are acknowledged."""

    def __init__(self, bootstrap: str, client_id: str, topic: str) -> None:
        super().__init__()
        self.bytes_sent = 0
        self.ended = threading.Event()
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "linger.ms": 5,
                "batch.size": 20_000,
                "queue.buffering.max.messages": 200,
                "message.timeout.ms": 120_000,
            }
        )

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self.ended.is_set():
            return  # what is in the queue at the end is thrown away
        assert error is None, error
        self.bytes_sent += len(message.value())

    def run(self) -> None:
        value = bytes(1_000)
        while not self.ended.is_set():
            try:
                self._producer.produce(self._topic, value, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)
        self._producer.purge()
        self._producer.poll(0)


def rate_of(each: Producing) -> float:
    # A quota is a rate by the broker's clock: nothing but time ends a window.
    time.sleep(WINDOW_S)
    before, began = each.bytes_sent, time.monotonic()
    time.sleep(MEASURED_S)
    return (each.bytes_sent - before) / (time.monotonic() - began)


def test_a_producer_keeps_to_its_quota_and_its_neighbour_does_not_notice(bootstrap: str) -> None:
    topic = make_topic(bootstrap, "produced")
    quota(bootstrap, "set", f"producer_byte_rate={RATE}", "--client-id", "slow")
    slow, fast = (Producing(bootstrap, name, topic) for name in ("slow", "fast"))
    try:
        for each in (slow, fast):
            each.start()
        slow_rate = rate_of(slow)
        assert 0.75 < slow_rate / RATE < 1.25  # on a busy machine; exactly: tests/unit/quota
        assert fast.bytes_sent > 3 * slow.bytes_sent
    finally:
        for each in (slow, fast):
            each.ended.set()
            each.join()
        quota(bootstrap, "remove", "producer_byte_rate", "--client-id", "slow")


def test_a_consumer_keeps_to_its_quota(bootstrap: str) -> None:
    topic = make_topic(bootstrap, "consumed")
    # Small batches: a fetch ends with a part of one, which counts and is read again.
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "batch.size": 5_000})
    for _ in range(30_000):
        producer.produce(topic, bytes(1_000))
        producer.poll(0)
    producer.flush()
    quota(bootstrap, "set", f"consumer_byte_rate={RATE}", "--client-id", "reader")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "reader",
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 200_000,
            # What it has fetched ahead would count when it is read, not when the broker gave it.
            "queued.min.messages": 1,
            "queued.max.messages.kbytes": 1,
            "fetch.queue.backoff.ms": 1,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        read = [0, 0]
        began = time.monotonic()
        steady_s = WINDOW_S
        while (now_s := time.monotonic() - began) < steady_s + MEASURED_S:
            for message in consumer.consume(500, timeout=0.1):
                assert message.error() is None
                read[now_s > steady_s] += len(message.value())
        assert 0.75 < read[1] / MEASURED_S / RATE < 1.25
        quota(bootstrap, "remove", "consumer_byte_rate", "--client-id", "reader")
        left, until = 5_000_000, time.monotonic() + 30
        while left > 0 and time.monotonic() < until:
            left -= sum(len(each.value()) for each in consumer.consume(500, timeout=0.1))
        assert left <= 0  # which would take 12 seconds longer by the quota
    finally:
        consumer.close()


# --- beside Apache Kafka --------------------------------------------------------------------------


def throttle_times(bootstrap: str) -> list[int]:
    """The throttle times of a client that writes 30 KB at a time."""
    host, _, port = bootstrap.rpartition(":")
    talk = Talk((host, int(port)), "quotas")
    try:
        topic = talk.topic("t", partitions=1)
        change = {
            "entity": [{"entity_type": "client-id", "entity_name": "parity"}],
            "ops": [{"key": "producer_byte_rate", "value": 40_000.0, "remove": False}],
        }
        talk.ask(build(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[change], validate_only=False))
        # Apache Kafka answers before it applies the quota, and no request shows when it has.
        time.sleep(1)
        times_ms = []
        for _ in range(16):
            data = {"index": 0, "records": build_batch([bytes(30_000)])}
            request = build(
                ApiKey.PRODUCE,
                9,
                acks=1,
                timeout=1_000,
                topic_data=[{"name": topic, "partition_data": [data]}],
            )
            answer = talk.ask(request)
            times_ms.append(round(answer.throttle_time.total_seconds() * 1_000))
        return times_ms
    finally:
        talk.close()


@pytest.mark.java
def test_times_are_those_of_apache_kafka() -> None:
    short = SHORT_WINDOW
    with PlainBroker(short) as ours, KafkaBroker(short) as theirs, ThreadPoolExecutor() as pool:
        here, there = pool.map(throttle_times, (ours.bootstrap, theirs.bootstrap))
    assert [each > 0 for each in here] == [each > 0 for each in there], (here, there)
    assert abs(sum(here) / sum(there) - 1) < 0.1, (here, there)
