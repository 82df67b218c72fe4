"""The rule for text that comes from outside: group ids, client ids, names, metadata, values.

Level 0: pure functions, any thread.

1. **Bounded where it enters.** A string of the protocol has 32,767 bytes at most. What is no UTF-8
   is read with U+FFFD in its place, as Apache Kafka reads it, and that has three bytes: so a text
   can be longer when it is sent again than it was when it came. `can_be_told` says whether it fits;
   one that does not is refused with Kafka's code for it, UNKNOWN_SERVER_ERROR, before anything is
   kept of it, and `protocol.wire` refuses to write one.
2. **Escaped where it is printed.** `printable` is its form in a line of the log or a message:
   short, and without a character that ends a line or moves a cursor. The formatter of the log does
   the same to whole lines (`server/logs.py`), so that a place that forgot cannot be used to forge
   one; so do the commands to each line and cell that they print for people (`cli/output.py`).
3. **How often** it is printed is bounded by `log_lines`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import LABEL_CHARS_MAX, SHOWN_CHARS_MAX, TEXT_BYTES_MAX

# A character has three bytes at most, or four for two of UTF-16: below this nothing is encoded.
_SHORT_CHARS: Final = TEXT_BYTES_MAX // 4


def can_be_told(text: str | None, beside_bytes: int = 0) -> bool:
    """Whether the text, with so many bytes beside it, fits into a string of the protocol."""
    if text is None or len(text) + beside_bytes <= _SHORT_CHARS:
        return True
    return len(text.encode(errors="replace")) + beside_bytes <= TEXT_BYTES_MAX


def untellable(length_bytes: int) -> KafkaError:
    """What is raised for a text that does not fit."""
    message = f"a text of {length_bytes} bytes, of which an answer can tell {TEXT_BYTES_MAX}"
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)


def printable(text: str, chars_max: int = SHOWN_CHARS_MAX) -> str:
    """For people to read: in one line, bounded, and doing nothing to a terminal."""
    length = len(text)
    if length <= chars_max and text.isprintable():
        return text
    escaped = "".join(map(_escaped, text[:chars_max]))
    return escaped if length <= chars_max else f"{escaped}... ({length} characters)"


def escaped(text: str) -> str:
    """The whole text in one line, and doing nothing to a terminal."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def label(text: str) -> str:
    """A label's value: two texts that differ have different ones, however long they are."""
    if len(text) <= LABEL_CHARS_MAX:
        return text
    # Not a checksum: a client must not be able to make two groups one series.
    digest = blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
    return f"{text[:LABEL_CHARS_MAX]}...{digest}"
