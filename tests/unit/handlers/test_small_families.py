"""InitProducerId, FindCoordinator and DescribeCluster, every version."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker import limits
from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.find_coordinator import TRANSACTION
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.types import ApiKey
from tests.unit.handlers.support import CLUSTER_ID, FakeBroker, changed, request_of, written

# --- InitProducerId ---------------------------------------------------------------------------

INIT_VERSIONS = range(6)
# In the versions that librdkafka uses, 4 of InitProducerId and 2 of FindCoordinator: it asks again
# for ever where the code is another.
REFUSED_TO_LIBRDKAFKA = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def init(version: int, name: str | None = None, producer_id: int = -1, epoch: int = -1) -> Any:
    fields: dict[str, Any] = {
        "transactional_id": name,
        "transaction_timeout": datetime.timedelta(seconds=60),
    }
    if version >= 3:
        fields |= {"producer_id": producer_id, "producer_epoch": epoch}
    return request_of(ApiKey.INIT_PRODUCER_ID, version, **fields)


def identity(answer: Any) -> tuple[int, int, int]:
    return answer.error_code.value, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", INIT_VERSIONS)
def test_every_producer_gets_its_own_id_at_epoch_0(version: int) -> None:
    broker = FakeBroker()
    got = [identity(broker.call(init(version))) for _ in range(3)]
    assert got == [(0, 1000, 0), (0, 1001, 0), (0, 1002, 0)]


@pytest.mark.parametrize("version", range(3, 6))
def test_an_id_that_a_producer_brings_is_not_given_back(version: int) -> None:
    broker = FakeBroker()
    assert identity(broker.call(init(version, None, 5, 3))) == (0, 1000, 0)
    for producer_id, epoch in ((5, -1), (-1, 3)):
        code = identity(broker.call(init(version, None, producer_id, epoch)))
        assert code == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", INIT_VERSIONS)
def test_there_are_no_transactions(version: int) -> None:
    broker = FakeBroker()
    refused = REFUSED_TO_LIBRDKAFKA if version == 4 else ErrorCode.UNSUPPORTED_VERSION
    assert identity(broker.call(init(version, "tx"))) == (refused, -1, -1)
    assert identity(broker.call(init(version, ""))) == (ErrorCode.INVALID_REQUEST, -1, -1)
    assert broker.producer_ids.next == 1000


@pytest.mark.parametrize("version", INIT_VERSIONS)
def test_no_block_of_ids_to_be_had(version: int) -> None:
    broker = FakeBroker()
    broker.producer_ids.broken = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert identity(broker.call(init(version))) == (code, -1, -1)


# --- FindCoordinator --------------------------------------------------------------------------

FIND_VERSIONS = range(7)


def find(version: int, keys: list[str], key_type: int = 0) -> Any:
    fields: dict[str, Any] = {"coordinator_keys": tuple(keys)} if version >= 4 else {"key": keys[0]}
    if version >= 1:
        fields["key_type"] = key_type
    return request_of(ApiKey.FIND_COORDINATOR, version, **fields)


def coordinators(version: int, answer: Any) -> list[tuple[str | None, int, int, str, int]]:
    if version >= 4:
        return [(c.key, c.error_code.value, c.node_id, c.host, c.port) for c in answer.coordinators]
    return [(None, answer.error_code.value, answer.node_id, answer.host, answer.port)]


@pytest.mark.parametrize("version", FIND_VERSIONS)
def test_the_first_to_ask_for_a_group_has_the_topic_made(version: int) -> None:
    keys = ["g1", "", "g1"] if version >= 4 else ["g1"]
    broker = FakeBroker(brokers=3)
    broker.controller.hold = True
    answered = [key if version >= 4 else None for key in keys]
    for _ in range(2):
        answer = broker.call(find(version, keys))
        assert coordinators(version, answer) == [
            (key, ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1) for key in answered
        ]
    assert len(broker.controller.asked) == 1
    broker.controller.release()
    topic = broker.controller.image.topic(OFFSETS_TOPIC)
    assert topic is not None
    assert topic.internal
    assert len(topic.partitions) == 50
    assert dict(topic.configs) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    places = {1: "127.0.0.1", 2: "host2", 3: "host3"}
    for key, found in zip(
        keys, coordinators(version, broker.call(find(version, keys))), strict=True
    ):
        leader = topic.partitions[partition_for(key, 50)].leader
        assert found[1:4] == (0, leader, places[leader])
    assert len(broker.controller.asked) == 1


def test_a_group_whose_partition_has_no_leader_has_no_coordinator() -> None:
    broker = FakeBroker(overrides=["offsets.topic.num.partitions=1"])
    broker.call(find(6, ["g"]))
    topic = broker.controller.image.topic(OFFSETS_TOPIC)
    assert topic is not None
    leaderless = changed(topic, partitions=(changed(topic.partitions[0], leader=-1),))
    broker.controller.publish(broker.controller.image.with_topics([leaderless]))
    (found,) = coordinators(6, broker.call(find(6, ["g"])))
    assert found == ("g", ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)


def test_a_key_that_is_named_again_is_answered_again_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of one byte each, a megabyte of keys would have an answer of 53."""
    monkeypatch.setattr(limits, "REPEATED_ANSWER_BYTES_MAX", 0)
    broker = FakeBroker()
    answered = coordinators(4, broker.call(find(4, ["", "other", *[""] * 1_000], TRANSACTION)))
    refused = (ErrorCode.UNSUPPORTED_VERSION, -1, "", -1)
    assert answered[:3] == [("", *refused), ("other", *refused), ("", *refused)]
    assert answered[-1] == ("", ErrorCode.INVALID_REQUEST, -1, "", -1)
    assert {each[1] for each in answered[:-1]} == {refused[0]}
    assert 16 * 1_000 // 60 < len(answered) < 16 * 1_100 // 30


