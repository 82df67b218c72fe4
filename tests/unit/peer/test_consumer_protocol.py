"""Subscriptions and assignments in the bytes that every client writes; the range assignor."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.peer.consumer_protocol import (
    assign_range,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kbroker.protocol.wire import ProtocolError
from kbroker.types import TopicPartition as At

A0, A1, B7 = At("a", 0), At("a", 1), At("b", 7)
# As the Java client 4.3 writes them: a subscription v3 (owned partitions, generation, rack), an
# assignment v3 with user data of four bytes.
NEWER_SUBSCRIPTION = bytes.fromhex(
    "0003 00000002 0001 61 0001 62 ffffffff 00000001 0001 61 00000001 00000000 00000007 ffff"
)
NEWER_ASSIGNMENT = bytes.fromhex(
    "0003 00000001 0001 61 00000002 00000000 00000001 00000004 01020304"
)


def test_our_bytes_are_those_of_other_clients_since_the_first_release() -> None:
    assert encode_subscription(["a", "bc"]) == bytes.fromhex(
        "0000 00000002 0001 61 0002 6263 ffffffff"
    )
    assert encode_assignment([A0, B7, A1]) == bytes.fromhex(
        "0000 00000002 0001 61 00000002 00000000 00000001 0001 62 00000001 00000007 ffffffff"
    )


def test_both_ways() -> None:
    assert decode_subscription(encode_subscription(["a", "b"])) == ["a", "b"]
    assert decode_assignment(encode_assignment([A0, B7, A1])) == [A0, A1, B7]
    assert decode_assignment(encode_assignment([])) == decode_assignment(b"") == []


def test_newer_versions() -> None:
    assert decode_subscription(NEWER_SUBSCRIPTION) == ["a", "b"]
    assert decode_assignment(NEWER_ASSIGNMENT) == [A0, A1]


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_hostile_bytes(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except ProtocolError:
            pass


@pytest.mark.parametrize(
    "data", [b"\xff\xff\x00\x00\x00\x00", b"\x00", b"\x00\x00\x7f\xff\xff\xff"]
)
def test_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(data)


def test_range() -> None:
    """The example of the Java client's own description: 2 topics of 3 partitions, 2 members."""
    shares = assign_range({"y": ["s", "t"], "x": ["t", "s"]}, {"s": 3, "t": 3})
    assert shares == {
        "x": [At("s", 0), At("s", 1), At("t", 0), At("t", 1)],
        "y": [At("s", 2), At("t", 2)],
    }


def test_range_with_unlike_subscriptions() -> None:
    shares = assign_range({"x": ["s"], "y": ["s", "t"], "z": ["u"]}, {"s": 1, "t": 2})
    assert shares == {"x": [At("s", 0)], "y": [At("t", 0), At("t", 1)], "z": []}


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=2),
        st.lists(st.sampled_from("stu"), unique=True),
        min_size=1,
    ),
    st.dictionaries(st.sampled_from("stu"), st.integers(0, 7)),
)
def test_range_gives_each_partition_to_one_subscriber(
    subscriptions: dict[str, list[str]], counts: dict[str, int]
) -> None:
    shares = assign_range(subscriptions, counts)
    given = [where for share in shares.values() for where in share]
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert sorted(given) == [
        At(topic, index) for topic in sorted(wanted) for index in range(counts.get(topic, 0))
    ]
    for member, share in shares.items():
        assert {where.topic for where in share} <= set(subscriptions[member])
