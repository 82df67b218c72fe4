"""`__consumer_offsets` as Apache Kafka 4.3.0 has written it: read, and written the same."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from kbroker.coordinator.group.consumer_records import (
    CurrentOfMemberValue,
    GroupValue,
    Kind,
    MemberState,
    MemberValue,
    RecordKey,
    TargetValue,
    Value,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kbroker.coordinator.runtime.topic_hashes import group_hash, topic_hash
from tests.support.kafka_consumer_groups import TOPICS, log, topic_ids
from tests.support.record_batches import parse_batches


def stored() -> Iterator[tuple[bytes, RecordKey, bytes | None]]:
    """Keys as they are and as they are read, and values, of consumer groups."""
    for batch in parse_batches(log()):
        for record in batch.records:
            assert record.key is not None
            key = decode_key(record.key)
            if key is not None:
                yield record.key, key, record.value


def values(kind: Kind) -> list[tuple[RecordKey, Value]]:
    return [
        (key, decode_value(key, value))
        for _, key, value in stored()
        if key.kind is kind and value is not None
    ]


def test_each_record() -> None:
    written, removed = set(), set()
    for data, key, value in stored():
        assert encode_key(key) == data
        if value is None:
            removed.add(key.kind)
        else:
            written.add(key.kind)
            assert encode_value(decode_value(key, value)) == value
    # Apache Kafka has not written those of topics since 4.1.
    assert written == set(Kind) - {Kind.TOPICS_BEFORE_4_1}
    assert removed >= {Kind.MEMBER, Kind.TARGET_OF_MEMBER, Kind.CURRENT_OF_MEMBER}


def test_members() -> None:
    members = {key.item: value for key, value in values(Kind.MEMBER)}
    second, fixed = members["second"], members["before"]
    assert isinstance(second, MemberValue) and isinstance(fixed, MemberValue)
    assert (second.subscribed_topic_regex, second.rack_id, second.server_assignor) == (
        "orders.*", "r1", "range",
    )  # fmt: skip
    assert (fixed.instance_id, fixed.subscribed_topic_regex) == ("i", "")
    assert fixed.subscribed_topic_names == sorted(fixed.subscribed_topic_names)
    classic = [
        value.classic_member_metadata for _, value in values(Kind.MEMBER)
        if isinstance(value, MemberValue) and value.classic_member_metadata is not None
    ]  # fmt: skip
    assert classic and [each.name for each in classic[0].supported_protocols] == ["range"]


def test_states_epochs_and_times() -> None:
    current = [value for _, value in values(Kind.CURRENT_OF_MEMBER)]
    states = {each.state for each in current if isinstance(each, CurrentOfMemberValue)}
    assert states >= {MemberState.STABLE, MemberState.UNREVOKED}
    assert any(
        isinstance(each, CurrentOfMemberValue) and each.member_epoch == -2 for each in current
    )
    targets = [value for _, value in values(Kind.TARGET)]
    assert all(isinstance(each, TargetValue) for each in targets)
    assert any(
        isinstance(each, TargetValue) and each.assignment_timestamp_ms > 0 for each in targets
    )


def test_the_hashes_of_its_groups() -> None:
    ids = {name: UUID(hex=number) for name, number in topic_ids().items()}
    sizes = {name: TOPICS[name.rpartition("-")[0]] for name in ids}
    hashes = {name: topic_hash(ids[name], name, sizes[name]) for name in ids}
    found = {
        value.metadata_hash
        for key, value in values(Kind.GROUP)
        if key.group_id == "fixed" and isinstance(value, GroupValue)
    }
    assert found == {group_hash(hashes), 0}
