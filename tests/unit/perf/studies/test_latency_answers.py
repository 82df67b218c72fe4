"""The latency study's points, and its answers on made-up blocks whose answers are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from perf.histogram import Histogram
from perf.process import Guard
from perf.studies import answers as a
from perf.studies.conclusion import Conclusion
from perf.studies.conditions import (
    ACKS,
    BATCHES,
    LINGERS_MS,
    MODES,
    OTHER_SETTINGS,
    Condition,
    Plan,
    conditions,
    is_null,
    points,
)
from perf.studies.latency_report import report
from perf.studies.measured import END_TO_END, Measured
from perf.studies.study import Outcome, Point, slots

Times = Callable[[Condition, str], float]
# One batch size is enough to answer from; the whole matrix is made where it is what is tested.
SMALL = Plan(batches=(16 << 10,), flat_batches=(16 << 10,))
MACHINE = {"model": "test", "cpus": 2, "kernel": "0", "python": "3", "commit": "0", "when": "now"}


def test_librdkafka_takes_every_condition() -> None:
    for condition in conditions(Plan()):
        producer, consumer = condition.options()
        Producer(producer)
        Consumer({**consumer, "group.id": "g"}).close()


def times(condition: Condition, broker: str) -> float:
    """p50 in us: 300 on a quiet wire, linger as it should be, a queue flat out."""
    if condition.load == "paced":
        return 300 + 1000 * condition.wait_ms
    return 500_000 if condition.mode == "async" else 200


def block(us: float, condition: Condition, *, quiet: bool = True) -> Measured:
    held = 1.0
    if condition.mode == "sync" and condition.load == "paced":
        held = min(1.0, 1000 / us)
    return Measured(
        requests=0,
        records=1000,
        bytes=1_000_000,
        wall_s=1.0,
        broker_cpu_s=0.1,
        own_cpu_s=0.2,
        guard=Guard(0.0 if quiet else 0.5, 0.0),
        histograms={
            END_TO_END: Histogram.of([int(us * 1e3)] * 50),
            a.FROM_DUE: Histogram.of([int(us * 1e3) + 90_000] * 50),
            a.ACKNOWLEDGED: Histogram.of([int(us * 900)] * 50),
        },
        figures={"held": held, "sent": 1000.0},
        ended_at_ms=1_700_000_000_000,
    )


def study(
    took: Times = times,
    plan: Plan | None = None,
    *,
    wobble: float = 0.02,
    quiet: bool = True,
    null_wobble: float = 0.01,
) -> a.Study:
    plan = plan or SMALL
    found = conditions(plan)
    by_key = {one.key(broker): (one, broker) for one in found for broker in plan.brokers}
    outcome = Outcome("latency-study", tuple(points(found, plan.brokers)), plan.rounds, MACHINE)
    factors = [1 + wobble * step for step in (0, 1, -1, 0.5, -0.5)]
    for slot in slots(outcome.points, plan.rounds):
        condition, broker = by_key[slot.point.key]
        # Conditions wobble on their own: what they have in common must not carry the verdict.
        turn = (slot.round + len(slot.point.key)) % len(factors)
        us = took(condition, broker) * factors[turn]
        one = block(us, condition, quiet=quiet)
        if not slot.again:
            outcome.blocks.setdefault(slot.point.key, {})[slot.round] = one
        else:
            other = block(us * (1 + null_wobble * (-1) ** slot.round), condition, quiet=quiet)
            outcome.null.setdefault(slot.point.key, {})[slot.round] = (one, other)
    return a.Study(outcome, found, plan.brokers, plan.replicas)


def asked(found: list[Conclusion], question: str, broker: str | None = "kbroker") -> Conclusion:
    (one,) = [
        answer
        for answer in found
        if question in answer.question and answer.dims.get("broker") == broker
    ]
    return one


# --- the points -----------------------------------------------------------------------------------


def test_the_whole_matrix_is_there() -> None:
    found = conditions(Plan())
    paced = {
        (one.acks, one.mode, one.batch_bytes, one.linger_ms) for one in found if one.load == "paced"
    }
    assert paced == {
        (acks, mode, batch, linger)
        for acks in ACKS
        for mode in MODES
        for batch in BATCHES
        for linger in LINGERS_MS
    }
    assert len(found) == len(set(map(repr, found))) == 72 + 9 + 3 + len(OTHER_SETTINGS)
    assert {one.knob for one in found} >= {"buffer.memory", "max.partition.fetch.bytes", "retries"}


def test_compared_points_stand_in_one_group() -> None:
    plan = Plan()
    found = points(conditions(plan), plan.brokers)
    groups: dict[str, list[Point]] = {}
    for point in found:
        groups.setdefault(point.group, []).append(point)
    for name, members in groups.items():
        assert {one.dims["broker"] for one in members} == {"kafka", "kbroker"}, name
        assert {one.dims["acks"] for one in members} == {0, 1, -1}, name
        if name.startswith("paced"):
            assert {one.dims["mode"] for one in members} == {"async", "sync"}
    assert sum(point.null for point in found) == 12


def test_every_way_and_mode_has_a_null_test() -> None:
    for plan in (Plan(), Plan.quick()):
        nulls = {(a.way_of(one), one.mode) for one in conditions(plan) if is_null(one)}
        assert nulls == {(way, mode) for way in a.WAYS for mode in MODES}


@pytest.mark.parametrize(
    ("mode", "batch", "linger", "wait"),
    [
        ("async", 1 << 10, 100, 1),  # for the next one, which does not fit
        ("async", 16 << 10, 5, 3),  # 5, 4, 3, 2, 1
        ("async", 16 << 10, 100, 8.5),  # 16 to 1
        ("async", 64 << 10, 100, 33),
        ("async", 64 << 10, 0, 0),
        ("sync", 64 << 10, 100, 100),
        ("sync", 1 << 10, 0, 0),
    ],
)
def test_the_wait_that_linger_predicts(mode: Any, batch: int, linger: int, wait: float) -> None:
    assert Condition("paced", 1, mode, batch, linger).wait_ms == wait


# --- the answers ----------------------------------------------------------------------------------


def test_nothing_is_found_where_nothing_is() -> None:
    found = a.answers(study())
    for acks in (1, -1):
        one = asked(found, f"Is acks=0 slower end to end than acks={acks}?")
        assert not one.decided and one.answer.startswith("No result: paced")
        assert "Slower" not in one.answer and "Faster" not in one.answer
    between = asked(found, "through kbroker, against Apache Kafka", None)
    assert not between.decided


def test_a_slow_acks_0_is_found_where_it_is() -> None:
    def slow_when_flat_out(condition: Condition, broker: str) -> float:
        slow = condition.load == "flat-out" and condition.acks == 0 and broker == "kbroker"
        return times(condition, broker) * (3 if slow else 1)

    found = a.answers(study(slow_when_flat_out))
    one = asked(found, "Is acks=0 slower end to end than acks=1?")
    assert one.decided and one.answer.startswith("Yes, in part. Slower: flat out, async 3.0")
    assert "flat out, sync 3.0" in one.answer and "Faster" not in one.answer
    assert set(one.evidence) == {f"{way}, {mode}" for way in a.WAYS for mode in MODES}
    assert not asked(found, "than acks=1?", "kafka").decided


def test_a_fast_acks_0_is_a_no() -> None:
    found = a.answers(study(lambda c, b: times(c, b) * (0.5 if c.acks == 0 else 1)))
    one = asked(found, "Is acks=0 slower end to end than acks=1?")
    assert one.decided and one.answer.startswith("No. Faster: paced without linger, async 0.5")


def test_async_depends_on_the_load() -> None:
    """By the model: the same without linger, half with it, a queue flat out."""
    one = asked(a.answers(study()), "Is async slower end to end than sync?")
    assert one.decided and one.answer.startswith("It depends. Slower: flat out 2,")
    assert "Faster: paced with linger 0." in one.answer
    assert "No result: paced without linger " in one.answer
    assert "sync did not hold 1,000/s (acks=1: 18" in one.answer


def test_linger_is_where_the_time_is() -> None:
    one = asked(a.answers(study()), "Where does the time of a paced record come from?")
    assert one.decided and one.answer.startswith("From linger.")


def test_something_else_is_where_the_time_is() -> None:
    def late(condition: Condition, broker: str) -> float:
        return times(condition, broker) * (2 if condition.linger_ms else 1)

    one = asked(a.answers(study(late)), "Where does the time of a paced record come from?")
    assert one.answer.startswith("Not from linger alone.")


def test_a_noisy_machine_says_no_result() -> None:
    found = a.answers(study(quiet=False))
    assert found and not any(one.decided for one in found)
    assert "noisy left out" in asked(found, "than acks=1?").answer


def test_a_wide_null_test_says_no_result() -> None:
    def a_bit(condition: Condition, broker: str) -> float:
        return times(condition, broker) * (1.2 if condition.acks == 0 else 1)

    assert asked(a.answers(study(a_bit)), "than acks=1?").decided
    wide = a.answers(study(a_bit, null_wobble=0.5))
    assert not asked(wide, "than acks=1?").decided
    assert "within the null test's" in asked(wide, "than acks=1?").answer


def test_brokers_are_compared_both_ways() -> None:
    def faster(condition: Condition, broker: str) -> float:
        return times(condition, broker) * (0.7 if broker == "kbroker" else 1)

    one = asked(a.answers(study(faster)), "through kbroker, against Apache Kafka", None)
    assert one.decided and one.answer.startswith("Shorter: paced without linger, p50 0.7")
    assert not any(
        "against Apache Kafka" in one.question
        for one in a.answers(study(plan=Plan.quick(brokers=("kbroker",))))
    )


def test_other_settings_are_reported() -> None:
    def small_buffer(condition: Condition, broker: str) -> float:
        return times(condition, broker) * (0.2 if condition.knob == "buffer.memory" else 1)

    found = a.answers(study(small_buffer))
    one = asked(found, "buffer.memory = 4 MB")
    assert one.decided and one.answer.startswith("Less: p50 0.20 times")
    assert one.dims["knob"] == "buffer.memory"
    assert not asked(found, "retries = 0").decided


REPLICATED = replace(SMALL, replicas=3)


def test_with_replicas_the_cost_of_acks_all_is_asked() -> None:
    """The document's own case is among the answers, and nothing says that it needs replicas."""

    def waits(condition: Condition, broker: str) -> float:
        slow = condition.acks == -1 and broker == "kafka" and condition.load == "paced"
        return times(condition, broker) * (2.0 if slow else 1.0)

    found = a.answers(study(waits, REPLICATED))
    assert asked(found, "With 3 replicas", "kafka").answer.startswith("Yes")
    assert asked(found, "With 3 replicas").answer.startswith("No result")
    assert not any("needs replication" in one.answer for one in found)
    assert "3 replicas, medians" in report(study(waits, REPLICATED), found).page


