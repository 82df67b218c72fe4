"""The measured part of docs/tuning.md: every value of every setting, as Markdown."""

from __future__ import annotations

from perf.studies.measured import Metric
from perf.studies.study import Outcome
from perf.studies.tune import Plan, key_of
from perf.studies.tune_answers import CPU, METRICS, P99, THROUGHPUT, effects


def drawn(outcome: Outcome, plan: Plan) -> str:
    machine = outcome.machine
    lines = [
        f"*Measured* {str(machine['when'])[:10]} on {machine['cpus']} x {machine['model']}, Linux "
        f"{machine['kernel']}, commit {machine['commit']}; {plan.rounds} rounds of "
        f"{plan.seconds:g} s blocks, loopback, medians; {outcome.noisy} of "
        f"{sum(map(len, outcome.blocks.values()))} blocks were noisy and do not count in the "
        "effects. d: the default; D: the document's value.",
    ]
    words = {key_of(one.knob, one.value, one.cell): one.words() for one in effects(outcome, plan)}
    for knob in plan.knobs():
        lines += ["", f"### {knob.name}", ""]
        lines += [
            "| work | value | records/s | p99 | CPU | effect |",
            "|---|---|---:|---:|---:|---|",
        ]
        for cell in knob.cells:
            for value in (knob.default, *knob.tried()):
                key = key_of(knob, value, cell)
                mark = " d" * (value == knob.default) + " D" * (value == knob.document)
                lines.append(
                    f"| {cell.title} | {value}{mark} | {_figures(outcome, key)} "
                    f"| {words.get(key, '')} |"
                )
    return "\n".join(lines)


def _figures(outcome: Outcome, key: str) -> str:
    if not outcome.of(key):
        return "void | | "

    def median(metric: Metric) -> float:
        values = sorted(outcome.values(key, metric))
        return values[len(values) // 2]

    rate, p99, cpu = (median(METRICS[name]) for name in (THROUGHPUT, P99, CPU))
    return f"{rate:,.0f} | {p99:,.0f} us | {cpu:.2f} us"