def test_a_topic_that_cannot_be_made_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    broker = FakeBroker(overrides=["offsets.topic.replication.factor=3"])
    for _ in range(2):
        (found,) = coordinators(6, broker.call(find(6, ["g"])))
        assert found[1] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(broker.controller.asked) == 2
    assert "offsets.topic.replication.factor" in caplog.text


def test_in_a_cluster_groups_wait_for_three_brokers() -> None:
    """KIP-115: with fewer replicas the offsets would go with the first broker that is lost."""
    broker = FakeBroker(brokers=2, overrides=["zookeeper.connect=localhost:2181"])
    (found,) = coordinators(6, broker.call(find(6, ["g"])))
    assert found[1] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.controller.image.topic(OFFSETS_TOPIC) is None
    image = FakeBroker(brokers=3).controller.image
    broker.controller.publish(broker.controller.image.with_brokers(image.brokers.values()))
    broker.call(find(6, ["g"]))
    topic = broker.controller.image.topic(OFFSETS_TOPIC)
    assert topic is not None
    assert {len(each.replicas) for each in topic.partitions} == {3}


@pytest.mark.parametrize("version", range(1, 7))
def test_a_transactional_producer_is_answered_at_once(version: int) -> None:
    answer = FakeBroker().call(find(version, ["tx"], 1))
    (found,) = coordinators(version, answer)
    refused = REFUSED_TO_LIBRDKAFKA if version == 2 else ErrorCode.UNSUPPORTED_VERSION
    assert found[1] == refused
    message = answer.coordinators[0].error_message if version >= 4 else answer.error_message
    assert "transactions" in message


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize("key_type", [2, 3, 9, -1])
def test_types_of_coordinator(version: int, key_type: int) -> None:
    key = "g:AAAAAAAAAAAAAAAAAAAAAQ:0"
    (found,) = coordinators(version, FakeBroker().call(find(version, [key], key_type)))
    share = key_type == 2 and version >= 6
    assert found[1] == (ErrorCode.COORDINATOR_NOT_AVAILABLE if share else ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("version", range(4, 7))
def test_no_coordinator_to_find(version: int) -> None:
    assert FakeBroker().call(find(version, [])).coordinators == ()


# --- DescribeCluster --------------------------------------------------------------------------

CLUSTER_VERSIONS = range(3)


def describe(version: int, *, operations: bool = False, endpoint: int = 1) -> Any:
    fields: dict[str, Any] = {"include_cluster_authorized_operations": operations}
    if version >= 1:
        fields["endpoint_type"] = endpoint
    if version >= 2:
        fields["include_fenced_brokers"] = True
    return request_of(ApiKey.DESCRIBE_CLUSTER, version, **fields)


@pytest.mark.parametrize("version", CLUSTER_VERSIONS)
def test_the_cluster(version: int) -> None:
    answer = FakeBroker(brokers=2).call(describe(version), local_host="10.0.0.9", local_port=1234)
    assert (answer.error_code.value, answer.error_message) == (0, None)
    assert answer.cluster_id == CLUSTER_ID
    assert answer.controller_id in (1, 2)
    assert [(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers] == [
        (1, "10.0.0.9", 1234, "rack1"),
        (2, "host2", 9002, "rack2"),
    ]
    assert answer.cluster_authorized_operations == -(2**31)
    if version >= 1:
        assert answer.endpoint_type == 1
    if version >= 2:
        assert not any(b.is_fenced for b in answer.brokers)


@pytest.mark.parametrize("version", CLUSTER_VERSIONS)
def test_cluster_operations_when_asked(version: int) -> None:
    answer = FakeBroker().call(describe(version, operations=True))
    assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint", "code"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_other_endpoints(version: int, endpoint: int, code: ErrorCode) -> None:
    answer = FakeBroker().call(describe(version, endpoint=endpoint))
    assert answer.error_code.value == code
    assert answer.error_message
    assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, ())


# --- bad bytes --------------------------------------------------------------------------------

ALL = [
    *((ApiKey.INIT_PRODUCER_ID, v, written(init(v, "name"))) for v in INIT_VERSIONS),
    *((ApiKey.FIND_COORDINATOR, v, written(find(v, ["key"]))) for v in FIND_VERSIONS),
    *((ApiKey.DESCRIBE_CLUSTER, v, written(describe(v))) for v in CLUSTER_VERSIONS),
]


@pytest.mark.parametrize(("key", "version", "body"), ALL)
def test_a_request_cut_anywhere_closes_the_connection(
    key: ApiKey, version: int, body: bytes
) -> None:
    for size in range(len(body)):
        request = FakeBroker().send(key, version, body[:size])
        assert request.answer is None
        assert request.closed is not None


@settings(deadline=None)
@given(which=st.sampled_from([(key, version) for key, version, _ in ALL]), body=st.binary())
def test_any_bytes_are_answered_or_closed(which: tuple[ApiKey, int], body: bytes) -> None:
    request = FakeBroker().send(*which, body)
    assert (request.answer is None) != (request.closed is None)
