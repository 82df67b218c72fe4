"""When a ratio is a result, and the words for when it is none: of perf, its studies and the report.

A ratio is "no result" if

- fewer than PAIRS_MIN rounds have a quiet block on both sides: a block beside which something else
  ran does not count, nor does one of which that is not known;
- the interval contains 1: no difference shown; the interval says how large one could still be;
- it reaches into the null test's *band*: a broker (or value) held against itself, two blocks in a
  row, comes out as 1 give or take that factor. A ratio of 10 is decided although the band is 20 %
  wide; a ratio of 1.1 is not.

Only a whole interval outside of the band is a verdict. Pure functions; the jobs for Spark use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from perf.stats import PAIRS_MIN, Estimate

NO_RESULT: Final = "no result"

Direction = Literal["more", "less", ""]


@dataclass(frozen=True)
class Verdict:
    """A ratio and whether it stands. `reason` says why it does not; "" if it does."""

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
        """The ratio, and behind it why it does not stand: "1.05 times (0.97 to 1.1, n=7), ..."."""
        if self.decided:
            return self.numbers()
        return f"{self.numbers()}, {self.reason}" if self.ratio.values else self.reason

    def words(self) -> str:
        """The ratio, or that there is no result, what was seen and why it does not stand."""
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


def times(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def judge(found: Estimate, *, band: float = 1.0, noisy: int = 0, unknown: int = 0) -> Verdict:
    """`found` is of quiet pairs alone; so many others were noisy, or not known to be quiet."""
    if not found.decides:
        return Verdict(found, lacking(len(found.values), noisy=noisy, unknown=unknown), band)
    if found.low <= 1 <= found.high:
        return Verdict(found, "no difference shown", band)
    if found.low <= band and found.high >= 1 / band:
        return Verdict(found, f"within the null test's {times(band)}", band)
    return Verdict(found, "", band)


def lacking(count: int, what: str = "rounds", *, noisy: int = 0, unknown: int = 0) -> str:
    """Why so few decide nothing: "4 of 6 rounds needed (3 noisy left out: something else ran)"."""
    out = []
    if noisy:
        out.append(f"{noisy} noisy left out: something else ran")
    if unknown:
        out.append(f"{unknown} left out: not known to be quiet")
    return f"{count} of {PAIRS_MIN} {what} needed" + (f" ({'; '.join(out)})" if out else "")


def band_of(null: Estimate) -> float:
    """How far what was held against itself comes out from 1, as a factor of at least 1.

    The wider end, taken in both directions: which of two equal blocks came first says nothing. Few
    pairs give what was seen of them, none give 1, which leaves the interval as the only test.
    """
    if not null.values or null.low <= 0:
        return 1.0
    return max(1.0, null.high, 1 / null.low)
