"""The result of one measurement: a table, its bars, and everything as JSON and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from perf.judge import Bar, Together, ratio_bar, side, together
from perf.stats import CONFIDENCE_MIN, PAIRS_MIN
from perf.tables import aligned, bar_json, bar_lines, machine_line

OURS, THEIRS = "kbroker", "kafka"
NOISY_MARK: Final = "{} of {} values had something else running beside them"


class Figure(NamedTuple):
    """A number for the topic of results; `dims`: which broker, cell and round it is of."""

    name: str
    value: float
    unit: str
    dims: Mapping[str, Any]


class OfBroker(Protocol):
    """What was measured of a broker in a round."""

    @property
    def broker(self) -> str: ...

    @property
    def round(self) -> int: ...

    @property
    def quiet(self) -> bool: ...


class Value(OfBroker, Protocol):
    """One that a report has."""

    def to_json(self) -> dict[str, Any]: ...


One = TypeVar("One", bound=OfBroker)
Reported = TypeVar("Reported", bound=Value)


@dataclass(frozen=True)
class Measurement:
    """One measurement. `values`: each single thing that was measured, as JSON."""

    plan: Mapping[str, Any]
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    bars: Sequence[Bar]
    values: Sequence[Mapping[str, Any]]
    figures: Sequence[Figure] = ()
    remarks: Sequence[str] = field(default_factory=tuple)
    fine: bool = True  # beside its bars

    @classmethod
    def of(
        cls,
        plan: Mapping[str, Any],
        head: Sequence[str],
        rows: Sequence[Sequence[str]],
        bars: Sequence[Bar],
        found: Sequence[Reported],
        numbers: Callable[[Reported], Iterable[tuple[str, float, str]]],
        remarks: Sequence[str] = (),
    ) -> Measurement:
        """Of values that each have a broker and a round; `numbers`: name, value and unit of each
        figure of a value."""
        figures = [
            Figure(*row, {"broker": one.broker, "round": one.round, "quiet": one.quiet})
            for one in found
            for row in numbers(one)
        ]
        noise = noisy([one.quiet for one in found])
        values = [one.to_json() for one in found]
        return cls(plan, head, rows, bars, values, figures, [*remarks, *noise])

    @property
    def passes(self) -> bool:
        return self.fine and all(bar.fine for bar in self.bars)

    def text(self, machine: Mapping[str, Any], took_s: float) -> str:
        """For people."""
        lines = [
            machine_line(machine),
            f"[a, b] is the exact interval of a median, {CONFIDENCE_MIN:.0%} or more; (a to b) "
            f"what was merely seen, of fewer than {PAIRS_MIN} values; {took_s:.0f} s in all",
            "",
            *aligned(self.head, self.rows),
        ]
        if self.bars:
            lines += ["", *bar_lines(self.bars)]
        if self.remarks:
            lines += ["", "Remarks", *(f"- {one}" for one in self.remarks)]
        return "\n".join(lines)

    def to_json(self, machine: Mapping[str, Any], took_s: float) -> dict[str, Any]:
        return {
            "machine": dict(machine),
            "plan": dict(self.plan),
            "took_s": took_s,
            "values": [dict(one) for one in self.values],
            "bars": [bar_json(bar) for bar in self.bars],
            "remarks": list(self.remarks),
        }


def noisy(quiet: Sequence[bool]) -> list[str]:
    """A remark, if anything else ran beside some of these."""
    loud = quiet.count(False)
    return [NOISY_MARK.format(loud, len(quiet))] if loud else []


def beside_kafka(found: Sequence[One], figure: Callable[[One], float]) -> Together:
    """kbroker's figure and Apache Kafka's, by round."""
    return together(
        *(side([one for one in found if one.broker == kind], figure) for kind in (OURS, THEIRS))
    )


def kafka_bar(what: str, bar: float, found: Sequence[One], figure: Callable[[One], float]) -> Bar:
    """kbroker's figure by Apache Kafka's."""
    return ratio_bar(what, bar, "x Kafka", beside_kafka(found, figure))
