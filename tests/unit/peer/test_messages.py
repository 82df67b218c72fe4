"""Every message in every version that we speak, against kio: its reader for our messages, its
writer for those that we read, and hostile bytes for our readers."""

from __future__ import annotations

import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer import config_messages, messages
from kbroker.peer.config_messages import Resource
from kbroker.peer.isolation import READ_COMMITTED
from kbroker.peer.messages import NewTopic
from kbroker.peer.versions import VERSIONS
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey, TopicPartition
from tests.unit.peer.fake_broker import kio_bytes, kio_error, kio_read, make, module

ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def versions(api: ApiKey) -> range:
    low, high = VERSIONS[api]
    return range(low, high + 1)


def read_request(api: ApiKey, version: int, body: bytes) -> Any:
    return kio_read(getattr(module(api, version, "request"), f"{api.label}Request"), body)


def reader_of(api: ApiKey, version: int, response: Any) -> Reader:
    return Reader(kio_bytes(response), flexible=is_flexible(api, version))


def none() -> Any:
    return kio_error(ErrorCode.NONE)


# --- requests: ours, read by kio ---


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_api_versions_request(version: int) -> None:
    request = read_request(ApiKey.API_VERSIONS, version, messages.encode_api_versions(version))
    if version == 3:
        assert request.client_software_name == "kbroker"
        assert request.client_software_version == messages.SOFTWARE_VERSION


