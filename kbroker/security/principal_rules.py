"""ssl.principal.mapping.rules: how the name in a client's certificate becomes a user's name.

`DEFAULT` is the whole name; `RULE:pattern/replacement/` is for names that the whole pattern
matches, with `$1` for a group in the replacement and L or U at the end for small letters or
capitals. Rules are separated by commas, and the first that fits decides. Source: KIP-371.

Patterns are Java's. What Python's expressions do not have, or read in another way, is refused when
the broker starts, so that no name is mapped in another way than in Apache Kafka. The names come
from clients that an authority vouches for, and a pattern may take long for a name that was chosen
for it: names are bounded, and matched in a time that grows with their length only
(`linear_expression`).

Immutable; any thread.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Final, NamedTuple

from kbroker.security.linear_expression import LinearExpression, TooManySteps

PATTERN_CHARS_MAX: Final = 500
NAME_CHARS_MAX: Final = 4096
_RULES_MAX: Final = 1000
_RULE: Final = re.compile(
    r"[\s,]*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"[^\S\n]*(?:,|$)"
)
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|([\\$])", re.DOTALL)


class NoRuleFits(ValueError):
    """The client's name is not mapped: its connection ends."""


class _Rule(NamedTuple):
    """`pattern` None: DEFAULT. `replacement`: texts, and groups by their numbers."""

    pattern: LinearExpression | None
    replacement: tuple[str | int, ...] = ()
    case: str = ""

    def applied(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if not self.pattern.fits(name):
            return None
        made = self.pattern.replaced(name, self._written)
        return {"L": made.lower(), "U": made.upper()}.get(self.case, made)

    def _written(self, groups: Sequence[str | None]) -> str:
        return "".join(
            each if isinstance(each, str) else groups[each] or "" for each in self.replacement
        )


class PrincipalRules:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """ValueError if a rule is none, or cannot be applied as Java does."""
        self._rules = _parsed(text)

    def user_of(self, name: str) -> str:
        """The user's name for the name in a certificate; NoRuleFits if it has none."""
        if len(name) > NAME_CHARS_MAX:
            raise NoRuleFits(f"its name has more than {NAME_CHARS_MAX} characters")
        for rule in self._rules:
            try:
                made = rule.applied(name)
            except TooManySteps as error:
                raise NoRuleFits(f"of its name and a rule, {error}") from None
            if made is not None:
                return made
        raise NoRuleFits("no rule fits its name")


def _parsed(text: str) -> tuple[_Rule, ...]:
    rules: list[_Rule] = []
    at = 0
    while text[at:].strip(" \t,"):
        match = _RULE.match(text, at)
        if match is None:
            raise ValueError(f"{text[at:].strip()!r} does not begin with a rule")
        if match["default"]:
            rules.append(_Rule(None))
        else:
            pattern = _compiled(match["pattern"])
            rules.append(_Rule(pattern, _replacement(match["replacement"], pattern), match["case"]))
        at = match.end()
        if len(rules) > _RULES_MAX:
            raise ValueError(f"there are more than {_RULES_MAX} rules")
    if not rules:
        raise ValueError("there is no rule")
    return tuple(rules)


def _compiled(pattern: str) -> LinearExpression:
    if len(pattern) > PATTERN_CHARS_MAX:
        raise ValueError(f"a pattern has more than {PATTERN_CHARS_MAX} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # sets in sets, which Java reads in another way
            return LinearExpression(pattern)
    except (ValueError, re.error, FutureWarning, DeprecationWarning, OverflowError,
            RecursionError) as error:  # fmt: skip
        raise ValueError(f"the pattern {pattern!r} cannot be used: {error}") from None


def _replacement(text: str, pattern: LinearExpression) -> tuple[str | int, ...]:
    """A reference to a group that there is not is text."""
    parts: list[str | int] = []
    at = 0
    for match in _REFERENCE.finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
        if match[1] is not None:
            parts.append(match[1])
        elif match[2] is not None:
            parts += _reference(match[2], pattern.groups)
        else:
            raise ValueError(f"the replacement {text!r} has {match[3]!r} without a group")
    return (*parts, text[at:])


def _reference(digits: str, groups: int) -> list[str | int]:
    for end in range(len(digits), 0, -1):  # as many digits as name a group
        if int(digits[:end]) <= groups:
            return [int(digits[:end]), digits[end:]]
    return [f"${digits}"]
