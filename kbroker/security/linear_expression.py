"""Regular expressions whose time grows with the text only, whatever the text is.

Place in the flow: `principal_rules` matches names with them that clients have in certificates.
Python's `re` goes back and tries again, for hours if the text is made for it, and holds the GIL all
the while: a client could stop the broker. Here all ways through the expression are followed side by
side, so each character costs as many steps as the expression has, and there is a bound of steps.

Results are those of `re` with re.ASCII. Expressions that need to go back (references to groups,
looking around, possessive repetitions) are refused, and those that repeat what may be empty, which
each engine ends in another way. Where `re` cannot take long either, it is used,
since it is faster by far. Source: R. Cox, "Regular Expression Matching: the Virtual Machine
Approach", 2009.

Immutable; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

STEPS_MAX: Final = 1_000_000
INSTRUCTIONS_MAX: Final = 2_000
_QUICK_STEPS_MAX: Final = 1_000_000
_FOLDED: Final = re.IGNORECASE
_CHAR, _SPLIT, _JUMP, _SAVE, _LOOK, _MATCH = range(6)
_DIGITS: Final = frozenset("0123456789")
_SPACES: Final = frozenset(" \t\n\r\f\v")
_WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_CATEGORIES: Final = {
    sre.CATEGORY_DIGIT: (_DIGITS, True), sre.CATEGORY_NOT_DIGIT: (_DIGITS, False),
    sre.CATEGORY_SPACE: (_SPACES, True), sre.CATEGORY_NOT_SPACE: (_SPACES, False),
    sre.CATEGORY_WORD: (_WORD, True), sre.CATEGORY_NOT_WORD: (_WORD, False),
}  # fmt: skip

Fits = Callable[[str], bool]
# Where groups begin and end; -1: a group that took no part. The whole match is group 0.
Spans = tuple[int, ...]


class TooManySteps(ValueError):
    """The text takes too long."""


class _Instruction(NamedTuple):
    """`target` and `other`: of a split, the one that is preferred and the one that is not."""

    kind: int
    target: int = 0
    other: int = 0
    fits: Fits | None = None
    looks: Callable[[str, int], bool] | None = None


class LinearExpression:
    """See the head of this file."""

    def __init__(self, pattern: str) -> None:
        """ValueError and re.error: it is none, or cannot be followed without going back."""
        self._quick = re.compile(pattern, re.ASCII)
        tree = parser.parse(pattern, re.ASCII)
        self.groups: Final[int] = self._quick.groups
        self._repeats = self._branches = 0
        self._depth = 0
        self._nested = False
        self._code: list[_Instruction] = []
        self._add(_SAVE, 0)
        self._compile(tree, tree.state.flags)
        self._add(_SAVE, 1)
        self._add(_MATCH)

    def fits(self, text: str) -> bool:
        """Whether it matches the whole text; TooManySteps."""
        if self._is_quick(text):
            return self._quick.fullmatch(text) is not None
        return self._run(text, 0, True, [STEPS_MAX]) is not None

    def replaced(self, text: str, write: Callable[[Sequence[str | None]], str]) -> str:
        """The text with each match in the place of which `write` puts one, as re.sub does; it gets
        the match and its groups. TooManySteps."""
        if self._is_quick(text):
            return self._quick.sub(lambda found: write((found[0], *found.groups())), text)
        parts: list[str] = []
        at, begin, left = 0, 0, [STEPS_MAX]
        while begin <= len(text):
            spans = self._run(text, begin, False, left)
            if spans is None:
                break
            parts += (text[at : spans[0]], write(_groups(text, spans)))
            at = spans[1]
            begin = at
            if spans[0] == spans[1]:  # after an empty match one that is longer, or a later one
                longer = self._run(text, begin, False, left, not_empty=True)
                if longer is None:
                    begin += 1
                else:
                    parts += (text[at : longer[0]], write(_groups(text, longer)))
                    at = begin = longer[1]
        return "".join((*parts, text[at:]))

    def _is_quick(self, text: str) -> bool:
        ways = (len(text) + 1) ** (self._repeats + 1) << self._branches
        return not self._nested and ways <= _QUICK_STEPS_MAX

    # --- to match -----------------------------------------------------------------------------

    def _run(
        self, text: str, begin: int, whole: bool, left: list[int], *, not_empty: bool = False
    ) -> Spans | None:
        """`whole`: to the end of the text. `not_empty`: and it begins at `begin`."""
        code = self._code
        none: Spans = (-1,) * (2 * self.groups + 2)
        found: Spans | None = None
        threads: list[tuple[int, Spans]] = []
        for at in range(begin, len(text) + 1):
            seen: set[int] = {each for each, _ in threads}
            if at == begin or not (whole or not_empty or found is not None):
                self._follow(threads, seen, 0, none, text, at, left)
            following: list[tuple[int, Spans]] = []
            seen = set()
            for number, spans in threads:
                instruction = code[number]
                if instruction.kind == _MATCH:
                    if (whole and at < len(text)) or (not_empty and spans[0] == spans[1]):
                        continue
                    found = spans
                    break  # the others are less preferred
                if at < len(text) and instruction.fits is not None and instruction.fits(text[at]):
                    self._follow(following, seen, number + 1, spans, text, at + 1, left)
            threads = following
            if not threads and (found is not None or whole or not_empty):
                break
        return found

    def _follow(
        self, threads: list[tuple[int, Spans]], seen: set[int], number: int, spans: Spans,
        text: str, at: int, left: list[int],
    ) -> None:  # fmt: skip
        """Adds what can be done at a place, the preferred first, each instruction once."""
        stack = [(number, spans)]
        while stack:
            number, spans = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            left[0] -= 1
            if left[0] < 0:
                raise TooManySteps("it takes too long to match")
            kind, target, other, _, looks = self._code[number]
            if kind == _JUMP:
                stack.append((target, spans))
            elif kind == _SPLIT:
                stack.append((other, spans))
                stack.append((target, spans))
            elif kind == _SAVE:
                stack.append((number + 1, (*spans[:target], at, *spans[target + 1 :])))
            elif kind == _LOOK:
                if looks is not None and looks(text, at):
                    stack.append((number + 1, spans))
            else:
                threads.append((number, spans))

    # --- to compile ---------------------------------------------------------------------------

    def _add(self, kind: int, target: int = 0, **more: Any) -> int:
        if len(self._code) == INSTRUCTIONS_MAX:
            raise ValueError("it repeats too much")
        self._code.append(_Instruction(kind, target, **more))
        return len(self._code) - 1

    def _compile(self, tree: Iterable[tuple[Any, Any]], flags: int) -> None:
        for kind, what in tree:
            if kind is sre.SUBPATTERN:
                self._group(what, flags)
            elif kind is sre.BRANCH:
                self._branch(what[1], flags)
            elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
                least, most, inner = what
                self._repeat(least, most, inner, kind is sre.MIN_REPEAT, flags)
            elif kind is sre.AT:
                self._add(_LOOK, looks=_place(what, flags))
            elif kind in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
                self._add(_CHAR, fits=_fits(kind, what, flags))
            else:
                raise ValueError(f"{str(kind).lower()} needs to go back in the text")

    def _group(self, what: Any, flags: int) -> None:
        group, added, removed, inner = what
        flags = (flags | added) & ~removed
        if group is not None:
            self._add(_SAVE, 2 * group)
        self._compile(inner, flags)
        if group is not None:
            self._add(_SAVE, 2 * group + 1)

    def _branch(self, branches: Sequence[Any], flags: int) -> None:
        self._nested = self._nested or self._depth > 0
        self._branches += len(branches)
        ends: list[int] = []
        for each in branches[:-1]:
            split = self._add(_SPLIT)
            self._compile(each, flags)
            ends.append(self._add(_JUMP))
            self._point(split, split + 1, len(self._code))
        self._compile(branches[-1], flags)
        for end in ends:
            self._point(end, len(self._code))

    def _repeat(self, least: int, most: int, inner: Any, is_lazy: bool, flags: int) -> None:
        if most > 1 and inner.getwidth()[0] == 0:
            raise ValueError("a part of it that may be empty is repeated")
        self._nested = self._nested or self._depth > 0
        self._repeats += 1
        self._depth += 1
        for _ in range(least):
            self._compile(inner, flags)
        if most is sre.MAXREPEAT:
            skip = self._add(_SPLIT)
            self._compile(inner, flags)
            again = self._add(_SPLIT)
            self._point(again, skip + 1, again + 1, is_lazy)
            self._point(skip, skip + 1, again + 1, is_lazy)
        else:
            skips = []
            for _ in range(most - least):
                skips.append(self._add(_SPLIT))
                self._compile(inner, flags)
            for skip in skips:
                self._point(skip, skip + 1, len(self._code), is_lazy)
        self._depth -= 1

    def _point(self, number: int, target: int, other: int = 0, is_lazy: bool = False) -> None:
        if is_lazy:
            target, other = other, target
        self._code[number] = self._code[number]._replace(target=target, other=other)


def _groups(text: str, spans: Spans) -> list[str | None]:
    pairs = zip(spans[::2], spans[1::2], strict=True)
    return [text[begin:end] if begin >= 0 and end >= 0 else None for begin, end in pairs]


def _fits(kind: Any, what: Any, flags: int) -> Fits:
    if kind is sre.ANY:
        return (lambda _: True) if flags & re.DOTALL else (lambda character: character != "\n")
    items = what if kind is sre.IN else [(sre.LITERAL, what)]
    negated = kind is sre.NOT_LITERAL
    if items and items[0][0] is sre.NEGATE:
        negated, items = True, items[1:]
    folds = bool(flags & _FOLDED)

    def fits(character: str) -> bool:
        codes = [ord(character)]
        if folds and character.isascii():
            codes.append(ord(character.swapcase()))
        return any(_is_in(code, items) for code in codes) != negated

    return fits


def _is_in(code: int, items: Sequence[tuple[Any, Any]]) -> bool:
    for kind, what in items:
        if kind is sre.LITERAL:
            if code == what:
                return True
        elif kind is sre.RANGE:
            if what[0] <= code <= what[1]:
                return True
        else:
            members, inside = _CATEGORIES[what]
            if (chr(code) in members) is inside:
                return True
    return False


def _place(what: Any, flags: int) -> Callable[[str, int], bool]:
    lines = bool(flags & re.MULTILINE)
    if what is sre.AT_BEGINNING_STRING or (what is sre.AT_BEGINNING and not lines):
        return lambda _, at: at == 0
    if what is sre.AT_BEGINNING:
        return lambda text, at: at == 0 or text[at - 1] == "\n"
    if what is sre.AT_END_STRING:
        return lambda text, at: at == len(text)
    if what is sre.AT_END and lines:
        return lambda text, at: at == len(text) or text[at] == "\n"
    if what is sre.AT_END:
        return lambda text, at: at == len(text) or (at == len(text) - 1 and text[at] == "\n")
    inside = what is sre.AT_BOUNDARY
    return lambda text, at: (_is_word(text, at - 1) != _is_word(text, at)) is inside


def _is_word(text: str, at: int) -> bool:
    return 0 <= at < len(text) and text[at] in _WORD
