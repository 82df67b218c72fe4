"""The records of streams groups: those of a running Apache Kafka 4.3.0, and hostile bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.consumer_group.drafts import AnyChange
from kbroker.coordinator.consumer_group.images import TargetEpoch
from kbroker.coordinator.consumer_group.states import MemberState
from kbroker.coordinator.group.group_records import RecordError
from kbroker.coordinator.streams_group.images import (
    CopartitionGroup,
    CurrentImage,
    Endpoint,
    GroupImage,
    HeldTasks,
    InternalTopic,
    Kind,
    MemberImage,
    Subtopology,
    TaskSet,
    TopologyImage,
)
from kbroker.coordinator.streams_group.records import change_of, decode_key, record_of
from kbroker.coordinator.streams_group.replay import StreamsReplay
from tests.unit.coordinator.streams_group.world import part

STANDBYS = (("num.standby.replicas", "0"),)
STORE = InternalTopic("store-c3001fae", 0, 1, (("cleanup.policy", "compact"),))
HALF = InternalTopic("half-c3001fae", 0, 1, ())
# Key, value, and what the value says; as a broker of Apache Kafka 4.3.0 wrote them.
KAFKA: list[tuple[str, str, Any]] = [
    (
        "0013000a672d343965366337653000016d",
        "00000000077061726974790b2f3132372e302e302e310000ea60000000000d70726f63657373206f66206d01"
        "05686572650007000100",
        MemberImage(
            None, None, "parity", "/127.0.0.1", 60_000, 0, "process of m", Endpoint("here", 7)
        ),
    ),
    (
        "0017000a672d6333303031666165",
        "000000000000030230020c74302d63333030316661650101020e68616c662d63333030316661650101000231"
        "0101020f73746f72652d6333303031666165000000000001020f636c65616e75702e706f6c69637908636f6d"
        "70616374000001020e68616c662d63333030316661650000000000010100010000",
        TopologyImage(
            0,
            (
                part("0", "t0-c3001fae", sinks=("half-c3001fae",)),
                part("1", changelogs=(STORE,), repartitions=(HALF,)),
            ),
        ),
    ),
    (
        "0011000a672d6333303031666165",
        "00000000000282386e24273d0a8101011902156e756d2e7374616e6462792e7265706c69636173023000",
        GroupImage(2, -9063373148526933375, -1, STANDBYS),
    ),
    (
        "0011000a672d6333303031666165",
        "00000000000306dbaf75e7e1d6a302000400000000011902156e756d2e7374616e6462792e7265706c696361"
        "73023000",
        GroupImage(3, 494181505063573155, 0, STANDBYS),
    ),
    (
        "0014000a672d6333303031666165",
        "000000000003010008000001a22c3beba8",
        TargetEpoch(3, 1796038454184),
    ),
    (
        "0015000a672d6237366136323161000162",
        "000002023003000000020000000300010100",
        TaskSet({"0": frozenset({2, 3})}),
    ),
    (
        "0016000a672d6237366136323161000161",
        "00000000000200000002020202300300000000000000010100090300000002000000020101020230030000000"
        "200000003010009030000000200000002010100",
        CurrentImage(
            2, 2, MemberState.UNREVOKED,
            HeldTasks({"0": {0: 2, 1: 2}}), HeldTasks({"0": {2: 2, 3: 2}}),
        ),
    ),
    (
        "0016000a672d6237366136323161000162",
        "000000000003000000000301010101010100",
        CurrentImage(3, 0, MemberState.UNRELEASED),
    ),
    (
        "0016000a672d6237366136323161000162",
        "0000000000030000000301020230030000000200000003010009030000000300000003010101010100",
        CurrentImage(3, 3, MemberState.STABLE, HeldTasks({"0": {2: 3, 3: 3}})),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "said"), KAFKA)
def test_records_of_kafka_are_read_and_written_alike(key: str, value: str, said: Any) -> None:
    found = decode_key(bytes.fromhex(key))
    assert found is not None
    change = change_of(found, bytes.fromhex(value))
    assert change.value == said
    assert record_of(found.group_id, change) == (bytes.fromhex(key), bytes.fromhex(value))
    gone = change_of(found, None)
    assert gone.value is None
    assert record_of(found.group_id, gone) == (bytes.fromhex(key), None)


def test_a_whole_topology_comes_back() -> None:
    group = CopartitionGroup((0,), (), (0,))
    whole = Subtopology("0", ("a", "b"), (), (STORE,), ("s", HALF.name), (HALF,), (group,))
    change = change_of(
        decode_key(bytes.fromhex(KAFKA[1][0])),  # type: ignore[arg-type]
        bytes.fromhex(KAFKA[1][1]),
    )._replace(value=TopologyImage(7, (whole,)))
    key, value = record_of("g", change)
    found = decode_key(key)
    assert found is not None
    assert change_of(found, value).value == change.value


def test_a_topology_that_no_topics_make_right_cannot_be_read() -> None:
    alone = part("0", repartitions=(HALF,), sinks=("half",))
    change = AnyChange(Kind.TOPOLOGY, "", TopologyImage(0, (alone,)))
    key, value = record_of("g", change)
    found = decode_key(key)
    assert found is not None
    with pytest.raises(RecordError, match="loops"):
        change_of(found, value)


def test_keys_of_other_groups_are_none() -> None:
    for version in (-1, 0, 3, 10, 16, 18, 24):
        assert decode_key(version.to_bytes(2, "big", signed=True) + b"\0\1g") is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (17, "0001" + "00" * 14),  # a version that is not known
        (17, "0000ffffffff000000000000000000"),  # an epoch below 0
        (21, "00000202300 2ffffffff0001010 0".replace(" ", "")),  # a partition below 0
        (22, "000000000003000000030501010101010100"),  # a state that there is none of
        (22, "00000000000300000003010202300300000002000000030100050200000003010101010100"),
        (22, ""),
    ],
)
def test_a_value_that_cannot_be_read_is_an_error(kind: int, value: str) -> None:
    key = bytes.fromhex(f"00{kind:02x}00016700016d" if kind in (21, 22) else f"00{kind:02x}000167")
    found = decode_key(key)
    assert found is not None
    with pytest.raises(RecordError):
        change_of(found, bytes.fromhex(value))


@given(st.sampled_from([each[:2] for each in KAFKA]), st.data())
def test_changed_bytes_are_read_or_are_an_error(row: tuple[str, str], data: st.DataObject) -> None:
    bytes_ = bytearray.fromhex(row[1])
    at = data.draw(st.integers(0, len(bytes_) - 1))
    bytes_[at] = data.draw(st.integers(0, 255))
    found = decode_key(bytes.fromhex(row[0]))
    assert found is not None
    for value in (bytes(bytes_), bytes(bytes_[:at])):
        try:
            change_of(found, value)
        except RecordError:
            pass


def test_a_group_of_kafka_is_loaded() -> None:
    loaded: dict[str, Any] = {}
    replay = StreamsReplay(loaded.update)
    for offset, (key, value, _) in enumerate(KAFKA):
        record: Any = SimpleNamespace(
            offset=offset, timestamp_ms=0, key=bytes.fromhex(key), value=bytes.fromhex(value)
        )
        assert replay.record(record)
    assert replay.last_offsets == {"g-c3001fae": 4}
    replay.loaded()
    assert loaded.keys() == {"g-c3001fae"}
    assert loaded["g-c3001fae"].epoch == 3
