"""A comparison as JSON, as a table, and against the bars.

A bar passes when the median meets it; "surely" when the whole 95 % interval does. A bar whose cells
are missing is "not measured", never passed. Pure functions over perf.compare.Outcome.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perf import network
from perf.cells import BY_KEY, GROUP_CELLS, Block
from perf.compare import Outcome
from perf.histogram import Histogram
from perf.stats import Estimate, estimate, null_test, ratio

METRICS: dict[str, Callable[[Block], float]] = {
    "requests_per_s": lambda block: block.requests_per_s,
    "megabytes_per_s": lambda block: block.megabytes_per_s,
    "cpu_us_per_request": lambda block: block.cpu_us_per_request,
    "cpu_s_per_gigabyte": lambda block: block.cpu_s_per_gigabyte,
    "own_us_per_request": lambda block: block.own_us_per_request,
    "p50_us": lambda block: block.percentile_us(50),
    "p99_us": lambda block: block.percentile_us(99),
}
PRODUCE_BAR_CELLS = (
    "p-100-1x5",
    "p-100-4x5",
    "p-100-16x5",
    "p-1k-1x5",
    "p-1k-4x5",
    "p-1k-16x5",
    "j-100-1x5",
    "j-1k-4x5",
    "j-100-16x5",
)
COMPARED = (
    ("kbroker", "kafka"),
    ("kbroker", "limit"),
    ("kafka", "limit"),
    ("kbroker", "baseline"),
)
NULL_WIDTH_THROUGHPUT, NULL_WIDTH_P99 = 0.05, 0.15
LIMIT_DRIFT_MAX = 0.10
CLIENT_SHARE_MAX = 0.5
ACTIVE_P99_GROWTH_MAX = 1.5  # "unaffected", with the noise that a p99 has
MIB = 1 << 20


@dataclass(frozen=True)
class Bar:
    """One line of what must be shown."""

    what: str
    bar: float
    value: Estimate | None
    unit: str
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.value is None or not self.value.values:
            return "not measured"
        if self.value.high <= self.bar:
            return "pass, surely"
        return "pass" if self.value.median <= self.bar else "FAIL"


def values(outcome: Outcome, cell: str, broker: str, metric: str) -> list[float]:
    return [METRICS[metric](block) for block in outcome.blocks.get(cell, {}).get(broker, [])]


def paired(outcome: Outcome, cell: str, metric: str, ours: str, theirs: str) -> Estimate | None:
    """Ratio of two brokers in one cell; only rounds that both have."""
    a, b = values(outcome, cell, ours, metric), values(outcome, cell, theirs, metric)
    n = min(len(a), len(b))
    return ratio(a[:n], b[:n]) if n else None


def above_limit(outcome: Outcome, cell: str, metric: str) -> Estimate | None:
    """(kbroker - limit) / (Kafka - limit), round by round."""
    ours, theirs, least = (
        values(outcome, cell, name, metric) for name in ("kbroker", "kafka", "limit")
    )
    rounds = list(zip(ours, theirs, least, strict=False))
    return estimate([(a - c) / (b - c) for a, b, c in rounds if b > c]) if rounds else None


def _start_bars(outcome: Outcome) -> list[Bar]:
    starts = outcome.starts.get("kbroker", [])
    return [
        Bar(what, bar, estimate([getattr(one, key) for one in starts]), "s")
        for what, bar, key in (
            ("exec to first acknowledged produce, empty directory", 0.3, "empty_s"),
            ("the same after a clean stop", 0.3, "again_s"),
            ("first answer after kill -9", 1.0, "killed_s"),
        )
    ]


def _memory_bars(outcome: Outcome) -> list[Bar]:
    found = []
    for what, bar, source in (
        ("resident memory, idle", 60.0, outcome.memory_idle),
        ("resident memory, after the table", 120.0, outcome.memory_after),
    ):
        one = [source["kbroker"] / MIB] if "kbroker" in source else []
        found.append(Bar(what, bar, estimate(one), "MB"))
    return found


def _cell_bars(outcome: Outcome) -> list[Bar]:
    found = [
        Bar(
            f"CPU per request, {BY_KEY[cell].title}",
            bar,
            paired(outcome, cell, "cpu_us_per_request", "kbroker", "kafka"),
            "x Kafka",
        )
        for cell, bar in [
            *((cell, 0.4) for cell in PRODUCE_BAR_CELLS),
            ("f-16k", 0.45),
            *((cell, 0.8) for cell in GROUP_CELLS),
        ]
    ]
    for cell in ("p-100-1x1", "p-100-1x1-pin"):
        what = f"(p50 - limit) / (Kafka - limit), {BY_KEY[cell].title}"
        found.append(Bar(what, 0.7, above_limit(outcome, cell, "p50_us"), "x Kafka"))
    return found


def _company_bars(outcome: Outcome) -> list[Bar]:
    beside = [one.p99_ratio for one in outcome.neighbour.get("kbroker", [])]
    idle = outcome.idle.get("kbroker")
    count = f" of {idle.connections:,}" if idle else ""
    return [
        Bar("p99 of produce beside a Metadata loop", 2.0, estimate(beside), "x alone"),
        Bar(
            f"user space of an idle connection{count}",
            1024.0,
            estimate([idle.bytes_each] if idle else []),
            "B",
        ),
        Bar(
            "p99 of an active client beside them",
            ACTIVE_P99_GROWTH_MAX,
            estimate([idle.p99_beside_us / idle.p99_before_us] if idle else []),
            "x before",
        ),
    ]


def bars(outcome: Outcome) -> list[Bar]:
    """The measurable rows of the project's table of bars."""
    return [
        *_start_bars(outcome),
        *_memory_bars(outcome),
        *_cell_bars(outcome),
        *_company_bars(outcome),
    ]


