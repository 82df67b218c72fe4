"""Whether a text is a regular expression, without a guarantee that it can be matched with.

For the patterns of subscriptions to client metrics, which are stored and returned. Compiling one
is no check of it: Python's compiler takes milliseconds for a set of seven bytes (`[\\1-\\uffff]`
without case), and its expressions are not Java's. So one look at each character says what both
refuse: brackets that do not close, a repetition of nothing, an escape of nothing.

Pure.
"""

from __future__ import annotations

import re
from typing import Final

_COUNTS: Final = re.compile(r"\{(\d{1,9})(,(\d{1,9})?)?\}", re.ASCII)


def is_expression(text: str) -> bool:
    groups = classes = 0
    repeatable = False  # whether there is something in front that can be repeated
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\":
            at += 1
            if at > len(text):
                return False
            repeatable = True
        elif character == "[":
            classes += 1
            at += text.startswith("^", at)
            at += text.startswith("]", at)  # as the first it is a character like any other
        elif classes:
            classes -= character == "]"
            repeatable = True
        elif character == "(":
            groups += 1
            at += text.startswith("?", at)
            repeatable = False
        elif character == ")":
            groups -= 1
            if groups < 0:
                return False
            repeatable = True
        elif character == "|":
            repeatable = False
        elif character in "*+?{":
            end = _repetition_end(text, at - 1)
            if not repeatable or end < 0:
                return False
            at = end + text.startswith(("?", "+"), end)  # reluctant, possessive
            repeatable = False
        else:
            repeatable = True
    return not groups and not classes


def _repetition_end(text: str, at: int) -> int:
    """The index after *, +, ? or {n,m}; -1: it is none."""
    if text[at] != "{":
        return at + 1
    counts = _COUNTS.match(text, at)
    if counts is None:
        return -1
    least, most = counts[1], counts[3]
    return -1 if most is not None and int(most) < int(least) else counts.end()
