"""The page's colours, light and dark, as CSS variables.

Both sets have the same names; a test computes every contrast that matters: text against its
background at least 4.5 : 1, lines of plots at least 3 : 1 (WCAG 2.2, 1.4.3 and 1.4.11). `c0` to
`c7` are the colours of series: kbroker's, Apache Kafka's and the limit's own first.
"""

from __future__ import annotations

from typing import Final

LIGHT: Final = {
    "page": "#fafaf8",
    "card": "#ffffff",
    "ink": "#1b1f24",
    "muted": "#59616c",
    "grid": "#dcdfe3",
    "link": "#1a5fa0",
    "good": "#136a3a",
    "bad": "#b3261e",
    "open": "#80540a",
    "alarm": "#fdecea",
    "calm": "#e9f5ee",
    "doubt": "#fbf3e0",
    "glow": "#fff3c4",
    "c0": "#1f6fb5",
    "c1": "#c2570c",
    "c2": "#6b7280",
    "c3": "#1a7f4b",
    "c4": "#7d4cc0",
    "c5": "#bb2375",
    "c6": "#0b7681",
    "c7": "#856900",
}
DARK: Final = {
    "page": "#12161b",
    "card": "#191e24",
    "ink": "#e5e8ec",
    "muted": "#a3abb6",
    "grid": "#323941",
    "link": "#7db8f5",
    "good": "#63cf94",
    "bad": "#ff8f86",
    "open": "#e5b84c",
    "alarm": "#40191a",
    "calm": "#15301f",
    "doubt": "#33290f",
    "glow": "#4a3f12",
    "c0": "#6cb2f2",
    "c1": "#f59e5b",
    "c2": "#9aa4b2",
    "c3": "#5fcf92",
    "c4": "#b794f6",
    "c5": "#f27bb8",
    "c6": "#4fc6d1",
    "c7": "#d9bc4a",
}


def css(colours: dict[str, str]) -> str:
    """The set as declarations."""
    return "; ".join(f"--{name}: {value}" for name, value in colours.items())
