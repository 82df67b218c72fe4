"""Hashes of topics and groups: those that a running Apache Kafka 4.3.0 has written."""

from __future__ import annotations

import base64
from typing import Final
from uuid import UUID

import pytest

from kbroker.coordinator.runtime.topic_hashes import NO_TOPICS, group_hash, topic_hash
from kbroker.core._xxh3 import xxh3_64

ID: Final = UUID(bytes=base64.urlsafe_b64decode("_B71wRzMTZG29prRWSL93A=="))


def test_a_group_of_a_running_broker() -> None:
    found = topic_hash(ID, "x7824d0", 6)
    assert found == -3652559403428341388
    assert group_hash({"x7824d0": found}) == -1537660192803233502


def test_without_topics_it_is_0() -> None:
    assert group_hash({}) == NO_TOPICS == 0


def test_topics_are_taken_by_name() -> None:
    assert group_hash({"a": 1, "b": 2}) == group_hash({"b": 2, "a": 1})
    assert group_hash({"a": 1, "b": 2}) != group_hash({"a": 2, "b": 1})


def test_what_changes_it() -> None:
    racks = [["r1", "r2"], ["r2", "r3"]]
    found = {
        topic_hash(ID, "t", 2),
        topic_hash(ID, "t", 3),
        topic_hash(ID, "u", 2),
        topic_hash(UUID(int=1), "t", 2),
        topic_hash(ID, "t", 2, racks),
        topic_hash(ID, "t", 2, [["r1", "r2"], ["r2"]]),
        topic_hash(ID, "t", 2, [[], ["r2"]]),
    }
    assert len(found) == 7
    assert topic_hash(ID, "t", 2, [each[::-1] for each in racks]) == topic_hash(ID, "t", 2, racks)
    assert topic_hash(ID, "t", 2, [[], []]) == topic_hash(ID, "t", 2)


# Of inputs (0, 1, 2, ... modulo 251) of these lengths: one at each edge of a way of its own.
XXH3: Final[dict[int, int]] = {}


@pytest.mark.parametrize(("length", "expected"), XXH3.items())
def test_xxh3_of_each_length(length: int, expected: int) -> None:
    data = bytes(each % 251 for each in range(length))
    assert xxh3_64(data) == expected
    assert xxh3_64(memoryview(b"x" + data)[1:]) == expected
