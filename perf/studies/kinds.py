"""The studies side by side: what each of them plans, runs and says; and their JSON, read back.

A study's file is its plan, its blocks and what was said of them. What is said follows from plan and
blocks alone, so `read` takes these two and the rest is told anew. A file may hold anything: sizes
are bounded, every number is checked, and what is wrong is said in one line (StudyError).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from kbroker.generated_part import replaced
from perf.pipelining import experiment, told_diagnosis
from perf.pipelining import plan as pipelining_plan
from perf.pipelining import told as pipelining_told
from perf.studies import (
    answers,
    conditions,
    ladder,
    ladder_answers,
    ladder_page,
    latency,
    latency_page,
    latency_text,
    tune,
    tune_answers,
    tune_page,
)
from perf.studies.conclusion import Conclusion, Figure
from perf.studies.measured import Measured
from perf.studies.study import Outcome, Point, StudyError

FILE_BYTES_MAX: Final = 256 << 20
ROUNDS_MAX: Final = 1000
MACHINE_KEYS: Final = ("cpus", "model", "kernel", "python", "commit", "when")


@dataclass(frozen=True)
class Told:
    """What a study says: on a terminal, as the part of its page (Markdown), as JSON."""

    text: Sequence[str]
    page: str
    json: Mapping[str, Any]
    conclusions: Sequence[Conclusion]
    figures: Sequence[Figure] = ()
    options: str = ""  # of the command, where what they bring has a part of its own on the page


@dataclass(frozen=True)
class Kind:
    """One study. Its plan is a dataclass with `quick`, `with_kafka` and a `directory` for data."""

    name: str
    plan: type[Any]
    points: Callable[[Any], list[Point]]
    run: Callable[..., Outcome]
    tell: Callable[[Outcome, Any], Told]

    def marker(self, told: Told) -> str:
        """Where the measured part of its page begins."""
        return f"<!-- measured by kbroker perf {' '.join([self.name, *told.options.split()])} -->"


def _latency(outcome: Outcome, plan: conditions.Plan) -> Told:
    study = answers.Study(outcome, conditions.conditions(plan), plan.brokers, plan.replicas)
    said = answers.answers(study)
    return Told(
        latency_text.to_text(study, said).splitlines(),
        latency_page.drawn(study, said),
        latency_text.to_json(study, said),
        said,
    )


def _ladder(outcome: Outcome, plan: ladder.Plan) -> Told:
    return Told(
        ladder_answers.table(outcome, plan),
        ladder_page.drawn(outcome, plan),
        ladder_answers.to_json(outcome, plan),
        ladder_answers.conclusions(outcome, plan),
    )


def _tune(outcome: Outcome, plan: tune.Plan) -> Told:
    return Told(
        tune_answers.table(outcome, plan),
        tune_page.drawn(outcome, plan),
        tune_answers.to_json(outcome, plan),
        tune_answers.conclusions(outcome, plan),
    )


def _pipelining(outcome: Outcome, plan: pipelining_plan.Plan) -> Told:
    return Told(
        pipelining_told.text(outcome, plan),
        pipelining_told.page(outcome, plan),
        pipelining_told.to_json(outcome, plan),
        pipelining_told.conclusions(outcome, plan),
        tuple(told_diagnosis.records(outcome)),
        "--bars" if plan.bars_alone else "",
    )


def _latency_points(plan: conditions.Plan) -> list[Point]:
    return conditions.points(conditions.conditions(plan), plan.brokers, plan.replicas)


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind(latency.STUDY, conditions.Plan, _latency_points, latency.run_study, _latency),
        Kind(ladder.STUDY, ladder.Plan, ladder.points, ladder.run, _ladder),
        Kind(
            pipelining_plan.STUDY,
            pipelining_plan.Plan,
            pipelining_plan.points,
            experiment.run,
            _pipelining,
        ),
        Kind(tune.STUDY, tune.Plan, tune.points, tune.run, _tune),
    )
}


def write_page(path: Path, kind: Kind, told: Told) -> None:
    """Rewrite the measured part of a page. StudyError if it has no such part."""
    try:
        page = replaced(path.read_text(encoding="utf-8"), kind.marker(told), told.page)
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
