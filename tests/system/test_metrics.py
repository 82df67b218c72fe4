"""Every row of the catalogue has samples on a live broker, and they say what was done."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.cli.main import main
from kbroker.metrics.catalogue import CATALOGUE
from kbroker.metrics.rows import DIALECTS, Metric
from kbroker.observe import resources
from kbroker.testing.plain import PlainBroker as Broker
from tests.clients.adapters import Confluent, Record
from tests.system.conftest import MakeBroker
from tests.unit.net.harness import eventually

pytestmark = pytest.mark.client

RECORDS = 50
LEFT = 7  # of them, after the group's offset
# Only where the machine has what they speak of: see resources.disks_of and process_disk_bytes.
DISKS = {"disk_read", "disk_written", "disk_read_rate", "disk_write_rate"}
OWN_DISK = {"process_read", "process_written", "process_read_rate", "process_write_rate"}
# Only where a transaction holds the last stable offset.
HELD = {"partition_stable_age"}
# Only where a listener speaks TLS or SASL: see test_tls.py, and tests/clients/test_sasl.py.
SECURED = {
    "certificate_expiries", "authentications", "authentications_failed", "reauthentications",
    "reauthentications_failed",
}  # fmt: skip
# Only where a share group reads a partition.
OF_SHARE_PARTITIONS = {"share_in_flight", "share_in_flight_ranges"}
# A topic of more partitions than may be made at once is made, and its client waits.
MUTATIONS = 11
QUOTAS = (
    "producer_byte_rate=1e9", "consumer_byte_rate=1e9", "request_percentage=1000",
    "controller_mutation_rate=1",
)  # fmt: skip
_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})? (\S+)$")

Samples = dict[str, dict[str, float]]


def scrape(broker: Broker, query: str = "") -> Samples:
    """Name -> labels as written -> value."""
    with urllib.request.urlopen(f"{broker.admin}/metrics{query}", timeout=60) as answer:
        text = answer.read().decode()
    found: Samples = {}
    for line in text.splitlines():
        if match := _LINE.match(line):
            found.setdefault(match[1], {})[match[2] or ""] = float(match[3])
    return found


def wait_for(broker: Broker, holds: Callable[[Samples], bool], what: str) -> Samples:
    def look() -> Samples | None:
        found = scrape(broker)
        return found if holds(found) else None

    found = eventually(look, what)
    assert found is not None
    return found


@pytest.fixture
def used(make_broker: MakeBroker) -> Broker:
    """A broker that shows everything, and has taken records and given them back."""
    broker = make_broker(
        {"metrics.dialects": ",".join(DIALECTS), "metrics.partitions.enable": True}
    ).start()
    assert main(["quota", "set", *QUOTAS, "--client-id-default", "-b", broker.bootstrap]) in (
        0,
        None,
    )
    client = Confluent(broker.bootstrap)
    client.produce("orders", [Record(b"x" * 100) for _ in range(RECORDS)])
    assert len(list(client.consume("orders", RECORDS))) == RECORDS
    commit(broker, "readers", "orders", RECORDS - LEFT)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "payments"})
    producer.init_transactions(30)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("many", MUTATIONS + 1, 1)])["many"].result(30)
    wait_for(broker, lambda found: "kafka_topic_partition_current_offset" in found, "a topic")
    return broker


def commit(broker: Broker, group_id: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group_id})
    try:
        wanted = [TopicPartition(topic, 0, offset)]
        consumer.commit(offsets=wanted, asynchronous=False)
    finally:
        consumer.close()


def expected(broker: Broker) -> list[Metric]:
    absent = HELD | SECURED | OF_SHARE_PARTITIONS
    if not resources.disks_of([str(broker.data_dir)]):
        absent |= DISKS
    if resources.process_disk_bytes() is None:
        absent |= OWN_DISK
    return [metric for metric in CATALOGUE if metric.key not in absent]


def test_every_row_of_the_catalogue_has_samples(used: Broker) -> None:
    found = scrape(used)
    missing = []
    for metric in expected(used):
        for name in metric.names.values():
            sample_name = {"histogram": f"{name.text}_bucket"}.get(name.kind, name.text)
            if sample_name not in found:
                missing.append(sample_name)
    assert not missing


def test_the_numbers_are_those_of_the_requests(used: Broker) -> None:
    found = scrape(used)
    for name, expected_count in (
        ("kafka_server_brokertopicmetrics_messagesin_total", RECORDS),
        ("kbroker_partition_messages_total", RECORDS),
        ("kafka_topic_partition_current_offset", RECORDS),
        ("kafka_log_Log_LogEndOffset", RECORDS),
    ):
        ours = {labels: n for labels, n in found[name].items() if 'topic="orders"' in labels}
        assert sum(ours.values()) == expected_count, name
    bytes_in = found["kafka_server_brokertopicmetrics_bytesin_total"]
    bytes_out = found["kafka_server_brokertopicmetrics_bytesout_total"]
    assert bytes_in[""] == bytes_in['topic="orders"'] > RECORDS * 100
    assert bytes_out[""] >= bytes_in[""]
    assert found["kafka_controller_KafkaController_ActiveControllerCount"][""] == 1
    assert found["kafka_server_KafkaServer_BrokerState"][""] == 3
    assert found["kafka_server_ReplicaManager_UnderReplicatedPartitions"][""] == 0
    assert found["kafka_brokers"][""] == 1
    produced = found["kafka_network_RequestMetrics_TotalTimeMs_count"]['request="Produce"']
    assert produced >= 1
    idle = found["kafka_server_KafkaRequestHandlerPool_RequestHandlerAvgIdlePercent"][""]
    assert 0 <= idle <= 1
    share = found["kbroker_memory_limit_share"][""]
    assert 0 < share < 1


def test_lag_needs_no_exporter(used: Broker) -> None:
    found = scrape(used)
    labels = 'consumergroup="readers",topic="orders",partition="0"'
    assert found["kafka_consumergroup_lag"] == {labels: LEFT}
    assert found["kafka_consumergroup_current_offset"] == {labels: RECORDS - LEFT}
    assert found["kafka_consumergroup_lag_sum"] == {'consumergroup="readers",topic="orders"': LEFT}
    assert found["kafka_consumergroup_members"] == {'consumergroup="readers"': 0}
    assert found["kafka_coordinator_group_GroupMetadataManager_NumGroups"][""] == 1
    assert found["kafka_coordinator_group_GroupMetadataManager_NumGroupsEmpty"][""] == 1
    assert found["kafka_coordinator_group_groupmetadatamanager_numoffsets"][""] == 1


def test_the_sum_over_all_topics_survives_a_topic(used: Broker) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": used.bootstrap})
    for future in admin.delete_topics(["orders"]).values():
        future.result()
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    found = wait_for(used, lambda s: 'topic="orders"' not in s[name], "the topic's samples go")
    assert found[name][""] == RECORDS


def test_a_scrape_of_the_document_keeps_its_metrics(used: Broker) -> None:
    found = scrape(used, "?name=BytesInPerSec&name=UnderReplicatedPartitions")
    assert {name for name in found if name.startswith("kafka_server_")} >= {
        "kafka_server_BrokerTopicMetrics_BytesInPerSec",
        "kafka_server_ReplicaManager_UnderReplicatedPartitions",
    }
    assert not [name for name in found if "MessagesIn" in name]
