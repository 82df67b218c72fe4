"""Error answers of Produce and Fetch in every version, read back by kio."""

from __future__ import annotations

import datetime
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from kio.serial import entity_reader

from kbroker.errors import ErrorCode
from kbroker.protocol.versions import SERVED
from kbroker.testing import failures
from kbroker.types import ApiKey
from tests.support import schemas

SECOND = datetime.timedelta(seconds=1)
ID = uuid.UUID(int=77)


def versions(key: ApiKey) -> list[int]:
    return list(range(SERVED[key].min, SERVED[key].max + 1))


def named(message_class: Any, name: str) -> dict[str, Any]:
    fields = message_class.__dataclass_fields__
    return {"topic_id": ID} if "topic_id" in fields else {name: "t"}


def asked(key: ApiKey, version: int, message: Any) -> Any:
    return SimpleNamespace(api_key=key, api_version=version, body=schemas.encode(message))


def read(key: ApiKey, version: int, body: bytes) -> Any:
    answer = getattr(schemas.response_module(key, version), f"{key.label}Response")
    found, size = entity_reader(answer)(body, 0)
    assert size == len(body)
    return found


def produce(version: int, acks: int) -> Any:
    module = schemas.request_module(ApiKey.PRODUCE, version)
    data = tuple(module.PartitionProduceData(index=index, records=b"") for index in (0, 5))
    topic = module.TopicProduceData(**named(module.TopicProduceData, "name"), partition_data=data)
    message = module.ProduceRequest(
        transactional_id=None, acks=acks, timeout=SECOND, topic_data=(topic,)
    )
    return asked(ApiKey.PRODUCE, version, message)


def filled(message_class: Any, **values: Any) -> Any:
    """The message with those of the values that its version has."""
    fields = message_class.__dataclass_fields__
    return message_class(**{name: value for name, value in values.items() if name in fields})


def fetch(version: int, partitions: tuple[int, ...]) -> Any:
    module = schemas.request_module(ApiKey.FETCH, version)
    wanted = tuple(
        filled(
            module.FetchPartition, partition=index, current_leader_epoch=-1, fetch_offset=3,
            last_fetched_epoch=-1, log_start_offset=-1, partition_max_bytes=100,
        )
        for index in partitions
    )  # fmt: skip
    topic = module.FetchTopic(**named(module.FetchTopic, "topic"), partitions=wanted)
    message = filled(
        module.FetchRequest, replica_id=-1, max_wait=SECOND, min_bytes=1, max_bytes=1000,
        isolation_level=0, session_id=5, session_epoch=2, topics=(topic,) if partitions else (),
        forgotten_topics_data=(), rack_id="",
    )  # fmt: skip
    return asked(ApiKey.FETCH, version, message)


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce(version: int) -> None:
    body = failures.produce_failure(produce(version, -1), ErrorCode.NOT_LEADER_OR_FOLLOWER, "no")
    assert body is not None
    (topic,) = read(ApiKey.PRODUCE, version, body).responses
    assert getattr(topic, "name", "t") == "t" and getattr(topic, "topic_id", ID) == ID
    errors = [(p.index, int(p.error_code), p.base_offset) for p in topic.partition_responses]
    assert errors == [(0, 6, -1), (5, 6, -1)]
    assert (
        failures.produce_failure(produce(version, 0), ErrorCode.NOT_LEADER_OR_FOLLOWER, "") is None
    )


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch(version: int) -> None:
    request = fetch(version, (1, 2))
    assert failures.names_something(request)
    answer = read(
        ApiKey.FETCH, version, failures.fetch_failure(request, ErrorCode.OFFSET_OUT_OF_RANGE, "")
    )
    (topic,) = answer.responses
    assert [(p.partition_index, int(p.error_code)) for p in topic.partitions] == [(1, 1), (2, 1)]
    assert int(getattr(answer, "error_code", 0)) == 0


@pytest.mark.parametrize("version", [7, 12, 18])
def test_a_fetch_that_goes_on_in_its_session_is_sent_back_to_name_everything(version: int) -> None:
    request = fetch(version, ())
    assert not failures.names_something(request)
    answer = read(
        ApiKey.FETCH, version, failures.fetch_failure(request, ErrorCode.OFFSET_OUT_OF_RANGE, "")
    )
    assert int(answer.error_code) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_bytes_that_are_no_fetch_are_another_reader_s() -> None:
    assert failures.names_something(SimpleNamespace(api_key=1, api_version=12, body=b"\xff"))
