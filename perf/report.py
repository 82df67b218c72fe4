"""A comparison as JSON, as a table, and against the bars. Pure functions of an Outcome."""

from __future__ import annotations

import statistics
from typing import Any

from perf import network
from perf.bars import MIB, bars
from perf.cells import BY_KEY
from perf.compare import Outcome
from perf.histogram import Histogram
from perf.judge import Verdict
from perf.paired import METRICS, null_tests, paired, values
from perf.stats import CONFIDENCE_MIN, PAIRS_MIN, estimate
from perf.tables import aligned, bar_json, bar_lines, interval, machine_line, number

COMPARED = (
    ("kbroker", "kafka"),
    ("kbroker", "limit"),
    ("kafka", "limit"),
)
LIMIT_DRIFT_MAX = 0.10
CLIENT_SHARE_MAX = 0.5
# With the runtime's compiler and collector, and without.
CPU_WAYS = ("cpu_us_per_request", "cpu_us_without_runtime")


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
                by_metric = result["ratios"].setdefault(f"{ours}/{theirs}", {})
                by_metric[metric] = _verdict_json(found)
    return result


def _verdict_json(found: Verdict) -> dict[str, Any]:
    """The ratio's numbers, where there are any, and what may be concluded from them."""
    said = found.to_json()
    return {**(said.pop("ratio") or {}), **said}


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
                said.append(f"{cell}: the generator costs {share:.2f} of the CPU of {broker}")
    for broker, kinds in outcome.warmed.items():
        for kind, warmed in kinds.items():
            if not (warmed.enough or warmed.flat):
                said.append(f"{broker} was not warm: {warmed.requests:,} requests of {kind}")
    words = (test.words for test in null_tests(outcome) if test.words)
    said += [f"null test: {one}" for one in dict.fromkeys(words)]
    return said


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The whole outcome, with every block."""
    lists = ("idle", "neighbour", "neighbour_closed", "starts", "librdkafka")
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
        "warmed": {
            broker: {kind: one.to_json() for kind, one in kinds.items()}
            for broker, kinds in outcome.warmed.items()
        },
        "null_tests": [test.to_json() for test in null_tests(outcome)],
        "memory_idle_bytes": outcome.memory_idle,
        "memory_peak_at_start_bytes": outcome.memory_peak_at_start,
        "memory_after_bytes": outcome.memory_after,
        "threads": outcome.threads,
        **{
            key: {
                name: [one.to_json() for one in many]
                for name, many in getattr(outcome, key).items()
            }
            for key in lists
        },
        "bars": [bar_json(bar) for bar in bars(outcome)],
        "remarks": remarks(outcome),
        "noisy_blocks": outcome.noisy_blocks,
        "repeated_blocks": outcome.repeated_blocks,
    }


def _cell_rows(outcome: Outcome) -> list[list[str]]:
    rows = []
    for cell, brokers in outcome.blocks.items():
        for broker in outcome.plan.brokers:
            if broker not in brokers:
                continue
            row = [BY_KEY[cell].title, broker]
            for metric in ("requests_per_s", "megabytes_per_s", "p50_us", "p99_us"):
                row.append(number(statistics.median(values(outcome, cell, broker, metric))))
            for metric in (*CPU_WAYS, "cpu_s_per_gigabyte", "own_us_per_request"):
                row.append(number(statistics.median(values(outcome, cell, broker, metric))))
            for metric in CPU_WAYS:
                cpu = paired(outcome, cell, metric, broker, "kafka")
                row.append(interval(cpu.ratio) if cpu and broker == "kbroker" else "")
            rows.append(row)
    return rows


def _beside_rows(outcome: Outcome) -> list[list[str]]:
    rows: list[list[str]] = []
    for broker in outcome.plan.brokers:
        if broker == "limit":
            continue
        if broker in outcome.memory_idle:
            after = (outcome.memory_after.get(broker) or [0])[-1]
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
                rows.append([broker, f"start, {key[:-2]}, s", interval(found)])
        if idles := outcome.idle.get(broker):
            held = estimate([one.bytes_each for one in idles if one.bytes_each is not None])
            rows.append([broker, f"{idles[0].connections:,} idle: bytes each", interval(held)])
            before = statistics.median(one.p99_before_us for one in idles)
            beside = statistics.median(one.p99_beside_us for one in idles)
            said = f"{number(before)} / {number(beside)}"
            rows.append([broker, "active p99 us, before / beside", said])
        for label, found_in in (("2,000/s", outcome.neighbour), ("1x5", outcome.neighbour_closed)):
            if pairs := found_in.get(broker):
                found = estimate([pair.p99_ratio for pair in pairs])
                alone = statistics.median(pair.p99_alone_us for pair in pairs)
                asked = statistics.median(pair.metadata_per_s for pair in pairs)
                rows.append(
                    [
                        broker,
                        f"neighbour, {label}: p99 alone us; x; Metadata/s",
                        f"{number(alone)}; {interval(found)}; {number(asked)}",
                    ]
                )
        for result in outcome.librdkafka.get(broker, []):
            data = result.to_json()
            rows.append(
                [
                    broker,
                    "librdkafka: records/s in, out; broker s/GB in, out",
                    "; ".join(
                        number(data[key])
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
    lines = [
        machine_line(outcome.machine),
        f"median of {outcome.plan.rounds} blocks of {outcome.plan.seconds} s; [a, b] is the exact "
        f"interval of a median, {CONFIDENCE_MIN:.0%} or more, of quiet rounds; (a to b) what was "
        f"merely seen, of fewer than {PAIRS_MIN}; {outcome.took_s:.0f} s in all",
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
        "no JIT, GC",
        "s/GB",
        "own us",
        "CPU x Kafka",
        "no JIT, GC",
    ]
    lines += aligned(head, _cell_rows(outcome))
    if beside := _beside_rows(outcome):
        lines += ["", *aligned(["broker", "what", "value"], beside)]
    lines += ["", *bar_lines(bars(outcome))]
    if said := remarks(outcome):
        lines += ["", "Remarks", *(f"- {one}" for one in said)]
    return "\n".join(lines)
