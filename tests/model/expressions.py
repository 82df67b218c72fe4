"""Random regular expressions over names of topics, matched by RE2/J and by ours.

    python -m tests.model.expressions --count 100000 --seed 1
    python -m tests.model.expressions --write       the sample that the tests compare with

Expressions are put together from pieces of the whole syntax, some of them wrong. Half of them are
then broken at a place or two. An expression that ours refuses for its bounds is counted and not
compared.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final

from kbroker.coordinator.group.expressions import ExpressionError, NameExpression
from tests.support.source_tree import ROOT

SAMPLE: Final = ROOT / "tests/vectors/re2j_expressions.json"
SAMPLE_SIZE: Final = 600
REFUSED: Final = "-"
FAILED: Final = "!"  # RE2/J's stack is not deep enough
# Words of a refusal for a bound of ours.
BOUNDS: Final = ("states", "nested deeper", "characters, and", "repeats something more")

NAMES: Final = (
    "a", "b", "ab", "ba", "aab", "abab", "A", "K", "k", "s", "aB", "a.b", "a-b", "a_b", "a1", "1",
    "01", "a0", "abc", "abcabc", "__consumer_offsets", "orders", "orders-2", "Orders.EU", "x" * 30,
    "aaaaaaaa", "z9-._Z", "-", ".", "_", "ac", "b-a", "a-1.b_2",
)  # fmt: skip
_ATOMS: Final = (
    "a", "b", "c", "1", "-", "_", "A", "K", "ab", "orders", ".", "\\.", "\\-", "\\_", "\\d", "\\D",
    "\\w", "\\W", "\\s", "\\S", "\\pL", "\\PL", "\\p{Lu}", "\\p{^Ll}", "\\P{Nd}", "\\p{Greek}",
    "\\p{Latin}", "\\P{Common}", "\\p{Any}", "\\pN", "\\x41", "\\x{61}", "\\x{212A}", "\\x{17f}",
    "\\101", "\\07", "\\0", "\\1", "\\a", "\\t", "\\Qa.b\\E", "\\Q*\\E", "\\Q", "^", "$", "\\A",
    "\\z", "\\b", "\\B", "\\Z", "\\C", "\\E", "\\y", "\\p{Nothing}", "\\p", "\\pl", "\u212a",
    "\u017f", "\u00e9", "", " ", "]", "}", "{", "{1", "{,2}", "{1,2", "{01}", "é{2}", "\\é",
)  # fmt: skip
_SETS: Final = (
    "a", "b", "a-c", "0-9", "A-Z", "-", "\\d", "\\W", "\\pL", "\\P{Lu}", "[:alpha:]", "[:^digit:]",
    "[:word:]", "[:punct:]", "[:upper:]", "\\-", "\\]", "\\x41-\\x5a", "z-a", "[:nothing:]", "^",
    "[", "]", "\\b", "\\n", "[:", ":]", "a-\\d", "\\w-", "\u212a", "\\x{17f}", "\\Q", ".-_", "\\_",
    "!-~",
)  # fmt: skip
_COUNTS: Final = (
    "*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{1,2}", "{0,1}?", "{2,}", "{,3}", "{3,1}",
    "{0,0}", "**", "*{2}", "+*", "{2}{2}", "{1001}", "{1000}", "{99999999999}", "{0,}", "{1}?",
    "*+", "{ 1}",
)  # fmt: skip
_OPENED: Final = (
    "(", "(", "(", "(?:", "(?i:", "(?-i:", "(?P<n>", "(?P<m1>", "(?<n>", "(?s:", "(?mU:", "(?i-s:",
    "(?=", "(?!", "(?<=", "(?>", "(?P<>", "(?P<a-b>", "(?P=n)", "(?#x)", "(?-:", "(?i-:", "(?ii:",
)  # fmt: skip
_FLAGS: Final = ("(?i)", "(?-i)", "(?ims)", "(?)", "(?-)", "(?x)", "(?U)", "(?i-i)", "(?--i)")


def expression(dice: random.Random) -> str:
    text = _choice(dice, dice.randrange(1, 4))
    if dice.random() < 0.5:
        for _ in range(dice.randrange(1, 3)):
            at = dice.randrange(len(text) + 1)
            cut = at + dice.randrange(2)
            text = (
                text[:at] + dice.choice(("", "(", ")", "[", "]", "\\", "*", "|", "?")) + text[cut:]
            )
    return text


def _choice(dice: random.Random, depth: int) -> str:
    return "|".join(_sequence(dice, depth) for _ in range(dice.choice((1, 1, 1, 2, 3))))


def _sequence(dice: random.Random, depth: int) -> str:
    return "".join(_piece(dice, depth) for _ in range(dice.choice((0, 1, 1, 2, 3))))


def _piece(dice: random.Random, depth: int) -> str:
    kind = dice.random()
    if kind < 0.35 and depth:
        # The usual brackets mostly, so that something is compared.
        opened = dice.choice(_OPENED if dice.random() < 0.4 else _OPENED[:6])
        atom = opened + _choice(dice, depth - 1) + ")"
    elif kind < 0.5:
        items = "".join(dice.choice(_SETS[:15] if dice.random() < 0.8 else _SETS)
                        for _ in range(dice.randrange(1, 4)))  # fmt: skip
        atom = f"[{'^' if dice.random() < 0.3 else ''}{items}]"
    elif kind < 0.55:
        atom = dice.choice(_FLAGS)
    else:
        atom = dice.choice(_ATOMS[:20] if dice.random() < 0.7 else _ATOMS)
    if dice.random() < 0.4:
        atom += dice.choice(_COUNTS[:11] if dice.random() < 0.8 else _COUNTS)
    return atom


def expressions(seed: int) -> Iterator[str]:
    dice = random.Random(seed)
    while True:
        text = expression(dice)
        if "\n" not in text:
            yield text


def ours(text: str) -> tuple[str, str]:
    """A 0 or 1 for each name, or REFUSED; and why."""
    try:
        made = NameExpression(text)
    except ExpressionError as error:
        return REFUSED, str(error)
    matched = set(made.matching(NAMES))
    return "".join("1" if name in matched else "0" for name in NAMES), ""


def is_a_bound(reason: str) -> bool:
    return any(words in reason for words in BOUNDS)


def theirs(texts: list[str]) -> list[str]:
    from tests.support import kafka_group_rules  # where there is Java

    commands = ["N " + " ".join(NAMES), *(f"E {text.encode().hex()}" for text in texts)]
    return kafka_group_rules.answers(commands)


def compare(seed: int, count: int) -> tuple[list[str], Counter[str]]:
    """Differences, and how many of each kind there were."""
    texts = list(islice(expressions(seed), count))
    found, kinds = [], Counter[str]()
    for text, expected in zip(texts, theirs(texts), strict=True):
        answer, reason = ours(text)
        if expected == FAILED:
            kinds["beyond RE2/J's stack"] += 1
            continue
        if is_a_bound(reason) and expected != REFUSED:
            kinds["beyond our bounds"] += 1
            continue
        kinds["refused by both" if expected == REFUSED else "matched"] += answer == expected
        if answer != expected:
            kinds["different"] += 1
            found.append(f"{text!r}: RE2/J {expected}, here {answer} {reason}")
    return found, kinds


def write_sample() -> None:
    texts = list(dict.fromkeys(islice(expressions(42), 3 * SAMPLE_SIZE)))
    answers = theirs(texts)
    rows: list[list[str]] = []
    seen: Counter[str] = Counter()
    for text, answer in zip(texts, answers, strict=True):
        seen[answer] += answer != FAILED
        if len(rows) < SAMPLE_SIZE and (seen[answer] <= 20 or answer not in (REFUSED, "0" * 33)):
            rows.append([text, answer])
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    SAMPLE.write_text(f'{{\n "re2j": "1.8",\n "names": {json.dumps(NAMES)},\n "expressions": [\n'
                      f"{lines}\n ]\n}}\n")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    if chosen.write:
        write_sample()
        return 0
    found, kinds = compare(chosen.seed, chosen.count)
    print("\n".join(found[:50]))
    print(dict(kinds))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
