"""The handlers beside Apache Kafka 4.3.0: the same conversation, the same answers.

The answers in `apache_kafka_4_3_0.json` were recorded with `scenario.py`. Compared is what a client
can act on: every field, but for what two brokers cannot share (ids, addresses), for the order where
Apache Kafka's is that of a hash table, for the words of messages (there is one, or there is none),
and for the differences listed below with their reasons.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import uuid
from collections import Counter
from typing import Any

import pytest

from kbroker.handlers.registry import REGISTRY
from tests.unit.handlers.scenario import ANSWERS, steps
from tests.unit.handlers.support import FakeBroker, FakeRequest, answer_of

# Left out by name: (structure, field).
NOT_COMPARED = {
    ("ApiVersionsResponse", "supported_features"): "features are levels of Kafka's own records",
    ("ApiVersionsResponse", "finalized_features"): "the same",
    ("ApiVersionsResponse", "finalized_features_epoch"): "the same",
    ("MetadataResponse", "cluster_id"): "another cluster",
    ("DescribeClusterResponse", "cluster_id"): "another cluster",
    ("MetadataResponseBroker", "host"): "another address",
    ("MetadataResponseBroker", "port"): "another address",
    ("MetadataResponseBroker", "rack"): "the fake has one",
    ("DescribeClusterBroker", "host"): "another address",
    ("DescribeClusterBroker", "port"): "another address",
    ("DescribeClusterBroker", "rack"): "the fake has one",
    ("InitProducerIdResponse", "producer_id"): "fresh everywhere",
    ("DescribeConfigsResourceResult", "documentation"): "our own words",
}
# Apache Kafka's default of unclean leader election turns the broker's minimum of in-sync replicas
# into a cluster-wide dynamic default (eligible leader replicas); here it is a plain default.
SOURCE_DIFFERS = {"min.insync.replicas"}
# Ours shows the coarser broker key (hours) whose default holds as a synonym, too.
SYNONYMS_DIFFER = {"flush.ms", "retention.ms", "segment.jitter.ms", "segment.ms"}
MESSAGES = {"error_message"}


def normal(value: Any) -> Any:
    """A decoded answer as plain values, with what is not compared masked."""
    if dataclasses.is_dataclass(value):
        name = type(value).__name__
        fields = {
            field.name: normal(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if (name, field.name) not in NOT_COMPARED
        }
        for message in MESSAGES & fields.keys():
            fields[message] = bool(fields[message])
        if fields.get("name") in SOURCE_DIFFERS:
            fields.pop("config_source", None)
            fields.pop("synonyms", None)
        if fields.get("name") in SYNONYMS_DIFFER:
            fields.pop("synonyms", None)
        return fields
    if isinstance(value, tuple):
        items = [normal(item) for item in value]
        return sorted(items, key=repr) if any(isinstance(i, dict) for i in items) else items
    if isinstance(value, uuid.UUID):
        return "id"
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return value


@pytest.fixture(scope="module")
def answers() -> tuple[dict[str, Any], dict[str, Any]]:
    """(recorded, ours) by label, decoded and made comparable."""
    recorded = json.loads(ANSWERS.read_text())
    broker = FakeBroker(overrides=["node.id=1"])
    theirs, ours = {}, {}
    for label, make in steps():
        entity = make(lambda name: broker.controller.image.topics[name].topic_id)
        request = FakeRequest(
            entity.__api_key__, entity.__version__, b"", answer=bytes.fromhex(recorded[label])
        )
        theirs[label] = normal(answer_of(request))
        ours[label] = normal(broker.call(entity))
    return theirs, ours


LABELS = [label for label, _ in steps()]


def test_every_label_once() -> None:
    assert not [label for label, times in Counter(LABELS).items() if times > 1]


@pytest.mark.parametrize("label", LABELS)
def test_same_answer(label: str, answers: tuple[dict[str, Any], dict[str, Any]]) -> None:
    theirs, ours = answers[0][label], answers[1][label]
    if "versions" in label:
        served = {int(api.key) for api in REGISTRY.apis}
        theirs["api_keys"] = [k for k in theirs["api_keys"] if k["api_key"] in served]
    if "configs" in label:
        # We say in words, too, that a topic does not exist.
        for result in theirs["results"]:
            result["error_message"] = result["error_code"] != 0
    assert ours == theirs
