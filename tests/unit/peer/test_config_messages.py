"""IncrementalAlterConfigs and DescribeLogDirs of our client, every version, against kio."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer import config_messages as messages
from kbroker.peer.config_messages import Resource
from kbroker.protocol import messages as tables
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey, TopicPartition
from tests.unit.peer.fake_broker import NO_TIME, kio_error, make, module
from tests.unit.peer.test_messages import read_request, reader_of, versions

ALTER, DIRS = ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DESCRIBE_LOG_DIRS
MOVE = ApiKey.ALTER_REPLICA_LOG_DIRS


@pytest.mark.parametrize("version", versions(ALTER))
def test_alter_request(version: int) -> None:
    body = messages.encode_alter_configs(
        version, [Resource(2, "a"), Resource(8, "b")], {"k": "v"}, ["gone"], validate_only=True
    )
    request = read_request(ALTER, version, body)
    assert request.validate_only
    assert [(r.resource_type, r.resource_name) for r in request.resources] == [(2, "a"), (8, "b")]
    for resource in request.resources:
        changes = [(c.name, c.config_operation, c.value) for c in resource.configs]
        assert changes == [("k", 0, "v"), ("gone", 1, None)]


@pytest.mark.parametrize("version", versions(ALTER))
def test_alter_response(version: int) -> None:
    where = module(ALTER, version, "response")
    responses = tuple(
        make(
            where,
            "AlterConfigsResourceResponse",
            error_code=kio_error(code),
            error_message=message,
            resource_type=2,
            resource_name=name,
        )
        for name, code, message in (
            ("a", ErrorCode.NONE, None),
            ("b", ErrorCode.INVALID_CONFIG, "no"),
        )
    )
    answer = make(
        where, "IncrementalAlterConfigsResponse", throttle_time=NO_TIME, responses=responses
    )
    results = messages.decode_alter_configs(reader_of(ALTER, version, answer), version)
    assert results == [("a", ErrorCode.NONE, None), ("b", ErrorCode.INVALID_CONFIG, "no")]


def test_resources_with_settings() -> None:
    table = tables.list_config_resources
    for version in (0, 1):
        body = messages.encode_list_config_resources(version, messages.METRICS_RESOURCE)
        request = table.Request.decode(body, version)
        assert request.resource_types == ([messages.METRICS_RESOURCE] if version else [])
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
        messages.encode_list_config_resources(0, messages.GROUP_RESOURCE)
    named = [table.ConfigResource(resource_name="g", resource_type=messages.GROUP_RESOURCE)]
    answer = table.Response(error_code=0, config_resources=named).encode(1)
    assert messages.decode_list_config_resources(Reader(answer, flexible=True), 1) == ["g"]
    refused = table.Response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED).encode(1)
    with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
        messages.decode_list_config_resources(Reader(refused, flexible=True), 1)


@pytest.mark.parametrize("version", versions(DIRS))
def test_log_dirs(version: int) -> None:
    body = messages.encode_describe_log_dirs(version)
    assert read_request(DIRS, version, body).topics is None
    where = module(DIRS, version, "response")

    def answer(error: ErrorCode) -> Reader:
        partition = make(
            where,
            "DescribeLogDirsPartition",
            partition_index=3,
            partition_size=2**40,
            offset_lag=7,
            is_future_key=True,
        )
        topic = make(where, "DescribeLogDirsTopic", name="t", partitions=(partition,))
        result = make(
            where,
            "DescribeLogDirsResult",
            error_code=kio_error(ErrorCode.KAFKA_STORAGE_ERROR),
            log_dir="/d",
            topics=(topic,),
            total_bytes=100,
            usable_bytes=60,
            is_cordoned=True,
        )
        entity = make(
            where,
            "DescribeLogDirsResponse",
            throttle_time=NO_TIME,
            error_code=kio_error(error),
            results=(result,),
        )
        return reader_of(DIRS, version, entity)

    (directory,) = messages.decode_describe_log_dirs(answer(ErrorCode.NONE), version)
    assert (directory.error, directory.path) == (ErrorCode.KAFKA_STORAGE_ERROR, "/d")
    assert directory.logs == [(TopicPartition("t", 3), 2**40, 7, True)]
    volume = (100, 60) if version >= 4 else (-1, -1)
    assert (directory.total_bytes, directory.usable_bytes) == volume
    if version >= 3:
        with pytest.raises(KafkaError):
            messages.decode_describe_log_dirs(
                answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), version
            )


@pytest.mark.parametrize("version", versions(MOVE))
def test_alter_log_dirs(version: int) -> None:
    wanted = [TopicPartition("t", 0), TopicPartition("u", 5), TopicPartition("t", 2)]
    request = read_request(MOVE, version, messages.encode_alter_log_dirs(version, wanted, "/d"))
    (directory,) = request.dirs
    assert directory.path == "/d"
    assert [(t.name, t.partitions) for t in directory.topics] == [("t", (0, 2)), ("u", (5,))]
    where = module(MOVE, version, "response")
    codes = {0: ErrorCode.NONE, 2: ErrorCode.LOG_DIR_NOT_FOUND}
    topic = make(
        where,
        "AlterReplicaLogDirTopicResult",
        topic_name="t",
        partitions=tuple(
            make(where, "AlterReplicaLogDirPartitionResult", partition_index=index,
                 error_code=kio_error(code))
            for index, code in codes.items()
        ),
    )  # fmt: skip
    answer = make(where, "AlterReplicaLogDirsResponse", throttle_time=NO_TIME, results=(topic,))
    found = messages.decode_alter_log_dirs(reader_of(MOVE, version, answer), version)
    assert found == {TopicPartition("t", index): code for index, code in codes.items()}


@settings(deadline=None)
@given(data=st.binary(max_size=100), version=st.sampled_from(versions(DIRS)))
def test_hostile_bytes(data: bytes, version: int) -> None:
    for api, decode in (
        (DIRS, messages.decode_describe_log_dirs),
        (ALTER, messages.decode_alter_configs),
    ):
        of_api = min(version, max(versions(api)))
        try:
            decode(Reader(data, flexible=is_flexible(api, of_api)), of_api)
        except (ProtocolError, KafkaError):
            pass