def cell_json(outcome: Outcome, cell: str) -> dict[str, Any]:
    """All of one cell: per broker the estimates and the merged histogram, and the ratios."""
    result: dict[str, Any] = {"title": BY_KEY[cell].title, "brokers": {}, "ratios": {}}
    for broker, blocks in outcome.blocks.get(cell, {}).items():
        merged = Histogram.merge(block.measured for block in blocks)
        result["brokers"][broker] = {
            **{m: estimate([take(b) for b in blocks]).to_json() for m, take in METRICS.items()},
            "p999_us": merged.percentile(99.9) / 1e3,
            "histogram": merged.to_json(),
            "others_cpu": [block.guard.others for block in blocks],
            "steal": [block.guard.steal for block in blocks],
        }
    for ours, theirs in COMPARED:
        for metric in METRICS:
            found = paired(outcome, cell, metric, ours, theirs)
            if found is not None:
                result["ratios"].setdefault(f"{ours}/{theirs}", {})[metric] = found.to_json()
    return result


def null_tests(outcome: Outcome) -> list[dict[str, Any]]:
    """Each broker against itself: by CPU per request, rate and p99."""
    found = []
    for cell, brokers in outcome.null.items():
        for broker, pairs in brokers.items():
            for metric, width in (
                ("cpu_us_per_request", NULL_WIDTH_THROUGHPUT),
                ("requests_per_s", NULL_WIDTH_THROUGHPUT),
                ("p99_us", NULL_WIDTH_P99),
            ):
                first = [METRICS[metric](one) for one, _ in pairs]
                second = [METRICS[metric](two) for _, two in pairs]
                found.append(
                    {
                        "cell": cell,
                        "broker": broker,
                        "metric": metric,
                        "ratio": ratio(first, second).to_json(),
                        "width_max": width,
                        "passed": null_test(first, second, width),
                    }
                )
    return found


