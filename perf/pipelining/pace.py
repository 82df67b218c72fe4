"""The rate of the paced section: half of the most that Apache Kafka does, for each round trip.

Found by the median of a few blocks when the first paced block of a round trip is due, and kept
beside the study's journal: a run that goes on paces every later round as the earlier ones.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self, TypeGuard

from perf.cells import CellError
from perf.machine import describe_machine
from perf.pipelining.plan import (
    PACE_BLOCKS,
    STUDY,
    Condition,
    Plan,
    paced_after,
    points,
    title_of,
)
from perf.studies.journal import Journal, JournalError
from perf.studies.measured import Measured
from perf.studies.study import MACHINE_KEYS, Say

SHARE: Final = 0.5  # of its highest rate


class Pace:
    """Rates by round trip. A context manager: they go when the study has ended well."""

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        block: Callable[[Condition], Measured],
        say: Say,
        *,
        fresh: bool = False,
    ) -> None:
        """`block` runs one. JournalError where a kept rate is none."""
        self._plan, self._block, self._say = plan, block, say
        self._rates: dict[int, float] = {}
        self._journal = Journal(directory, f"{STUDY}-pace", _bound_to(plan))
        try:
            if fresh:
                self._journal.clear()
            self._take_up()
        except BaseException:
            self._journal.close()
            raise

    def _take_up(self) -> None:
        for entry in self._journal.entries:
            round_trip_us, rate = entry.get("round_trip_us"), entry.get("rate")
            if round_trip_us not in self._plan.round_trips_us or not _is_rate(rate):
                raise JournalError(
                    f"{self._journal.path} has no rate in {entry}: remove it to begin anew"
                )
            self._rates[int(round_trip_us)] = float(rate)

    def rate(self, round_trip_us: int) -> float:
        """Requests a second. CellError where nothing was answered, of which there is no half."""
        if round_trip_us not in self._rates:
            self._rates[round_trip_us] = self._find(round_trip_us)
        return self._rates[round_trip_us]

    def _find(self, round_trip_us: int) -> float:
        system = self._plan.paced_by
        beside = paced_after(system, round_trip_us)
        most = statistics.median(self._block(beside).requests_per_s for _ in range(PACE_BLOCKS))
        rate = most * SHARE
        if not _is_rate(rate):
            raise CellError(f"{title_of(system)} does {most}/s at {round_trip_us} us: no pace")
        self._journal.append({"round_trip_us": round_trip_us, "rate": rate})
        self._say(
            f"paced at {rate:,.0f}/s, {SHARE:.0%} of the most of {title_of(system)} at"
            f" {round_trip_us} us"
        )
        return rate

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._journal.close()
        if kind is None:
            self._journal.path.unlink(missing_ok=True)


def _is_rate(value: object) -> TypeGuard[float]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0  # type: ignore[arg-type, operator]


def _bound_to(plan: Plan) -> dict[str, object]:
    """What a study's journal is bound to, so that both are of the same runs."""
    machine = describe_machine()
    return {
        "points": [point.to_json() for point in points(plan)],
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "machine": {key: machine[key] for key in MACHINE_KEYS},
    }
