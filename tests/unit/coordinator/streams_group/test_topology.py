"""How many partitions the topics of an application have, and which are missing."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.streams_group.images import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    TopologyImage,
)
from kbroker.coordinator.streams_group.topology import (
    Configured,
    StatusCode,
    configured,
    mistake_of,
)
from tests.unit.coordinator.streams_group.world import STORE, part


def topic(name: str, partitions: int = 0) -> InternalTopic:
    return InternalTopic(name, partitions, 0, ())


def of(there: Mapping[str, int], *parts: Subtopology) -> Configured:
    topology = TopologyImage(0, parts)
    assert mistake_of(topology) is None
    return configured(topology, there.get)


def test_numbers_pass_along_repartition_topics() -> None:
    found = of(
        {"t": 3, "u": 5},
        part("2", repartitions=(topic("c"),), changelogs=(STORE,)),
        part("1", repartitions=(topic("a"), topic("b", 2)), sinks=("c",)),
        part("0", "t", "u", sinks=("a", "b")),
    )
    assert found.task_counts == {"0": 5, "1": 5, "2": 5}
    assert [(each.name, each.partitions) for each in found.missing] == [
        ("a", 5), ("b", 2), ("c", 5), ("store", 5),
    ]  # fmt: skip
    assert found.problem is not None
    assert found.problem.code is StatusCode.MISSING_INTERNAL_TOPICS


def test_a_circle_takes_the_numbers_that_come_into_it() -> None:
    found = of({"t": 3}, part("0", "t", repartitions=(topic("again"),), sinks=("again",)))
    assert found.counts == {"again": 3}


def test_a_circle_without_a_number_is_a_mistake() -> None:
    alone = TopologyImage(0, (part("0", repartitions=(topic("a"),), sinks=("a",)),))
    words = mistake_of(alone)
    assert words is not None
    assert "loops" in words


def test_topics_that_are_joined_have_as_many_partitions() -> None:
    group = CopartitionGroup((0,), (), (0,))
    parts = (
        part("0", "t", sinks=("a",)),
        part("1", "u", repartitions=(topic("a"),), groups=(group,)),
    )
    assert of({"t": 3, "u": 4}, *parts).counts == {"a": 4}
    fixed = parts[1]._replace(repartition_sources=(topic("a", 3),))
    wrong = of({"t": 3, "u": 4}, parts[0], fixed).problem
    assert wrong is not None
    assert wrong.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    both = part("0", "t", "u", groups=(CopartitionGroup((0, 1), (), ()),))
    unequal = of({"t": 3, "u": 4}, both).problem
    assert unequal is not None
    assert unequal.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert of({"t": 3, "u": 3}, both).is_ready


def test_repartition_topics_that_are_joined_have_the_larger_number() -> None:
    group = CopartitionGroup((), (), (0, 1))
    found = of(
        {"t": 3, "u": 5},
        part("0", "t", sinks=("a",)),
        part("1", "u", sinks=("b",)),
        part("2", repartitions=(topic("a"), topic("b")), groups=(group,)),
    )
    assert found.counts == {"a": 5, "b": 5}


def test_a_source_may_be_the_changelog() -> None:
    found = of({"t": 3}, part("0", "t", changelogs=(topic("t"),)))
    assert (found.is_ready, found.task_counts) == (True, {"0": 3})


def test_an_existing_topic_has_another_number() -> None:
    found = of({"t": 3, "store": 2}, part("0", "t", changelogs=(STORE,)))
    assert found.problem is not None
    assert found.problem.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert "expected 3, found 2" in found.problem.detail


def test_a_group_has_no_more_tasks_than_there_may_be() -> None:
    parts = [part(str(n), "t") for n in range(100)]
    assert sum(of({"t": 1_000}, *parts).task_counts.values()) == 100_000
    found = of({"t": 1_001}, *parts)
    assert (found.task_counts, found.missing) == ({}, ())
    assert found.problem is not None
    assert found.problem.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert "100100 tasks" in found.problem.detail


def test_few_of_many_missing_topics_are_named() -> None:
    found = of({}, part("0", *(f"t{n}" for n in range(9))))
    assert found.problem is not None
    assert found.problem.detail == "Source topics t0, t1, t2 and 6 additional topics are missing."


NAMES = ("a", "b", "c", "d")
parts = st.lists(
    st.builds(
        lambda sources, repartitions, sinks: (sources, repartitions, sinks),
        st.frozensets(st.sampled_from("tu"), max_size=2),
        st.frozensets(st.sampled_from(NAMES), max_size=2),
        st.frozensets(st.sampled_from(NAMES), max_size=2),
    ),
    min_size=1,
    max_size=5,
)


@given(parts, st.dictionaries(st.sampled_from("tu"), st.integers(1, 9)))
def test_any_topology_is_refused_or_has_all_its_numbers(
    drawn: list[tuple[frozenset[str], frozenset[str], frozenset[str]]], there: dict[str, int]
) -> None:
    topology = TopologyImage(
        0,
        tuple(
            part(
                str(n),
                *sorted(sources),
                repartitions=tuple(map(topic, sorted(repartitions))),
                sinks=tuple(sorted(sinks)),
            )
            for n, (sources, repartitions, sinks) in enumerate(drawn)
        ),
    )
    if mistake_of(topology) is not None:
        return
    found = configured(topology, there.get)
    if found.problem is None or found.problem.code is StatusCode.MISSING_INTERNAL_TOPICS:
        assert found.task_counts.keys() == {each.subtopology_id for each in topology.subtopologies}
        assert all(0 < count <= 9 for count in found.task_counts.values())
    else:
        assert not there.keys() >= {name for each in drawn for name in each[0]}


@pytest.mark.parametrize("circles", [False, True])
def test_the_time_is_that_of_the_size(circles: bool) -> None:
    """A chain that a client might send: numbers pass from one end to the other."""
    size = 20_000
    chain = [part("0", "t", sinks=("r0",))]
    for n in range(1, size):
        back = (f"r{n - 1}",) if circles else ()
        chain.append(part(str(n), repartitions=(topic(f"r{n - 1}"),), sinks=(f"r{n}", *back)))
    topology = TopologyImage(0, tuple(reversed(chain)))
    began = time.process_time()
    assert mistake_of(topology) is None
    assert configured(topology, {"t": 3}.get).task_counts[str(size - 1)] == 3
    assert time.process_time() - began < 10  # seconds; where it is quadratic: minutes


def test_the_time_of_groups_is_that_of_their_size() -> None:
    """As many co-partition groups as topics, which a client might send."""
    size = 20_000
    groups = tuple(CopartitionGroup((0,), (), (n,)) for n in range(size))
    own = tuple(topic(f"r{n}") for n in range(size))
    sinks = tuple(each.name for each in own)
    topology = TopologyImage(
        0, (part("0", "t", sinks=sinks), part("1", "t", repartitions=own, groups=groups))
    )
    began = time.process_time()
    assert len(configured(topology, {"t": 3}.get).missing) == size
    assert time.process_time() - began < 5  # seconds; where it is quadratic: twenty
