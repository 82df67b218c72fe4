"""The README's table "How fast", drawn from one run of `kbroker perf compare`.

    kbroker perf compare --json compare.json
    python -m perf.how_fast compare.json       # keeps what the table shows, and draws it
    python -m perf.how_fast                    # draws it again from the kept figures

The kept file (`how_fast.json`, beside this one) names the machine, the commit and the time, so
that the table cannot outlive them; a test holds the README against it. A ratio has its exact
interval; where the run could not decide, its ends are in the words of perf.judge.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kbroker.generated_part import replaced
from perf.tables import json_rows

BEGIN: Final = "<!-- drawn by python -m perf.how_fast -->"
KEPT: Final = Path(__file__).with_name("how_fast.json")
README: Final = Path(__file__).parents[1] / "README.md"
MIB: Final = 1 << 20

_RATE, _BYTES, _MEDIAN = "requests_per_s", "megabytes_per_s", "p50_us"
_RATIOS: Final = ("cpu_us_per_request", "cpu_us_without_runtime")
_OF_A_RATIO: Final = ("median", "low", "high", "decided", "reason")
_BROKERS: Final = ("limit", "kafka", "kbroker")
# A cell, the metric of it in the table, and its description.
ROWS: Final = (
    ("p-100-1x1", _MEDIAN, "produce 100 B, 1 connection, 1 in flight: p50"),
    ("p-100-1x5", _RATE, "produce 100 B, 1 connection, 5 in flight"),
    ("p-100-16x5", _RATE, "produce 100 B, 16 connections, 5 in flight"),
    ("p-1k-4x5", _RATE, "produce 1 KB, 4 connections, 5 in flight"),
    ("p-16k-4x5", _BYTES, "produce 16 KB, 4 connections, 5 in flight"),
    ("p-1m-4x5", _BYTES, "produce 1 MB, 4 connections, 5 in flight"),
    ("j-1k-4x5", _RATE, "the Java client's default, 4 x 1 KB by topic id, idempotent"),
    ("j-lz4", _RATE, "the same with lz4, 4 x 16 KB"),
    ("f-16k", _RATE, "fetch 16 KB, 4 connections"),
    ("f-1m", _BYTES, "fetch 1 MB, 4 connections"),
    ("jf-16k", _RATE, "fetch in a session, 4 x 16 KB, 4 connections"),
    ("heartbeat-16x5", _RATE, "Heartbeat, 16 connections, 5 in flight"),
    ("commit-16x5", _RATE, "OffsetCommit of one partition, 16 connections, 5 in flight"),
    ("e2e-200", _MEDIAN, "produce to long-polling fetch, 200/s: p50"),
)


def kept(compared: dict[str, Any]) -> dict[str, Any]:
    """Of a whole run (perf.report.to_json) what the table shows."""
    return {
        **{name: compared[name] for name in ("machine", "rounds", "block_s")},
        "cells": {
            key: _kept_cell(compared["cells"][key], metric)
            for key, metric, _ in ROWS
            if key in compared["cells"]
        },
        "beside": {broker: _kept_beside(compared, broker) for broker in ("kafka", "kbroker")},
    }


def _kept_cell(cell: dict[str, Any], metric: str) -> dict[str, Any]:
    ratios = cell["ratios"].get("kbroker/kafka", {})
    return {
        "brokers": {
            broker: cell["brokers"][broker][metric]["median"]
            for broker in _BROKERS
            if broker in cell["brokers"]
        },
        "ratios": {
            name: {part: ratios[name].get(part) for part in _OF_A_RATIO}
            for name in _RATIOS
            if name in ratios
        },
    }


def _kept_beside(compared: dict[str, Any], broker: str) -> dict[str, Any]:
    """Medians; None where a thing was not measured."""

    def median(name: str, field: str) -> float | None:
        found = [one[field] for one in compared[name].get(broker, ()) if one[field] is not None]
        return statistics.median(found) if found else None

    idle = compared["idle"].get(broker, ())
    return {
        "start_s": median("starts", "empty_s"),
        "start_killed_s": median("starts", "killed_s"),
        "memory_idle_bytes": compared["memory_idle_bytes"].get(broker),
        "memory_after_bytes": (compared["memory_after_bytes"].get(broker) or [None])[-1],
        "idle_connections": idle[0]["connections"] if idle else None,
        "idle_bytes_each": median("idle", "bytes_each"),
        "records_in_per_s": median("librdkafka", "produce_records_per_s"),
        "records_out_per_s": median("librdkafka", "consume_records_per_s"),
    }


def drawn(data: dict[str, Any]) -> str:
    """The table, and below it what was measured beside the cells."""
    machine = data["machine"]
    cpus = f"{machine['cpus']} CPUs" if machine["cpus"] != 1 else "1 CPU"
    lines = [
        f"{machine['model']}, {cpus}, Linux {machine['kernel']}, {machine['when'][:10]}, commit"
        f" {machine['commit']};",
        f"medians of {data['rounds']} blocks of {data['block_s']:g} s each;"
        f" [a, b] is the exact interval of the median of the rounds' ratios:",
        "",
        "| cell | limit | Apache Kafka | kbroker | CPU per request, of Kafka's"
        " | without its compiler and collector |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for key, metric, words in ROWS:
        if key in data["cells"]:
            lines.append(_row(data["cells"][key], metric, words))
    beside = _beside(*data["beside"].values())
    if beside:
        lines += ["", "| | Apache Kafka | kbroker |", "|---|---:|---:|", *beside]
    return "\n".join(lines)


def _row(cell: dict[str, Any], metric: str, words: str) -> str:
    values = (cell["brokers"].get(broker) for broker in _BROKERS)
    cells = [words, *(_value(value, metric) for value in values)]
    cells += [_ratio(cell["ratios"].get(metric)) for metric in _RATIOS]
    return f"| {' | '.join(cells)} |"


def _value(value: float | None, metric: str) -> str:
    if value is None:
        return "-"
    unit = {_RATE: "/s", _BYTES: " MB/s", _MEDIAN: " us"}[metric]
    return f"{_rounded(value)}{unit}"


def _rounded(value: float) -> str:
    """Three figures: 59,800; 1,440; 82.1."""
    if value >= 1000:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def _ratio(found: dict[str, Any] | None) -> str:
    if not found or found.get("median") is None:
        return "-"
    said = f"{found['median']:.2g} [{found['low']:.2g}, {found['high']:.2g}]"
    return said if found["decided"] else f"{said}, {found['reason']}"


def _beside(*brokers: dict[str, Any]) -> list[str]:
    """A row for each thing that was measured of one broker at least."""

    def megabytes(count: float) -> str:
        return f"{count / MIB:,.0f} MB"

    def seconds(value: float) -> str:
        return f"{value:.2f} s"

    def records(one: dict[str, Any]) -> str:
        both = one["records_in_per_s"], one["records_out_per_s"]
        return "" if None in both else " / ".join(map(_rounded, both))

    def row(words: str, name: str, write: Callable[[float], str], nothing: str = "-") -> str:
        found = [one[name] for one in brokers]
        if found == [None] * len(found):
            return ""
        return f"| {words} | {' | '.join(nothing if v is None else write(v) for v in found)} |"

    count = next((one["idle_connections"] for one in brokers if one["idle_connections"]), 0)
    idle = f"user space of each of {count:,} idle connections"
    clients = [records(one) for one in brokers]
    rows = [
        row("exec to the first acknowledged produce", "start_s", seconds),
        row("first answer after `kill -9` and a new start", "start_killed_s", seconds),
        row("resident memory, idle", "memory_idle_bytes", megabytes),
        row("resident memory, after the table", "memory_after_bytes", megabytes),
        row(idle, "idle_bytes_each", lambda each: f"{each:,.0f} B", "not known"),
    ]
    if any(clients):
        cells = " | ".join(one or "-" for one in clients)
        rows.append(f"| librdkafka, records a second in / out | {cells} |")
    return [one for one in rows if one]


def main(arguments: list[str]) -> int:
    """Keep a run, where one is named, and draw what is kept; an exit status."""
    if arguments:
        compared = json.loads(Path(arguments[0]).read_text())
        KEPT.write_text(json_rows(kept(compared)))
    page = README.read_text(encoding="utf-8")
    README.write_text(replaced(page, BEGIN, drawn(json.loads(KEPT.read_text()))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
