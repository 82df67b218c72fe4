"""The one judge: blocks of several sides, paired by round, and what may be concluded from them.

A *block* is one figure of one side in one round, and whether nothing else ran meanwhile.
Blocks are paired by their round, never by their place in a list. A round counts if every side has
one quiet block in it: a block beside which something else ran does not count, and neither does one
of which that is not known. From the ratios of these rounds come the median and its exact interval.

The *null test* pairs blocks of one side with blocks of the same side, measured right after them.
Their ratio, a factor around 1, is the *band*: in it a ratio says nothing.

Three questions are answered:

- `judge`: do two sides differ? No result if there are fewer than PAIRS_MIN quiet rounds, if the
  interval contains 1, or if it reaches into the band. A ratio of 10 is decided although the band is
  20 % wide; a ratio of 1.1 is not.
- `Bar`: does a value, or a ratio, meet a bound? Only the whole interval, widened by the band, does.
- `not_slower`: is a build not slower than another one? The median must be at most 1 + the half-band
  of the null test, over ROUNDS_MIN quiet rounds. A half-band that is too wide shows nothing.

Pure functions; the jobs for Spark use them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from perf.stats import PAIRS_MIN, Estimate, estimate

NO_RESULT: Final = "no result"
NOT_MEASURED, PASSED, FAILED = "not measured", "pass, surely", "FAIL"
NOT_SLOWER, SLOWER, UNDECIDED = "not slower", "slower", "undecided"
ROUNDS_MIN: Final = 15  # of two builds, before one of them may be called not slower

Direction = Literal["more", "less", ""]


# -- blocks and rounds


class Block(NamedTuple):
    """One side's figure in one round. `quiet` None: not known; `value` NaN: not measured."""

    round: Hashable
    quiet: bool | None
    value: float


class Measured(Protocol):
    """What was measured in a round, one figure or several."""

    @property
    def round(self) -> Hashable: ...

    @property
    def quiet(self) -> bool | None: ...


One = TypeVar("One", bound=Measured)


def side(found: Iterable[One], figure: Callable[[One], float]) -> list[Block]:
    """One figure of everything that was measured of a side."""
    return [Block(one.round, one.quiet, figure(one)) for one in found]


@dataclass(frozen=True)
class Together:
    """The rounds that all of some sides have. `quiet`: the figures, one of each side."""

    quiet: Mapping[Hashable, tuple[float, ...]] = field(default_factory=dict)
    noisy: int = 0
    unknown: int = 0
    empty: int = 0  # rounds with a figure that is not above 0, of which there is no ratio

    @property
    def rounds(self) -> int:
        return len(self.quiet) + self.noisy + self.unknown + self.empty

    @property
    def ratio(self) -> Estimate:
        """The first side by the second, round by round."""
        return estimate([figures[0] / figures[1] for figures in self.quiet.values()])

    def lacking(self, needed: int = PAIRS_MIN) -> str:
        """Why so few rounds decide nothing."""
        return lacking(len(self.quiet), needed=needed, noisy=self.noisy, unknown=self.unknown)


def together(*sides: Iterable[Block]) -> Together:
    """Some sides by round. A round of which a side has several blocks is none: which belongs to
    which is not known."""
    each = [_by_round(side) for side in sides]
    quiet: dict[Hashable, tuple[float, ...]] = {}
    noisy = unknown = empty = 0
    for number in each[0]:
        blocks = [side[number] for side in each if number in side]
        if len(blocks) < len(each):
            continue
        if any(block.quiet is False for block in blocks):
            noisy += 1
        elif not all(block.quiet for block in blocks):
            unknown += 1
        elif min(block.value for block in blocks) <= 0:
            empty += 1
        else:
            quiet[number] = tuple(block.value for block in blocks)
    return Together(quiet, noisy, unknown, empty)


def _by_round(side: Iterable[Block]) -> dict[Hashable, Block]:
    measured = [block for block in side if math.isfinite(block.value)]
    times_seen = Counter(block.round for block in measured)
    return {block.round: block for block in measured if times_seen[block.round] == 1}


def band_of(null: Estimate) -> float:
    """How far a side comes out from 1 when it is compared with itself, as a factor of at least 1.

    The wider end, taken in both directions: which of two equal blocks came first says nothing. Few
    pairs give what was seen of them, none give 1, which leaves the interval as the only test.
    """
    if not null.values or null.low <= 0:
        return 1.0
    return max(1.0, null.high, 1 / null.low)


def widest(nulls: Iterable[Together]) -> float:
    return max((band_of(null.ratio) for null in nulls), default=1.0)


# -- do two sides differ?


@dataclass(frozen=True)
class Verdict:
    """A ratio and whether it is a result. `reason` says why it is none; "" if it is."""

    ratio: Estimate
    reason: str = ""
    band: float = 1.0  # what the null test allows: from 1/band to band

    @property
    def decided(self) -> bool:
        return not self.reason

    @property
    def direction(self) -> Direction:
        """Which way the ratio lies; "" if that is not decided."""
        if not self.decided:
            return ""
        return "more" if self.ratio.median > 1 else "less"

    @property
    def rounds(self) -> int:
        return len(self.ratio.values)

    def numbers(self) -> str:
        """The ratio in words: "1.31 times (1.22 to 1.40, n=7)"."""
        if not self.ratio.values:
            return "nothing to compare"
        found = self.ratio
        return (
            f"{times(found.median)} times ({times(found.low)} to {times(found.high)},"
            f" n={self.rounds})"
        )

    def seen(self) -> str:
        """The ratio, then why it is no result: "1.05 times (0.97 to 1.1, n=7), ..."."""
        if self.decided:
            return self.numbers()
        return f"{self.numbers()}, {self.reason}" if self.ratio.values else self.reason

    def words(self) -> str:
        """The ratio, or that there is no result, what was seen and why it is none."""
        return self.seen() if self.decided else f"{NO_RESULT}: {self.seen()}"

    def to_json(self) -> dict[str, Any]:
        """Without NaN, which JSON does not know."""
        numbers = self.ratio.to_json() if self.ratio.values else None
        return {
            "ratio": numbers,
            "decided": self.decided,
            "direction": self.direction,
            "reason": self.reason,
            "band": self.band,
        }


