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


@pytest.mark.parametrize(
    ("name", "racks", "expected"),
    [
        ("t", [[]], 1806952834854981001),
        ("t", [["b", "a"], ["a"]], 8747637580793098073),
        ("orders.eu-1", [["r2", "r10", "r1"]] * 7, 8515888991430634445),
        ("t", [[], ["x"], []], -5321037793965217410),
        ("t", [["a", "a"]], -3253765583014880011),
        ("t", [["\uff5e", "\U0001f600", "z"]], -1127904012116832705),
        (
            "x" * 249,
            [[f"rack-{n % 5}", f"rack-{n % 3}"] for n in range(50)],
            6104173109561137551,
        ),
    ],
)
def test_topics_as_apache_kafka_s_classes_have_them(
    name: str, racks: list[list[str]], expected: int
) -> None:
    assert topic_hash(ID, name, len(racks), racks) == expected


def test_groups_as_apache_kafka_s_classes_have_them() -> None:
    assert group_hash({"a": 5, "c": -7, "b": 9}) == -5074874259694201936
    assert group_hash({"z": 1}) == 3439722301264460078
    assert group_hash({"b": 1, "aa": 2, "a": 3, "Z": 4}) == -2261631520288868523


def test_any_change_changes_the_hash() -> None:
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
XXH3: Final = {
    0: 3244421341483603138, 1: -4302098779834749733, 3: 6864218090047839419,
    4: 6979084321315492338, 8: 4187271766389786872, 9: -1629980255024596516,
    16: -8983023575487778597, 17: -6993173599622040792, 32: 3829001002278603781,
    33: -1833995589090992552, 64: 7027844749552840021, 65: 7577525643630617296,
    96: 2849157965221752315, 97: -1791866940674927372, 128: -8807326403944725397,
    129: -1407864491810865574, 240: 3988562325861820517, 241: 209643423615708418,
    1023: -3181479223277037947, 1024: -1884884332538287451, 1025: -1631356223047067538,
    1088: 1910807724689769475, 5000: -5469533718796099346,
}  # fmt: skip


@pytest.mark.parametrize(("length", "expected"), XXH3.items())
def test_xxh3_of_each_length(length: int, expected: int) -> None:
    data = bytes(each % 251 for each in range(length))
    assert xxh3_64(data) == expected
    assert xxh3_64(memoryview(b"x" + data)[1:]) == expected
