"""What settings change, as it was measured: data that `kbroker doctor` shows beside each setting.

`effects.json` is beside this file and is written by `kbroker perf show --write-effects`; its
words are made where the measurements are (perf/studies/tune_answers.py), this only reads them. It
is a file that may have been edited: it is bounded, every entry is checked, and one that is
damaged or of another schema counts as none, since a broker's health does not hang on it.

Level: config. A broker never reads it.
"""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple

SCHEMA: Final = 1
# Of values whose effect the run could not bound: another machine, or more rounds, might.
CANNOT_BE_DECIDED: Final = "cannot be decided here"
FILE_BYTES_MAX: Final = 1 << 20
WORDS_CHARS_MAX: Final = 500
_PATH: Final = os.path.join(os.path.dirname(__file__), "effects.json")


class Tried(NamedTuple):
    """A value against the default; `decided`: a difference was found."""

    value: str
    words: str
    decided: bool


class KnobEffects(NamedTuple):
    """A setting with the values that were tried, or why it was not."""

    name: str  # the key, or key@whose where it is not the broker's
    key: str
    default: str
    document: str  # the value that a document advises on the machine of the measurement
    tried: tuple[Tried, ...]
    why_not: str = ""

    def brief(self) -> str:
        """Whether there is something to read in `line`."""
        if self.why_not:
            return "not measured"
        if any(one.decided for one in self.tried):
            return "measured: an effect"
        return f"measured: {self._nothing_shown}"

    @property
    def _nothing_shown(self) -> str:
        unclear = any(one.words.count(CANNOT_BE_DECIDED) for one in self.tried)
        return CANNOT_BE_DECIDED if unclear else "no effect found"

    def line(self, ours: str) -> str:
        """The effect of the document's value, and of ours where that is another one."""
        if self.why_not:
            return self.why_not
        by_value = {one.value: one for one in self.tried}
        parts = []
        advised = by_value.get(self.document)
        if advised is not None:
            parts.append(f"{advised.value} instead of {self.default}: {advised.words}")
        elif found := [one for one in self.tried if one.decided]:
            parts.extend(f"{one.value} instead of {self.default}: {one.words}" for one in found)
        else:
            values = ", ".join(by_value)
            parts.append(f"{self._nothing_shown} by {values} instead of {self.default}")
        own = by_value.get(ours)
        if own is not None and own is not advised and not (advised is None and own.decided):
            parts.append(f"with {ours}: {own.words}")
        return " | ".join(parts)


class Effects(NamedTuple):
    machine: str
    date: str
    knobs: tuple[KnobEffects, ...]


def default_path() -> str:
    return _PATH


def load(path: str = _PATH) -> Effects | None:
    """The effects; None if there are none or the file is not what was written."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(FILE_BYTES_MAX + 1)
        import json  # only where there is something to read: doctor has little time

        data = json.loads(text) if len(text) <= FILE_BYTES_MAX else None
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            return None
        return Effects(
            _text(data, "machine"), _text(data, "date"), tuple(map(_knob, _list(data, "knobs")))
        )
    except (OSError, ValueError, RecursionError):
        return None


def _knob(data: Any) -> KnobEffects:
    if not isinstance(data, dict):
        raise ValueError("a knob that is not an object")
    name, key = _text(data, "name"), _text(data, "key")
    if "why" in data:
        return KnobEffects(name, key, "", "", (), _text(data, "why"))
    tried = []
    for one in _list(data, "values"):
        if not isinstance(one, dict) or not isinstance(one.get("decided"), bool):
            raise ValueError("a value that is not whole")
        tried.append(Tried(_text(one, "value"), _text(one, "words"), one["decided"]))
    return KnobEffects(name, key, _text(data, "default"), _text(data, "document"), tuple(tried))


def _text(data: dict[str, Any], name: str) -> str:
    """One printable line."""
    value = data.get(name)
    if not isinstance(value, str) or len(value) > WORDS_CHARS_MAX or not value.isprintable():
        raise ValueError(f"{name} is not a line of text")
    return value


def _list(data: dict[str, Any], name: str) -> list[Any]:
    value = data.get(name)
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a list")
    return value
