"""Records of `__transaction_state`: Apache Kafka's bytes, and bytes that are none."""

from __future__ import annotations

import random
from typing import Final

import pytest

from kbroker.coordinator.txn._images import encode_value
from kbroker.coordinator.txn.image import TransactionImage
from kbroker.coordinator.txn.records import (
    PartitionsSchema,
    RecordError,
    UnknownVersionError,
    Value,
    decode_key,
    decode_value,
    encode_key,
    value_version,
)
from kbroker.coordinator.txn.states import State
from kbroker.types import TopicPartition

ONGOING: Final = TransactionImage(
    4_000, 3, 60_000, State.ONGOING, 1_700_000_000_123, 1_700_000_000_000,
    frozenset({TopicPartition("b", 2), TopicPartition("a", 1), TopicPartition("b", 0)}),
    4_000, client_version=2,
)  # fmt: skip
EMPTY: Final = TransactionImage(
    1, 0, 60_000, State.EMPTY, 1_700_000_000_123, previous_producer_id=1
)


def test_the_bytes_of_a_key() -> None:
    assert encode_key("pay") == bytes.fromhex("0000 0003 706179")
    assert decode_key(encode_key("Zürich")) == "Zürich"


def test_the_bytes_of_a_value_of_version_1() -> None:
    """Topics and partitions in their order; tags 0 and 2."""
    assert encode_value(ONGOING, 1).hex(" ", 1) == (
        "00 01 00 00 00 00 00 00 0f a0 00 03 00 00 ea 60 01 "
        "03 02 61 02 00 00 00 01 00 02 62 03 00 00 00 00 00 00 00 02 00 "
        "00 00 01 8b cf e5 68 7b 00 00 01 8b cf e5 68 00 "
        "02 00 08 00 00 00 00 00 00 0f a0 02 02 00 02"
    )


def test_the_bytes_of_a_value_of_version_0() -> None:
    assert encode_value(EMPTY, 0).hex(" ", 1) == (
        "00 00 00 00 00 00 00 00 00 01 00 00 00 00 ea 60 00 ff ff ff ff "
        "00 00 01 8b cf e5 68 7b ff ff ff ff ff ff ff ff"
    )


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("state", [each for each in State if each >= 0])
def test_a_record_is_read_as_it_was_written(version: int, state: State) -> None:
    image = (EMPTY if state is State.EMPTY else ONGOING)._replace(state=state)
    if version == 0:
        image = image._replace(previous_producer_id=-1, client_version=0)
    assert decode_value(encode_value(image, version)) == image


def drawn(dice: random.Random) -> TransactionImage:
    """Fields at their edges, names that sort by bytes and by length."""
    names = ("a", "aa", "b", "a.b", "\u00e9", "\uffff", "\U0001f600", "x" * 300)
    numbers = (-(2**31), -1, 0, 1, 127, 128, 2**31 - 1)
    places = {
        TopicPartition(dice.choice(names), dice.choice(numbers)) for _ in range(dice.randrange(40))
    }
    return TransactionImage(
        dice.choice((0, 2**63 - 1)), dice.choice((0, 2**15 - 1)), dice.choice((0, 2**31 - 1)),
        dice.choice([each for each in State if each >= 0]), dice.choice((-1, 2**63 - 1)),
        dice.choice((-1, 0)), frozenset(places), dice.choice((-1, 0, 5)), dice.choice((-1, 7)),
        client_version=dice.choice((-1, 0, 2)),
    )  # fmt: skip


@pytest.mark.parametrize("version", [0, 1])
def test_c_writes_the_bytes_of_the_table_of_the_message(version: int) -> None:
    dice = random.Random(1)
    for _ in range(200):
        image = drawn(dice)
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(image.partitions):
            topics.setdefault(topic, []).append(index)
        listed = [PartitionsSchema(topic=name, partition_ids=ids) for name, ids in topics.items()]
        value = Value(
            producer_id=image.producer_id,
            previous_producer_id=image.previous_producer_id,
            next_producer_id=image.next_producer_id,
            producer_epoch=image.epoch,
            client_transaction_version=image.client_version,
            transaction_timeout_ms=image.timeout_ms,
            transaction_status=image.state,
            transaction_partitions=None if image.state is State.EMPTY else listed,
            transaction_last_update_timestamp_ms=image.update_ms,
            transaction_start_timestamp_ms=image.start_ms,
        )
        assert encode_value(image, version)[2:] == value.encode(version)


def test_a_new_producer_id_that_begins_with_the_end_of_a_transaction() -> None:
    image = ONGOING._replace(state=State.PREPARE_COMMIT, epoch=32_767, next_producer_id=5_000)
    assert decode_value(encode_value(image, 1)) == image


def test_partitions_are_null_in_empty_alone() -> None:
    complete = ONGOING._replace(state=State.COMPLETE_ABORT, partitions=frozenset())
    assert b"\x05\x00\x00\x00\x00" in encode_value(complete, 0)
    assert decode_value(encode_value(complete, 1)) == complete


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_the_version_goes_by_the_level_of_the_feature(level: int, version: int) -> None:
    assert value_version(level) == version


def test_other_versions_are_of_brokers_to_come() -> None:
    for unknown in (b"\x00\x01" + b"\x00\x03pay", b"\x7f\xff"):
        with pytest.raises(UnknownVersionError):
            decode_key(unknown)
    with pytest.raises(UnknownVersionError):
        decode_value(b"\x00\x02" + encode_value(ONGOING, 1)[2:])


@pytest.mark.parametrize("status", [-1, 6, 7, 8])
def test_a_state_that_no_record_may_have(status: int) -> None:
    data = bytearray(encode_value(EMPTY, 0))
    data[16] = status & 0xFF
    with pytest.raises(RecordError):
        decode_value(bytes(data))


def test_bytes_that_were_changed_are_read_or_refused() -> None:
    dice = random.Random(7)
    whole = encode_value(ONGOING, 1)
    for _ in range(3_000):
        data = bytearray(whole[: dice.randrange(len(whole) + 1)])
        for _ in range(dice.randrange(4)):
            if data:
                data[dice.randrange(len(data))] = dice.randrange(256)
        try:
            assert decode_value(bytes(data)).producer_id >= 0
        except RecordError:
            pass
