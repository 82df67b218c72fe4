"""Numbers of a command line or a file, with the bounds of the field that they are for.

`int` raises ValueError for more than 4,300 digits, also where a pattern has let only digits pass.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import click

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"([+-]?)0*([0-9]{0,19})", re.ASCII)


def number_of(text: str, least: int, most: int) -> int | None:
    """The number that these ASCII digits are, with a sign perhaps. None: they are none, or it is
    outside of the bounds, which are those of 64 bits at most."""
    match = _NUMBER.fullmatch(text)
    if match is None or text[-1:] in ("", "+", "-"):
        return None
    number = int(match[1] + (match[2] or "0"))
    return number if least <= number <= most else None


def unsigned_of(text: str, most: int) -> int | None:
    """As `number_of`, of digits alone."""
    return number_of(text, 0, most) if text[:1].isdecimal() else None


class NumberRange(click.FloatRange):
    """Without NaN, which is in every range of click."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number
