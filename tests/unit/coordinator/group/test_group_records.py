"""Records of groups against bytes that an Apache Kafka 4.3.0 wrote, and hostile ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.group.group_records import (
    RecordError,
    batch_of,
    decode_group,
    encode_group,
    group_key,
    group_of_key,
    offset_key,
)
from kbroker.coordinator.group.images import GroupImage, MemberImage
from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.protocol.record_batch import decode_batches

# Read with `xxd` from the log of a group with one static member of librdkafka, then without.
STABLE = GroupImage(
    "g-static",
    "consumer",
    1,
    "range",
    "inst-1-1a2556c1-043f-4a8a-8f5a-e45157a00445",
    1795300817872,
    (
        MemberImage(
            "inst-1-1a2556c1-043f-4a8a-8f5a-e45157a00445",
            "inst-1",
            "cli",
            "/127.0.0.1",
            9000,
            7000,
            bytes.fromhex("00030000000100066f72646572730000000000000000ffffffff0000"),
            bytes.fromhex("00000000000100066f7264657273000000030000000000000001000000020000 0000"),
        ),
    ),
)
STABLE_VALUE = bytes.fromhex(
    "00030008636f6e73756d65720000000100 0572616e6765"
    "002b696e73742d312d31613235353663312d303433662d346138612d386635612d653435313537613030343435"
    "000001a200447bd0 00000001"
    "002b696e73742d312d31613235353663312d303433662d346138612d386635612d653435313537613030343435"
    "0006696e73742d31 0003636c69 000a2f3132372e302e302e31 00002328 00001b58"
    "0000001c 00030000000100066f72646572730000000000000000ffffffff0000"
    "00000022 00000000000100066f72646572730000000300000000000000010000000200000000"
)
EMPTY = GroupImage("g-static", "consumer", 2, None, None, 1795300824996, ())
EMPTY_VALUE = bytes.fromhex("00030008636f6e73756d657200000002ffffffff000001a2004497a400000000")


@pytest.mark.parametrize(("image", "value"), [(STABLE, STABLE_VALUE), (EMPTY, EMPTY_VALUE)])
def test_a_group_is_written_as_apache_kafka_writes_it(image: GroupImage, value: bytes) -> None:
    assert encode_group(image) == value
    assert decode_group("g-static", value) == image


def test_keys() -> None:
    assert group_key("g1") == bytes.fromhex("000200026731")
    assert offset_key("g1", "orders", 1) == bytes.fromhex("000100026731 00066f726465727300000001")
    assert group_of_key(group_key("gruppe ä")) == "gruppe ä"
    assert group_of_key(offset_key("g1", "t", 0)) is None
    assert group_of_key(b"\x00\x05whatever") is None
    assert group_of_key(b"") is None
    with pytest.raises(RecordError):
        group_of_key(bytes.fromhex("00020009 6731"))


def test_older_versions_are_read() -> None:
    member = "00016d 000163 000168"
    version_0 = bytes.fromhex(
        f"0000 000163 00000005 ffff ffff 00000001 {member} 00001770 00000000 00000001ff"
    )
    group = decode_group("g", version_0)
    assert (group.generation, group.state_timestamp_ms) == (5, -1)
    assert group.members == (MemberImage("m", None, "c", "h", 6000, 6000, b"", b"\xff"),)
    version_2 = bytes.fromhex(
        "0002 000163 00000005 ffff ffff 0000000000000007 00000001"
        f"{member} 00002328 00001770 00000000 00000000"
    )
    group = decode_group("g", version_2)
    assert group.state_timestamp_ms == 7
    assert group.members[0].rebalance_timeout_ms == 9000


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x04" + STABLE_VALUE[2:], b"\xff\xff"])
def test_a_record_that_is_no_group_is_refused(value: bytes) -> None:
    with pytest.raises(RecordError):
        decode_group("g", value)


@given(st.integers(0, len(STABLE_VALUE) - 1), st.binary(max_size=8))
def test_damaged_values_cost_one_group(at: int, junk: bytes) -> None:
    with pytest.raises(RecordError):
        decode_group("g", STABLE_VALUE[:at])
    try:
        decode_group("g", STABLE_VALUE[:at] + junk + STABLE_VALUE[at + len(junk) :])
    except RecordError:
        pass


def test_a_batch_keeps_the_order() -> None:
    (batch,) = decode_batches(batch_of([(b"k1", b"v"), (b"k2", None)], 1234))
    assert [(r.key, r.value, r.timestamp_ms) for r in batch.records] == [
        (b"k1", b"v", 1234),
        (b"k2", None, 1234),
    ]
    assert (batch.producer_id, batch.base_sequence) == (-1, 0)


def test_the_partition_of_a_group() -> None:
    # As seen on an Apache Kafka with 50 partitions.
    assert [partition_for(g, 50) for g in ("g1", "g-static", "simple")] == [42, 34, 26]
    assert partition_for("polygenelubricants", 50) == 0
