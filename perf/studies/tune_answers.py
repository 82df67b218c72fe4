"""What the blocks of `kbroker perf tune` say: an effect for each value, in ratios and in words.

Pure functions of an Outcome. An effect is decided by the verdicts alone; where the interval holds 1
the words say how large an effect could still be, and from a tenth on that it cannot be decided;
where too little is left of a noisy machine they say "no result". `kbroker doctor` prints `effects`
(kbroker/config/effects.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kbroker.config.effects import CANNOT_BE_DECIDED, SCHEMA
from perf.cells import Cell
from perf.judge import Verdict
from perf.studies.conclusion import Conclusion
from perf.studies.knobs import Knob, idle
from perf.studies.measured import REQUEST, Metric
from perf.studies.report import Report
from perf.studies.study import Outcome, StudyError
from perf.studies.tune import TWIN, Plan, key_of
from perf.studies.verdict import ROUNDS_MIN, compare
from perf.tables import Table

THROUGHPUT, P99, CPU = "records/s", "p99", "CPU"
METRICS: Final[dict[str, Metric]] = {
    THROUGHPUT: lambda one: one.records_per_s,
    P99: lambda one: one.percentile_us(REQUEST, 99),
    CPU: lambda one: one.cpu_us_per_record,
}
SEEN_SHARE: Final = 0.10  # an effect of more would have been seen, or nothing can be decided
MEASURED_SHARE_MIN: Final = 0.8  # of all effects, for a file that others read


@dataclass(frozen=True)
class Effect:
    """One value on one piece of work, against the default."""

    knob: Knob
    value: str
    cell: Cell
    verdicts: Mapping[str, Verdict]

    @property
    def decided(self) -> bool:
        return any(verdict.decided for verdict in self.verdicts.values())

    @property
    def measured(self) -> bool:
        """Enough quiet rounds for a statement, be it that nothing shows."""
        return all(verdict.rounds >= ROUNDS_MIN for verdict in self.verdicts.values())

    def words(self) -> str:
        if not self.measured:
            return "no result"
        each = ", ".join(f"{name} {short(verdict)}" for name, verdict in self.verdicts.items())
        if self.decided:
            return each
        bounded = all(bound(verdict) <= 1 + SEEN_SHARE for verdict in self.verdicts.values())
        return f"{'no effect found' if bounded else CANNOT_BE_DECIDED}: {each}"


def bound(verdict: Verdict) -> float:
    """How large an effect could be where none is found, as a factor."""
    return max(verdict.ratio.high, 1 / verdict.ratio.low, verdict.band)


def short(verdict: Verdict) -> str:
    """A ratio in two words; what is not decided is within its bound: a share, or a factor."""
    if verdict.decided:
        factor = verdict.ratio.median
        return f"x{factor:,.0f}" if factor >= 10 else f"x{factor:.2{'f' if factor >= 0.1 else 'g'}}"
    if verdict.rounds < ROUNDS_MIN:
        return "no result"
    factor = bound(verdict)
    return f"within {factor - 1:.0%}" if factor < 2 else f"within x{factor:.1f}"


def effects(outcome: Outcome, plan: Plan) -> list[Effect]:
    """Every value of every knob on each of its cells."""
    found = []
    for knob in plan.knobs():
        for cell in knob.cells:
            default = outcome.of(key_of(knob, knob.default, cell))
            twin = outcome.of(key_of(knob, TWIN, cell))
            null = [(default[n], twin[n]) for n in sorted(set(default) & set(twin))]
            for value in knob.tried():
                blocks = outcome.of(key_of(knob, value, cell))
                verdicts = {
                    name: compare(blocks, default, metric, null=null)
                    for name, metric in METRICS.items()
                    if not (cell.rate and name == THROUGHPUT)  # which the rate decides
                }
                found.append(Effect(knob, value, cell, verdicts))
    return found


def by_value(found: list[Effect], knob: Knob) -> dict[str, list[Effect]]:
    return {
        value: [one for one in found if one.knob == knob and one.value == value]
        for value in knob.tried()
    }


def sentence(of_value: list[Effect]) -> str:
    """A value's effects on all its cells; one that is the same on all is said once."""
    words = [one.words() for one in of_value]
    if len(set(words)) == 1:
        return words[0]
    return "; ".join(f"{one.cell.key}: {one.words()}" for one in of_value)


