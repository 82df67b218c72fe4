"""What consumers of the classic protocol say to each other, read and written."""

from __future__ import annotations

import pytest

from kbroker.coordinator.consumer_group.embedded import (
    NOTHING,
    Malformed,
    assignment_bytes,
    assignment_of,
    subscription_of,
    version_of,
)
from tests.unit.coordinator.consumer_group.migrating import subscription

OWNED = {"t": [0, 2], "u": [1]}


@pytest.mark.parametrize("version", range(5))
def test_subscriptions_of_each_version(version: int) -> None:
    found = subscription_of(subscription("u", "t", "u", owned=OWNED, version=version))
    assert found.topics == ("t", "u")
    assert {name: sorted(some) for name, some in found.owned.items()} == (OWNED if version else {})


def test_a_rack() -> None:
    with_rack = subscription("t")[:-2] + b"\0\2r1"
    assert subscription_of(with_rack).rack_id == "r1"
    assert subscription_of(subscription("t")[:-2] + b"\0\0").rack_id is None


@pytest.mark.parametrize("version", range(5))
def test_an_assignment_there_and_back(version: int) -> None:
    data = assignment_bytes(version, OWNED.items())
    assert data[:2] == bytes([0, min(version, 3)])
    found = assignment_of(data)
    assert {name: sorted(some) for name, some in found.partitions.items()} == OWNED
    assert not found.has_more


def test_the_very_bytes() -> None:
    assert assignment_bytes(1, [("t", [1, 0])]) == bytes.fromhex(
        "0001 00000001 0001 74 00000002 00000000 00000001 ffffffff"
    )


def test_no_bytes_are_no_assignment() -> None:
    assert assignment_of(b"") is NOTHING


def test_bytes_of_an_assignor() -> None:
    plain = assignment_bytes(1, OWNED.items())[:-4]
    assert not assignment_of(plain + b"\0\0\0\0").has_more
    assert assignment_of(plain + b"\0\0\0\1x").has_more


def test_every_cut_is_malformed() -> None:
    whole = subscription("t", "u", owned=OWNED)
    for size in range(len(whole)):
        with pytest.raises(Malformed):
            subscription_of(whole[:size])
    given = assignment_bytes(3, OWNED.items())
    for size in range(1, len(given)):
        with pytest.raises(Malformed):
            assignment_of(given[:size])


@pytest.mark.parametrize(
    "data", [b"\xff\xff", b"\0\0\xff\xff\xff\xff", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\xff\xff"]
)
def test_lengths_that_cannot_be(data: bytes) -> None:
    with pytest.raises(Malformed):
        subscription_of(data)
    with pytest.raises(Malformed):
        assignment_of(data)


def test_versions() -> None:
    assert version_of(b"\0\0") == 0
    assert version_of(b"\0\x09") == 3