def remarks(outcome: Outcome) -> list[str]:
    """What a reader must know before believing the figures."""
    said = list(outcome.faults)
    where = outcome.machine.get("network", "")
    if network.paces(where.rpartition(" ")[2]):
        said.append(f"network: {where}; it paces, so large fetches measure its timers")
    if outcome.noisy_blocks:
        said.append(f"{outcome.noisy_blocks} blocks had something else running beside them")
    for cell, brokers in outcome.blocks.items():
        rates = [block.requests_per_s for block in brokers.get("limit", [])]
        if rates and max(abs(r / statistics.median(rates) - 1) for r in rates) > LIMIT_DRIFT_MAX:
            low, high = min(rates), max(rates)
            said.append(f"{cell}: the limit itself moved ({low:,.0f} to {high:,.0f}/s)")
        for broker, blocks in brokers.items():
            share = statistics.median(
                block.own_us_per_request / block.cpu_us_per_request for block in blocks
            )
            if broker != "limit" and share > CLIENT_SHARE_MAX:
                said.append(f"{cell}: the generator costs {share:.2f} of what {broker} does")
    for test in null_tests(outcome):
        if not test["passed"]:
            r = test["ratio"]
            said.append(
                f"null test {test['cell']} {test['broker']} {test['metric']}: "
                f"{r['median']:.3f} [{r['low']:.3f}, {r['high']:.3f}]"
            )
    return said


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The whole outcome, with every block."""
    lists = ("neighbour", "neighbour_closed", "starts", "librdkafka")
    return {
        "machine": outcome.machine,
        "versions": outcome.versions,
        "rounds": outcome.plan.rounds,
        "block_s": outcome.plan.seconds,
        "took_s": outcome.took_s,
        "cells": {cell: cell_json(outcome, cell) for cell in outcome.blocks},
        "blocks": [
            {key: value for key, value in block.to_json().items() if key != "histogram"}
            for brokers in outcome.blocks.values()
            for blocks in brokers.values()
            for block in blocks
        ],
        "null_tests": null_tests(outcome),
        "memory_idle_bytes": outcome.memory_idle,
        "memory_peak_at_start_bytes": outcome.memory_peak_at_start,
        "memory_after_bytes": outcome.memory_after,
        "threads": outcome.threads,
        "idle": {name: one.to_json() for name, one in outcome.idle.items()},
        **{
            key: {
                name: [one.to_json() for one in many]
                for name, many in getattr(outcome, key).items()
            }
            for key in lists
        },
        "bars": [
            {
                "what": bar.what,
                "bar": bar.bar,
                "unit": bar.unit,
                "value": bar.value.to_json() if bar.value else None,
                "verdict": bar.verdict,
            }
            for bar in bars(outcome)
        ],
        "remarks": remarks(outcome),
        "noisy_blocks": outcome.noisy_blocks,
        "repeated_blocks": outcome.repeated_blocks,
    }


def _number(value: float) -> str:
    if value != value:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _interval(found: Estimate) -> str:
    return f"{_number(found.median)} [{_number(found.low)}, {_number(found.high)}]"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        first = row[0].ljust(widths[0])
        return "  ".join([first, *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])

    return [line(head), "  ".join("-" * width for width in widths), *map(line, rows)]


def _cell_rows(outcome: Outcome) -> list[list[str]]:
    rows = []
    for cell, brokers in outcome.blocks.items():
        for broker in outcome.plan.brokers:
            if broker not in brokers:
                continue
            row = [BY_KEY[cell].title, broker]
            for metric in ("requests_per_s", "megabytes_per_s", "p50_us", "p99_us"):
                row.append(_number(statistics.median(values(outcome, cell, broker, metric))))
            for metric in ("cpu_us_per_request", "cpu_s_per_gigabyte", "own_us_per_request"):
                row.append(_number(statistics.median(values(outcome, cell, broker, metric))))
            cpu = paired(outcome, cell, "cpu_us_per_request", broker, "kafka")
            row.append(_interval(cpu) if cpu and broker == "kbroker" else "")
            rows.append(row)
    return rows


def _baseline_rows(outcome: Outcome) -> list[list[str]]:
    """This checkout against another, cell by cell; a broker against itself where it was tried."""
    metrics = ("cpu_us_per_request", "requests_per_s", "p99_us")
    rows = []
    for cell in outcome.blocks:
        found = [paired(outcome, cell, metric, "kbroker", "baseline") for metric in metrics]
        if any(found):
            rows.append([BY_KEY[cell].title, *(_interval(one) if one else "-" for one in found)])
    return rows


def _beside_rows(outcome: Outcome) -> list[list[str]]:
    rows: list[list[str]] = []
    for broker in outcome.plan.brokers:
        if broker == "limit":
            continue
        if broker in outcome.memory_idle:
            after = outcome.memory_after.get(broker, 0)
            rows.append(
                [
                    broker,
                    "resident MB, idle / after",
                    f"{outcome.memory_idle[broker] / MIB:,.0f} / {after / MIB:,.0f}",
                ]
            )
        if starts := outcome.starts.get(broker):
            for key in ("empty_s", "again_s", "killed_s"):
                found = estimate([getattr(one, key) for one in starts])
                rows.append([broker, f"start, {key[:-2]}, s", _interval(found)])
        if one := outcome.idle.get(broker):
            rows.append([broker, f"{one.connections:,} idle: bytes each", _number(one.bytes_each)])
            rows.append(
                [
                    broker,
                    "active p99 us, before / beside",
                    f"{_number(one.p99_before_us)} / {_number(one.p99_beside_us)}",
                ]
            )
        for label, found_in in (("2,000/s", outcome.neighbour), ("1x5", outcome.neighbour_closed)):
            if pairs := found_in.get(broker):
                found = estimate([pair.p99_ratio for pair in pairs])
                alone = statistics.median(pair.p99_alone_us for pair in pairs)
                asked = statistics.median(pair.metadata_per_s for pair in pairs)
                rows.append(
                    [
                        broker,
                        f"neighbour, {label}: p99 alone us; x; Metadata/s",
                        f"{_number(alone)}; {_interval(found)}; {_number(asked)}",
                    ]
                )
        for result in outcome.librdkafka.get(broker, []):
            data = result.to_json()
            rows.append(
                [
                    broker,
                    "librdkafka: records/s in, out; broker s/GB in, out",
                    "; ".join(
                        _number(data[key])
                        for key in (
                            "produce_records_per_s",
                            "consume_records_per_s",
                            "produce_broker_cpu_s_per_gigabyte",
                            "consume_broker_cpu_s_per_gigabyte",
                        )
                    ),
                ]
            )
    return rows


def to_text(outcome: Outcome) -> str:
    """For people: the cells, what was measured beside them, the bars, the remarks."""
    machine = outcome.machine
    lines = [
        f"{machine['model']}, {machine['cpus']} CPUs, Linux {machine['kernel']}, "
        f"commit {machine['commit']}, {machine['when']}; network: {machine.get('network', '-')}",
        f"median of {outcome.plan.rounds} blocks of {outcome.plan.seconds} s; "
        f"[..] is a bootstrap 95 % interval; {outcome.took_s:.0f} s in all",
        "",
    ]
    head = [
        "cell",
        "broker",
        "req/s",
        "MB/s",
        "p50 us",
        "p99 us",
        "CPU us",
        "s/GB",
        "own us",
        "CPU x Kafka",
    ]
    lines += _table(head, _cell_rows(outcome))
    if against := _baseline_rows(outcome):
        head = ["kbroker / baseline", "CPU us", "req/s", "p99 us"]
        lines += ["", *_table(head, against)]
    if beside := _beside_rows(outcome):
        lines += ["", *_table(["broker", "what", "value"], beside)]
    rows = []
    for bar in bars(outcome):
        value = _interval(bar.value) if bar.value and bar.value.values else "-"
        rows.append([bar.what, f"<= {_number(bar.bar)} {bar.unit}", value, bar.verdict])
    lines += ["", *_table(["bar", "wanted", "found", "verdict"], rows)]
    if said := remarks(outcome):
        lines += ["", "Remarks", *(f"- {one}" for one in said)]
    return "\n".join(lines)
