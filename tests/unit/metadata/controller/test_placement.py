"""Where new replicas go."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
from hypothesis import given

from kbroker.metadata.controller.placement import place_replicas


@given(data=st.data())
def test_replicas_are_distinct_and_leaders_even(data: st.DataObject) -> None:
    nodes = data.draw(st.lists(st.integers(0, 1000), min_size=1, max_size=9, unique=True))
    some = st.sampled_from(["a", "b", "c"])
    rack = data.draw(st.sampled_from([st.none(), some, st.none() | some]))
    racks = {node: data.draw(rack) for node in nodes}
    factor = data.draw(st.integers(1, len(nodes)))
    partitions = data.draw(st.integers(1, 60))
    placed = place_replicas(partitions, factor, racks, data.draw(st.integers(0, 10_000)))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(nodes)
        if None not in racks.values():
            in_racks = {racks[node] for node in replicas}
            assert len(in_racks) == min(factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[node] for node in nodes]
    assert max(counts) - min(counts) <= 1


def test_the_followers_of_a_leader_differ() -> None:
    placed = place_replicas(12, 2, dict.fromkeys(range(4)), 0)
    assert placed[0::4] == [(0, 1), (0, 2), (0, 3)]
    assert placed[1::4] == [(1, 2), (1, 3), (1, 0)]
    for node in range(4):
        assert sum(node in replicas for replicas in placed) == 6


def test_leaders_go_from_rack_to_rack() -> None:
    racks = {1: "x", 2: "x", 3: "y", 4: "y"}
    placed = place_replicas(4, 2, racks, 0)
    assert [racks[replicas[0]] for replicas in placed] == ["x", "y", "x", "y"]
    assert sorted(replicas[0] for replicas in placed) == [1, 2, 3, 4]


def test_where_one_broker_says_no_rack_there_are_none() -> None:
    racks = {1: "x", 2: "x", 3: None}
    assert place_replicas(1, 2, racks, 0) == [(1, 2)]
