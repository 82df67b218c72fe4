"""types.py against the schema package's table of API keys."""

from __future__ import annotations

from uuid import UUID

import pytest
from kio.schema.index import api_key_map

from kbroker.metadata.image import new_uuid
from kbroker.types import ApiKey, TopicPartition, parse_uuid, uuid_text

ZOOKEEPER_ERA = {4, 5, 6, 7}


def test_every_api_key_has_kafkas_name_and_number() -> None:
    ours = {int(key): key.name for key in ApiKey if key not in ZOOKEEPER_ERA}
    assert ours == {key: name.upper() for key, name in api_key_map.items()}
    assert {int(key) for key in ApiKey} == set(range(93))


def test_labels_are_spelled_as_in_kafkas_metrics() -> None:
    assert [ApiKey(key).label for key in (0, 2, 22, 24, 29, 50)] == [
        "Produce",
        "ListOffsets",
        "InitProducerId",
        "AddPartitionsToTxn",
        "DescribeAcls",
        "DescribeUserScramCredentials",
    ]


def test_a_key_of_no_release_is_none() -> None:
    assert ApiKey.for_key(18) is ApiKey.API_VERSIONS
    assert ApiKey.for_key(-1) is None
    assert ApiKey.for_key(1000) is None


def test_a_topic_partition_is_a_tuple_named_like_its_directory() -> None:
    tp = TopicPartition("orders-eu", 7)
    assert tp == ("orders-eu", 7)
    assert str(tp) == f"{tp}" == "orders-eu-7"
    assert {tp: 1}[TopicPartition("orders-eu", 7)] == 1


def test_ids_as_text_are_those_of_kafka() -> None:
    # The text form of RFC 4648 section 5 without padding, checked by hand.
    assert uuid_text(UUID(int=0)) == "A" * 22
    assert uuid_text(UUID("ffffffff-ffff-ffff-ffff-ffffffffffff")) == "_" * 21 + "w"
    for _ in range(300):
        value = new_uuid()
        text = uuid_text(value)
        assert len(text) == 22 and text[0] != "-"
        assert parse_uuid(text) == value


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "A" * 21 + "B", "A" * 21 + "!", "é" * 22])
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_uuid(text)
