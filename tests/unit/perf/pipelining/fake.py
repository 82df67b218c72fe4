"""Outcomes, and a cluster of one fake leader, that the tests here make up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from perf.client import ClientError
from perf.histogram import BUCKETS, Histogram
from perf.pipelining.plan import Condition, Plan, points
from perf.process import Guard
from perf.requests import Topic
from perf.studies.measured import REQUEST, Measured
from perf.studies.study import Outcome
from tests.unit.perf.studies.fake import measured

MACHINE = {
    "cpus": 2, "model": "made up", "kernel": "6", "python": "3.11", "commit": "c", "when": "2026",
}  # fmt: skip


def block(
    *, rate: float = 10.0, timed: int = 3, us: float = 100.0, others: float = 0.0, **figures: float
) -> Measured:
    """A block of `rate` MB/s in which so many requests were timed."""
    counts = np.zeros(BUCKETS, dtype=np.uint64)
    one = Histogram.of([int(us * 1000)])
    counts[one.counts > 0] = timed
    latency = Histogram(counts, timed, timed * one.sum, one.min, one.max)
    return replace(
        measured(100),
        bytes=int(rate * 1e6),
        guard=Guard(others, 0.0),
        histograms={REQUEST: latency},
        figures=figures,
    )


def outcome(plan: Plan, blocks: Mapping[Condition, Measured], rounds: int = 6) -> Outcome:
    """Each of these in every round."""
    found = Outcome("pipelining", tuple(points(plan)), rounds, dict(MACHINE))
    for condition, one in blocks.items():
        found.blocks[condition.key] = dict.fromkeys(range(rounds), one)
    return found


def counters(*, requests: int = 10, latencies: tuple[int, ...] = (1000,)) -> dict[str, Any]:
    """What the load generator hands back."""
    taken = Histogram.of(latencies)
    latency = {
        "counts": taken.counts.tobytes(), "total": taken.total, "sum": taken.sum, "min": taken.min,
        "max": taken.max,
    }  # fmt: skip
    stream = {
        "errors": 0, "first_error": 0, "requests": requests, "records": requests,
        "records_all": requests, "answered": requests, "latency": latency,
    }  # fmt: skip
    return {"wall_ns": 10**9, "own_cpu_ns": 1000, "streams": [stream]}


class FakeClient:
    """Knows the topics that there are, and how many records were written."""

    host, port = "127.0.0.1", 9

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.offsets_are: Callable[[], int] = lambda: 11
        self.broken = False

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def create_topic(self, name: str, partitions: int, *, replicas: object) -> Topic:
        self.topics.append(name)
        return Topic(name, bytes(16), partitions)

    def delete_topic(self, name: str) -> None:
        if self.broken:
            raise ClientError(f"deleting topic {name}", 41)
        self.topics.remove(name)

    def offsets(self, topic: Topic) -> list[int]:
        return [self.offsets_are()]

    def init_producer_id(self) -> tuple[int, int]:
        return 77, 0
