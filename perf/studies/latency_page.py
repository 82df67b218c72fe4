"""The measured part of docs/studies.md: the latency study's tables and answers, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perf.studies.answers import ACKNOWLEDGED, HELD_MIN, Study, p50_us, p99_us, predicted_us
from perf.studies.conclusion import Conclusion
from perf.studies.conditions import ACKS, MODES, Condition


def drawn(study: Study, answers: Sequence[Conclusion]) -> str:
    outcome, machine = study.outcome, study.outcome.machine
    lines = [
        f"*Measured* {str(machine['when'])[:10]} on {machine['cpus']} x {machine['model']}, Linux "
        f"{machine['kernel']}, commit {machine['commit']}; {outcome.rounds} rounds, loopback, "
        f"{_replicas(study)}medians; {outcome.noisy} of "
        f"{sum(map(len, outcome.blocks.values()))} blocks were noisy and do not count in the "
        "answers.",
    ]
    for broker in study.brokers:
        lines += ["", f"### {broker}, paced: p50 from `send()` in ms, by batch and linger", ""]
        lines += _paced(study, broker)
    lines += ["", "### Flat out", "", *_flat(study), "", "### Answers", ""]
    for broker in ("", *study.brokers):
        about = [one for one in answers if one.dims.get("broker", "") == broker]
        lines += [
            f"- {f'{broker}: ' if broker else ''}{one.question} *{one.answer}*" for one in about
        ]
    return "\n".join(lines)


def _replicas(study: Study) -> str:
    return f"{study.replicas} replicas, " if study.replicas > 1 else ""


def _ms(us: float) -> str:
    if math.isnan(us):
        return "-"
    return f"{us / 1000:.2f}" if us < 10_000 else f"{us / 1000:,.1f}"


def _paced(study: Study, broker: str) -> list[str]:
    columns = sorted(
        {(one.batch_bytes, one.linger_ms) for one in study.plain if one.load == "paced"}
    )
    head = " | ".join(f"{batch >> 10}K, {linger}" for batch, linger in columns)
    lines = [f"| | {head} |", "|---|" + "---:|" * len(columns)]
    for mode in MODES:
        for acks in ACKS:
            cells = []
            for batch, linger in columns:
                one = Condition("paced", acks, mode, batch, linger)
                held = study.median(broker, one, lambda block: block.figures.get("held", 1.0))
                cells.append(_ms(study.median(broker, one, p50_us)) + "\\*" * (held < HELD_MIN))
            lines.append(f"| {mode}, acks={acks} | {' | '.join(cells)} |")
    predicted = [
        _ms(predicted_us(study, broker, Condition("paced", 1, "async", batch, linger)))
        for batch, linger in columns
    ]
    lines.append(f"| *async, linger alone* | {' | '.join(predicted)} |")
    return lines


def _flat(study: Study) -> list[str]:
    brokers = study.brokers
    head = " | ".join(f"{b}: records/s | p50 ms | p99 ms | acknowledged ms" for b in brokers)
    lines = [f"| | {head} |", "|---|" + "---:|" * 4 * len(brokers)]
    for one in study.conditions:
        if one.load != "flat-out":
            continue
        name = f"{one.mode}, acks={one.acks}, {one.batch_bytes >> 10} KB"
        cells = []
        for broker in brokers:
            rate = study.median(broker, one, lambda block: block.records_per_s)
            cells.append("-" if math.isnan(rate) else f"{rate:,.0f}")
            acknowledged = study.median(
                broker, one, lambda block: block.percentile_us(ACKNOWLEDGED, 50)
            )
            times = study.median(broker, one, p50_us), study.median(broker, one, p99_us)
            cells += [_ms(us) for us in (*times, acknowledged)]
        knob = f"{one.knob} {one.knob_value}"
        lines.append(f"| {knob if one.knob else name} | {' | '.join(cells)} |")
    return lines
