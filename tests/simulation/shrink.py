"""A failing history made short: acts are left out of its schedule while it fails the same way.

Halves first, then quarters, down to single acts, again and again until no act can be left out. The
seed stays the same, so the remaining acts have the same effect as before, as far as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.act import Act

RUNS_MAX = 400

# The rule that is violated with this schedule, None if all rules hold.
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
