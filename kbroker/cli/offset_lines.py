"""Lines of offsets, which `--export` prints and `--from-file` reads: `topic,partition,offset`, or
with the group before them.

They are CSV. A cell is quoted where Apache Kafka's tool quotes it, so that both print the same
lines: where it has more than 24 characters, or one that could mean something to a reader of CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.cli.numbers import INT_MAX, LONG_MAX, unsigned_of
from kbroker.errors import UsageError
from kbroker.outside_text import printable

if TYPE_CHECKING:
    from kbroker.types import TopicPartition

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
HINT: Final = "write topic,partition,offset"
_CELLS: Final = 3
_UNQUOTED_CHARS_MAX: Final = 24
_FIRST_UNQUOTED: Final = "-"  # what precedes it in ASCII has quotes, commas, spaces and line ends


def offset_line(*cells: str | int) -> str:
    return ",".join(_cell(str(cell)) for cell in cells)


def _cell(text: str) -> str:
    plain = len(text) <= _UNQUOTED_CHARS_MAX and "\\" not in text
    if plain and all(character >= _FIRST_UNQUOTED for character in text):
        return text
    return '"' + text.replace('"', '""') + '"'


def parse_lines(data: bytes, group: str, *, of_groups: bool = False) -> dict[TopicPartition, int]:
    """The offsets of the group. With `of_groups` lines that name no group are left out of account.

    UnicodeDecodeError: it is no text. UsageError: a line is no offset."""
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"the file has more than {FILE_BYTES_MAX} bytes", "check the path")
    offsets: dict[TopicPartition, int] = {}
    for line, row in _rows(data.decode()):
        named = len(row) == _CELLS + 1
        of_another = (named and row[0] != group) or (of_groups and len(row) <= _CELLS)
        if of_another or not "".join(row).strip():
            continue
        where, offset = _offset(line, row, row[1:] if named else row)
        offsets[where] = offset
    return offsets


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Each with the number of its last line. A cell in quotes may have several lines."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise UsageError(f"line {reader.line_num} is no CSV: {error}", HINT) from None


def _offset(line: int, row: Sequence[str], cells: Sequence[str]) -> tuple[TopicPartition, int]:
    from kbroker.types import TopicPartition

    topic, *digits = (cell.strip() for cell in cells)
    if len(cells) != _CELLS or not topic or not all(d.isascii() and d.isdecimal() for d in digits):
        raise UsageError(f"line {line} is no offset: {printable(','.join(row))!r}", HINT)
    partition, offset = unsigned_of(digits[0], INT_MAX), unsigned_of(digits[1], LONG_MAX)
    if partition is None or offset is None:
        raise UsageError(f"line {line} has a number that is too large", "check the file")
    return TopicPartition(topic, partition), offset
