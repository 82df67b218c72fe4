"""The lines of the table: which figures of a cell are compared, and what is said of each.

A cell is measured in rounds; in a round each build has a block and, right after it, another one:
the null test. `Line` names the figures of a cell that are in one line of the table. perf.judge says
of each figure whether the new build is not slower. A line is as good as the worst of its figures; a
figure without a bound is only reported. Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from perf.judge import NOT_SLOWER, SLOWER, UNDECIDED, Slowness, not_slower, side, times, together

CPU_HALF_BAND_MAX: Final = 0.03
P99_HALF_BAND_MAX: Final = 0.10
HEAD: Final = ("cell", "CPU", "requests", "p99", "other", "half-band", "rounds", "verdict")
WORST_FIRST: Final = (SLOWER, UNDECIDED, NOT_SLOWER)


@dataclass(frozen=True)
class Figure:
    """One figure of a cell, new by old. `half_band_max` None: it is reported and not judged."""

    key: str
    column: str
    half_band_max: float | None = None
    most: float = 1.0


@dataclass(frozen=True)
class Line:
    """Figures of a cell that are in one line."""

    name: str
    cell: str
    figures: tuple[Figure, ...]


def of_requests(name: str, cell: str, most: float = 1.0) -> Line:
    """What every cell of requests has."""
    return Line(
        name,
        cell,
        (
            Figure("cpu_us", "CPU", CPU_HALF_BAND_MAX, most),
            Figure("requests_per_s", "requests"),
            Figure("p99_us", "p99", P99_HALF_BAND_MAX, most),
        ),
    )


def of_value(name: str, cell: str, key: str, half_band_max: float | None) -> Line:
    return Line(name, cell, (Figure(key, "other", half_band_max),))


class Taken(NamedTuple):
    """One block of one build."""

    round: int
    quiet: bool
    values: Mapping[str, float]


@dataclass
class Blocks:
    """Of one cell: blocks and those of the null test, by build."""

    first: dict[str, list[Taken]] = field(default_factory=dict)
    again: dict[str, list[Taken]] = field(default_factory=dict)

    def slowness(self, figure: Figure, new: str, old: str) -> Slowness:
        def of(source: Mapping[str, Sequence[Taken]], build: str) -> Any:
            return side(source.get(build, ()), lambda one: one.values.get(figure.key, float("nan")))

        return not_slower(
            together(of(self.first, new), of(self.first, old)),
            [together(of(self.first, each), of(self.again, each)) for each in (new, old)],
            half_band_max=figure.half_band_max or float("inf"),
            most=figure.most,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            name: {build: [one._asdict() for one in blocks] for build, blocks in source.items()}
            for name, source in (("first", self.first), ("again", self.again))
        }


@dataclass(frozen=True)
class Judged:
    """A line with the result of each of its figures."""

    line: Line
    found: Mapping[str, Slowness]  # by column

    @property
    def judged(self) -> dict[str, Slowness]:
        bounded = {one.column for one in self.line.figures if one.half_band_max is not None}
        return {column: one for column, one in self.found.items() if column in bounded}

    @property
    def verdict(self) -> str:
        """The worst; "" where nothing of it is judged."""
        verdicts = {one.verdict for one in self.judged.values()}
        return next((one for one in WORST_FIRST if one in verdicts), "")

    @property
    def wide(self) -> bool:
        """Whether more rounds may show what these do not."""
        return any(one.doubt for one in self.judged.values())

    def row(self) -> list[str]:
        """Of the table with HEAD."""
        ratios = [
            times3(self.found[column].ratio.median) if column in self.found else ""
            for column in ("CPU", "requests", "p99", "other")
        ]
        bands = ", ".join(one.half_band_text for one in self.judged.values())
        rounds = max((len(one.ratio.values) for one in self.found.values()), default=0)
        return [self.line.name, *ratios, bands, str(rounds), self._said()]

    def _said(self) -> str:
        if not self.verdict or self.verdict == NOT_SLOWER:
            return self.verdict or "reported"
        columns: dict[str, list[str]] = {}
        for column, one in self.judged.items():
            if one.verdict == self.verdict:
                columns.setdefault(one.doubt, []).append(column)
        why = [": ".join(filter(None, (", ".join(of), doubt))) for doubt, of in columns.items()]
        return f"{self.verdict} ({'; '.join(why)})"

    def to_json(self) -> dict[str, Any]:
        figures = {column: one.to_json() for column, one in self.found.items()}
        return {"line": self.line.name, "verdict": self.verdict, "figures": figures}


def times3(value: float) -> str:
    """Three decimals: a half-band is a few thousandths."""
    return "-" if value != value else f"{value:.3f}" if value < 10 else times(value)


def judged(line: Line, blocks: Blocks, new: str, old: str) -> Judged:
    found = {one.column: blocks.slowness(one, new, old) for one in line.figures}
    return Judged(line, found)
