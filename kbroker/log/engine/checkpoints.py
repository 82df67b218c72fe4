"""The small text files of a data directory, in Kafka's formats, replaced as a whole.

Read when a data directory or a log is opened, written by the manager in the background and by the
log that they belong to. A crash leaves the old file or the new one, never half of one: the text
goes to `<name>.tmp`, to the disk, then over the old name.

| file | holds |
|---|---|
| `recovery-point-offset-checkpoint` | per partition, up to where the log is on the disk |
| `replication-offset-checkpoint` | per partition, the high watermark |
| `log-start-offset-checkpoint` | per partition, the start where DeleteRecords moved it |
| `cleaner-offset-checkpoint` | per compacted partition, up to where it was cleaned |
| `leader-epoch-checkpoint` | per log, where each leader epoch begins |
| `partition.metadata` | per log, the topic's id |

No locks: a caller writes a given file from one thread at a time. A file that cannot be read as what
it should be is a `CheckpointError` with the reason; who opens decides whether that matters.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.config.key import INT_MAX, LONG_MAX
from kbroker.log.engine import file_operations
from kbroker.types import TopicPartition, parse_uuid, uuid_text

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE: Final = "partition.metadata"

CHECKPOINT_VERSION: Final = 0
# In the place of a log's start that was in a damaged line. No reader takes it for an offset.
UNKNOWN_START: Final = -1
NO_EPOCHS: Final = b"0\n0\n"  # what a file of none would say
_SAME_BYTES_MAX: Final = 256  # of a file whose meaning is kept


class CheckpointError(ValueError):
    """A checkpoint file is not what it should be."""


def replace_file(path: Path, text: str, *, sync: bool = True) -> None:
    """Puts `text` in the place of the file. Without `sync` a power cut may leave it empty."""
    file_operations.replace_file(path, text.encode(), sync=sync)


# --- Lines after a version and a count ------------------------------------------------------------


def _read_lines(path: Path) -> list[list[str]]:
    """The fields of each line; none if there is no file."""
    try:
        return _lines_in(file_operations.read_file(path))
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _lines_in(data: bytes) -> list[list[str]]:
    """ValueError: it is no such text."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise ValueError("not text") from None
    if len(lines) < 2 or lines[0].strip() != str(CHECKPOINT_VERSION):
        raise ValueError(f"no version {CHECKPOINT_VERSION} in its first line")
    fields = [line.split() for line in lines[2:] if line.strip()]
    if lines[1].strip() != str(len(fields)):
        raise ValueError(f"announces {lines[1]} lines and has {len(fields)}")
    return fields


def _write_lines(path: Path, lines: Iterable[str], *, sync: bool) -> None:
    listed = list(lines)
    text = "".join(f"{line}\n" for line in [str(CHECKPOINT_VERSION), str(len(listed)), *listed])
    replace_file(path, text, sync=sync)


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Offsets by partition; empty if there is no file."""
    offsets: dict[TopicPartition, int] = {}
    for fields in _read_lines(path):
        try:
            topic, index, text = fields
            offset = int(text)
            if not 0 <= offset <= LONG_MAX:
                raise ValueError(text)
            offsets[TopicPartition(topic, int(index))] = offset
        except ValueError as error:
            raise CheckpointError(f"{path}: no offset in {' '.join(fields)!r}") from error
    return offsets


class OffsetLines(NamedTuple):
    """What can be read of a file of offsets."""

    offsets: dict[TopicPartition, int]
    damage: list[tuple[int, str]]  # the number of each line that cannot be read, and the reason
    named: set[TopicPartition]  # in such lines
    nameless: bool  # there may be lines of other partitions that cannot be read


def read_offset_lines(path: Path) -> OffsetLines:
    """Line by line: a damaged one takes no other along. Empty if there is no file."""
    try:
        data = file_operations.read_file(path)
    except FileNotFoundError:
        return OffsetLines({}, [], set(), False)
    found, nameless = OffsetLines({}, [], set(), False), False
    *lines, rest = data.decode(errors="replace").split("\n")
    if rest:  # it was cut: an offset in it may have had more digits
        found.damage.append((len(lines) + 1, f"it has no end: {rest!r}"))
    version, count = [*lines, "", ""][:2]
    if version.strip() != str(CHECKPOINT_VERSION):
        found.damage.append((1, f"no version {CHECKPOINT_VERSION}: {version!r}"))
        if version.strip().isdecimal():  # its lines may mean something else
            return found._replace(nameless=True)
        nameless = True
    for number, line in enumerate(lines[2:], 3):
        if not line.strip():
            continue
        name, offset = _offset_in(line)
        if name is not None and offset is not None:
            found.offsets[name] = offset
            continue
        found.damage.append((number, f"no offset of a partition: {line!r}"))
        if name is None:
            nameless = True
        else:
            found.named.add(name)
    held = sum(1 for line in (*lines[2:], rest) if line.strip())
    if count.strip() != str(held):
        found.damage.append((2, f"announces {count!r} lines and there are {held}"))
        nameless = True
    return found._replace(nameless=nameless or bool(rest))


def _offset_in(line: str) -> tuple[TopicPartition | None, int | None]:
    """The partition and its offset; None: it cannot be read."""
    fields = line.split()
    if len(fields) < 2 or not (_is_name(fields[0]) and _is_number(fields[1], INT_MAX)):
        return None, None
    name = TopicPartition(fields[0], int(fields[1]))
    is_one = len(fields) == 3 and _is_number(fields[2], LONG_MAX)
    return name, int(fields[2]) if is_one else None


def _is_name(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _is_number(text: str, highest: int) -> bool:
    is_short = text.isascii() and text.isdecimal() and len(text) <= len(str(highest))
    return is_short and int(text) <= highest


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Offsets by partition, in the order of their names; on the disk when this returns."""
    lines = (f"{topic} {index} {offset}" for (topic, index), offset in sorted(offsets.items()))
    _write_lines(path, lines, sync=True)


