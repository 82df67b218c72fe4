"""What the ladder's blocks say: each rung against the one below it, in ratios and in words.

Pure functions of an Outcome. The words are chosen by the verdicts alone: where a ratio is not
decided the sentence says so.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from perf.judge import Verdict
from perf.ladder import TITLES
from perf.studies.conclusion import Conclusion, from_verdicts
from perf.studies.ladder import BAD_LINE, BESIDE, CELLS, QUICK, SLOW, STUDY, Plan, key_of
from perf.studies.measured import REQUEST, Measured, Metric
from perf.studies.study import Outcome
from perf.studies.verdict import compare

METRICS: Final[dict[str, Metric]] = {
    "requests/s": lambda one: one.requests_per_s,
    "p99": lambda one: one.percentile_us(REQUEST, 99),
    "CPU per request": lambda one: one.broker_cpu_s / one.requests,
}
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


# As text and as JSON.


def table(outcome: Outcome, plan: Plan) -> list[str]:
    """A table for each piece of work, then the answers."""
    lines = []
    for work, cell in CELLS.items():
        lines += ["", f"{work}: {cell.title}"]
        lines.append(
            f"  {'':38}{'requests/s':>12}{'p50 us':>10}{'p99 us':>11}{'CPU us':>9}"
            f"   requests against the rung below"
        )
        brokers = plan.brokers(work)
        for name, below in zip(brokers, (None, *brokers), strict=False):
            lines.append(_row(outcome, plan, work, name, None if name in BESIDE else below))
    lines.append("")
    for one in conclusions(outcome, plan):
        lines += [one.question, f"    {one.answer}"]
    return lines


def _row(outcome: Outcome, plan: Plan, work: str, name: str, below: str | None) -> str:
    key = key_of(work, name)
    if not outcome.of(key):
        return f"  {title_of(name):38}{'void':>12}"

    def middle(metric: Metric) -> float:
        return median(outcome, work, name, metric)

    text = (
        f"  {title_of(name):38}{middle(METRICS['requests/s']):>12,.0f}"
        f"{middle(lambda one: one.percentile_us(REQUEST, 50)):>10,.0f}"
        f"{middle(METRICS['p99']):>11,.0f}{middle(METRICS['CPU per request']) * 1e6:>9.1f}"
    )
    if below is None:
        return text
    found = compared(outcome, plan, work, name, below)["requests/s"]
    return f"{text}   {found.numbers() if found.decided else 'no result'}"


def to_json(outcome: Outcome, plan: Plan) -> dict[str, Any]:
    return {
        **outcome.to_json(),
        "study": STUDY,
        "cells": {work: cell.title for work, cell in CELLS.items()},
        "conclusions": [one.to_json() for one in conclusions(outcome, plan)],
    }