def test_the_fetch_size_of_a_follower_is_tried_on_a_cluster_of_its_own() -> None:
    assert set(SMALL.servers()) == {"kafka", "kbroker"}
    tried = {"kafka, replica.fetch.max.bytes 64 KB", "kbroker, replica.fetch.max.bytes 64 KB"}
    assert set(REPLICATED.servers()) == {"kafka", "kbroker", *tried}
    every = conditions(REPLICATED)
    assert [(one.acks, one.server("kafka") in tried) for one in every if one.servers] == [
        (-1, True)
    ] * 2
    assert {point.dims["replicas"] for point in points(every, ("kafka",), 3)} == {3}

    def smaller(condition: Condition, broker: str) -> float:
        return times(condition, broker) * (3.0 if condition.servers else 1.0)

    found = [
        one
        for one in a.answers(study(smaller, REPLICATED))
        if one.dims.get("knob") == "replica.fetch.max.bytes"
    ]
    assert len(found) == 4 and all("More: p50 3.0" in one.answer for one in found)


def test_the_case_that_needs_replicas_is_named() -> None:
    one = asked(a.answers(study()), "three replicas", None)
    assert not one.decided and "replication" in one.answer


# --- its rendering --------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [Plan(), Plan.quick(), Plan(brokers=("kbroker",), rounds=1)])
def test_text_and_json(plan: Plan) -> None:
    found = study(plan=plan)
    said = a.answers(found)
    text = "\n".join(report(found, said).text)
    for broker in plan.brokers:
        assert f"{broker}, paced: p50 in us by batch/linger in ms" in text
    assert "16K/100" in text and "linger alone" in text
    row = next(line for line in text.splitlines() if line.startswith("async, acks=0"))
    assert row.split()[2] == "300"
    assert all(one.question in text for one in said)
    assert max(map(len, text.splitlines())) <= 130
    assert "nan" not in text
    data = json.loads(json.dumps(report(found, said).json, allow_nan=False))
    assert len(data["answers"]) == len(said)


def test_the_page() -> None:
    found = study()
    text = report(found, a.answers(found)).page
    assert "| async, acks=0 | 300 | 3,3" in text  # without linger, and with 5 ms
    assert "| flat-out" not in text and "| buffer.memory 4 MB | " in text
    assert "- kbroker: Is acks=0 slower end to end than acks=1? *No result" in text
    assert "nan" not in text


def test_a_condition_without_blocks_is_no_error() -> None:
    found = study()
    gone = next(one for one in found.conditions if one.knob)
    void = replace(gone, knob="", knob_value="", producer={}, consumer={})
    for one in (gone, void):
        for broker in found.brokers:
            del found.outcome.blocks[one.key(broker)]
    said = a.answers(found)
    assert not asked(said, f"{gone.knob} = ").decided
    assert "-" in "\n".join(report(found, said).text)