def judge(found: Together, nulls: Iterable[Together] = ()) -> Verdict:
    """The first side by the second."""
    ratio, band = found.ratio, widest(nulls)
    if not ratio.decides:
        return Verdict(ratio, found.lacking(), band)
    if ratio.low <= 1 <= ratio.high:
        return Verdict(ratio, "no difference found", band)
    if ratio.low <= band and ratio.high >= 1 / band:
        return Verdict(ratio, f"within the null test's {times(band)}", band)
    return Verdict(ratio, "", band)


# -- does it meet a bound?


@dataclass(frozen=True)
class Bar:
    """A bound, and the value that must be at most as large."""

    what: str
    bar: float
    value: Estimate | None  # None: not measured
    unit: str
    band: float = 1.0
    doubt: str = ""  # why these values have no result, whatever they are

    @property
    def verdict(self) -> str:
        value = self.value
        if value is None:
            return NOT_MEASURED
        if self.doubt or not value.decides:
            return f"{NO_RESULT}: {self.doubt or lacking(len(value.values), 'values')}"
        if value.high * self.band <= self.bar:
            return PASSED
        if value.low / self.band > self.bar:
            return FAILED
        band = f" and the null test's {times(self.band)}" if self.band > 1 else ""
        return f"{NO_RESULT}: the bar lies within the interval{band}"

    @property
    def fine(self) -> bool:
        """Passed, or not asked for."""
        return self.verdict in (PASSED, NOT_MEASURED)


def value_bar(what: str, bar: float, unit: str, found: Iterable[tuple[float, bool]]) -> Bar:
    """From values, each with whether it was quiet."""
    every = list(found)
    if not every:
        return Bar(what, bar, None, unit)
    value = estimate([one for one, quiet in every if quiet])
    noisy = len(every) - len(value.values)
    doubt = "" if value.decides else lacking(len(value.values), "values", noisy=noisy)
    return Bar(what, bar, value, unit, doubt=doubt)


def ratio_bar(
    what: str,
    bar: float,
    unit: str,
    found: Together,
    nulls: Iterable[Together] = (),
    *,
    doubt: str = "",
) -> Bar:
    """The bar that the first side has at most so many times the second's figure."""
    if not found.rounds:
        return Bar(what, bar, None, unit)
    few = "" if found.ratio.decides else found.lacking()
    return Bar(what, bar, found.ratio, unit, widest(nulls), few or doubt)


# -- is a build not slower than another one?


@dataclass(frozen=True)
class Slowness:
    """The new build's figure by the old build's. `doubt` says why it is undecided."""

    ratio: Estimate
    half_band: float
    most: float
    doubt: str = ""

    @property
    def verdict(self) -> str:
        if self.doubt:
            return UNDECIDED
        return NOT_SLOWER if self.ratio.median <= self.most + self.half_band else SLOWER

    @property
    def half_band_text(self) -> str:
        return "-" if math.isnan(self.half_band) else f"{self.half_band:.1%}"

    def to_json(self) -> dict[str, Any]:
        return {
            "ratio": self.ratio.to_json(),
            "half_band": None if math.isnan(self.half_band) else self.half_band,
            "most": self.most,
            "verdict": self.verdict,
            "reason": self.doubt,
        }


def not_slower(
    found: Together, nulls: Iterable[Together], *, half_band_max: float, most: float = 1.0
) -> Slowness:
    """Whether the median of the ratios is at most `most` + the half-band of the null tests."""
    tests = list(nulls)
    measured = [test for test in tests if test.quiet]
    half_band = widest(measured) - 1 if measured else math.nan
    doubt = ""
    if len(found.quiet) < ROUNDS_MIN:
        doubt = found.lacking(ROUNDS_MIN)
    elif few := next((test for test in tests if not test.ratio.decides), None):
        doubt = f"null test: {few.lacking()}"
    elif not tests:
        doubt = "no null test"
    elif half_band > half_band_max:
        doubt = f"the half-band of {half_band:.1%} is above {half_band_max:.0%}"
    return Slowness(found.ratio, half_band, most, doubt)


# -- in words


def times(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def lacking(
    count: int, what: str = "rounds", *, needed: int = PAIRS_MIN, noisy: int = 0, unknown: int = 0
) -> str:
    """Why so few decide nothing: "4 of 6 rounds needed (3 noisy left out: something else ran)"."""
    out = []
    if noisy:
        out.append(f"{noisy} noisy left out: something else ran")
    if unknown:
        out.append(f"{unknown} left out: not known to be quiet")
    return f"{count} of {needed} {what} needed" + (f" ({'; '.join(out)})" if out else "")
