"""A running broker's scrape holds what rules, dashboard and the documented scrape file ask for."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from kbroker.metrics.alerts import alert_groups
from kbroker.metrics.dashboard import ROWS
from kbroker.metrics.prometheus import NETWORK_NAMES, RESOURCE_NAMES
from kbroker.testing.plain import PlainBroker as Broker
from tests.clients.adapters import Admin, Confluent, Record
from tests.support.promql import series_names

pytestmark = pytest.mark.client

# The guide's own file, as it is there but for its targets.
DOCUMENTED = """
scrape_configs:
  - job_name: 'kafka_broker'
    static_configs:
      - targets: ['ADMIN']
    metrics_path: '/metrics'
    params:
      name: ['BytesInPerSec', 'BytesOutPerSec', 'UnderReplicatedPartitions']
    scrape_interval: 15s
"""
OF_PROMETHEUS = {"up"}
# Only where a listener speaks TLS: test_tls.py finds it there.
OF_TLS = {"kbroker_tls_certificate_not_after_seconds"}
# Only where a share group reads: test_share_explain.py and the unit tests of metrics find it.
OF_SHARE_GROUPS = {
    "kafka_server_SharePartitionMetrics_InFlightMessageCount", "InFlightMessageCount",
}  # fmt: skip

Samples = dict[str, list[tuple[dict[str, str], float]]]


def scrape(broker: Broker, query: str = "", accept: str = "") -> str:
    request = urllib.request.Request(broker.admin + "/metrics" + query)
    request.add_header("Accept", accept or "text/plain")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def samples_of(text: str) -> Samples:
    found: Samples = {}
    for metric in read_text(text):
        for sample in metric.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.fixture(scope="module")
def busy() -> Iterator[Broker]:
    """A broker that was written to and read from, by a group too, and has a transactional id."""
    with Broker() as broker:
        Admin(broker.bootstrap).create("orders", 2)
        client = Confluent(broker.bootstrap)
        client.produce("orders", [Record(b"x" * 100)] * 50)
        assert len(list(client.consume("orders", 50))) == 50
        reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        reader.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        reader.close()
        settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "payments"}
        Producer(settings).init_transactions(30)
        yield broker


@pytest.fixture(scope="module")
def scraped(busy: Broker) -> Samples:
    return samples_of(scrape(busy))


def expressions() -> list[Any]:
    found = [(alert.name, alert.expr) for group in alert_groups() for alert in group.alerts]
    found += [
        (f"panel {panel.title} {at}", query.expr)
        for row in ROWS
        for panel in row.panels
        for at, query in enumerate(panel.queries)
    ]
    return [pytest.param(expr, id=name) for name, expr in found]


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_finds_its_series(scraped: Samples, expression: str) -> None:
    for name in set(series_names(expression)) - OF_PROMETHEUS - OF_TLS - OF_SHARE_GROUPS:
        assert scraped.get(name), f"{name} is not in the scrape"
    for name, labels in re.findall(r"([A-Za-z_]+)\{([^}]*)\}", expression):
        for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
            if name not in OF_PROMETHEUS:
                at = {sample.get(label, "") for sample, _ in scraped[name]}
                assert value in at, f"{name} has no sample with {label}={value}"


def test_the_documented_scrape_file(busy: Broker) -> None:
    """Only its targets are changed; this asks as Prometheus does."""
    text = DOCUMENTED.replace("ADMIN", busy.admin.removeprefix("http://"))
    (names,) = re.findall(r"name: \[(.*)\]", text)
    (path,) = re.findall(r"metrics_path: '(.*)'", text)
    assert path == "/metrics"
    params = [("name", name.strip(" '")) for name in names.split(",")]
    found = samples_of(scrape(busy, "?" + urlencode(params)))
    canonical = {
        "kafka_server_BrokerTopicMetrics_BytesInPerSec",
        "kafka_server_BrokerTopicMetrics_BytesOutPerSec",
        "kafka_server_ReplicaManager_UnderReplicatedPartitions",
        # Their names end so, too.
        "kafka_server_BrokerTopicMetrics_ReplicationBytesInPerSec",
        "kafka_server_BrokerTopicMetrics_ReplicationBytesOutPerSec",
    }
    strimzi = {
        "kafka_server_brokertopicmetrics_bytesin_total",
        "kafka_server_brokertopicmetrics_bytesout_total",
        "kafka_server_replicamanager_underreplicatedpartitions",
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
    }
    assert set(found) == canonical | strimzi
    totals = dict((labels.get("topic", ""), value) for labels, value in
                  found["kafka_server_brokertopicmetrics_bytesin_total"])  # fmt: skip
    assert totals["orders"] == totals[""] > 50 * 100


@pytest.mark.parametrize("names", [NETWORK_NAMES, RESOURCE_NAMES], ids=["network", "resources"])
def test_every_name_of_our_own_scrape_file_brings_samples(
    busy: Broker, names: tuple[str, ...]
) -> None:
    for name in set(names) - OF_TLS - OF_SHARE_GROUPS:
        assert samples_of(scrape(busy, "?" + urlencode({"name": name}))), name


def test_both_formats_hold_the_same(busy: Broker) -> None:
    text = scrape(busy)
    openmetrics = scrape(busy, accept="application/openmetrics-text; version=1.0.0")
    of_text = {sample.name for metric in read_text(text) for sample in metric.samples}
    of_openmetrics = {
        sample.name for metric in read_openmetrics(openmetrics) for sample in metric.samples
    }
    assert of_text == of_openmetrics
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(set(types)) == len(types)  # Prometheus refuses a second one of a name


def test_other_dialects_are_asked_for() -> None:
    with Broker({"metrics.dialects": "confluent,kafka-ui"}) as broker:
        Admin(broker.bootstrap).create("orders", 1)
        text = scrape(broker)
    found = samples_of(text)
    assert "kafka_server_brokertopicmetrics_bytesinpersec" in found
    labels = [labels for labels, _ in found["kafka_server_BrokerTopicMetrics_FifteenMinuteRate"]]
    assert {"name": "BytesInPerSec"} in labels
    assert "kafka_server_BrokerTopicMetrics_BytesInPerSec" not in found


def test_the_counters_are_those_of_the_records_sent(scraped: Samples) -> None:
    by_topic = {
        labels.get("topic", ""): value
        for labels, value in scraped["kafka_server_brokertopicmetrics_messagesin_total"]
    }
    assert by_topic["orders"] == 50
    counts = {
        labels["request"]: value
        for labels, value in scraped["kafka_network_RequestMetrics_TotalTimeMs_count"]
    }
    assert counts["Produce"] > 0 and counts["FetchConsumer"] > 0
