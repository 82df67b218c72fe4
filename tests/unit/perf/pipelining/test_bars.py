"""What is held against each other, and what is said of it where it cannot be."""

from __future__ import annotations

import json

import pytest

from perf.judge import Bar
from perf.pipelining.bars import bars, java, killed, matrix, paced
from perf.pipelining.conclusions import conclusions
from perf.pipelining.plan import (
    ALL,
    KAFKA,
    MIDDLE_US,
    PIPELINED,
    STOCK,
    STUDY,
    SYSTEMS,
    Condition,
    Plan,
    conditions,
)
from perf.pipelining.report import report
from perf.pipelining.tables import tables
from perf.results import Results
from perf.studies.conclusion import publish
from perf.studies.kinds import KINDS
from perf.studies.study import Outcome
from tests.unit.perf.pipelining.fake import block, outcome

PLAN = Plan(sections=("matrix", "paced", "java", "killed"))


def _bar(found: Outcome, begins: str) -> Bar:
    (bar,) = [one for one in bars(found) if one.what.startswith(begins)]
    return bar


# -- undecided


def test_a_comparison_whose_blocks_are_all_noisy_was_measured() -> None:
    """It is not passed, then; with --check it counts."""
    noisy = {
        matrix(system, MIDDLE_US, ALL, 5): block(rate=rate, others=0.5)
        for system, rate in ((KAFKA, 10), (PIPELINED, 40))
    }
    bar = _bar(outcome(PLAN, noisy), "Kafka / pipelined, MB/s: 500 us, acks=-1, 5 in flight")
    assert bar.verdict == ("no result: 0 of 6 rounds needed (6 noisy left out: something else ran)")
    assert not bar.fine
    assert "0 of 6 rounds needed" in report(outcome(PLAN, noisy), PLAN).page


def test_a_run_without_such_a_figure_was_not_measured() -> None:
    both = {matrix(system, MIDDLE_US, ALL, 5): block() for system in (KAFKA, PIPELINED)}
    found = outcome(PLAN, both)
    assert _bar(found, "CPU of leader and follower per MB, acks=-1, 5").verdict == "not measured"


def test_a_p99_of_few_requests_decides_nothing() -> None:
    def late(timed: int) -> Bar:
        blocks = {
            paced(KAFKA): block(us=1000, timed=5000),
            paced(PIPELINED): block(us=100, timed=timed),
        }
        return _bar(outcome(PLAN, blocks), "p99 of acks=-1 at half")

    assert late(2000).verdict == "pass, surely" and late(2000).unit == "x Kafka, n=2,000"
    assert late(1999).verdict == "no result: p99 of 1,999 requests, 2,000 needed"


# -- the follower that is killed


@pytest.mark.parametrize(
    ("runs", "faults", "verdict", "value"),
    [
        (0, [], "not measured", None),
        (1, [], "pass, surely", 0.0),
        (0, ["{key}, round 1: 3 records of killed, not 4"], "FAIL", 1.0),
        (2, ["{key}, round 3: not within 60 s"], "FAIL", 1.0),
        (1, ["another, round 1: void"], "pass, surely", 0.0),
    ],
)
def test_of_the_runs_with_a_killed_follower_none_may_be_void(
    runs: int, faults: list[str], verdict: str, value: float | None
) -> None:
    one = killed(PIPELINED, 200)
    found = outcome(PLAN, {one: block()} if runs else {}, rounds=runs)
    found.faults = [fault.format(key=one.key) for fault in faults]
    bar = _bar(found, "runs with a killed follower, 200 in flight")
    assert bar.verdict == verdict
    assert (bar.value.median if bar.value else None) == value
    assert _bar(found, "runs with a killed follower, 5 in flight").verdict == "not measured"


# -- what is published


class _Published(Results):
    def __init__(self) -> None:
        super().__init__(None, "pipelining", print)
        self.blocks: list[dict[str, object]] = []
        self.verdicts: list[dict[str, object]] = []

    def block(self, *_: object, **fields: object) -> None:  # type: ignore[override]
        self.blocks.append(fields)

    def verdict(  # type: ignore[override]
        self, question: str, answer: str, **fields: object
    ) -> None:
        self.verdicts.append({"question": question, "answer": answer, **fields})


def _everything() -> Outcome:
    cells = {
        **{matrix(one, MIDDLE_US, ALL, 5): block(rate=10) for one in (KAFKA, STOCK)},
        matrix(PIPELINED, MIDDLE_US, ALL, 5): block(rate=40),
        **{java(one): block(rate=10, p99_us=2e6) for one in (KAFKA, STOCK)},
        java(PIPELINED): block(rate=12, p99_us=1e6),
        **{killed(one, 5): block(stood_still_s=9.0) for one in SYSTEMS},
    }
    return outcome(PLAN, cells)