def conclusions(outcome: Outcome, plan: Plan) -> list[Conclusion]:
    """One for each value, then one for each key that changes nothing."""
    found = effects(outcome, plan)
    made = []
    for knob in plan.knobs():
        for value, of_value in by_value(found, knob).items():
            whose = " (the document's value)" if value == knob.document else ""
            made.append(
                Conclusion(
                    f"What does {knob.name}={value}{whose} change against {knob.default}?",
                    sentence(of_value),
                    all(one.measured for one in of_value),
                    {
                        one.cell.key: {k: v.to_json() for k, v in one.verdicts.items()}
                        for one in of_value
                    },
                    {"broker": knob.broker, "knob": knob.name, "knob_value": value},
                )
            )
    for one in idle():
        question = f"What does {one.key} change?"
        made.append(Conclusion(question, one.why, True, {}, {"broker": "kbroker", "knob": one.key}))
    return made


# As a report, and as what doctor shows.


def report(outcome: Outcome, plan: Plan) -> Report:
    """A table for each setting; then which settings change nothing, and why."""
    found = {key_of(one.knob, one.value, one.cell): one.words() for one in effects(outcome, plan)}
    return Report(
        outcome,
        f"of {plan.seconds:g} s blocks, loopback",
        [
            *(_table(outcome, knob, found) for knob in plan.knobs()),
            Table("Without effect", ("key", "why"), [[one.key, one.why] for one in idle()]),
        ],
        conclusions(outcome, plan),
        in_words=(),  # the tables say them
    )


def _table(outcome: Outcome, knob: Knob, words: Mapping[str, str]) -> Table:
    rows = []
    for cell in knob.cells:
        for value in (knob.default, *knob.tried()):
            key = key_of(knob, value, cell)
            effect = words.get(key, "the default")
            if not outcome.of(key):
                rows.append([cell.title, value, "void", "", "", effect])
                continue
            rate, p99, cpu = (_middle(outcome, key, METRICS[name]) for name in METRICS)
            figures = (f"{rate:,.0f}", f"{p99:,.0f}", f"{cpu:.2f}")
            rows.append([cell.title, value, *figures, effect])
    advised = f"; the document: {knob.document}" if knob.document else ""
    head = ("work", "value", "records/s", "p99 us", "CPU us", "effect")
    return Table(f"{knob.name}, by default {knob.default}{advised}", head, rows)


def _middle(outcome: Outcome, key: str, metric: Metric) -> float:
    values = sorted(outcome.values(key, metric))
    return values[len(values) // 2]


def effects_file(outcome: Outcome, plan: Plan) -> dict[str, Any]:
    """What kbroker/config/effects.json holds. StudyError if too little of it is a result."""
    found = effects(outcome, plan)
    measured = sum(one.measured for one in found)
    if plan.names or measured < MEASURED_SHARE_MIN * len(found):
        raise StudyError(
            f"{measured} of {len(found)} effects have {ROUNDS_MIN} quiet rounds: effects that "
            "others read come from a whole run on a quiet machine"
        )
    machine = outcome.machine
    return {
        "schema": SCHEMA,
        "machine": f"{machine['cpus']} x {machine['model']}",
        "date": str(machine["when"])[:10],
        "knobs": [
            *(_knob_json(knob, by_value(found, knob)) for knob in plan.knobs()),
            *({"name": one.key, "key": one.key, "why": one.why} for one in idle()),
        ],
    }


def _knob_json(knob: Knob, values: Mapping[str, list[Effect]]) -> dict[str, Any]:
    return {
        "name": knob.name,
        "key": knob.key,
        "default": knob.default,
        "document": knob.document,
        "values": [
            {
                "value": value,
                "words": sentence(of_value),
                "decided": any(one.decided for one in of_value),
            }
            for value, of_value in values.items()
        ],
    }
