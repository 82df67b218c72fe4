"""Metadata, every version: requests, answers, and topics that are created after them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode
from kbroker.handlers.auto_topics import CREATIONS_MAX
from kbroker.metadata.image import BrokerEndpoint, BrokerImage
from kbroker.types import ApiKey
from tests.unit.handlers.support import (
    CLUSTER_ID,
    FakeBroker,
    changed,
    part_of,
    request_of,
    written,
)

VERSIONS = range(14)
NOT_ASKED = -(2**31)


def ask(
    version: int,
    topics: list[str | uuid.UUID | tuple[str | None, uuid.UUID | None]] | None,
    *,
    create: bool = False,
    topic_operations: bool = False,
    cluster_operations: bool = False,
) -> Any:
    parts = None if topics is None else tuple(_topic(version, topic) for topic in topics)
    fields: dict[str, Any] = {"topics": parts}
    if version >= 4:
        fields["allow_auto_topic_creation"] = create
    if 8 <= version <= 10:
        fields["include_cluster_authorized_operations"] = cluster_operations
    if version >= 8:
        fields["include_topic_authorized_operations"] = topic_operations
    return request_of(ApiKey.METADATA, version, **fields)


def _topic(version: int, topic: str | uuid.UUID | tuple[str | None, uuid.UUID | None]) -> Any:
    name, topic_id = topic if isinstance(topic, tuple) else (topic, None)
    if isinstance(topic, uuid.UUID):
        name, topic_id = None, topic
    fields = {"topic_id": topic_id} if version >= 10 else {}
    return part_of(ApiKey.METADATA, version, "MetadataRequestTopic", name=name, **fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_in_full(version: int) -> None:
    broker = FakeBroker(brokers=2)
    broker.create("a1", partitions=3)
    topic = broker.controller.image.topics["a1"]
    broker.controller.publish(
        broker.controller.image.with_topics(
            [
                changed(
                    topic,
                    partitions=tuple(
                        changed(p, replicas=(1, 2), isr=(2,), leader=2, leader_epoch=5 + p.index)
                        for p in topic.partitions
                    ),
                )
            ]
        )
    )
    answer = broker.call(ask(version, ["a1"]))
    (found,) = answer.topics
    assert (found.name, found.error_code.value) == ("a1", 0)
    assert [p.partition_index for p in found.partitions] == [0, 1, 2]
    for partition in found.partitions:
        assert partition.error_code.value == 0
        assert partition.leader_id == 2
        assert partition.replica_nodes == (1, 2)
        assert partition.isr_nodes == (2,)
        if version >= 5:
            assert partition.offline_replicas == ()
        if version >= 7:
            assert partition.leader_epoch == 5 + partition.partition_index
    if version >= 1:
        assert not found.is_internal
        assert answer.controller_id in (1, 2)
    if version >= 2:
        assert answer.cluster_id == CLUSTER_ID
    if version >= 8:
        assert found.topic_authorized_operations == NOT_ASKED
    if 8 <= version <= 10:
        assert answer.cluster_authorized_operations == NOT_ASKED
    if version >= 10:
        assert found.topic_id == topic.topic_id
    if version >= 13:
        assert answer.error_code.value == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_this_node_is_listed_under_the_address_that_was_used(version: int) -> None:
    broker = FakeBroker(brokers=2)
    answer = broker.call(ask(version, None if version else []), local_host="::1", local_port=4711)
    listed = {b.node_id: (b.host, b.port) for b in answer.brokers}
    assert listed == {1: ("::1", 4711), 2: ("host2", 9002)}
    if version >= 1:
        assert [b.rack for b in answer.brokers] == ["rack1", "rack2"]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics(version: int) -> None:
    broker = FakeBroker()
    broker.create(*(f"t{i}" for i in range(200)), partitions=2)
    broker.create("__consumer_offsets")
    answer = broker.call(ask(version, None if version else [], create=True))
    assert {t.name for t in answer.topics} == set(broker.controller.image.topics)
    if version >= 1:
        assert [t.name for t in answer.topics if t.is_internal] == ["__consumer_offsets"]
    assert broker.controller.asked == []


@pytest.mark.parametrize("version", VERSIONS)
def test_no_topics_and_no_broker_registered_yet(version: int) -> None:
    broker = FakeBroker(brokers=0)
    answer = broker.call(ask(version, []))
    assert answer.topics == ()
    assert [(b.node_id, b.port) for b in answer.brokers] == [(1, 9092)]


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_and_impossible_names_in_the_order_asked(version: int) -> None:
    broker = FakeBroker()
    broker.create("a1")
    asked = ["zz", "a b", "a1", "", "zz", "x" * 250, "."]
    answer = broker.call(ask(version, asked))
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [(t.name, t.error_code.value) for t in answer.topics] == [
        ("zz", unknown),
        ("a b", invalid),
        ("a1", 0),
        ("", invalid),
        ("x" * 250, invalid),
        (".", invalid),
    ]
    if version >= 10:
        assert [t.topic_id for t in answer.topics if t.name != "a1"] == [None] * 5


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations_when_asked(version: int) -> None:
    broker = FakeBroker()
    broker.create("a1")
    answer = broker.call(ask(version, ["a1", "zz"], topic_operations=True, cluster_operations=True))
    # The numbers of a running Apache Kafka 4.3.0 without an authorizer.
    assert [t.topic_authorized_operations for t in answer.topics] == [3576, 3576]
    if version <= 10:
        assert answer.cluster_authorized_operations == 8096
    answer = broker.call(ask(version, None, topic_operations=True))
    assert [t.topic_authorized_operations for t in answer.topics] == [3576]
    answer = broker.call(ask(version, None))
    assert [t.topic_authorized_operations for t in answer.topics] == [NOT_ASKED]


@pytest.mark.parametrize("version", [12, 13])
def test_by_id(version: int) -> None:
    broker = FakeBroker()
    broker.create("a1", "b1")
    known, unknown = broker.controller.image.topics["b1"].topic_id, uuid.uuid4()
    answer = broker.call(ask(version, [known, unknown, known, ("a1", None)]))
    assert [(t.name, t.topic_id, t.error_code.value) for t in answer.topics] == [
        ("b1", known, 0),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    # A name beside an id is ignored.
    (topic,) = broker.call(ask(version, [("a1", known)])).topics
    assert topic.name == "b1"


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_v12_are_refused(version: int) -> None:
    broker = FakeBroker()
    broker.create("a1")
    topic_id = broker.controller.image.topics["a1"].topic_id
    (topic,) = broker.call(ask(version, [("a1", topic_id)])).topics
    assert (topic.name, topic.topic_id) == ("a1", topic_id)
    assert topic.error_code.value == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [12, 13])
def test_neither_name_nor_id(version: int) -> None:
    answer = FakeBroker().call(ask(version, [(None, None)]))
    assert [t.error_code.value for t in answer.topics] == [ErrorCode.UNKNOWN_SERVER_ERROR]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_without_a_leader(version: int) -> None:
    broker = FakeBroker()
    broker.create("a1")
    topic = broker.controller.image.topics["a1"]
    partition = changed(topic.partitions[0], replicas=(1, 7), isr=(1, 7), leader=7)
    broker.controller.publish(
        broker.controller.image.with_topics([changed(topic, partitions=(partition,))])
    )
    (found,) = broker.call(ask(version, ["a1"])).topics
    assert found.error_code.value == 0
    (got,) = found.partitions
    assert (got.leader_id, got.error_code.value) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    # v0 clients cannot bear a node without an address.
    assert got.replica_nodes == ((1,) if version == 0 else (1, 7))
    assert got.isr_nodes == ((1,) if version == 0 else (1, 7))
    if version >= 5:
        assert got.offline_replicas == (7,)
    if version >= 7:
        assert got.leader_epoch == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_that_clients_of_the_listener_do_not_reach(version: int) -> None:
    broker = FakeBroker()
    broker.create("a1")
    inside = BrokerImage(2, "h", 2, endpoints=(BrokerEndpoint("INSIDE", "h", 2),))
    image = broker.controller.image
    image = image.with_brokers([*image.brokers.values(), inside])
    topic = image.topics["a1"]
    partition = changed(topic.partitions[0], replicas=(2, 1), isr=(2, 1), leader=2)
    broker.controller.publish(image.with_topics([changed(topic, partitions=(partition,))]))
    missing = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    # Clients of each listener have an answer of their own, also where the last was another's.
    for listener, leader, code in (("PLAINTEXT", -1, missing), ("INSIDE", 2, ErrorCode.NONE)) * 2:
        found = broker.call(ask(version, ["a1"]), listener=listener)
        (got,) = found.topics[0].partitions
        assert (got.leader_id, got.error_code.value) == (leader, code)
        assert (2 in {each.node_id for each in found.brokers}) is (leader == 2)
        if version >= 5:
            assert got.offline_replicas == ((2,) if leader == -1 else ())
        if version == 0:
            assert got.replica_nodes == ((1,) if leader == -1 else (2, 1))
        everything = broker.call(ask(version, None if version else []), listener=listener)
        assert everything.topics[0].partitions == found.topics[0].partitions


def test_v0_says_when_a_replica_is_away() -> None:
    broker = FakeBroker()
    broker.create("a1")
    topic = broker.controller.image.topics["a1"]
    partition = changed(topic.partitions[0], replicas=(1, 7))
    broker.controller.publish(
        broker.controller.image.with_topics([changed(topic, partitions=(partition,))])
    )
    codes = [
        broker.call(ask(version, ["a1"])).topics[0].partitions[0].error_code.value
        for version in (0, 1)
    ]
    assert codes == [ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.NONE]


# --- auto-creation ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_name_is_created_and_there_next_time(version: int) -> None:
    broker = FakeBroker(overrides=["num.partitions=3"])
    request = ask(version, ["new"], create=True)
    (topic,) = broker.call(request).topics
    assert topic.error_code.value == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (topic,) = broker.call(request).topics
    assert (topic.error_code.value, len(topic.partitions)) == (0, 3)
    assert len(broker.controller.asked) == 1


@pytest.mark.parametrize("version", range(4, 14))
def test_the_request_may_forbid_it(version: int) -> None:
    broker = FakeBroker()
    broker.call(ask(version, ["new"], create=False))
    assert broker.controller.asked == []


def test_the_broker_may_forbid_it() -> None:
    broker = FakeBroker(overrides=["auto.create.topics.enable=false"])
    broker.call(ask(13, ["new"], create=True))
    assert broker.controller.asked == []


def test_only_possible_names_are_created_and_no_internal_ones() -> None:
    broker = FakeBroker()
    broker.call(ask(13, ["a b", "", "__consumer_offsets", "ok"], create=True))
    assert [[spec.name for spec in specs] for specs in broker.controller.asked] == [["ok"]]


def test_many_clients_make_one_creation() -> None:
    broker = FakeBroker()
    broker.controller.hold = True
    for _ in range(3):
        broker.call(ask(13, ["new"], create=True))
    broker.call(ask(13, ["new", "other"], create=True))
    assert [[s.name for s in specs] for specs in broker.controller.asked] == [["new"], ["other"]]
    assert broker.services.auto_topics.under_way == {"new", "other"}
    broker.controller.release()
    assert broker.services.auto_topics.under_way == frozenset()
    assert {"new", "other"} <= set(broker.controller.image.topics)


def test_a_creation_that_fails_is_logged_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = FakeBroker(overrides=["default.replication.factor=3"])
    for _ in range(2):
        broker.call(ask(13, ["new"], create=True))
    assert len(broker.controller.asked) == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # one a second
    assert "new" in caplog.text


def test_a_controller_that_breaks_leaves_nothing_under_way() -> None:
    broker = FakeBroker()
    broker.controller.broken = RuntimeError("full")
    (topic,) = broker.call(ask(13, ["new"], create=True)).topics
    assert topic.error_code.value == ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.services.auto_topics.under_way == frozenset()


def test_creations_under_way_are_bounded() -> None:
    broker = FakeBroker()
    broker.controller.hold = True
    broker.call(ask(13, [f"t{i}" for i in range(CREATIONS_MAX + 5)], create=True))
    broker.call(ask(13, ["one-more"], create=True))
    assert len(broker.services.auto_topics.under_way) == CREATIONS_MAX
    assert len(broker.controller.asked) == 1


# --- the cache --------------------------------------------------------------------------------


def test_an_answer_is_never_older_than_the_image() -> None:
    broker = FakeBroker()
    broker.create("a1", "b1")
    for version in (5, 13):
        assert len(broker.call(ask(version, None)).topics) == 2
    broker.create("c1")
    broker.controller._delete(["a1"], lambda _: None)
    for version in (5, 13):
        assert {t.name for t in broker.call(ask(version, None)).topics} == {"b1", "c1"}
    before = broker.call(ask(13, ["b1"])).topics[0].topic_id
    broker.controller._delete(["b1"], lambda _: None)
    broker.create("b1")
    assert broker.call(ask(13, ["b1"])).topics[0].topic_id != before


def test_a_broker_that_goes_changes_the_partitions() -> None:
    broker = FakeBroker(brokers=2)
    broker.create("a1")
    topic = broker.controller.image.topics["a1"]
    partition = changed(topic.partitions[0], replicas=(1, 2))
    broker.controller.publish(
        broker.controller.image.with_topics([changed(topic, partitions=(partition,))])
    )
    assert broker.call(ask(13, None)).topics[0].partitions[0].offline_replicas == ()
    broker.controller.publish(broker.controller.image.with_brokers([BrokerImage(1, "h", 1)]))
    assert broker.call(ask(13, None)).topics[0].partitions[0].offline_replicas == (2,)


def test_unchanged_topics_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from kbroker.handlers import metadata_topics

    encoded: list[str] = []
    entry_of = metadata_topics.topic_entry

    def counting(version: int, topic: Any, *brokers: Any, operations: bool) -> Any:
        encoded.append(topic.name)
        return entry_of(version, topic, *brokers, operations=operations)

    monkeypatch.setattr(metadata_topics, "topic_entry", counting)
    broker = FakeBroker()
    broker.create("a1", "b1")
    for _ in range(3):
        broker.call(ask(13, None))
        broker.call(ask(13, ["a1"]))
    broker.create("c1")
    broker.call(ask(13, None))
    assert encoded == ["a1", "b1", "c1"]


def test_deleted_topics_are_not_kept() -> None:
    broker = FakeBroker()
    for round_ in range(5):
        names = [f"t{round_}-{i}" for i in range(100)]
        broker.create(*names)
        broker.call(ask(13, None))
        broker.controller._delete(names, lambda _: None)
    broker.create("last")
    broker.call(ask(13, ["last"]))
    assert len(broker.services.topics_kept) <= 64


# --- bad bytes --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_closes_the_connection(version: int) -> None:
    body = written(ask(version, ["abc", "def"]))
    for size in range(len(body)):
        request = FakeBroker().send(ApiKey.METADATA, version, body[:size])
        assert request.answer is None
        assert request.closed is not None


@settings(deadline=None)
@given(version=st.sampled_from(VERSIONS), body=st.binary(max_size=80))
def test_any_bytes_are_answered_or_closed(version: int, body: bytes) -> None:
    request = FakeBroker().send(ApiKey.METADATA, version, body)
    assert (request.answer is None) != (request.closed is None)
