"""The series that an expression of Prometheus reads."""

from __future__ import annotations

import re

WORD = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
OPERATORS = frozenset(
    ("and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right",
     "offset", "bool", "inf", "nan")
)  # fmt: skip


def series_names(expression: str) -> list[str]:
    """The series that a PromQL expression reads, in order; functions and labels are not series."""
    text = re.sub(r'"(?:\\.|[^"\\])*"', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", text)
    grouping = r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"
    text = re.sub(grouping, " ", text)
    found: list[str] = []
    for match in WORD.finditer(text):
        called = text[match.end() :].lstrip().startswith("(")
        number = match.start() > 0 and text[match.start() - 1].isdigit()
        if not called and not number and match[0].lower() not in OPERATORS:
            found.append(match[0])
    return found