def read_leader_epochs(path: Path) -> list[tuple[int, int]]:
    """(epoch, start offset), both rising; empty if there is no file."""
    try:
        return leader_epochs_in(file_operations.read_file(path))
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def leader_epochs_in(data: bytes) -> list[tuple[int, int]]:
    """The same of bytes that were read; ValueError if they have none."""
    return list(_same_epochs(data) if len(data) <= _SAME_BYTES_MAX else _epochs_in(data))


@lru_cache(1024)
def _same_epochs(data: bytes) -> tuple[tuple[int, int], ...]:
    """Thousands of logs say the same, if they say little."""
    return _epochs_in(data)


def _epochs_in(data: bytes) -> tuple[tuple[int, int], ...]:
    entries: list[tuple[int, int]] = []
    for fields in _lines_in(data):
        try:
            epoch, start_offset = (int(field) for field in fields)
            if not (0 <= epoch <= INT_MAX and 0 <= start_offset <= LONG_MAX):
                raise ValueError
        except ValueError:
            raise ValueError(f"no epoch in {' '.join(fields)!r}") from None
        if entries and (epoch <= entries[-1][0] or start_offset < entries[-1][1]):
            raise ValueError(f"epoch {epoch} at {start_offset} goes back")
        entries.append((epoch, start_offset))
    return tuple(entries)


def write_leader_epochs(
    path: Path, entries: Iterable[tuple[int, int]], *, sync: bool = False
) -> None:
    """Without `sync` a power cut may empty the file."""
    _write_lines(path, (f"{epoch} {start}" for epoch, start in entries), sync=sync)


# --- Which topic ----------------------------------------------------------------------------------


def read_partition_metadata(path: Path) -> uuid.UUID | None:
    """The topic's id; None if there is no file or a power cut left it empty."""
    try:
        return topic_id_in(file_operations.read_file(path), path)
    except FileNotFoundError:
        return None


def topic_id_in(data: bytes, path: Path) -> uuid.UUID | None:
    """The same of bytes that were read at a path."""
    try:
        return _topic_id_in(data)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


@lru_cache(1024)
def _topic_id_in(data: bytes) -> uuid.UUID | None:
    """ValueError: it says none. All partitions of a topic say the same."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError("not text") from None
    if not text.strip():
        return None
    cut = (line.partition(":") for line in text.splitlines() if ":" in line)
    values = {name.strip(): value.strip() for name, _, value in cut}
    if values.get("version") != "0" or "topic_id" not in values:
        raise ValueError("no topic id of version 0")
    return parse_uuid(values["topic_id"])


def write_partition_metadata(path: Path, topic_id: uuid.UUID) -> None:
    """Once, when a log is created. Not synced: the metadata store knows the id as well."""
    replace_file(path, f"version: 0\ntopic_id: {uuid_text(topic_id)}", sync=False)
