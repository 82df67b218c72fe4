"""Text and numbers as a page shows them: cleaned, cut, short.

A record may hold any bytes; before it is printed, everything that is no character of a line
(control characters, halves of pairs, marks that turn the direction of the text) becomes a visible
sign.
"""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime
from typing import Final

TEXT_CHARS_MAX: Final = 2000
_HIDDEN: Final = frozenset({"Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
_TURNS: Final = frozenset(
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
)
_UNITS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
TIME_MS_MAX: Final = 253_402_300_799_000


def clean(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """The text on one line, at most so many characters, with nothing in it that hides."""
    if len(text) > chars_max:
        text = text[: chars_max - 1] + "\u2026"
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character in "\n\r\t":
        return " "
    if character in _TURNS or unicodedata.category(character) in _HIDDEN:
        return "\ufffd"
    return character


def short_number(value: float, digits: int = 4) -> str:
    """For an axis: 1500 is 1.5k, 0.25 is 0.25; of so many digits at most."""
    if not math.isfinite(value):
        return ""
    for size, unit in _UNITS:
        if abs(value) >= size:
            return f"{value / size:.{digits}g}{unit}"
    return f"{value:.{digits}g}"


def moment(ms: int) -> str:
    """Ms since 1970 as a time of the day in UTC; the number itself where there is no such day."""
    if not 0 <= ms <= TIME_MS_MAX:
        return f"{ms} ms"
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(ms: int) -> str:
    """How long, in the two largest units: 2 d 3 h, 45 min."""
    if ms < 0:
        return f"{ms} ms"
    seconds = ms // 1000
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"),
             (seconds // 60 % 60, "min"), (seconds % 60, "s")]  # fmt: skip
    first = next((n for n, (count, _) in enumerate(parts) if count), len(parts) - 1)
    largest = parts[first : first + 2]
    return " ".join(f"{count} {unit}" for count, unit in largest if count) or "0 s"
