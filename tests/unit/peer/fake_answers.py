"""Answers of the fake broker that are long to spell, and how any of its answers is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from types import ModuleType
from typing import Any

from kbroker.errors import ErrorCode

NO_TIME = timedelta(0)


def make(where: ModuleType, entity_name: str, /, **values: Any) -> Any:
    """An entity from the values that this version has a field for."""
    entity = getattr(where, entity_name)
    known = {each.name for each in fields(entity)}
    return entity(**{key: value for key, value in values.items() if key in known})


def kio_error(code: ErrorCode) -> Any:
    from kio.schema.errors import ErrorCode as KioError

    return KioError(int(code))


def altered(topics: Mapping[str, Any], where: ModuleType, request: Any, error: ErrorCode) -> Any:
    """IncrementalAlterConfigs: the change is made, of topics that are there."""
    responses = []
    for resource in request.resources:
        topic = topics.get(resource.resource_name)
        this = error if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is not None and not request.validate_only:
            for config in resource.configs:
                topic.configs.pop(config.name, None)
                if config.config_operation == 0:
                    topic.configs[config.name] = config.value
        responses.append(
            make(
                where,
                "AlterConfigsResourceResponse",
                error_code=kio_error(this),
                error_message=None if this is ErrorCode.NONE else "not there",
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return make(
        where,
        "IncrementalAlterConfigsResponse",
        throttle_time=NO_TIME,
        responses=tuple(responses),
    )


def log_dirs(known: Mapping[str, Any], where: ModuleType, error: ErrorCode) -> Any:
    """DescribeLogDirs: one directory with every partition, (index + 1) thousand bytes each."""
    topics = tuple(
        make(
            where,
            "DescribeLogDirsTopic",
            name=name,
            partitions=tuple(
                make(
                    where,
                    "DescribeLogDirsPartition",
                    partition_index=index,
                    partition_size=1000 * (index + 1),
                    offset_lag=index,
                    is_future_key=False,
                )
                for index in range(len(topic.partitions))
            ),
        )
        for name, topic in known.items()
    )
    result = make(
        where,
        "DescribeLogDirsResult",
        error_code=kio_error(error),
        log_dir="/data",
        topics=topics,
        total_bytes=100_000,
        usable_bytes=60_000,
        is_cordoned=True,
    )
    return make(
        where,
        "DescribeLogDirsResponse",
        throttle_time=NO_TIME,
        error_code=kio_error(ErrorCode.NONE),
        results=(result,),
    )
