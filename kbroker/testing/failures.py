"""Error answers of Produce and Fetch, which the broker itself makes in C only.

Everything that the request names has the error; nothing is written or read. The other APIs bring
such a function with their handler.
"""

from __future__ import annotations

import datetime
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.handlers.services import ColdRequest
from kbroker.protocol.wire import ProtocolError
from kbroker.testing import schemas

NO_OFFSET = -1


def produce_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes | None:
    """None: with acks=0 there is no answer."""
    asked = schemas.decode(request)
    if asked.acks == 0:
        return None
    module = schemas.response_module(request.api_key, request.api_version)
    answers = tuple(
        _filled(
            module.TopicProduceResponse,
            **_topic_of(topic),
            partition_responses=tuple(
                _filled(
                    module.PartitionProduceResponse,
                    index=partition.index,
                    error_code=code,
                    base_offset=NO_OFFSET,
                    log_append_time=None,
                    log_append_time_ms=None,
                    log_start_offset=NO_OFFSET,
                    record_errors=(),
                    error_message=message or None,
                )
                for partition in topic.partition_data
            ),
        )
        for topic in asked.topic_data
    )
    return schemas.encode(
        _filled(module.ProduceResponse, responses=answers, throttle_time=datetime.timedelta(0))
    )


def fetch_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    """A fetch that names nothing goes on in its session, so it is sent back to name everything."""
    asked = schemas.decode(request)
    module = schemas.response_module(request.api_key, request.api_version)
    answers = tuple(
        _filled(
            module.FetchableTopicResponse,
            **_topic_of(topic),
            partitions=tuple(
                _filled(
                    module.PartitionData,
                    partition_index=partition.partition,
                    error_code=code,
                    high_watermark=NO_OFFSET,
                    last_stable_offset=NO_OFFSET,
                    log_start_offset=NO_OFFSET,
                    aborted_transactions=None,
                    preferred_read_replica=-1,
                    records=b"",
                )
                for partition in topic.partitions
            ),
        )
        for topic in asked.topics
    )
    return schemas.encode(
        _filled(
            module.FetchResponse,
            throttle_time=datetime.timedelta(0),
            error_code=ErrorCode.NONE if answers else ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            session_id=0,
            responses=answers,
        )
    )


def _topic_of(topic: Any) -> dict[str, Any]:
    names = ("name", "topic", "topic_id")
    return {name: getattr(topic, name) for name in names if hasattr(topic, name)}


def _filled(message_class: Any, **values: Any) -> Any:
    """The message with those of the values that its version has."""
    fields = message_class.__dataclass_fields__
    return message_class(**{name: value for name, value in values.items() if name in fields})


def names_something(request: ColdRequest) -> bool:
    """Whether a Fetch names partitions; one that goes on in its session does not."""
    try:
        return bool(schemas.decode(request).topics)
    except ProtocolError:
        return True
