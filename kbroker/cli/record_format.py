"""kcat's format letters, compiled once to a list of pieces and then joined for every record.

    %s value   %S its length   %k key   %K its length   %t topic   %p partition   %o offset
    %T timestamp in ms   %h headers as name=value,...   %% a percent sign   \\n \\r \\t \\\\ \\xHH

A null key or value prints nothing and has length -1; a null header value prints NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kbroker.errors import UsageError
from kbroker.protocol.record_batch import Headers, Record

Piece = Callable[[str, int, Record], bytes]

DEFAULT_FORMAT: Final = "%s\\n"
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}


def _number(value: int) -> bytes:
    return b"%d" % value


def _length(value: bytes | None) -> bytes:
    return b"-1" if value is None else b"%d" % len(value)


def _headers(headers: Headers) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in headers
    )


_LETTERS: Final[dict[str, Piece]] = {
    "s": lambda topic, partition, record: record.value or b"",
    "S": lambda topic, partition, record: _length(record.value),
    "k": lambda topic, partition, record: record.key or b"",
    "K": lambda topic, partition, record: _length(record.key),
    "t": lambda topic, partition, record: topic.encode(),
    "p": lambda topic, partition, record: _number(partition),
    "o": lambda topic, partition, record: _number(record.offset),
    "T": lambda topic, partition, record: _number(record.timestamp_ms),
    "h": lambda topic, partition, record: _headers(record.headers),
}


def _constant(text: bytes) -> Piece:
    return lambda topic, partition, record: text


def compile_format(text: str) -> Callable[[str, int, Record], bytes]:
    """A function from (topic, partition, record) to the bytes to print."""
    pieces: list[Piece] = []
    plain = bytearray()
    position = 0
    while position < len(text):
        character = text[position]
        if character not in "%\\":
            plain += character.encode()
            position += 1
            continue
        letter = text[position + 1 : position + 2]
        position += 2
        if character == "\\":
            if letter == "x":
                plain.append(_hex(text[position : position + 2]))
                position += 2
            else:
                plain += _ESCAPES.get(letter, b"\\" + letter.encode())
        elif letter == "%":
            plain += b"%"
        elif letter in _LETTERS:
            if plain:
                pieces.append(_constant(bytes(plain)))
                plain.clear()
            pieces.append(_LETTERS[letter])
        else:
            letters = " ".join(f"%{known}" for known in _LETTERS)
            raise UsageError(f"format: unknown %{letter}", f"known are {letters} %%")
    if plain:
        pieces.append(_constant(bytes(plain)))
    if len(pieces) == 2 and text == DEFAULT_FORMAT:
        return lambda topic, partition, record: (record.value or b"") + b"\n"
    return lambda topic, partition, record: b"".join(
        [piece(topic, partition, record) for piece in pieces]
    )


def _hex(digits: str) -> int:
    try:
        return bytes.fromhex(digits)[0]
    except (ValueError, IndexError):
        raise UsageError(f"format: \\x{digits} is no byte", "write two hex digits") from None
