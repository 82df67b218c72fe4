"""The report of the latency study: its tables, and its answers by broker. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

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
from perf.studies.conditions import MODES, RATE, RECORD_BYTES, Condition, Mode
from perf.studies.measured import Measured, Metric
from perf.studies.report import Report
from perf.tables import NOTHING, Table

Columns = Sequence[tuple[int, int]]  # bytes of a batch, linger in ms


def report(study: Study, answers: Sequence[Conclusion]) -> Report:
    replicas = f", {study.replicas} replicas" if study.replicas > 1 else ""
    by_broker = [
        replace(one, question=f"{broker}: {one.question}" if broker else one.question)
        for broker in ("", *study.brokers)
        for one in answers
        if one.dims.get("broker", "") == broker
    ]
    return Report(
        study.outcome,
        f"of records of {RECORD_BYTES:,} bytes, paced ones at {RATE:,.0f}/s, from send() to the"
        f" consumer, loopback{replicas}",
        [*_paced_tables(study), *(_flat_out(study, broker) for broker in study.brokers)],
        answers,
        in_words=by_broker,
        conclusions_key="answers",
    )


def due_p99_us(one: Measured) -> float:
    """From the intended time. NaN where the schedule was not kept: it grows with the block."""
    held = one.figures.get("held", 1.0) >= HELD_MIN
    return one.percentile_us(FROM_DUE, 99) if held else math.nan


def _paced_tables(study: Study) -> Iterator[Table]:
    paced = [one for one in study.plain if one.load == "paced"]
    columns = sorted({(one.batch_bytes, one.linger_ms) for one in paced})
    every_acks = sorted({one.acks for one in study.plain}, key=lambda acks: acks % 3)
    for broker in study.brokers:
        for name, metric in (
            ("p50", p50_us), ("p99", p99_us), ("p99 since it was due", due_p99_us),
        ):  # fmt: skip
            rows = [
                [f"{mode}, acks={acks}", *_of_row(study, broker, acks, mode, columns, metric)]
                for mode in MODES
                for acks in every_acks
            ]
            if name == "p50":
                rows.append(["async, linger alone", *_predicted(study, broker, columns)])
            short = any(cell.endswith("*") for row in rows for cell in row)
            title = f"{broker}, paced: {name} in us by batch/linger in ms"
            yield Table(
                title + f"; with a star {RATE:,.0f}/s was not held" * short,
                ["", *(f"{batch >> 10}K/{linger}" for batch, linger in columns)],
                rows,
            )


def _of_row(
    study: Study, broker: str, acks: int, mode: Mode, columns: Columns, metric: Metric
) -> Iterator[str]:
    for batch, linger in columns:
        one = Condition("paced", acks, mode, batch, linger)
        held = study.median(broker, one, lambda block: block.figures.get("held", 1.0))
        yield _whole(study.median(broker, one, metric)) + "*" * (held < HELD_MIN)


def _predicted(study: Study, broker: str, columns: Columns) -> Iterator[str]:
    for batch, linger in columns:
        yield _whole(predicted_us(study, broker, Condition("paced", 1, "async", batch, linger)))


def _whole(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:,.0f}"


def _ms(us: float) -> str:
    return NOTHING if math.isnan(us) else f"{us / 1000:,.2f}"


def _flat_out(study: Study, broker: str) -> Table:
    rows = []
    for one in study.conditions:
        if one.load != "flat-out":
            continue
        plain = f"{one.mode}, acks={one.acks}, {one.batch_bytes >> 10} KB"
        times = (study.median(broker, one, metric) for metric in (p50_us, p99_us, _acknowledged))
        rate = study.median(broker, one, lambda block: block.records_per_s)
        name = f"{one.knob} {one.knob_value}" if one.knob else plain
        rows.append([name, _whole(rate), *map(_ms, times)])
    head = ("", "records/s", "p50 ms", "p99 ms", "acknowledged ms")
    return Table(f"{broker}, flat out", head, rows)


def _acknowledged(block: Measured) -> float:
    return block.percentile_us(ACKNOWLEDGED, 50)
