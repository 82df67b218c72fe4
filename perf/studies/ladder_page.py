"""The measured part of docs/ladder.md: tables and answers of one run, as Markdown."""

from __future__ import annotations

from perf.studies.ladder import BESIDE, CELLS, Plan, key_of
from perf.studies.ladder_answers import METRICS, compared, conclusions, median, title_of
from perf.studies.measured import REQUEST
from perf.studies.study import Outcome


def drawn(outcome: Outcome, plan: Plan) -> str:
    machine = outcome.machine
    lines = [
        f"*Measured* {str(machine['when'])[:10]} on {machine['cpus']} x {machine['model']}, Linux "
        f"{machine['kernel']}, Python {machine['python']}, commit {machine['commit']}; "
        f"{plan.rounds} rounds of {plan.seconds:g} s blocks, loopback, medians.",
    ]
    answers = conclusions(outcome, plan)
    for work, cell in CELLS.items():
        lines += ["", f"### {work.capitalize()}: {cell.title}", ""]
        lines += ["| server | requests/s | p50 | p99 | CPU | requests/s against the rung below |"]
        lines += ["|---|---:|---:|---:|---:|---|"]
        below = None
        for name in plan.brokers(work):
            lines.append(_row(outcome, plan, work, name, below))
            below = name if name not in BESIDE else None
        about = [one for one in answers if one.dims["cell"] == work]
        lines += ["", *(f"- {one.question} *{one.answer}.*" for one in about)]
    return "\n".join(lines)


def _row(outcome: Outcome, plan: Plan, work: str, name: str, below: str | None) -> str:
    if not outcome.of(key_of(work, name)):
        return f"| {title_of(name)} | void | | | | |"
    against = ""
    if below is not None and name not in BESIDE:
        found = compared(outcome, plan, work, name, below)["requests/s"]
        against = found.numbers() if found.decided else "no result"
    rate, p99, cpu = (median(outcome, work, name, METRICS[key]) for key in METRICS)
    p50 = median(outcome, work, name, lambda one: one.percentile_us(REQUEST, 50))
    return (
        f"| {title_of(name)} | {rate:,.0f} | {p50:,.0f} us | {p99:,.0f} us "
        f"| {cpu * 1e6:.1f} us | {against} |"
    )
