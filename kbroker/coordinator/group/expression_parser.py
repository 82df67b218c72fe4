"""Reads regular expressions in RE2/J's syntax, as a tree of texts that they accept.

Consumer groups subscribe by them (KIP-848). The syntax is that of RE2/J with Perl's extensions,
which Apache Kafka uses: classes of characters, `\\d`, `[[:alpha:]]`, `\\pL`, groups with names or
flags, counted and lazy repetitions, `\\Q...\\E`, `^`, `$`, `\\b`. What an automaton cannot do
(references, looking ahead or back) is no syntax there either.

The texts that are matched are names of topics: ASCII, in one line, and always matched as a whole.
So a set of characters is 128 bits, the flags `m`, `s` and `U` change nothing, a group is its
inside, and a lazy repetition is like any other.

The expression comes from a client and is hostile: the tree is as deep as DEPTH_MAX at most, and has
STATES_MAX states at most with its repetitions written out, which is known before they are. Pure;
any thread.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache
from typing import Final, NamedTuple

from kbroker.coordinator.group.unicode_names import SCRIPTS

STATES_MAX: Final = 1_000
DEPTH_MAX: Final = 200
REPEATS_MAX: Final = 1_000  # in one count, and of counts within counts
LENGTH_MAX: Final = 32_767

_RUNE_MAX: Final = 0x10FFFF
_ASCII: Final = 128
EVERY: Final = (1 << _ASCII) - 1
# Letters beyond ASCII that are the same as one of ASCII where case does not count.
_LONG_S, _KELVIN = 0x17F, 0x212A
_COUNT_DIGITS_MAX: Final = 8


class ExpressionError(ValueError):
    """The text is no expression, or one that is not supported; the words say why."""


class Place(Enum):
    """What an assertion is about."""

    BEGIN = "begin"
    END = "end"
    WORD_EDGE = "word edge"
    NOT_WORD_EDGE = "not a word edge"


class Chars(NamedTuple):
    """One character of the set, which has a bit for the code of each."""

    bits: int
    states: int = 1
    depth: int = 1
    repeats: int = 1


class At(NamedTuple):
    place: Place
    states: int = 1
    depth: int = 1
    repeats: int = 1


class Sequence(NamedTuple):
    parts: tuple[Node, ...]
    states: int
    depth: int
    repeats: int


class Choice(NamedTuple):
    parts: tuple[Node, ...]
    states: int
    depth: int
    repeats: int


class Repeat(NamedTuple):
    """`most` None: any number."""

    part: Node
    least: int
    most: int | None
    states: int
    depth: int
    repeats: int


# `states`: how many an automaton needs for it; `repeats`: the product of its counts within counts.
Node = Chars | At | Sequence | Choice | Repeat


def parse(text: str) -> Node:
    """ExpressionError."""
    if len(text) > LENGTH_MAX:
        raise ExpressionError(f"it has {len(text)} characters, and {LENGTH_MAX} are allowed")
    return _Parser(text).parsed()


def _whole(make: type[Sequence] | type[Choice], parts: list[Node], more_states: int) -> Node:
    states = sum(part.states for part in parts) + more_states
    depth = max((part.depth for part in parts), default=0) + 1
    return make(
        tuple(parts),
        _bounded(states),
        _not_too_deep(depth),
        max((part.repeats for part in parts), default=1),
    )


def _sequence(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else _whole(Sequence, parts, 0)


def _choice(parts: list[Node]) -> Node:
    """Single characters are one set, wherever they are among the others."""
    bits: int | None = None
    others: list[Node] = []
    for part in parts:
        if isinstance(part, Chars):
            bits = part.bits | (bits or 0)
        else:
            others.append(part)
    if bits is not None:
        others.append(Chars(bits))
    return others[0] if len(others) == 1 else _whole(Choice, others, len(others) - 1)


def _repeat(part: Node, least: int, most: int | None) -> Node:
    if most is None:
        states = max(least, 1) * part.states + 1
    else:
        states = most * part.states + (most - least)
    count = least if most is None else most
    repeats = 1 if most == 0 else max(count, 1) * part.repeats
    if count > 1 and repeats > REPEATS_MAX:
        raise ExpressionError(f"it repeats something more than {REPEATS_MAX} times")
    if part.states == 0:  # nothing, however often, which is not to be written out
        least, most, states = 1, 1, 0
    return Repeat(part, least, most, _bounded(states), _not_too_deep(part.depth + 1), repeats)


def _bounded(states: int) -> int:
    if states > STATES_MAX:
        raise ExpressionError(f"it needs more than {STATES_MAX} states")
    return states


def _not_too_deep(depth: int) -> int:
    if depth > DEPTH_MAX:
        raise ExpressionError(f"it is nested deeper than {DEPTH_MAX} levels")
    return depth


class _Group:
    """What was read since a bracket was opened: the parts of a sequence, and those before `|`."""

    def __init__(self, *, folds: bool) -> None:
        self.folds_outside: Final = folds
        self.parts: list[Node] = []
        self.choices: list[Node] = []

    def closed(self) -> Node:
        self.choices.append(_sequence(self.parts))
        return _choice(self.choices)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text: Final = text
        self._at = 0
        self._folds = False  # flag i: case does not count
        self._groups = [_Group(folds=False)]
        self._names: set[str] = set()
        self._last_class_end = text.rfind(":]")

    def parsed(self) -> Node:
        was_repeat = False
        while self._at < len(self._text):
            was_repeat = self._one(was_repeat)
        if len(self._groups) > 1:
            raise ExpressionError("a closing ) is missing")
        return self._groups[0].closed()

    def _one(self, was_repeat: bool) -> bool:
        """Read one construct; whether it was a repetition. `was_repeat`: so was the one before."""
        character = self._text[self._at]
        if character in "*+?":
            self._at += 1
            self._repeated(*_COUNTS[character], was_repeat)
            return True
        if character == "{" and (counts := self._counts()) is not None:
            self._repeated(*counts, was_repeat)
            return True
        read = _READERS.get(character)
        if read is None:
            self._at += 1
            self._push(self._literal(ord(character)))
            return character == "{"  # text, and still not to be repeated, as in RE2/J
        read(self)
        return False

    def _push(self, node: Node) -> None:
        self._groups[-1].parts.append(node)

    def _next(self, missing: str) -> str:
        if self._at >= len(self._text):
            raise ExpressionError(missing)
        self._at += 1
        return self._text[self._at - 1]

    def _follows(self, start: str) -> bool:
        """Whether this comes next; it is stepped over."""
        if self._text.startswith(start, self._at):
            self._at += len(start)
            return True
        return False

    # --- groups -----------------------------------------------------------------------------------

    def _open(self) -> None:
        self._at += 1
        outside = self._folds
        if self._follows("?") and not self._flags_or_name():
            return
        self._groups.append(_Group(folds=outside))

    def _flags_or_name(self) -> bool:
        """After `(?`; whether a group begins."""
        if self._follows("P<") or self._follows("<"):
            end = self._text.find(">", self._at)
            name = self._text[self._at : max(end, 0)]
            if not (name.isascii() and name.replace("_", "a").isalnum()):
                raise ExpressionError("(?P<...> has no name for its group")
            if name in self._names:
                raise ExpressionError("two groups have the same name")
            self._names.add(name)
            self._at = end + 1
            return True
        folds, on, some = self._folds, True, False
        while True:
            flag = self._next("a closing ) is missing")
            if flag in "imsU":
                some = True
                folds = on if flag == "i" else folds
            elif flag == "-" and on:
                on, some = False, False
            elif flag in ":)" and (on or some):
                self._folds = folds
                return flag == ":"
            else:
                raise ExpressionError("(? is followed by something that is not supported")

    def _bar(self) -> None:
        self._at += 1
        group = self._groups[-1]
        group.choices.append(_sequence(group.parts))
        group.parts = []

    def _close(self) -> None:
        self._at += 1
        if len(self._groups) == 1:
            raise ExpressionError("a ) closes nothing")
        group = self._groups.pop()
        self._folds = group.folds_outside
        self._push(group.closed())

    # --- repetitions ------------------------------------------------------------------------------

    def _repeated(self, least: int, most: int | None, was_repeat: bool) -> None:
        self._follows("?")  # lazy
        if was_repeat:
            raise ExpressionError("a repetition of a repetition")
        parts = self._groups[-1].parts
        if not parts:
            raise ExpressionError("a repetition of nothing")
        parts[-1] = _repeat(parts[-1], least, most)

    def _counts(self) -> tuple[int, int | None] | None:
        """`{n}`, `{n,}` or `{n,m}`; None: it is text."""
        start = self._at
        self._at += 1
        least = self._count()
        most = least
        if least is not None and self._follows(","):
            most = None if self._text.startswith("}", self._at) else self._count()
            if most is None and not self._text.startswith("}", self._at):
                least = None
        if least is None or not self._follows("}"):
            self._at = start
            return None
        if least > REPEATS_MAX or (most is not None and not least <= most <= REPEATS_MAX):
            raise ExpressionError(f"a count of repetitions that is not within {REPEATS_MAX}")
        return least, most

    def _count(self) -> int | None:
        end = self._at
        while end < len(self._text) and self._text[end] in "0123456789":
            end += 1
        digits = self._text[self._at : end]
        if not digits or (digits[0] == "0" and len(digits) > 1):
            return None
        self._at = end
        return int(digits) if len(digits) <= _COUNT_DIGITS_MAX else REPEATS_MAX + 1

    # --- characters -------------------------------------------------------------------------------

    def _literal(self, code: int) -> Node:
        return Chars(_bits(code, code, self._folds))

    def _any(self) -> None:
        self._at += 1
        self._push(Chars(EVERY & ~(1 << ord("\n"))))

    def _at_begin(self) -> None:
        self._at += 1
        self._push(At(Place.BEGIN))

    def _at_end(self) -> None:
        self._at += 1
        self._push(At(Place.END))

    def _backslash(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following in _PLACES:
            self._at += 2
            self._push(At(_PLACES[following]))
        elif following == "Q":
            end = self._text.find("\\E", self._at + 2)
            literal = self._text[self._at + 2 : end if end >= 0 else len(self._text)]
            self._at = end + 2 if end >= 0 else len(self._text)
            for character in literal:
                self._push(self._literal(ord(character)))
        elif (bits := self._shorthand()) is not None:
            self._push(Chars(bits))
        else:
            self._push(self._literal(self._escaped()))

    def _shorthand(self) -> int | None:
        r"""`\d`, `\pL` and such; None: it is another escape."""
        kind = self._text[self._at + 1 : self._at + 2]
        if kind in _SHORTHANDS:
            self._at += 2
            return _SHORTHANDS[kind]
        if kind not in ("p", "P"):
            return None
        self._at += 2
        negated = kind == "P"
        name = self._next("a class of Unicode has no name")
        if name == "{":
            end = self._text.find("}", self._at)
            if end < 0:
                raise ExpressionError("a class of Unicode is not closed")
            name = self._text[self._at : end]
            self._at = end + 1
        if name.startswith("^"):
            name, negated = name[1:], not negated
        bits = _of_unicode(name, self._folds)
        return EVERY & ~bits if negated else bits

    def _escaped(self) -> int:
        self._at += 1
        character = self._next("a backslash at the end")
        if character in "01234567":
            return self._octal(character)
        if character == "x":
            return self._hexadecimal()
        if character in _CONTROLS:
            return _CONTROLS[character]
        if not (character.isascii() and character.isalnum()):
            return ord(character)
        raise ExpressionError(f"there is no escape \\{character}")

    def _octal(self, first: str) -> int:
        digits = first
        while len(digits) < 3 and self._text[self._at : self._at + 1] in tuple("01234567"):
            digits += self._text[self._at]
            self._at += 1
        if len(digits) == 1 and first != "0":
            raise ExpressionError("references to groups are not supported")
        return int(digits, 8)

    def _hexadecimal(self) -> int:
        if self._follows("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : max(end, 0)]
            self._at = end + 1
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            if len(digits) < 2:
                digits = ""
        if not digits or not all(each in "0123456789abcdefABCDEF" for each in digits):
            raise ExpressionError("\\x without its number")
        code = int(digits.lstrip("0")[:7] or "0", 16)
        if code > _RUNE_MAX:
            raise ExpressionError("\\x has a number of no character")
        return code

    # --- sets -------------------------------------------------------------------------------------

    def _set(self) -> None:
        self._at += 1
        negated = self._follows("^")
        bits, is_first = 0, True
        while is_first or not self._text.startswith("]", self._at):
            if self._at >= len(self._text):
                raise ExpressionError("a closing ] is missing")
            is_first = False
            bits |= self._item()
        self._at += 1
        self._push(Chars(EVERY & ~bits if negated else bits))

    def _item(self) -> int:
        """A class, a character or a range."""
        if self._at < self._last_class_end and self._text.startswith("[:", self._at):
            end = self._text.find(":]", self._at + 1)  # also in [:], whose name is empty
            if end >= 0:
                name = self._text[self._at + 2 : end]
                self._at = end + 2
                return _of_posix(name, self._folds)
        if self._text.startswith("\\", self._at):
            bits = self._shorthand()
            if bits is not None:
                return bits
        low = high = self._in_set()
        if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] != "]":
            self._at += 1
            high = self._in_set()
            if high < low:
                raise ExpressionError("a range ends before it begins")
        return _bits(low, high, self._folds)

    def _in_set(self) -> int:
        if self._text.startswith("\\", self._at):
            return self._escaped()
        return ord(self._next("a closing ] is missing"))


# --- sets of characters ---------------------------------------------------------------------------


def _bits(low: int, high: int, folds: bool) -> int:
    bits = (1 << min(high + 1, _ASCII)) - (1 << min(low, _ASCII))
    if folds:
        bits = _folded(bits)
        for code, letters in ((_LONG_S, "sS"), (_KELVIN, "kK")):
            if low <= code <= high:
                bits |= _of(letters)
    return bits


def _of(characters: Iterable[str]) -> int:
    bits = 0
    for character in characters:
        bits |= 1 << ord(character)
    return bits


_LOWER: Final = _of("abcdefghijklmnopqrstuvwxyz")
_UPPER: Final = _of("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS: Final = _of("0123456789")
_WORD: Final = _LOWER | _UPPER | _DIGITS | _of("_")
_SPACES: Final = _of("\t\n\f\r ")
_CASE_BITS: Final = ord("a") - ord("A")


def _folded(bits: int) -> int:
    return bits | (bits & _UPPER) << _CASE_BITS | (bits & _LOWER) >> _CASE_BITS


_SHORTHANDS: Final = {
    "d": _DIGITS,
    "D": EVERY & ~_DIGITS,
    "s": _SPACES,
    "S": EVERY & ~_SPACES,
    "w": _WORD,
    "W": EVERY & ~_WORD,
}
_POSIX: Final = {
    "alnum": _LOWER | _UPPER | _DIGITS,
    "alpha": _LOWER | _UPPER,
    "ascii": EVERY,
    "blank": _of("\t "),
    "cntrl": _bits(0, 0x1F, folds=False) | 1 << 0x7F,
    "digit": _DIGITS,
    "graph": _bits(0x21, 0x7E, folds=False),
    "lower": _LOWER,
    "print": _bits(0x20, 0x7E, folds=False),
    "punct": _bits(0x21, 0x7E, folds=False) & ~(_LOWER | _UPPER | _DIGITS),
    "space": _bits(0x09, 0x0D, folds=False) | _of(" "),
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": _DIGITS | _of("abcdefABCDEF"),
}


def _of_posix(name: str, folds: bool) -> int:
    bits = _POSIX.get(name.removeprefix("^"))
    if bits is None:
        raise ExpressionError("there is no such class as in [[:alpha:]]")
    if folds:
        bits = _folded(bits)
    return EVERY & ~bits if name.startswith("^") else bits


_CATEGORY_NAMES: Final = (
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So"
    " Z Zl Zp Zs"
)
_CATEGORIES: Final = frozenset(_CATEGORY_NAMES.split())
_LETTERS: Final = _LOWER | _UPPER


def _of_unicode(name: str, folds: bool) -> int:
    """The part of a category or a script that is in ASCII."""
    if name == "Any":
        return EVERY
    if name in _CATEGORIES:
        bits = _of_category(name)
        return _folded(bits) if folds and name in ("Ll", "Lu") else bits
    if name == "Latin":
        return _LETTERS
    if name == "Common":
        return EVERY & ~_LETTERS
    if name not in SCRIPTS:
        raise ExpressionError("there is no such class of Unicode")
    return 0


@cache
def _of_category(name: str) -> int:
    """At most as many as there are categories."""
    return _of(
        chr(code) for code in range(_ASCII) if unicodedata.category(chr(code)).startswith(name)
    )


_COUNTS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_CONTROLS: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_PLACES: Final = {
    "A": Place.BEGIN,
    "z": Place.END,
    "b": Place.WORD_EDGE,
    "B": Place.NOT_WORD_EDGE,
}
_READERS: Final[dict[str, Callable[[_Parser], None]]] = {
    "(": _Parser._open,
    ")": _Parser._close,
    "|": _Parser._bar,
    "[": _Parser._set,
    ".": _Parser._any,
    "^": _Parser._at_begin,
    "$": _Parser._at_end,
    "\\": _Parser._backslash,
}
