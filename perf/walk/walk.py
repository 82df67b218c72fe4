"""The walk of a request through the units, from the records of several equal ones.

Timers and other connections run beside a request, so it is sent several times: what ran each time
is its own. The *path* of a thread names the units in which it is, one after the other: a call into
another unit is a step, and so is the return from it, where something else is called after it.
Steps into a unit where the thread has been before are steps *back*. Pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from perf.walk.trace import Call

FORTH: Final = 3


@dataclass(frozen=True)
class Unit:
    """A unit of a walk."""

    name: str
    compiled: bool
    thread: str  # that ran it first
    functions: tuple[str, ...]  # in the order of their first call
    calls: int


@dataclass(frozen=True)
class Walk:
    """One kind of request."""

    key: str
    title: str
    units: tuple[Unit, ...]  # in the order of the first call
    paths: tuple[tuple[str, ...], ...]  # of each thread
    beside: tuple[str, ...]  # units that ran some of the times: not its own

    @property
    def steps(self) -> int:
        return sum(len(path) - 1 for path in self.paths)

    @property
    def back(self) -> int:
        return sum(len(path) - len(set(path)) for path in self.paths)

    @property
    def pairs(self) -> list[tuple[str, str, int]]:
        """Units between which there are three steps or more: forth, back and forth again."""
        between: Counter[tuple[str, ...]] = Counter()
        names: dict[tuple[str, ...], tuple[str, str]] = {}
        for path in self.paths:
            for one, other in pairwise(path):
                pair = tuple(sorted((one, other)))
                between[pair] += 1
                names.setdefault(pair, (one, other))
        return [(*names[pair], steps) for pair, steps in between.most_common() if steps >= FORTH]

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "title": self.title,
            "units": [{**unit.__dict__, "functions": list(unit.functions)} for unit in self.units],
            "threads": len(self.paths),
            "steps": self.steps,
            "back": self.back,
            "pairs": [list(pair) for pair in self.pairs],
            "paths": [list(path) for path in self.paths],
            "beside": list(self.beside),
        }


def walk_of(key: str, title: str, recorded: Sequence[Sequence[Call]]) -> Walk:
    """Of equal requests. The path is that of the time that has the median number of steps."""
    own = _always(recorded)
    # A timer's thread calls what the request calls, too: the clock.
    kept = [
        [
            call
            for call in calls
            if call.function.unit in own and (call.caller is None or call.caller.unit in own)
        ]
        for calls in recorded
    ]
    kept.sort(key=lambda calls: sum(map(len, paths_of(calls))))
    typical = kept[len(kept) // 2] if kept else []
    units = [one for one in _units(typical) if one.name in _always(kept)]
    beside = {call.function.unit for calls in recorded for call in calls} - own
    return Walk(key, title, tuple(units), tuple(paths_of(typical)), tuple(sorted(beside)))


def _always(recorded: Sequence[Sequence[Call]]) -> set[str]:
    """The units that ran each time."""
    each = [{call.function.unit for call in calls} for calls in recorded]
    return set.intersection(*each) if each else set()


def paths_of(calls: Iterable[Call]) -> list[tuple[str, ...]]:
    """Of each thread, in the order of their first call."""
    paths: dict[str, list[str]] = {}
    for call in calls:
        path = paths.setdefault(call.thread, [])
        below = [call.caller.unit] if path and call.caller is not None else []
        for unit in (*below, call.function.unit):
            if not path or path[-1] != unit:
                path.append(unit)
    return [tuple(path) for path in paths.values()]


def _units(calls: Sequence[Call]) -> tuple[Unit, ...]:
    by_unit: dict[str, list[Call]] = {}
    for call in calls:
        by_unit.setdefault(call.function.unit, []).append(call)
    return tuple(
        Unit(
            name,
            some[0].function.compiled,
            some[0].thread,
            tuple(dict.fromkeys(call.function.name for call in some)),
            len(some),
        )
        for name, some in by_unit.items()
    )
