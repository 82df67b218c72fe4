"""The format of `java.util.Properties`: server.properties and client.properties.

Each logical line is a key and a value, or a comment that # or ! begins. A backslash before a line's
end joins the next line to it, without that one's leading white space; before u and four hexadecimal
digits it is a UTF-16 unit; before t, n, r and f a control character; before anything else that
character. The key ends at the first =, : or white space without a backslash.

Source: the documentation of java.util.Properties (load, store). The library javaproperties imports
XML and HTTP, which each broker would keep in memory; the tests compare with it.
"""

from __future__ import annotations

import re
from typing import Final

_LINE: Final = re.compile(
    r"[ \t\f]*"
    r"(?:[#!][^\r\n]*|(?P<text>(?:[^\\\r\n]|\\(?:\r\n|[\s\S]))*))"
    r"\\?(?:\r\n|\r|\n|\Z)"
)
_JOINED: Final = re.compile(r"\\(?:\r\n|\r|\n)[ \t\f]*")
_PAIR: Final = re.compile(
    r"(?P<key>(?:[^\\=: \t\f]|\\[\s\S])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>[\s\S]*)"
)
_ESCAPE: Final = re.compile(r"\\(?:u(?P<unit>[0-9a-fA-F]{4})|(?P<other>[\s\S]))")
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TO_ESCAPE: Final = re.compile(r"[\\=:#!\t\n\r\f]|[^ -~]")
_NAMES: Final = {character: name for name, character in _CONTROLS.items()}


def loads(text: str) -> dict[str, str]:
    """Keys and values; of a key that comes twice the last value. ValueError: an escape is wrong."""
    found: dict[str, str] = {}
    for line in _LINE.finditer(text):  # one after the other: each part of a line may be empty
        logical = _JOINED.sub("", line["text"] or "")
        if logical:
            key, value = _PAIR.findall(logical)[0]
            found[_unescaped(key)] = _unescaped(value)
    return found


def dumped(key: str, value: str) -> str:
    """One line, without its end, that `loads` reads as this key and value; in ASCII."""
    name = _TO_ESCAPE.sub(_escaped, key).replace(" ", "\\ ")
    before = "\\" if value.startswith(" ") else ""
    return f"{name}={before}{_TO_ESCAPE.sub(_escaped, value)}"


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    units = _ESCAPE.sub(_character, text)
    # Two units beyond the first plane are one character.
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _character(escape: re.Match[str]) -> str:
    if escape["unit"] is not None:
        return chr(int(escape["unit"], 16))
    other = escape["other"]
    if other == "u":
        raise ValueError(f"four hexadecimal digits must follow \\u at {escape.string[:60]!r}")
    return _CONTROLS.get(other, other)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in _NAMES:
        return "\\" + _NAMES[character]
    if character in "\\=:#!":
        return "\\" + character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
