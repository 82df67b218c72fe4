"""Which blocks are held against each other, and what is said where that decides nothing."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from spark_jobs.sections import brokers, latency, studies
from spark_jobs.sections.blocks import CPU, CPU_OWN, IDENTITY, P99, Block
from spark_jobs.sections.paired import Beside, NullTests, pairs, reasons, versus

RUN, OTHER_RUN = "a", "b"


def block(cpu_us: float = 10.0, **fields: Any) -> Block:
    """A quiet block of a comparison."""
    row: dict[str, Any] = dict.fromkeys(IDENTITY)
    row |= {
        "run_id": RUN, "sequence": 0, "study": "compare", "cell": "p-1k", "work": "produce",
        "broker": "kbroker", "round": 0, "acks": 1, "baseline": None, "again": None, "rate": 0.0,
        "requests": 1000, "records": 1000, "bytes": 1, "wall_s": 1.0, "broker_cpu_s": cpu_us / 1e3,
        "compiler_cpu_s": 0.0, "collector_cpu_s": 0.0, "quiet": True, "p50": 1e6, "p99": 2e6,
        **fields,
    }  # fmt: skip
    return Block(row)


def rounds(*cpu_us: float, **fields: Any) -> list[Block]:
    return [block(one, round=number, **fields) for number, one in enumerate(cpu_us)]


def both(ours: list[Block], theirs: list[Block]) -> Beside:
    return Beside(pairs(ours, theirs))


def test_blocks_pair_by_run_and_round_and_never_by_place() -> None:
    ours, theirs = rounds(10, 20, 30, 40), rounds(1, 2, 3, 4)
    del theirs[0]  # void
    assert [(a["round"], b["round"]) for a, b in pairs(ours, theirs)] == [(1, 1), (2, 2), (3, 3)]
    assert pairs(rounds(1, 2), rounds(1, 2, run_id=OTHER_RUN)) == ()
    alone = [block(round=None) for _ in range(7)]
    assert pairs(alone, alone) == (), "blocks without a round have nothing in common"
    assert pairs([*ours, block(round=1)], theirs)[0][0]["round"] == 2, "which of two is not known"


@pytest.mark.parametrize(
    ("quiet", "why"),
    [
        (True, ""),
        (False, "0 of 6 rounds needed (7 noisy left out: something else ran)"),
        (None, "0 of 6 rounds needed (7 left out: not known to be quiet)"),
    ],
)
def test_unknown_quiet_is_not_quiet(quiet: bool | None, why: str) -> None:
    found = versus(both(rounds(*[10] * 7, quiet=quiet), rounds(*[20] * 7)), CPU)
    assert found is not None and found.why_open == why
    assert found.verdict == ("open" if why else "good")


def test_cpu_is_compared_with_and_without_the_own_work_of_a_runtime() -> None:
    theirs = rounds(*[40] * 7, broker="kafka", compiler_cpu_s=0.015, collector_cpu_s=0.005)
    beside = both(rounds(*[10] * 7), theirs)
    found = {measure: versus(beside, measure) for measure in (CPU, CPU_OWN)}
    assert [one and one.estimate.median for one in found.values()] == pytest.approx([0.25, 0.5])
    before = both(rounds(*[10] * 7), rounds(*[40] * 7, broker="kafka", compiler_cpu_s=None))
    assert versus(before, CPU_OWN) is None, "records of before do not tell"


@pytest.mark.parametrize("count", range(1, 6))
def test_so_few_pairs_decide_nothing(count: int) -> None:
    found = versus(both(rounds(*[1] * count), rounds(*[100] * count)), CPU)
    assert found is not None and not found.decided
    assert found.why_open == f"{count} of 6 rounds needed"


def test_the_difference_of_a_broker_from_itself_decides_nothing() -> None:
    blocks = [
        *rounds(*[10] * 7), *rounds(*[11] * 7, broker="kafka"),
        *rounds(*[10, 9, 12, 10, 10, 10, 10], again=True),
    ]  # fmt: skip
    (found,) = brokers.compared(blocks)
    one = versus(found, CPU)
    assert one is not None and one.why_open == "within the null test's 1.20"
    assert len(found.every) == 7, "the second blocks are in no other pair"
    # Work of the same kind without a null test of its own has this one.
    like = block(cell="p-100", broker="kafka")
    assert NullTests(blocks).of(like, ("kbroker", "kafka")) == found.null
    assert NullTests(blocks).of(block(work="fetch"), ("kbroker",)) == ()


def test_acks_are_compared_within_a_run_and_a_round_only() -> None:
    ones, alls = rounds(*[10] * 7), rounds(*[20] * 7, acks=-1, cell="p-1k-all")
    (found,) = latency.acks_pairs([*ones, *alls])
    assert len(found.quiet) == 7
    commands = [block(run_id=str(n), acks=acks, quiet=None) for n in range(7) for acks in (1,)]
    commands += [block(run_id=f"all {n}", acks=-1, quiet=None) for n in range(7)]
    assert latency.acks_pairs(commands) == []


def test_a_twin_is_the_null_test_of_a_study() -> None:
    knob = {"study": "tune", "knob": "num.io.threads"}
    blocks = [
        *rounds(*[10] * 7, **knob, knob_value="8", baseline=True),
        *rounds(*[11] * 7, **knob, knob_value="2"),
        *rounds(*[12] * 7, **knob, knob_value="the default again", again=True),
    ]
    (found,) = studies.ratios(blocks)
    one = versus(found, studies.CPU_RECORD)
    assert one is not None and one.why_open == "within the null test's 1.20"


def test_a_reason_is_said_once() -> None:
    beside = both(rounds(*[1] * 3), rounds(*[2] * 3))
    two = [versus(beside, CPU), versus(beside, P99)]
    assert reasons(two, ("CPU", "p99")) == "3 of 6 rounds needed"
    enough = both(rounds(*[1] * 6), rounds(*[2] * 6))
    assert reasons([versus(enough, CPU), versus(enough, P99), None], ("CPU", "p99", "x")) == (
        "p99: no difference found"
    )
