"""What each verb measured, as records of results: which figures, by which name and unit.

Everything goes through perf.results.Results, which does nothing where no target is named.
"""

from __future__ import annotations

from typing import Any

from perf.cells import BY_KEY
from perf.compare import Outcome
from perf.idle import IdleResult
from perf.librdkafka import LibrdkafkaResult
from perf.neighbour import NeighbourResult
from perf.results import Results
from perf.startup import StartResult
from perf.tool import Summary, Work

_GROUP_UNITS = {"_s": "s", "_ms": "ms", "_mb": "MB"}


def add_summary(results: Results, work: Work, summary: Summary, broker: str) -> None:
    """One run of `produce` or `consume`."""
    java = work.path == "java"
    fields: dict[str, Any] = {
        "cell": summary.verb,
        "work": "fetch",
        "path": work.path,
        "connections": work.connections,
        "size_bytes": work.fetch_bytes,
    }
    if summary.verb == "sent":
        fields |= {
            "work": "produce",
            "acks": -1 if java else work.acks,
            "batch_bytes": work.batch_bytes,
            "in_flight": work.in_flight,
            "codec": work.codec,
            "rate": work.rate,
            "size_bytes": work.record_bytes,
        }
    results.block(
        latency=summary.latency,
        broker=broker,
        requests=summary.requests,
        records=summary.records,
        bytes=summary.value_bytes,
        wall_s=summary.wall_s,
        broker_cpu_s=summary.broker_cpu_s or None,  # 0: it was not looked at
        own_cpu_s=summary.own_cpu_s,
        **fields,
    )


def add_idle(results: Results, result: IdleResult, number: int = 0) -> None:
    fields = {"broker": result.broker, "connections": result.connections, "round": number}
    if result.bytes_each is not None:
        results.figure("idle connection, user space", result.bytes_each, "B", **fields)
    results.figure("idle connections, CPU", result.cpu_share, "CPUs", **fields)
    results.figure("p99 without idle connections", result.p99_before_us, "us", **fields)
    results.figure("p99 beside idle connections", result.p99_beside_us, "us", **fields)


def add_start(results: Results, result: StartResult, number: int) -> None:
    fields = {"broker": result.broker, "round": number}
    results.figure("start, empty directory", result.empty_s, "s", **fields)
    results.figure("start, after a clean stop", result.again_s, "s", **fields)
    results.figure("start, after kill -9", result.killed_s, "s", **fields)


def add_groups(results: Results, found: dict[str, Any], scale: float) -> None:
    """`found` as GroupsResult.to_json gives it; a smaller scale is another piece of work."""
    for name, value in found.items():
        if name == "broker":
            continue
        stem, _, suffix = name.rpartition("_")
        results.figure(
            f"groups, {stem.replace('_', ' ')}",
            value,
            _GROUP_UNITS[f"_{suffix}"],
            broker=found["broker"],
            cell="groups" if scale == 1 else f"groups x {scale:g}",
        )


def add_outcome(results: Results, outcome: Outcome) -> None:
    """All of a comparison: the blocks by round, and the figures beside the table."""
    for key, by_broker in outcome.blocks.items():
        for blocks in by_broker.values():
            for block in blocks:
                results.block(block, BY_KEY[key], round=block.round)
    for key, pairs_by_broker in outcome.null.items():
        for pairs in pairs_by_broker.values():
            for _, again in pairs:
                results.block(again, BY_KEY[key], round=again.round, again=True)
    for broker, size in outcome.memory_idle.items():
        results.figure("resident memory, idle", size, "B", broker=broker)
    for broker, sizes in outcome.memory_after.items():
        for number, size in enumerate(sizes):
            name = "resident memory, after each round"
            results.figure(name, size, "B", broker=broker, round=number)
    for idles in outcome.idle.values():
        for number, idle in enumerate(idles):
            add_idle(results, idle, number)
    for starts in outcome.starts.values():
        for number, start in enumerate(starts):
            add_start(results, start, number)
    for source in (outcome.neighbour, outcome.neighbour_closed):
        for neighbours in source.values():
            for number, beside in enumerate(neighbours):
                _add_neighbour(results, beside, number)
    for clients in outcome.librdkafka.values():
        for number, client in enumerate(clients):
            _add_librdkafka(results, client, number)


def _add_neighbour(results: Results, result: NeighbourResult, number: int) -> None:
    fields = {"broker": result.broker, "round": number, "rate": result.rate}
    results.figure("p99 without a Metadata loop", result.p99_alone_us, "us", **fields)
    results.figure("p99 beside a Metadata loop", result.p99_beside_us, "us", **fields)


def _add_librdkafka(results: Results, result: LibrdkafkaResult, number: int) -> None:
    fields: dict[str, Any] = {
        "broker": result.broker, "round": number, "size_bytes": result.record_bytes,
        "records": result.records,
    }  # fmt: skip
    produced, consumed = result.records / result.produce_s, result.records / result.consume_s
    results.figure("librdkafka, produced", produced, "records/s", **fields)
    results.figure("librdkafka, consumed", consumed, "records/s", **fields)
