"""What the ladder's blocks say: each rung against the one below it, in ratios and in words.

Pure functions of an Outcome. The words are chosen by the verdicts alone: where a ratio is not
decided the sentence says so.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from perf.judge import Verdict
from perf.ladder import TITLES
from perf.studies.conclusion import Conclusion, from_verdicts
from perf.studies.ladder import BAD_LINE, BESIDE, CELLS, QUICK, SLOW, Plan, key_of
from perf.studies.measured import REQUEST, Measured, Metric
from perf.studies.report import Report
from perf.studies.study import Outcome
from perf.studies.verdict import compare
from perf.tables import Table

METRICS: Final[dict[str, Metric]] = {
    "requests/s": lambda one: one.requests_per_s,
    "p99": lambda one: one.percentile_us(REQUEST, 99),
    "CPU per request": lambda one: one.broker_cpu_s / one.requests,
}
_COLUMNS: Final[tuple[Metric, ...]] = (
    METRICS["requests/s"],
    lambda one: one.percentile_us(REQUEST, 50),
    METRICS["p99"],
    METRICS["CPU per request"],
)
_HEAD: Final = (
    "server", "requests/s", "p50 us", "p99 us", "CPU us", "requests/s against the rung below",
)  # fmt: skip
_WORDS: Final = {
    QUICK: "requests are quick",
    SLOW: "each request waits for the disk",
    BAD_LINE: "one client is on a bad line",
}


def title_of(name: str) -> str:
    return TITLES.get(name, name)


def _null(outcome: Outcome, plan: Plan, work: str) -> list[tuple[Measured, Measured]]:
    ends = {plan.designs[0], plan.designs[-1]}
    return outcome.null_pairs(key_of(work, name) for name in sorted(ends))


def compared(outcome: Outcome, plan: Plan, work: str, ours: str, theirs: str) -> dict[str, Verdict]:
    """One server against another on a piece of work, by each metric."""
    null = _null(outcome, plan, work)
    blocks = outcome.of(key_of(work, ours)), outcome.of(key_of(work, theirs))
    return {name: compare(*blocks, metric, null=null) for name, metric in METRICS.items()}


def conclusions(outcome: Outcome, plan: Plan) -> list[Conclusion]:
    """Which rung serves most, then what each rung changes, for each piece of work."""
    return [
        one
        for work in CELLS
        for one in (_winner(outcome, plan, work), *_steps(outcome, plan, work))
    ]


def _steps(outcome: Outcome, plan: Plan, work: str) -> list[Conclusion]:
    return [
        from_verdicts(
            f"When {_WORDS[work]}: what does {title_of(rung)} change against {title_of(below)}?",
            compared(outcome, plan, work, rung, below),
            {"cell": work, "broker": rung},
        )
        for below, rung in pairwise((*plan.designs, "kbroker"))
    ]


def median(outcome: Outcome, work: str, name: str, metric: Metric) -> float:
    values = sorted(outcome.values(key_of(work, name), metric))
    return values[len(values) // 2] if values else 0.0


def _winner(outcome: Outcome, plan: Plan, work: str) -> Conclusion:
    rate = METRICS["requests/s"]
    ranked = sorted(plan.designs, key=lambda name: median(outcome, work, name, rate), reverse=True)
    question = f"When {_WORDS[work]}: which rung of the ladder answers most?"
    dims = {"cell": work, "broker": ranked[0]}
    if len(ranked) < 2:
        return Conclusion(question, "no result (one rung alone)", False, {}, dims)
    against = {
        name: compared(outcome, plan, work, ranked[0], name)["requests/s"] for name in ranked[1:]
    }
    evidence = {name: verdict.to_json() for name, verdict in against.items()}
    second = against[ranked[1]]
    if second.decided:
        text = (
            f"{title_of(ranked[0])}: {second.numbers()} the requests of {title_of(ranked[1])},"
            " the next"
        )
        return Conclusion(question, text, True, evidence, dims)
    equal = [title_of(name) for name, verdict in against.items() if not verdict.decided]
    text = f"no result between {title_of(ranked[0])} and {', '.join(equal)} ({second.reason})"
    return Conclusion(question, text, False, evidence, dims)


def report(outcome: Outcome, plan: Plan) -> Report:
    """A table for each piece of work, then the answers."""
    return Report(
        outcome,
        f"of {plan.seconds:g} s blocks, loopback",
        [_table(outcome, plan, work) for work in CELLS],
        conclusions(outcome, plan),
        more={"cells": {work: cell.title for work, cell in CELLS.items()}},
    )


def _table(outcome: Outcome, plan: Plan, work: str) -> Table:
    rows = []
    brokers = plan.brokers(work)
    for name, below in zip(brokers, (None, *brokers), strict=False):
        if not outcome.of(key_of(work, name)):
            rows.append([title_of(name), "void", "", "", "", ""])
            continue
        rate, p50, p99, cpu_s = (median(outcome, work, name, metric) for metric in _COLUMNS)
        against = ""
        if below is not None and name not in BESIDE:
            found = compared(outcome, plan, work, name, below)["requests/s"]
            against = found.numbers() if found.decided else "no result"
        figures = [f"{rate:,.0f}", f"{p50:,.0f}", f"{p99:,.0f}", f"{cpu_s * 1e6:.1f}"]
        rows.append([title_of(name), *figures, against])
    return Table(f"{work.capitalize()}: {CELLS[work].title}", _HEAD, rows)
