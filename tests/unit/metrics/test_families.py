"""The catalogue is one consistent table, and figures come out under its names."""

from __future__ import annotations

import re

import pytest

from kbroker.metrics.catalogue import BY_KEY, CATALOGUE
from kbroker.metrics.families import families
from kbroker.metrics.model import Figures, Meter, Summary
from kbroker.metrics.rows import DIALECTS

FIGURES = Figures(
    1_700_000_000_000,
    {
        "bytes_in": [(("",), Meter(300, 3.0, 1.5)), (("orders",), Meter(100, 1.0, 0.5))],
        "messages_in": [(("",), Meter(30, 0.3, 0.2))],
        "handler_idle": [((), 0.25)],
        "total_time": [(("Produce",), Summary(((0.5, 1.0), (0.99, 9.0)), 7, 21.0))],
        "brokers": [((), 1)],
    },
)


def exposed(*dialects: str, suffixes: tuple[str, ...] = ()) -> dict[str, object]:
    return {family.name: family for family in families(FIGURES, dialects or DIALECTS[:2], suffixes)}


def test_keys_and_names_are_unique() -> None:
    assert len(BY_KEY) == len(CATALOGUE)
    for dialect in DIALECTS[:3]:
        names = [metric.names[dialect].text for metric in CATALOGUE]
        assert len(set(names)) == len(names), dialect


def test_names_fit_prometheus_and_kinds_agree() -> None:
    for metric in CATALOGUE:
        assert metric.help.endswith("."), metric.key
        for name in metric.names.values():
            assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name.text), name
            if name.of == "count":
                assert name.kind == "counter"
            if name.kind == "counter" and "canonical" in metric.names and name.of == "value":
                assert name.text.endswith("_total"), name
            same = {n.kind for m in CATALOGUE for n in m.names.values() if n.text == name.text}
            assert len(same) == 1, name


def test_a_meter_is_a_rate_in_camel_case_and_a_counter_in_lower_case() -> None:
    found = {f.name: f for f in families(FIGURES)}
    rate = found["kafka_server_BrokerTopicMetrics_BytesInPerSec"]
    assert (rate.kind, rate.labels) == ("gauge", ("topic",))
    assert rate.samples == [(("",), 3.0), (("orders",), 1.0)]
    count = found["kafka_server_brokertopicmetrics_bytesin_total"]
    assert count.kind == "counter"
    assert count.samples == [(("",), 300), (("orders",), 100)]


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        ("canonical", "kafka_server_KafkaRequestHandlerPool_RequestHandlerAvgIdlePercent"),
        ("strimzi", "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"),
        ("confluent", "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total"),
        ("strimzi", "kafka_network_requestmetrics_totaltimems"),
        ("confluent", "kafka_server_brokertopicmetrics_bytesinpersec"),
    ],
)
def test_each_dialect_has_its_names(dialect: str, name: str) -> None:
    assert name in exposed(dialect)


def test_kafka_ui_has_one_name_with_the_metric_as_a_label() -> None:
    found = list(families(FIGURES, ["kafka-ui"]))
    assert [f.name for f in found] == ["kafka_server_BrokerTopicMetrics_FifteenMinuteRate"]
    assert found[0].labels == ("name", "topic")
    assert found[0].samples == [
        (("BytesInPerSec", ""), 1.5),
        (("BytesInPerSec", "orders"), 0.5),
        (("MessagesInPerSec", ""), 0.2),
    ]


def test_a_name_that_dialects_share_is_given_once() -> None:
    assert [f.name for f in families(FIGURES, DIALECTS)].count("kafka_brokers") == 1


def test_names_are_chosen_by_the_suffix_of_the_canonical_one() -> None:
    assert set(exposed(suffixes=("BytesInPerSec",))) == {
        "kafka_server_BrokerTopicMetrics_BytesInPerSec",
        "kafka_server_brokertopicmetrics_bytesin_total",
    }
    assert exposed(suffixes=("bytesinpersec",)) == {}


def test_a_value_that_was_not_measured_has_no_name() -> None:
    assert "kafka_server_ReplicaManager_PartitionCount" not in exposed()
