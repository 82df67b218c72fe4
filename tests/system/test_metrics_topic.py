"""metrics.topic.enable: real consumers read what a real broker wrote about itself."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import confluent_kafka
import pytest

from kbroker.metrics.samples import TOPIC, columns
from kbroker.peer.client import Client as PeerClient
from kbroker.peer.groups import Groups
from kbroker.testing.plain import PlainBroker as Broker
from kbroker.types import TopicPartition
from tests.clients.adapters import CLIENTS, Admin, Client, Confluent, Record
from tests.system.conftest import MakeBroker

pytestmark = pytest.mark.client

JSON_TYPES = {"long": int, "double": (int, float), "string": str, "buckets": list}


def read(client: type[Client], broker: Broker) -> list[tuple[bytes, dict[str, Any]]]:
    with client(broker.bootstrap).consumer(TOPIC) as consumer:
        _, count = consumer.offsets(TOPIC, 0)
    records = client(broker.bootstrap).consume(TOPIC, count)
    return [(record.key or b"", json.loads(record.value or b"")) for record in records]


def abort(broker: Broker) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "pay"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"never", partition=2)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_read_the_samples(make_broker: MakeBroker, client: type[Client]) -> None:
    # No round is due but the one at the end, however long what is between takes.
    hour = {"metrics.topic.interval.ms": 3_600_000}
    one = {"transaction.state.log.num.partitions": 1}
    broker = make_broker({"metrics.topic.enable": True, **hour, **one}).start()
    Admin(broker.bootstrap).create("orders", 3)
    Confluent(broker.bootstrap).produce("orders", [Record(b"x" * 100)] * 7, partition=1)
    with PeerClient(broker.bootstrap) as peer:
        Groups(peer).commit("shop", {TopicPartition("orders", 1): 3})
    abort(broker)
    broker.restart()  # the end of a run writes its last round
    found = read(client, broker)
    assert found
    for key, value in found:
        assert key.split(b":")[0] == b"1"
        assert {"schema_version", "broker_id", "sequence", "event_time_ms"} <= set(value)
        for name, field in value.items():
            assert isinstance(field, JSON_TYPES[columns()[name]]), (name, field)
    counts: Counter[tuple[str, int]] = Counter()
    for key, value in found:
        if value["metric_name"] == "PartitionMessages":
            counts[value["topic"], value["partition"]] += value["message_count"]
            assert key == f"1:{value['topic']}:{value['partition']}".encode()
    assert counts["orders", 1] == 7
    assert ("orders", 0) not in counts
    sizes = [v for _, v in found if v["metric_name"] == "PartitionLog" and v["topic"] == "orders"]
    assert {(v["partition"], v["log_end_offset"]) for v in sizes} == {(0, 0), (1, 7), (2, 2)}
    assert {v["directory"] for v in sizes} == {str(broker.data_dir)}
    lags = [v for _, v in found if v["metric_name"] == "GroupLag"]
    assert [(v["consumer_group"], v["topic"], v["lag"]) for v in lags] == [("shop", "orders", 4)]
    (aborted,) = (v for _, v in found if v["metric_name"] == "AbortedTransactions")
    assert (aborted["transactional_id"], aborted["transactions_aborted"]) == ("pay", 1)
    assert (aborted["client_id"], aborted["client_host"]) == ("rdkafka", "127.0.0.1")
    (outcomes,) = (v for _, v in found if v["metric_name"] == "Transactions")
    assert (outcomes["transactions_committed"], outcomes["transactions_aborted"]) == (0, 1)
    (muted,) = (v for _, v in found if v["metric_name"] == "MutedSockets")
    assert (muted["listener"], muted["muted_waiting"]) == ("PLAINTEXT", 0)


def test_without_it_there_is_no_topic(broker: Broker) -> None:
    broker.restart()
    assert TOPIC not in Admin(broker.bootstrap).topics()
