"""Pairs of text and ground in the report's page that must be readable, and how readable they
are."""

from __future__ import annotations

from typing import Final

# Names of the theme's colours: text, then lines and signs, and what they stand on.
TEXT_ON: Final = (
    ("ink", "page"), ("ink", "card"), ("ink", "alarm"), ("ink", "calm"), ("ink", "glow"),
    ("muted", "page"), ("muted", "card"), ("link", "page"), ("link", "card"),
    ("good", "card"), ("bad", "card"), ("open", "card"), ("bad", "alarm"), ("good", "calm"),
    ("ink", "doubt"), ("open", "doubt"),
)  # fmt: skip
LINES_ON: Final = tuple((f"c{n}", "card") for n in range(8))


def contrast(one: str, other: str) -> float:
    """Of two colours "#rrggbb", from 1 to 21 (WCAG 2.2's contrast ratio)."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(int(colour[n : n + 2], 16) / 255) for n in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