def test_the_software_version_is_the_package_s() -> None:
    project = Path(__file__).parents[3] / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["version"] == messages.SOFTWARE_VERSION


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_request(version: int) -> None:
    body = messages.encode_metadata(version, ["a", "b"], auto_create=True)
    request = read_request(ApiKey.METADATA, version, body)
    assert [topic.name for topic in request.topics] == ["a", "b"]
    assert request.allow_auto_topic_creation
    body = messages.encode_metadata(version, None, auto_create=False)
    request = read_request(ApiKey.METADATA, version, body)
    assert request.topics is None and not request.allow_auto_topic_creation


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_create_topics_request(version: int) -> None:
    topics = [NewTopic("a", 3, 2, {"retention.ms": "1"}), NewTopic("b")]
    body = messages.encode_create_topics(version, topics, timeout_ms=1500, validate_only=True)
    request = read_request(ApiKey.CREATE_TOPICS, version, body)
    first, second = request.topics
    assert (first.name, first.num_partitions, first.replication_factor) == ("a", 3, 2)
    assert [(entry.name, entry.value) for entry in first.configs] == [("retention.ms", "1")]
    assert (second.num_partitions, second.replication_factor, second.configs) == (-1, -1, ())
    assert request.timeout == timedelta(milliseconds=1500) and request.validate_only


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
def test_delete_topics_request(version: int) -> None:
    body = messages.encode_delete_topics(version, ["a", "b"], timeout_ms=1500)
    request = read_request(ApiKey.DELETE_TOPICS, version, body)
    assert request.topic_names == ("a", "b")
    assert request.timeout == timedelta(milliseconds=1500)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_describe_configs_request(version: int) -> None:
    body = config_messages.encode_describe_configs(version, Resource(2, "a"))
    (resource,) = read_request(ApiKey.DESCRIBE_CONFIGS, version, body).resources
    assert (resource.resource_type, resource.resource_name) == (2, "a")
    assert resource.configuration_keys is None
    body = config_messages.encode_describe_configs(version, Resource(4, "1"), ["k"], details=True)
    request = read_request(ApiKey.DESCRIBE_CONFIGS, version, body)
    assert request.resources[0].configuration_keys == ("k",)
    assert request.include_synonyms and getattr(request, "include_documentation", True)


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_init_producer_id_request(version: int) -> None:
    body = messages.encode_init_producer_id(version)
    request = read_request(ApiKey.INIT_PRODUCER_ID, version, body)
    assert request.transactional_id is None
    if version >= 3:
        assert (request.producer_id, request.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce_request(version: int) -> None:
    batches = {A0: b"first", B0: b"x" * 300, A1: b"third"}
    body = messages.encode_produce(version, batches, acks=-1, timeout_ms=1500)
    request = read_request(ApiKey.PRODUCE, version, body)
    assert (request.acks, request.timeout) == (-1, timedelta(milliseconds=1500))
    found = {
        TopicPartition(topic.name, data.index): data.records
        for topic in request.topic_data
        for data in topic.partition_data
    }
    assert found == batches and len(request.topic_data) == 2


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch_request(version: int) -> None:
    body = messages.encode_fetch(
        version,
        {A0: 5, A1: 6, B0: 7},
        max_wait_ms=250,
        min_bytes=2,
        max_bytes=3000,
        partition_max_bytes=400,
        isolation=READ_COMMITTED,
    )
    request = read_request(ApiKey.FETCH, version, body)
    assert request.isolation_level == READ_COMMITTED
    assert (request.replica_id, request.min_bytes, request.max_bytes) == (-1, 2, 3000)
    assert request.max_wait == timedelta(milliseconds=250)
    assert getattr(request, "session_epoch", -1) == -1
    found = {
        TopicPartition(topic.topic, each.partition): (each.fetch_offset, each.partition_max_bytes)
        for topic in request.topics
        for each in topic.partitions
    }
    assert found == {A0: (5, 400), A1: (6, 400), B0: (7, 400)}


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_list_offsets_request(version: int) -> None:
    body = messages.encode_list_offsets(version, {A0: -1, B0: 1234}, READ_COMMITTED)
    request = read_request(ApiKey.LIST_OFFSETS, version, body)
    assert getattr(request, "isolation_level", READ_COMMITTED) == READ_COMMITTED
    found = {
        TopicPartition(topic.name, each.partition_index): each.timestamp
        for topic in request.topics
        for each in topic.partitions
    }
    assert found == {A0: -1, B0: 1234}


# --- responses: kio's, read by us; nothing may be left over ---


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_response(version: int) -> None:
    where = module(ApiKey.METADATA, version, "response")
    partition = make(
        where,
        "MetadataResponsePartition",
        error_code=kio_error(ErrorCode.LEADER_NOT_AVAILABLE),
        partition_index=3,
        leader_id=-1,
        leader_epoch=9,
        replica_nodes=(1, 2),
        isr_nodes=(2,),
        offline_replicas=(1,),
    )
    broker = make(where, "MetadataResponseBroker", node_id=2, host="hôte", port=9092, rack="r1")
    topic = make(
        where,
        "MetadataResponseTopic",
        error_code=none(),
        name="a",
        topic_id=ID,
        is_internal=True,
        partitions=(partition,),
    )
    response = make(
        where,
        "MetadataResponse",
        throttle_time=timedelta(seconds=1),
        brokers=(broker,),
        cluster_id="c",
        controller_id=2,
        topics=(topic,),
    )
    cluster = messages.decode_metadata(reader_of(ApiKey.METADATA, version, response), version)
    assert (cluster.cluster_id, cluster.controller_id) == ("c", 2)
    assert cluster.brokers[2] == (2, "hôte", 9092, "r1")
    found = cluster.topics["a"]
    assert found.internal and found.topic_id == (ID if version >= 10 else None)
    (moving,) = found.partitions
    assert (moving.index, moving.leader, moving.error) == (3, -1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert (moving.replicas, moving.isr) == ((1, 2), (2,))
    assert moving.leader_epoch == (9 if version >= 7 else -1)
    assert moving.offline == ((1,) if version >= 5 else ())


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_create_topics_response(version: int) -> None:
    where = module(ApiKey.CREATE_TOPICS, version, "response")
    configs: tuple[Any, ...] = ()
    if version >= 5:
        configs = (
            make(
                where,
                "CreatableTopicConfigs",
                name="k",
                value="v",
                read_only=False,
                config_source=1,
                is_sensitive=False,
            ),
        )
    result = make(
        where,
        "CreatableTopicResult",
        name="a",
        topic_id=ID,
        error_code=kio_error(ErrorCode.INVALID_CONFIG),
        error_message="no",
        num_partitions=1,
        replication_factor=1,
        configs=configs,
    )
    response = make(
        where, "CreateTopicsResponse", throttle_time=timedelta(0), topics=(result, result)
    )
    reader = reader_of(ApiKey.CREATE_TOPICS, version, response)
    results = messages.decode_create_topics(reader, version)
    assert results == [("a", ErrorCode.INVALID_CONFIG, "no")] * 2


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
def test_delete_topics_response(version: int) -> None:
    where = module(ApiKey.DELETE_TOPICS, version, "response")
    result = make(where, "DeletableTopicResult", name="a", error_code=none(), error_message="m")
    response = make(where, "DeleteTopicsResponse", throttle_time=timedelta(0), responses=(result,))
    reader = reader_of(ApiKey.DELETE_TOPICS, version, response)
    message = "m" if version >= 5 else None
    assert messages.decode_delete_topics(reader, version) == [("a", ErrorCode.NONE, message)]


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_describe_configs_response(version: int, error: ErrorCode) -> None:
    where = module(ApiKey.DESCRIBE_CONFIGS, version, "response")
    synonym = make(where, "DescribeConfigsSynonym", name="s", value=None, source=5)
    entry = make(
        where,
        "DescribeConfigsResourceResult",
        name="k",
        value="v",
        read_only=True,
        config_source=4,
        is_sensitive=False,
        synonyms=(synonym,),
        config_type=5,
        documentation="d",
    )
    result = make(
        where,
        "DescribeConfigsResult",
        error_code=kio_error(error),
        error_message="m",
        resource_type=2,
        resource_name="a",
        configs=(entry,),
    )
    response = make(where, "DescribeConfigsResponse", throttle_time=timedelta(0), results=(result,))
    reader = reader_of(ApiKey.DESCRIBE_CONFIGS, version, response)
    if error is not ErrorCode.NONE:
        with pytest.raises(KafkaError) as raised:
            config_messages.decode_describe_configs(reader, version)
        assert raised.value.code is error
        return
    assert config_messages.decode_describe_configs(reader, version) == [
        ("k", "v", True, 4, False, (("s", None, 5),), *((5, "d") if version >= 3 else (0, None)))
    ]
    assert reader.left == 0


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce_response(version: int) -> None:
    where = module(ApiKey.PRODUCE, version, "response")
    record_errors: tuple[Any, ...] = ()
    if version >= 8:
        record_errors = (
            make(
                where,
                "BatchIndexAndErrorMessage",
                batch_index=1,
                batch_index_error_message="bad record",
            ),
        )
    partition = make(
        where,
        "PartitionProduceResponse",
        index=1,
        error_code=kio_error(ErrorCode.INVALID_RECORD),
        base_offset=77,
        log_start_offset=5,
        record_errors=record_errors,
        error_message=None,
    )
    topic = make(where, "TopicProduceResponse", name="a", partition_responses=(partition,))
    response = make(where, "ProduceResponse", responses=(topic,), throttle_time=timedelta(0))
    results = messages.decode_produce(reader_of(ApiKey.PRODUCE, version, response), version)
    (result,) = results.values()
    assert list(results) == [A1]
    assert (result.error, result.base_offset) == (ErrorCode.INVALID_RECORD, 77)
    assert result.message == ("bad record" if version >= 8 else None)


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch_response(version: int) -> None:
    where = module(ApiKey.FETCH, version, "response")
    aborted = make(where, "AbortedTransaction", producer_id=1, first_offset=2)
    partitions = tuple(
        make(
            where,
            "PartitionData",
            partition_index=index,
            error_code=none(),
            high_watermark=100 + index,
            last_stable_offset=9,
            log_start_offset=3,
            aborted_transactions=(aborted,) if index else None,
            records=b"r" * 1000 * index or None,
        )
        for index in (0, 1)
    )
    topic = make(where, "FetchableTopicResponse", topic="a", partitions=partitions)
    response = make(
        where,
        "FetchResponse",
        throttle_time=timedelta(0),
        error_code=none(),
        responses=(topic, topic),
    )
    reader = reader_of(ApiKey.FETCH, version, response)
    results = messages.decode_fetch(reader, version)
    assert list(results) == [A0, A1]
    assert results[A0].records == b"" and results[A1].records == b"r" * 1000
    assert results[A1].high_watermark == 101
    assert (results[A0].aborted, results[A1].aborted) == ((), ((1, 2),))
    assert results[A1].log_start_offset == (3 if version >= 5 else -1)


def test_a_refused_fetch_raises() -> None:
    where = module(ApiKey.FETCH, 12, "response")
    response = make(
        where,
        "FetchResponse",
        throttle_time=timedelta(0),
        error_code=kio_error(ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        responses=(),
    )
    with pytest.raises(KafkaError) as raised:
        messages.decode_fetch(reader_of(ApiKey.FETCH, 12, response), 12)
    assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_list_offsets_response(version: int) -> None:
    where = module(ApiKey.LIST_OFFSETS, version, "response")
    partition = make(
        where,
        "ListOffsetsPartitionResponse",
        partition_index=1,
        error_code=none(),
        timestamp=5,
        offset=6,
        leader_epoch=7,
    )
    topic = make(where, "ListOffsetsTopicResponse", name="a", partitions=(partition,))
    response = make(where, "ListOffsetsResponse", throttle_time=timedelta(0), topics=(topic,))
    reader = reader_of(ApiKey.LIST_OFFSETS, version, response)
    assert messages.decode_list_offsets(reader, version) == {A1: (ErrorCode.NONE, 5, 6)}


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
def test_init_producer_id_response(version: int, error: ErrorCode) -> None:
    where = module(ApiKey.INIT_PRODUCER_ID, version, "response")
    response = make(
        where,
        "InitProducerIdResponse",
        throttle_time=timedelta(0),
        error_code=kio_error(error),
        producer_id=2**40,
        producer_epoch=3,
    )
    reader = reader_of(ApiKey.INIT_PRODUCER_ID, version, response)
    if error is ErrorCode.NONE:
        assert messages.decode_init_producer_id(reader, version) == (2**40, 3)
        return
    with pytest.raises(KafkaError):
        messages.decode_init_producer_id(reader, version)


def test_an_error_of_a_later_release_is_an_unknown_server_error() -> None:
    assert messages.error_code(9999) is ErrorCode.UNKNOWN_SERVER_ERROR


DECODERS: list[tuple[ApiKey, Any]] = [
    (ApiKey.API_VERSIONS, messages.decode_api_versions),
    (ApiKey.METADATA, messages.decode_metadata),
    (ApiKey.CREATE_TOPICS, messages.decode_create_topics),
    (ApiKey.DELETE_TOPICS, messages.decode_delete_topics),
    (ApiKey.DESCRIBE_CONFIGS, config_messages.decode_describe_configs),
    (ApiKey.INIT_PRODUCER_ID, messages.decode_init_producer_id),
    (ApiKey.PRODUCE, messages.decode_produce),
    (ApiKey.FETCH, messages.decode_fetch),
    (ApiKey.LIST_OFFSETS, messages.decode_list_offsets),
]


@pytest.mark.parametrize(("api", "decode"), DECODERS)
@settings(deadline=None)  # the first example imports a library
@given(data=st.binary(max_size=80), high=st.booleans())
def test_hostile_responses_end_in_a_protocol_error(
    api: ApiKey, decode: Any, data: bytes, high: bool
) -> None:
    low_version, high_version = VERSIONS.get(api, (0, 3))
    version = high_version if high else low_version
    try:
        decode(Reader(data, flexible=is_flexible(api, version)), version)
    except (ProtocolError, KafkaError):
        pass  # either is an answer; anything else is a defect
