"""`kbroker.format`: the format number of a log directory, beside its `meta.properties`.

Place in the flow: the server checks the number of every directory before anything in it is opened,
and raises it (`server/formats.py`). Apache Kafka and its tools look at directories and at the
files that they know, so they ignore this one. A directory without it has number 0.

A directory that `kbroker backup restore` is making has a number that no kbroker reads, earlier ones
included, until it is whole.

A crash leaves the old file or the new one: it is written beside and renamed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kbroker.errors import DataDirectoryError
from kbroker.log.engine import file_operations
from kbroker.metadata.formats import Format, check

FILE_NAME: Final = "kbroker.format"
_FILE_BYTES_MAX: Final = 4096
_DIGITS_MAX: Final = 9
_UNFINISHED: Final = 999_999_999


def load(directory: Path) -> int:
    """The number; DataDirectoryError if this kbroker cannot read it, or the file is damaged."""
    path = directory / FILE_NAME
    try:
        with path.open("rb") as file:
            raw = file.read(_FILE_BYTES_MAX)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise DataDirectoryError(f"cannot read {path}: {error.strerror}") from error
    pairs = (line.partition("=") for line in raw.decode("utf-8", "replace").splitlines())
    values = {key.strip(): value.strip() for key, _, value in pairs}
    text = values.get("format", "")
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        raise DataDirectoryError(
            f"{path} cannot be used: format {text!r} is no number",
            "restore the file, or use another data directory",
        )
    if int(text) == _UNFINISHED:
        raise DataDirectoryError(
            f"{directory} is being restored, or its restore has ended half way",
            "run kbroker backup restore again with the same words: it goes on",
        )
    check(Format.LOG_DIRECTORY, int(text), str(directory), values.get("written.by", "of its time"))
    return int(text)


def save(directory: Path, number: int, written_by: str) -> None:
    """Raises OSError."""
    text = f"format={number}\nwritten.by={written_by}\n"
    file_operations.replace_file(directory / FILE_NAME, text.encode(), sync=True)


def mark_unfinished(directory: Path) -> None:
    """No broker starts there until `remove_mark`. Raises OSError."""
    save(directory, _UNFINISHED, "of the restore that made it")


def is_unfinished(directory: Path) -> bool:
    try:
        text = file_operations.read_file(directory / FILE_NAME)
    except FileNotFoundError:
        return False
    return text.startswith(f"format={_UNFINISHED}\n".encode())


def remove_mark(directory: Path) -> None:
    """A directory without a number has number 0. Raises OSError."""
    file_operations.unlink(directory / FILE_NAME)
    file_operations.sync_directory(directory)
