"""The latency study on a terminal and as JSON. Pure functions."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from perf.studies.answers import (
    ACKNOWLEDGED,
    FROM_DUE,
    HELD_MIN,
    Study,
    p50_us,
    p99_us,
    predicted_us,
)
from perf.studies.conclusion import Conclusion
from perf.studies.conditions import MODES, RATE, RECORD_BYTES, Condition
from perf.studies.measured import END_TO_END, Measured

WIDTH = 100
Metric = Callable[[Measured], float]


def due_p99_us(one: Measured) -> float:
    """From the intended time. NaN where the schedule was not kept: it grows with the block."""
    held = one.figures.get("held", 1.0) >= HELD_MIN
    return one.percentile_us(FROM_DUE, 99) if held else math.nan


def to_text(study: Study, answers: Sequence[Conclusion]) -> str:
    """Tables by broker, then the answers."""
    parts = [_head(study)]
    for broker in study.brokers:
        parts.append(_paced(study, broker, "p50", p50_us))
        parts.append(_paced(study, broker, "p99", p99_us))
        parts.append(_paced(study, broker, "p99 since it was due", due_p99_us))
    parts.append(_flat(study))
    for broker in ("", *study.brokers):
        said = [answer for answer in answers if answer.dims.get("broker", "") == broker]
        if said:
            parts.append(_answers(broker or "All", said))
    return "\n\n".join(part for part in parts if part)


def _head(study: Study) -> str:
    outcome = study.outcome
    machine = outcome.machine
    lines = [
        f"Commit {machine['commit']}, Linux {machine['kernel']}; {outcome.rounds} rounds; "
        f"{outcome.repeated} blocks repeated.",
        f"Records of {RECORD_BYTES:,} bytes; paced at {RATE:,.0f}/s. From send() to the consumer; "
        "medians over the rounds.",
    ]
    return "\n".join(lines)


def _columns(study: Study) -> list[tuple[int, int]]:
    paced = {(one.batch_bytes, one.linger_ms) for one in study.plain if one.load == "paced"}
    return sorted(paced)


def _paced(study: Study, broker: str, name: str, metric: Metric) -> str:
    columns = _columns(study)
    head = "".join(f"{f'{b >> 10}K/{linger}':>9}" for b, linger in columns)
    lines = [f"{broker}, paced, {name} in us by batch/linger in ms", f"{'':14}{head}"]
    short = False
    for mode in MODES:
        for acks in sorted({one.acks for one in study.plain}, key=lambda acks: acks % 3):
            row = f"{mode:6}acks {acks:>2} "
            for batch, linger in columns:
                condition = Condition("paced", acks, mode, batch, linger)
                held = study.median(broker, condition, lambda one: one.figures.get("held", 1.0))
                mark = "*" if held < HELD_MIN else " "
                short = short or mark == "*"
                us = study.median(broker, condition, metric)
                row += f"{'-':>8}{mark}" if math.isnan(us) else f"{us:>8,.0f}{mark}"
            lines.append(row)
        if name == "p50" and mode == "async":
            lines.append(_predicted(study, broker, columns))
    if short:
        lines.append(f"* the rate of {RATE:,.0f}/s was not held")
    return "\n".join(lines)


def _predicted(study: Study, broker: str, columns: Sequence[tuple[int, int]]) -> str:
    row = "  linger alone"
    for batch, linger in columns:
        condition = Condition("paced", 1, "async", batch, linger)
        us = predicted_us(study, broker, condition)
        row += f"{us:>8,.0f} " if linger else f"{'':9}"
    return row


def _flat(study: Study) -> str:
    lines = [
        "Flat out" + "".join(f"{broker:>40}" for broker in study.brokers),
        f"{'':8}{'':22}"
        + f"{'rec/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'ack ms':>9}   " * len(study.brokers),
    ]
    for one in study.conditions:
        if one.load != "flat-out":
            continue
        what = f"{one.knob} {one.knob_value}" if one.knob else (
            f"{one.mode:5} acks {one.acks:>2} {one.batch_bytes >> 10:>3} KB"
        )  # fmt: skip
        row = f"{what:30}"
        for broker in study.brokers:
            rate = study.median(broker, one, lambda block: block.records_per_s)
            times = [
                study.median(broker, one, _percentile(measure, percent)) / 1000
                for measure, percent in ((END_TO_END, 50), (END_TO_END, 99), (ACKNOWLEDGED, 50))
            ]
            figures = f"{rate:>10,.0f}" + "".join(f"{ms:>9,.1f}" for ms in times)
            row += f"{'-':>10}{'':27}   " if math.isnan(rate) else f"{figures}   "
        lines.append(row.rstrip())
    return "\n".join(lines)


def _percentile(measure: str, percent: float) -> Metric:
    return lambda block: block.percentile_us(measure, percent)


def _answers(title: str, answers: Sequence[Conclusion]) -> str:
    lines = [title]
    for answer in answers:
        lines.append(f"  {answer.question}")
        lines += textwrap.wrap(answer.answer, WIDTH - 6, initial_indent="      ",
                               subsequent_indent="      ")  # fmt: skip
    return "\n".join(lines)


def to_json(study: Study, answers: Sequence[Conclusion]) -> dict[str, Any]:
    """Everything: blocks with their histograms, and the answers with their ratios."""
    return {**study.outcome.to_json(), "answers": [answer.to_json() for answer in answers]}
