"""Records of groups of the consumer protocol: the bytes, and bytes that are none."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any, Final, cast
from uuid import UUID

import pytest

from kbroker.coordinator.group.consumer_records import (
    ClassicMember,
    ClassicProtocol,
    CurrentOfMemberValue,
    ExpressionValue,
    GroupValue,
    Kind,
    MemberState,
    MemberValue,
    OwnedPartitions,
    RacksOfPartition,
    RecordKey,
    TargetOfMemberValue,
    TargetPartitions,
    TargetValue,
    TopicBefore41,
    TopicsBefore41Value,
    Value,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kbroker.coordinator.group.group_records import RecordError

ID: Final = UUID(int=0x0102030405060708090A0B0C0D0E0F10)
EVERY: Final[list[tuple[RecordKey, Value]]] = [
    (RecordKey(Kind.GROUP, "g"), GroupValue(epoch=7, metadata_hash=-2)),
    (
        RecordKey(Kind.TOPICS_BEFORE_4_1, "g"),
        TopicsBefore41Value(
            topics=[
                TopicBefore41(
                    topic_id=ID,
                    topic_name="t",
                    num_partitions=2,
                    partition_metadata=[RacksOfPartition(partition=1, racks=["a", "b"])],
                )
            ]
        ),
    ),
    (
        RecordKey(Kind.MEMBER, "g", "m"),
        MemberValue(
            instance_id="i",
            rack_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            subscribed_topic_names=["t", "u"],
            subscribed_topic_regex="",
            rebalance_timeout_ms=300_000,
            server_assignor="uniform",
            classic_member_metadata=ClassicMember(
                session_timeout_ms=45_000,
                supported_protocols=[ClassicProtocol(name="range", metadata=b"\0\1")],
            ),
        ),
    ),
    (RecordKey(Kind.TARGET, "g"), TargetValue(assignment_epoch=7, assignment_timestamp_ms=9)),
    (
        RecordKey(Kind.TARGET_OF_MEMBER, "g", "m"),
        TargetOfMemberValue(
            topic_partitions=[TargetPartitions(topic_id=ID, partitions=[0, 2])]
        ),
    ),
    (
        RecordKey(Kind.CURRENT_OF_MEMBER, "g", "m"),
        CurrentOfMemberValue(
            member_epoch=7,
            previous_member_epoch=6,
            state=MemberState.UNREVOKED,
            assigned_partitions=[
                OwnedPartitions(topic_id=ID, partitions=[0, 2], assignment_epochs=[6, 7])
            ],
            partitions_pending_revocation=[
                OwnedPartitions(topic_id=ID, partitions=[1], assignment_epochs=[5])
            ],
        ),
    ),
    (
        RecordKey(Kind.EXPRESSION, "g", "t.*"),
        ExpressionValue(topics=["t1", "t2"], version=12, timestamp_ms=1_700_000_000_000),
    ),
]  # fmt: skip


def test_there_is_one_of_every_kind() -> None:
    assert {key.kind for key, _ in EVERY} == set(Kind)


@pytest.mark.parametrize(("key", "value"), EVERY)
def test_a_record_is_read_as_it_was_written(key: RecordKey, value: Value) -> None:
    assert decode_key(encode_key(key)) == key
    again = decode_value(key, encode_value(value))
    assert again == value
    assert type(again) is type(value)


def test_the_bytes_of_keys() -> None:
    """They are not flexible."""
    assert encode_key(RecordKey(Kind.GROUP, "pay")).hex(" ", 1) == "00 03 00 03 70 61 79"
    key = RecordKey(Kind.CURRENT_OF_MEMBER, "g", "m")
    assert encode_key(key).hex(" ", 1) == "00 08 00 01 67 00 01 6d"
    assert encode_key(RecordKey(Kind.EXPRESSION, "g", "a|b")).hex(" ", 1) == (
        "00 10 00 01 67 00 03 61 7c 62"
    )


def test_the_bytes_of_values() -> None:
    """They are flexible; the epochs of partitions are a tagged field within each topic."""
    by_kind = {key.kind: value for key, value in EVERY}
    assert encode_value(by_kind[Kind.GROUP]).hex(" ", 1) == (
        "00 00 00 00 00 07 01 00 08 ff ff ff ff ff ff ff fe"
    )
    assert encode_value(GroupValue(epoch=1)).hex(" ", 1) == "00 00 00 00 00 01 00"
    assert encode_value(by_kind[Kind.CURRENT_OF_MEMBER]).hex(" ", 1) == (
        "00 00 00 00 00 07 00 00 00 06 01 "
        "02 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10 03 00 00 00 00 00 00 00 02 "
        "01 00 09 03 00 00 00 06 00 00 00 07 "
        "02 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10 02 00 00 00 01 "
        "01 00 05 02 00 00 00 05 00"
    )


@pytest.mark.parametrize("kind", [0, 1, 2, 9, 10, 15, 17, 23, -1, 32_767])
def test_a_key_of_another_kind_is_none_of_ours(kind: int) -> None:
    assert decode_key(kind.to_bytes(2, "big", signed=True) + b"\xff\xff\xff") is None


@pytest.mark.parametrize(("key", "value"), EVERY)
def test_a_record_that_ends_early_is_refused_wherever_it_ends(key: RecordKey, value: Value) -> None:
    named, said = encode_key(key), encode_value(value)
    for size in range(len(named)):
        with pytest.raises(RecordError):
            decode_key(named[:size])
    for size in range(len(said)):
        with pytest.raises(RecordError):
            decode_value(key, said[:size])


@pytest.mark.parametrize(("key", "value"), EVERY)
def test_tagged_fields_and_a_version_to_come_are_skipped(key: RecordKey, value: Value) -> None:
    if isinstance(value, GroupValue):
        value = GroupValue(epoch=3)
    elif isinstance(value, TargetValue):
        value = TargetValue(assignment_epoch=3)
    elif isinstance(value, MemberValue):
        value = MemberValue(client_id="c", client_host="h", subscribed_topic_names=[])
    said = encode_value(value)
    if isinstance(value, MemberValue):  # it has one, which is null
        assert said.endswith(b"\1\0\1\0")
        later = b"\0\1" + said[2:-4] + b"\2\0\1\0\x0f\2\xaa\xbb"
    else:
        assert said.endswith(b"\0")
        later = b"\0\1" + said[2:-1] + b"\1\x0f\2\xaa\xbb"
    assert decode_value(key, later) == value


@pytest.mark.parametrize(("key", "value"), EVERY)
def test_bytes_that_were_changed_are_read_or_refused(key: RecordKey, value: Value) -> None:
    dice = random.Random(f"changed {key}")
    for _ in range(2_000):
        said = bytearray(encode_value(value))
        for _ in range(dice.randrange(1, 4)):
            said[dice.randrange(len(said))] = dice.randrange(256)
        try:
            read = decode_value(key, bytes(said))
        except RecordError:
            continue
        encode_value(read)


def test_a_count_takes_no_more_memory_than_was_stored() -> None:
    body = b"\0\0" + b"\xff\xff\xff\xff\x07" + bytes(20)
    tracemalloc.start()
    try:
        with pytest.raises(RecordError):
            decode_value(RecordKey(Kind.TARGET_OF_MEMBER, "g", "m"), body)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def owned(**fields: Any) -> OwnedPartitions:
    return OwnedPartitions(**{"topic_id": ID, "partitions": [1], **fields})


def current(**fields: Any) -> CurrentOfMemberValue:
    values = {
        "member_epoch": 1, "previous_member_epoch": 0, "state": 0,
        "assigned_partitions": [], "partitions_pending_revocation": [],
    }  # fmt: skip
    return CurrentOfMemberValue(**{**values, **fields})


NO_ID: Final = cast("UUID", None)
WRONG: Final[list[tuple[Kind, Value, str]]] = [
    (Kind.GROUP, GroupValue(epoch=-1), "epoch -1"),
    (Kind.TARGET, TargetValue(assignment_epoch=-1), "epoch -1"),
    (Kind.CURRENT_OF_MEMBER, current(member_epoch=-3), "epochs -3 and 0"),
    (Kind.CURRENT_OF_MEMBER, current(state=3), "state 3"),
    (Kind.CURRENT_OF_MEMBER, current(assigned_partitions=[owned(topic_id=NO_ID)]), "without an id"),
    (
        Kind.CURRENT_OF_MEMBER,
        current(partitions_pending_revocation=[owned(partitions=[-1])]),
        "partition -1",
    ),
    (
        Kind.CURRENT_OF_MEMBER,
        current(assigned_partitions=[owned(assignment_epochs=[1, 2])]),
        "2 epochs of 1 partitions",
    ),
    (
        Kind.TARGET_OF_MEMBER,
        TargetOfMemberValue(topic_partitions=[TargetPartitions(topic_id=ID, partitions=[0, -5])]),
        "partition -5",
    ),
]


@pytest.mark.parametrize(("kind", "value", "reason"), WRONG)
def test_records_of_no_coordinator_are_refused(kind: Kind, value: Value, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        decode_value(RecordKey(kind, "g"), encode_value(value))


def test_a_member_that_is_away_and_epochs_that_are_not_said() -> None:
    key = RecordKey(Kind.CURRENT_OF_MEMBER, "g", "m")
    away = current(member_epoch=-2, assigned_partitions=[owned(assignment_epochs=None)])
    assert decode_value(key, encode_value(away)) == away
    old = current(assigned_partitions=[owned()])
    assert decode_value(key, encode_value(old)) == old


def test_a_version_below_the_first_is_refused() -> None:
    with pytest.raises(RecordError, match="version -1"):
        decode_value(RecordKey(Kind.GROUP, "g"), b"\xff\xff\0\0\0\1\0")