def test_the_verdicts_of_java_killed_and_every_measured_bar_are_published() -> None:
    found = _everything()
    published = _Published()
    publish(found, conclusions(found, PLAN), published)
    rows = {str(row["question"]): row for row in published.verdicts}
    assert len(rows) == len(published.verdicts)

    met = rows["Kafka / pipelined, MB/s: 500 us, acks=-1, 5 in flight: at most 0.29?"]
    assert met["answer"] == "met, 0.25 [0.25, 0.25]" and met["decided"]
    assert met["evidence"]["outcome"] == "met"  # type: ignore[index]
    missed = rows["Kafka / pipelined, MB/s: 500 us, acks=-1, Java's defaults: at most 0.50?"]
    assert str(missed["answer"]).startswith("missed, 0.83") and missed["path"] == "java"
    assert not any("100 us" in question and "at most" in question for question in rows)

    (java_row,) = [row for question, row in rows.items() if question.startswith("Java's producer")]
    assert set(java_row["evidence"]) == {  # type: ignore[call-overload]
        f"{unit} by {whose}" for unit in ("MB/s", "p99") for whose in ("Apache Kafka's", "stock's")
    }
    proofs = [row for question, row in rows.items() if question.startswith("The follower killed")]
    assert [row["knob_value"] for row in proofs] == list(SYSTEMS)
    assert all("in order, on both" in str(row["answer"]) for row in proofs)
    json.dumps([row["evidence"] for row in published.verdicts], allow_nan=False)


def test_an_undecided_bar_is_published_as_such() -> None:
    both = {matrix(one, MIDDLE_US, ALL, 5): block(others=0.5) for one in (KAFKA, PIPELINED)}
    found = outcome(PLAN, both)
    (row,) = [one for one in conclusions(found, PLAN) if one.question.endswith("0.29?")]
    assert row.answer.startswith("undecided, -: no result: 0 of 6 rounds needed")
    assert not row.decided and row.evidence["outcome"] == "undecided"


def test_a_void_run_with_a_killed_follower_is_no_proof() -> None:
    found = outcome(PLAN, {})
    found.faults = [f"{killed(STOCK, 5).key}, round 1: 3 records of killed, not 4"]
    (row,) = conclusions(found, PLAN)[-1:]
    assert row.answer == "not proved: 1 of 1 runs void" and not row.decided
    assert row.evidence["void"] == found.faults


# -- percentiles


def test_a_percentile_says_of_how_many_or_is_not_said() -> None:
    """p99.9 is of all rounds together: 20 of 20,000 lie above it."""
    plan = Plan(sections=("paced",), systems=(KAFKA, PIPELINED), round_trips_us=(MIDDLE_US,))
    blocks = {
        paced(KAFKA): block(us=900, timed=2040, rate=10.0),
        paced(PIPELINED): block(us=100, timed=4000, rate=10.0),
    }
    ((title, head, rows),) = tables(outcome(plan, blocks), plan)
    assert title == "acks=-1 at half of the most that Apache Kafka does"
    at = {name: list(head).index(name) for name in ("p99 us", "n of a block", "p99.9 us")}
    kafka, ours = rows
    assert kafka[at["n of a block"]] == "2,040" and kafka[at["p99.9 us"]] == "-"
    assert kafka[at["p99 us"]] != "-"
    assert ours[at["n of a block"]] == "4,000" and ours[at["p99.9 us"]] == "100"


def test_a_pace_that_is_not_kafka_s_is_said() -> None:
    plan = Plan(sections=("paced",), systems=(STOCK, PIPELINED), round_trips_us=(MIDDLE_US,))
    ((title, _, _),) = tables(outcome(plan, {}), plan)
    assert title == (
        "acks=-1 at half of the most that kbroker, stock does, since Apache Kafka is not in this"
        " study"
    )


# -- the bars alone


def _measured(cells: list[Condition]) -> set[str]:
    plan = Plan.of_bars(sections=("matrix", "paced", "java", "killed"))
    good = dict.fromkeys(cells, block(rate=10, timed=3000, brokers_cpu_us=1.0, p99_us=1.0))
    return {one.what for one in bars(outcome(plan, good)) if one.verdict != "not measured"}


def test_each_bar_has_its_cells_and_each_cell_its_bar() -> None:
    plan = Plan.of_bars(sections=("matrix", "paced", "java", "killed"))
    cells = conditions(plan)
    every = _measured(cells)
    assert len(every) == len(bars(outcome(plan, {})))
    assert set(cells) < set(conditions(Plan()))
    for one in cells:
        assert _measured([other for other in cells if other is not one]) < every, one.key


def test_they_have_a_part_of_the_page_of_their_own() -> None:
    plan = Plan.of_bars()
    kind = KINDS[STUDY]
    whole, alone = (kind.report(outcome(one, {}), one) for one in (PLAN, plan))
    assert kind.marker(whole.options) == "<!-- measured by kbroker perf pipelining -->"
    assert kind.marker(alone.options) == "<!-- measured by kbroker perf pipelining --bars -->"
    assert "between leader and follower" not in alone.page
    assert "| Kafka / pipelined, MB/s: 500 us, acks=-1, 5 in flight |" in alone.page
