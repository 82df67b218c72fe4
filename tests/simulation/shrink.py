"""A failing history made short: what can be left out of its schedule while it fails the same way.

Halves first, then quarters, down to single acts, again and again until nothing more can go; the
seed stays, so what is left happens as it did, as far as it can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.act import Act

RUNS_MAX = 400

# The name of what does not hold with this schedule, None if all holds.
Fails = Callable[[Sequence[Act]], str | None]


def shrink(schedule: Sequence[Act], rule: str, fails: Fails, runs_max: int = RUNS_MAX) -> list[Act]:
    """The shortest schedule found that still breaks this rule."""
    kept = list(schedule)
    runs = 0
    size = max(1, len(kept) // 2)
    while True:
        at, shorter = 0, False
        while at < len(kept) and runs < runs_max:
            tried = kept[:at] + kept[at + size :]
            runs += 1
            if fails(tried) == rule:
                kept, shorter = tried, True
            else:
                at += size
        if runs >= runs_max or (size == 1 and not shorter):
            return kept
        size = max(1, size // 2) if not shorter or size > 1 else 1
