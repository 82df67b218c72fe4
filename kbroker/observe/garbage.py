"""Python's garbage collector: how often it ran, and how long it held the GIL, by generation.

`gc.callbacks` tells the begin and the end of every run, on whichever thread it happens, with the
GIL held; noting it costs about a microsecond. Read from any thread.
"""

from __future__ import annotations

import gc
import time
from typing import Final

from kbroker.metrics.model import Histogram

GENERATIONS: Final = 3
# Powers of two of microseconds: up to 2 s.
BUCKETS: Final = 22


class GarbageWatch:
    """From `start` to `stop`."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._runs = [0] * GENERATIONS
        self._collected = [0] * GENERATIONS
        self._pause_ns = [0] * GENERATIONS
        self._pauses = [[0] * (BUCKETS + 1) for _ in range(GENERATIONS)]

    def start(self) -> None:
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = time.perf_counter_ns()
            return
        took_ns = time.perf_counter_ns() - self._began_ns
        generation = info["generation"]
        self._runs[generation] += 1
        self._collected[generation] += info["collected"]
        self._pause_ns[generation] += took_ns
        self._pauses[generation][min((took_ns // 1000).bit_length(), BUCKETS)] += 1

    def collections(self, generation: int) -> int:
        return self._runs[generation]

    def collected(self, generation: int) -> int:
        return self._collected[generation]

    def pauses(self, generation: int) -> Histogram:
        return histogram_of_us(self._pauses[generation], self._pause_ns[generation])


def histogram_of_us(buckets: list[int], sum_ns: int) -> Histogram:
    """Counts by powers of two of microseconds, the last of them open, as seconds."""
    bounds: list[tuple[float, int]] = []
    total = 0
    for power, count in enumerate(buckets):
        total += count
        last = power + 1 == len(buckets)
        bounds.append((float("inf") if last else (1 << power) / 1e6, total))
    return Histogram(tuple(bounds), total, sum_ns / 1e9)
