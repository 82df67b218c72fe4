"""Keys, values and headers as text: what clients have sent, drawn for people.

Bytes that are no text are drawn as hexadecimal numbers. A text stays as it is, with whatever
characters it has: `render.py` escapes it as every other text. Null is None, and an empty text is
empty: the two are drawn differently. Each payload is cut at a bound. Pure; any thread.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kbroker.protocol.record_batch import Headers

# Text with a larger part of characters that no page can draw is drawn as numbers.
_UNPRINTABLE_RATIO_MAX: Final = 0.1
_SPACES: Final = "\t\n\r"
_UTF8_BYTES_MAX: Final = 4
HEADERS_MAX: Final = 50
_MORE: Final = "…"
_INDENT: Final = "  "
# More levels of JSON are not indented: a page is not as wide.
_LEVELS_MAX: Final = 40


class Form(StrEnum):
    AUTO = "auto"  # text where it is one, else hexadecimal numbers
    TEXT = "text"
    JSON = "json"  # indented, where it is JSON
    HEX = "hex"


class Drawn(NamedTuple):
    """`form`: null, empty, text, json or hex."""

    text: str | None
    form: str


def draw(payload: bytes | None, form: Form, chars_max: int) -> Drawn:
    if payload is None:
        return Drawn(None, "null")
    if not payload:
        return Drawn("", "empty")
    if form is Form.HEX:
        return _hexadecimal(payload, chars_max)
    text = _text(payload, chars_max)
    if text is None or (form is not Form.TEXT and not _is_printable(text)):
        return _hexadecimal(payload, chars_max)
    if form is Form.JSON and len(text) <= chars_max and len(payload) <= _UTF8_BYTES_MAX * chars_max:
        indented = indented_json(text)
        if indented is not None:
            return Drawn(_cut(indented, chars_max), "json")
    return Drawn(_cut(text, chars_max), "text")


def draw_headers(headers: Headers, form: Form, chars_max: int) -> str:
    """A line for each: name=value; a null value has no =."""
    lines: list[str] = []
    for name, value in headers[:HEADERS_MAX]:
        drawn = draw(value, form, chars_max)
        title = _cut(name, chars_max)
        lines.append(title if drawn.text is None else f"{title}={drawn.text}")
    if len(headers) > HEADERS_MAX:
        lines.append(f"{_MORE} and more")
    return _cut("\n".join(lines), chars_max)


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[:chars_max] + _MORE


def _text(payload: bytes, chars_max: int) -> str | None:
    """The beginning of it, one character more than are drawn; None: it is no UTF-8."""
    piece = payload[: _UTF8_BYTES_MAX * (chars_max + 1)]
    for left_out in range(_UTF8_BYTES_MAX if len(piece) < len(payload) else 1):
        try:
            return piece[: len(piece) - left_out].decode()[: chars_max + 1]
        except UnicodeDecodeError:
            continue
    return None


def _is_printable(text: str) -> bool:
    if text.isprintable():
        return True
    bad = sum(not (character.isprintable() or character in _SPACES) for character in text)
    return bad <= _UNPRINTABLE_RATIO_MAX * len(text)


def _hexadecimal(payload: bytes, chars_max: int) -> Drawn:
    """Two digits for each byte."""
    return Drawn(_cut(payload[: chars_max // 3 + 1].hex(" "), chars_max), "hex")


def indented_json(text: str) -> str | None:
    """The same JSON over several lines; None: it is not JSON, or a single value. Names, numbers and
    texts stay as they were sent: only blanks between them change."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    out: list[str] = []
    level = 0
    in_string = escaped = False
    for character in text:
        if in_string:
            out.append(character)
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            out.append(character)
            in_string, escaped = True, False
        elif character in "{[":
            level += 1
            out += (character, _line(level))
        elif character in "}]":
            level -= 1
            if out[-2] in "{[" and out[-1][0] == "\n":  # an empty one
                out[-1] = character
            else:
                out += (_line(level), character)
        elif character == ",":
            out += (character, _line(level))
        elif character == ":":
            out.append(": ")
        elif not character.isspace():
            out.append(character)
    return "".join(out)


def _line(level: int) -> str:
    return "\n" + _INDENT * min(level, _LEVELS_MAX)
