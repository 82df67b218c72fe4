"""Which predicates of a report's JSON are asked of Spark: `check(where, columns)`.

A report says of every number how its rows are found, as a Spark SQL predicate; spark_jobs.rows runs
it. But a file may hold anything, and an expression of Spark's may call any function, some of which
run whatever Java they name. So a predicate is taken apart first: it may compare columns of its
table with literals, joined by words of the list below, and call the few functions that the sections
use. Anything else is refused by name, before Spark sees it. This cuts text into words, nothing
more: what is left wrong is Spark's to say.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from spark_jobs.report_model import ReportError

CHARS_MAX: Final = 200_000

WORDS: Final = frozenset({
    "and", "or", "not", "in", "between", "is", "null", "true", "false", "like", "date", "timestamp",
    "distinct", "from", "case", "when", "then", "else", "end", "as", "bigint", "double", "string",
})  # fmt: skip
FUNCTIONS: Final = frozenset({
    "abs", "cast", "coalesce", "concat_ws", "date_trunc", "double", "element_at", "floor",
    "greatest", "hour", "isnan", "least", "length", "lower", "round", "size", "timestamp_millis",
    "to_date", "unix_millis", "upper",
})  # fmt: skip
# Words after which a parenthesis opens a group and calls nothing.
_BEFORE_A_GROUP: Final = frozenset({"and", "or", "not", "in", "when", "then", "else", "between"})

_TOKEN: Final = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<text>'(?:[^'\\]|\\.|'')*')"
    r"|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?[LDld]?\b)"
    r"|`(?P<quoted>[^`]+)`"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<sign><=>|<=|>=|<>|!=|==|[-+*/%<>=(),.\[\]])",
    re.DOTALL | re.ASCII,
)
_CALL: Final = re.compile(r"\s*\(")


def check(where: str, columns: Collection[str]) -> str:
    """The predicate itself; ReportError in one line for one that is not asked."""
    if len(where) > CHARS_MAX:
        raise ReportError(f"a predicate of {len(where)} characters: at most {CHARS_MAX} are asked")
    if "$" in where:  # which Spark fills in before it reads anything
        raise _refused("a literal's $ is written \\u0024", where)
    place = 0
    before = ""
    while place < len(where):
        token = _TOKEN.match(where, place)
        if token is None or where.startswith(("--", "/*"), place):
            raise _refused(f"{where[place : place + 2]!r} has no place in it", where)
        place = token.end()
        if token["space"]:
            continue
        _check_word(token, before, bool(_CALL.match(where, place)), columns, where)
        before = token[0].lower()
    return where


def _check_word(
    token: re.Match[str], before: str, calls: bool, columns: Collection[str], where: str
) -> None:
    quoted, word = token["quoted"], token["word"]
    if before == "." and (word or quoted):
        # A field of a column; methods there are none, but a call is a function's all the same.
        if calls:
            raise _refused(f"the function {(word or quoted)!r} is not called", where)
        return
    if quoted is not None:
        if calls or quoted not in columns:
            raise _refused(f"{quoted!r} is no column of the table", where)
        return
    if word is None:
        return
    small = word.lower()
    if calls and small not in FUNCTIONS and small not in _BEFORE_A_GROUP:
        raise _refused(f"the function {word!r} is not called", where)
    if not calls and small not in WORDS and word not in columns:
        raise _refused(f"{word!r} is no column of the table", where)


def _refused(why: str, where: str) -> ReportError:
    cut = where if len(where) <= 120 else where[:119] + "\u2026"
    return ReportError(f"the predicate is not asked, {why}: {cut!r}")
