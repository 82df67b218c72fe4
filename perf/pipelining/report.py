"""The report of the pipelining experiment: tables, bars, answers. Pure functions of an Outcome."""

from __future__ import annotations

from typing import Any

from perf.pipelining.bars import bars
from perf.pipelining.conclusions import conclusions, in_words, records
from perf.pipelining.plan import RECORD_BYTES, Plan
from perf.pipelining.tables import tables
from perf.studies.report import Report
from perf.studies.study import Outcome
from perf.tables import bar_json, bars_table


def report(outcome: Outcome, plan: Plan) -> Report:
    found = bars(outcome)
    more: dict[str, Any] = {"bars": [bar_json(bar) for bar in found]}
    return Report(
        outcome,
        f"of {plan.seconds:g} s blocks, records of {RECORD_BYTES:,} bytes, one partition",
        [*tables(outcome, plan), bars_table(found)],
        conclusions(outcome, plan),
        in_words=in_words(outcome, plan),
        more=more,
        figures=tuple(records(outcome)),
        options="--bars" if plan.bars_alone else "",
    )
