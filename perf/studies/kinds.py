"""The studies side by side: what each of them plans, runs and says; and their JSON, read back.

A study's file is its plan, its blocks and its conclusions. The report follows from plan and blocks
alone, so `read` takes these two and the report is made anew. A file may hold anything: sizes
are bounded, every number is checked, and what is wrong is said in one line (StudyError).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from kbroker.generated_part import replaced
from perf.pipelining import experiment
from perf.pipelining import plan as pipelining_plan
from perf.pipelining import report as pipelining_report
from perf.studies import (
    answers,
    conditions,
    latency,
    latency_report,
    tune,
    tune_answers,
)
from perf.studies.measured import Measured
from perf.studies.report import Report
from perf.studies.study import Outcome, Point, StudyError

FILE_BYTES_MAX: Final = 256 << 20
ROUNDS_MAX: Final = 1000
MACHINE_KEYS: Final = ("cpus", "model", "kernel", "python", "commit", "when")


@dataclass(frozen=True)
class Kind:
    """One study. Its plan is a dataclass with `quick`, `with_kafka` and a `directory` for data."""

    name: str
    plan: type[Any]
    points: Callable[[Any], list[Point]]
    run: Callable[..., Outcome]
    report: Callable[[Outcome, Any], Report]

    def marker(self, options: str = "") -> str:
        """Where the measured part of its page begins, of a run with these options."""
        return f"<!-- measured by kbroker perf {' '.join([self.name, *options.split()])} -->"


def _latency(outcome: Outcome, plan: conditions.Plan) -> Report:
    study = answers.Study(outcome, conditions.conditions(plan), plan.brokers, plan.replicas)
    return latency_report.report(study, answers.answers(study))


def _latency_points(plan: conditions.Plan) -> list[Point]:
    return conditions.points(conditions.conditions(plan), plan.brokers, plan.replicas)


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind(latency.STUDY, conditions.Plan, _latency_points, latency.run_study, _latency),
        Kind(
            pipelining_plan.STUDY,
            pipelining_plan.Plan,
            pipelining_plan.points,
            experiment.run,
            pipelining_report.report,
        ),
        Kind(tune.STUDY, tune.Plan, tune.points, tune.run, tune_answers.report),
    )
}


def write_page(path: Path, kind: Kind, report: Report) -> None:
    """Rewrite the measured part of a page. StudyError if it has no such part."""
    try:
        page = replaced(path.read_text(encoding="utf-8"), kind.marker(report.options), report.page)
    except ValueError as error:
        raise StudyError(f"{path}: {error}") from None
    path.write_text(page, encoding="utf-8")


# --- a study's file -----------------------------------------------------------------------------


def plan_json(plan: Any) -> dict[str, Any]:
    """A plan without where its data were."""
    return {one.name: getattr(plan, one.name) for one in fields(plan) if one.name != "directory"}


def read(path: Path) -> tuple[Kind, Outcome, Any]:
    """The study of a file that `--json` wrote, its blocks and its plan. StudyError, OSError."""
    if path.stat().st_size > FILE_BYTES_MAX:
        raise StudyError(f"{path} has more than {FILE_BYTES_MAX >> 20} MB")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        kind = KINDS.get(str(data["study"])) if isinstance(data, dict) else None
        if kind is None:
            raise ValueError("of no study")
        plan = _plan(kind, data["plan"])
        return kind, _outcome(kind, plan, data), plan
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise StudyError(f"{path} is no study's JSON ({what})") from None


def _plan(kind: Kind, data: Mapping[str, Any]) -> Any:
    like = plan_json(kind.plan())
    if not isinstance(data, dict) or set(data) != set(like):
        raise ValueError("a plan of another version")
    for name, value in data.items():
        if type(value) is not (list if isinstance(like[name], tuple) else type(like[name])):
            raise ValueError(f"the plan's {name}")
    if not 1 <= data["rounds"] <= ROUNDS_MAX:
        raise ValueError("the plan's rounds")
    return kind.plan(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items()})


def _outcome(kind: Kind, plan: Any, data: Mapping[str, Any]) -> Outcome:
    points = tuple(kind.points(plan))
    machine = data["machine"]
    if not isinstance(machine, dict) or not set(MACHINE_KEYS) <= set(machine):
        raise ValueError("machine")
    outcome = Outcome(kind.name, points, plan.rounds, machine)
    for point in points:
        for number, one in data["blocks"].get(point.key, {}).items():
            outcome.blocks.setdefault(point.key, {})[int(number)] = Measured.from_json(one)
        for number, (first, second) in data["null"].get(point.key, {}).items():
            pair = Measured.from_json(first), Measured.from_json(second)
            outcome.null.setdefault(point.key, {})[int(number)] = pair
    outcome.faults = [str(fault) for fault in data["faults"]]
    outcome.repeated, outcome.resumed = int(data["repeated_blocks"]), int(data["resumed_blocks"])
    outcome.took_s = float(data["took_s"])
    return outcome
