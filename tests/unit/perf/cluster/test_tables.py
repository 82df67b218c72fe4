"""Measurements of several brokers, made up: which of them count, and what bars say of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from perf.cluster import (
    catch_up,
    failover,
    idle_followers,
    rebalance,
    shared_report,
    start_many,
)
from perf.cluster.catch_up import CatchUp, CatchUpPlan
from perf.cluster.failover import Failover
from perf.cluster.idle_followers import Idle
from perf.cluster.paced import Latency
from perf.cluster.rebalance import RebalancePlan, Returned
from perf.cluster.shared_load import SharedBlock, SharedOutcome, SharedPlan
from perf.cluster.start_many import Start
from perf.cluster.topics import split
from perf.measurement import Measurement
from perf.metadata import ClusterState, PartitionState, TopicState
from tests.unit.perf.test_report import MACHINE, block

CELL = "s-1k-4x5"


def shared(broker: str, cpu_us: float, number: int, others: float = 0.0) -> SharedBlock:
    one = block(CELL, broker, cpu_us, round=number, others=others)
    return SharedBlock(one, one.broker_cpu_s * 0.75, one.broker_cpu_s * 0.25, 0.001, 0.002)


def outcome(ours: list[float], theirs: list[float], **null: list[float]) -> SharedOutcome:
    def every(broker: str, values: list[float]) -> list[SharedBlock]:
        return [shared(broker, value, number) for number, value in enumerate(values)]

    found = SharedOutcome(SharedPlan(cells=(CELL,)))
    found.blocks[CELL] = {"kbroker": every("kbroker", ours), "kafka": every("kafka", theirs)}
    found.again[CELL] = {broker: every(broker, values) for broker, values in null.items()}
    return found


def verdicts(measured: Measurement) -> list[str]:
    """Of each bar; its lines can be printed and kept."""
    assert measured.text(MACHINE, 1.0)
    json.dumps(measured.to_json(MACHINE, 1.0), allow_nan=False)
    return [bar.verdict for bar in measured.bars]


@pytest.mark.parametrize(
    ("ours", "again", "verdict"),
    [
        ([30.0] * 7, [30.0] * 7, "pass, surely"),
        ([50.0] * 7, [50.0] * 7, "FAIL"),
        ([39.0] * 7, [41.0] * 7, "no result: the bar lies within the interval and the null test's"),
        ([30.0] * 7, [50.0] * 7, "no result: kbroker in s-1k-4x5 differs from itself by up to"),
        ([30.0] * 5, [30.0] * 5, "no result: 5 of 6 rounds needed"),
    ],
)
def test_cpu_of_both_brokers_against_kafkas(
    ours: list[float], again: list[float], verdict: str
) -> None:
    found = shared_report.report(outcome(ours, [100.0] * len(ours), kbroker=again))
    (said,) = verdicts(found)
    assert said.startswith(verdict)


def test_noisy_rounds_and_rounds_that_one_side_lacks_are_left_out() -> None:
    found = outcome([40.0] * 8, [100.0] * 7)
    found.blocks[CELL]["kbroker"][3] = shared("kbroker", 900.0, 3, others=0.5)
    one = shared_report.against(found, CELL)
    assert one is not None
    assert one.ratio.values == (0.4,) * 6
    assert len(shared_report.report(found).figures) == 15


def test_a_void_kafka_leaves_the_bar_unmeasured() -> None:
    found = outcome([40.0] * 7, [])
    assert verdicts(shared_report.report(found)) == ["not measured"]


def caught_up(broker: str, seconds: float, p99_us: float, number: int) -> CatchUp:
    alone, beside = Latency(100, 50.0, 90.0), Latency(100, 60.0, p99_us)
    return CatchUp(broker, number, 2_000_000_000, seconds, alone, beside, True)


def test_catching_up_is_judged_by_round() -> None:
    found = [
        caught_up(broker, seconds, p99_us, number)
        for number in range(7)
        for broker, seconds, p99_us in (("kbroker", 4.0, 900.0), ("kafka", 8.0, 800.0))
    ]
    assert found[0].megabytes_per_s == 500
    measured = catch_up.report(found, [], CatchUpPlan())
    assert verdicts(measured) == ["pass, surely", "no result: the follower took 0.50 of the time"]
    slow = [replace(one, seconds=9.0) if one.broker == "kbroker" else one for one in found]
    assert verdicts(catch_up.report(slow, [], CatchUpPlan())) == ["FAIL", "FAIL"]
    alone = [one for one in found if one.broker == "kbroker"]
    assert verdicts(catch_up.report(alone, ["void"], CatchUpPlan())) == ["not measured"] * 2
    loud = [replace(one, quiet=one.round > 2) for one in found]
    assert verdicts(catch_up.report(loud, [], CatchUpPlan()))[0].startswith("no result: 4 of 6")


def test_the_bytes_of_a_catch_up_are_whole_batches() -> None:
    plan = CatchUpPlan(gigabytes=2, partitions=4)
    assert plan.bytes == plan.batches_each * 4 * catch_up.BATCH_BYTES
    assert 1.99e9 < plan.bytes <= 2e9
    assert CatchUpPlan(gigabytes=0.001, partitions=100).batches_each == 1


def state(*leaders: int, in_sync: tuple[int, ...] = (1, 2)) -> ClusterState:
    partitions = tuple(
        PartitionState(0, number, leader, (1, 2), in_sync) for number, leader in enumerate(leaders)
    )
    return ClusterState((1, 2), 1, (TopicState(0, "t", bytes(16), partitions),))


def test_when_all_leaders_have_moved() -> None:
    assert failover.moved(state(2, 2), 1, 2)
    assert not failover.moved(state(2, 1), 1, 2)
    assert not failover.moved(state(2, -1), 1, 2)
    assert not failover.moved(state(2), 1, 2)
    assert failover.led_by(state(2, 1, 1), 1) == 2


def test_when_a_cluster_is_balanced() -> None:
    assert failover.balanced(state(1, 1), 2)
    assert not failover.balanced(state(1, 2), 2)
    assert not failover.balanced(state(1, 1, in_sync=(1,)), 2)
    assert not failover.balanced(state(1), 2)


def test_the_controller_is_killed_every_other_time() -> None:
    assert [failover.chosen(turn, 2) for turn in range(4)] == [2, 1, 2, 3]
    assert failover.chosen(0, -1) in failover.NODES


def test_kills_are_reported() -> None:
    found = [Failover(n, 1 + n % 3, n % 3 == 0, 333, 5.0, 0.2, {2: 0.2}, True) for n in range(7)]
    measured = failover.report(found, {"partitions": 1000})
    assert verdicts(measured) == ["pass, surely"]
    assert [row[1] for row in measured.rows] == ["7", "3", "4"]


def test_starts_are_judged_after_a_clean_stop() -> None:
    found = [
        Start("kbroker", number, after, led_s, 1.0, 1 << 20, True)
        for number in range(7)
        for after, led_s in (("stopped", 2.0), ("killed", 12.0))
    ]
    assert verdicts(start_many.report(found, {"partitions": 10_000})) == ["pass, surely"]


def test_idle_followers_are_judged_and_leaders_only_reported() -> None:
    found = [
        Idle("kbroker", number, role, share, 50 << 20, 40 << 20, True)
        for number in range(7)
        for role, share in zip(idle_followers.ROLES, (0.5, 0.01, 0.5), strict=True)
    ]
    measured = idle_followers.report(found, {"partitions": 1000})
    assert verdicts(measured) == ["pass, surely", "pass, surely"]
    assert len(measured.rows) == 3


def returned(enabled: str, number: int, quiet: bool = True) -> Returned:
    on = enabled == rebalance.ON
    shares = {1: 0.3, 2: 0.2} if on else {1: 0.45, 2: 0.15}
    led, back_s = (50, 0.9) if on else (0, None)
    return Returned(enabled, number, led, back_s, shares, 4_000.0, 200.0, 900.0, quiet)


def test_returns_are_compared_round_by_round() -> None:
    kinds = (rebalance.ON, rebalance.OFF)
    found = [returned(kind, number) for number in range(7) for kind in kinds]
    found += [returned(kind, 7, quiet=kind == rebalance.ON) for kind in kinds]
    measured = rebalance.report(found, RebalancePlan())
    assert verdicts(measured) == ["pass, surely"]
    assert [row[:2] for row in measured.rows] == [["true", "50 to 50"], ["false", "0 to 0"]]
    assert measured.rows[1][2] == "never"
    busiest, both, p99, noisy = measured.remarks
    assert "0.667 [0.667, 0.667] x" in busiest
    assert "0.833" in both and "1 [1, 1] x" in p99
    assert noisy.startswith("1 of 16")


@pytest.mark.parametrize(
    ("partitions", "topics_min", "sizes"),
    [(1, 1, [1]), (100, 1, [100]), (101, 1, [51, 50]), (100, 3, [34, 33, 33]), (2, 3, [1, 1])],
)
def test_partitions_are_spread_over_topics(
    partitions: int, topics_min: int, sizes: list[int]
) -> None:
    assert split(partitions, topics_min) == sizes
