"""The manifest of a backup: what was saved, and the size and digest of every file.

    {
      "kbroker_backup": 0,                     the number of this format (metadata/formats.py)
      "written_by": "0.1.0",
      "cluster_id": "td1oS7a7TU-n3josdqba8w", "node_id": 1,
      "began_ms": 1795000000000, "cut_ms": 1795000000100, "ended_ms": 1795000009000,
      "users": false, "acls": true,            whether they were asked for
      "offsets_partitions": 50,                of __consumer_offsets; 0: there is no such topic
      "files": {"metadata.json": {"size_bytes": 9120, "xxh3": "5f70bf18..."}, ...},
      "partitions": [
        {"topic": "orders", "partition": 0, "topic_id": "BIB4KWlTSwSd4din8faHsw",
         "start_offset": 0, "end_offset": 12, "stable_offset": 10,
         "outcomes": [[4000, 0, true]],        of transactions that were open at the end: producer
                                               id, epoch of the marker, whether committed
         "files": {"00000000000000000000.log": {"size_bytes": 880, "xxh3": "...",
                                                "source": [65024, 1311, 880, 17950..., 17950...]}}}
      ],
      "sha256": "..."                          of the rest of this document
    }

`source` is of a closed segment: device, inode, size, times of change of content and of the inode.
A later backup that finds the same file links the saved one instead of copying it.

A manifest may come from anywhere. It holds no paths: the name of a log's directory follows from the
topic and the partition, and the names of files are those of a fixed form. What does not fit is a
ValueError. Pure values; any thread.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from kbroker import __version__
from kbroker.config.key import INT_MAX, LONG_MAX
from kbroker.log.engine.checkpoints import (
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
)
from kbroker.log.engine.segment_files import segment_name
from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE, partition_of
from kbroker.metadata.formats import Format, check, newest
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.types import TopicPartition, parse_uuid, uuid_text

MANIFEST_FILE: Final = "manifest.json"
METADATA_FILE: Final = "metadata.json"
JOURNAL_FILE: Final = "unfinished.jsonl"  # `journal.py`
GROUPS_FILE: Final = "groups.json"
LOGS: Final = "logs"  # a directory that looks like an entry of log.dirs
# In `logs`: with them `kbroker logdir adopt` reads it as of a broker that was stopped in order.
CHECKPOINTS: Final = (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE)
OWN_FILES: Final = (
    METADATA_FILE, GROUPS_FILE, *(f"{LOGS}/{name}" for name in (*CHECKPOINTS, CLEAN_SHUTDOWN_FILE)),
)  # fmt: skip
MANIFEST_BYTES_MAX: Final = 256 << 20
SMALL_FILE_BYTES_MAX: Final = 64 << 20  # of each one that is no segment
OUTCOMES_MAX: Final = 100_000  # of one partition
_NUMBER: Final = "kbroker_backup"
_SNAPSHOT: Final = re.compile(r"[0-9]{20}\.snapshot")
_XXH3: Final = re.compile(r"[0-9a-f]{16}")
_VERSION_CHARS_MAX: Final = 50

T = TypeVar("T")
Fields = dict[str, Any]


class SavedFile(NamedTuple):
    """`source`: of a closed segment, what it was copied from."""

    size_bytes: int
    xxh3: str  # `files.Digest`
    source: tuple[int, ...] | None = None


class Outcome(NamedTuple):
    """Of a transaction that was open where the saved log ends, with its marker's epoch."""

    producer_id: int
    epoch: int
    committed: bool


@dataclass(frozen=True, slots=True)
class SavedPartition:
    name: TopicPartition
    topic_id: UUID
    start_offset: int
    end_offset: int
    stable_offset: int
    outcomes: tuple[Outcome, ...]
    files: Mapping[str, SavedFile]

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files.values())


@dataclass(frozen=True, slots=True)
class Manifest:
    cluster_id: str
    node_id: int
    written_by: str
    began_ms: int
    cut_ms: int
    ended_ms: int
    users: bool
    acls: bool
    offsets_partitions: int
    files: Mapping[str, SavedFile]
    partitions: Mapping[TopicPartition, SavedPartition]

    @property
    def size_bytes(self) -> int:
        """Of everything but the manifest."""
        own = sum(each.size_bytes for each in self.files.values())
        return own + sum(each.size_bytes for each in self.partitions.values())

    def topics(self) -> dict[str, list[SavedPartition]]:
        """By name, each with its partitions in their order."""
        found: dict[str, list[SavedPartition]] = {}
        for name in sorted(self.partitions):
            found.setdefault(name.topic, []).append(self.partitions[name])
        return found


def is_segment(name: str) -> bool:
    segment = segment_name(name)
    return segment is not None and segment.kind == "log"


# --- As bytes -------------------------------------------------------------------------------------


def encode(manifest: Manifest) -> bytes:
    document: Fields = {
        _NUMBER: newest(Format.BACKUP),
        "written_by": __version__,
        "cluster_id": manifest.cluster_id,
        "node_id": manifest.node_id,
        "began_ms": manifest.began_ms,
        "cut_ms": manifest.cut_ms,
        "ended_ms": manifest.ended_ms,
        "users": manifest.users,
        "acls": manifest.acls,
        "offsets_partitions": manifest.offsets_partitions,
        "files": {name: file_fields(each) for name, each in sorted(manifest.files.items())},
        "partitions": [_partition_fields(each) for _, each in sorted(manifest.partitions.items())],
    }
    document["sha256"] = _digest(document)
    return json.dumps(document, indent=1).encode() + b"\n"


def decode(raw: bytes, where: str) -> Manifest:
    """ValueError says what is wrong with it; DataDirectoryError: a later kbroker wrote it."""
    if len(raw) > MANIFEST_BYTES_MAX:
        raise ValueError(f"it has more than {MANIFEST_BYTES_MAX} bytes")
    try:
        document = json.loads(raw)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(document, dict) or _NUMBER not in document:
        raise ValueError("it is no manifest of a backup")
    written_by = _text(document, "written_by", _VERSION_CHARS_MAX)
    check(Format.BACKUP, _integer(document, _NUMBER, 0, INT_MAX), where, written_by)
    given = _text(document, "sha256", 64)
    if given != _digest({key: value for key, value in document.items() if key != "sha256"}):
        raise ValueError("it was changed since it was written")
    files = _files(document, lambda name: name in OWN_FILES)
    if files.keys() != {*OWN_FILES}:
        raise ValueError("it does not name all files of a backup")
    partitions = [_partition(each) for each in _typed(document, "partitions", list)]
    found = {each.name: each for each in partitions}
    if len(found) != len(partitions):
        raise ValueError("it names a partition twice")
    return Manifest(
        cluster_id=_text(document, "cluster_id", 100),
        node_id=_integer(document, "node_id", 0, INT_MAX),
        written_by=written_by,
        began_ms=_integer(document, "began_ms"),
        cut_ms=_integer(document, "cut_ms"),
        ended_ms=_integer(document, "ended_ms"),
        users=_typed(document, "users", bool),
        acls=_typed(document, "acls", bool),
        offsets_partitions=_integer(document, "offsets_partitions", 0, 10_000),
        files=files,
        partitions=found,
    )


def _digest(document: Fields) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def file_fields(saved: SavedFile) -> Fields:
    """As the manifest has a file, and the journal of a backup that is not finished."""
    fields: Fields = {"size_bytes": saved.size_bytes, "xxh3": saved.xxh3}
    if saved.source is not None:
        fields["source"] = list(saved.source)
    return fields


def _partition_fields(saved: SavedPartition) -> Fields:
    return {
        "topic": saved.name.topic,
        "partition": saved.name.partition,
        "topic_id": uuid_text(saved.topic_id),
        "start_offset": saved.start_offset,
        "end_offset": saved.end_offset,
        "stable_offset": saved.stable_offset,
        "outcomes": [list(each) for each in saved.outcomes],
        "files": {name: file_fields(each) for name, each in sorted(saved.files.items())},
    }


# --- Fields that are checked ----------------------------------------------------------------------


def _typed(fields: Fields, name: str, kind: type[T]) -> T:
    value = fields.get(name)
    if type(value) is not kind:
        raise ValueError(f"{name} is missing or of another type")
    return value


def _text(fields: Fields, name: str, chars_max: int) -> str:
    text = _typed(fields, name, str)
    if not 0 < len(text) <= chars_max or not text.isprintable():
        raise ValueError(f"{name} is no such text")
    return text


def _integer(fields: Fields, name: str, lowest: int = 0, highest: int = LONG_MAX) -> int:
    return _bounded(_typed(fields, name, int), name, lowest, highest)


def _bounded(value: object, name: str, lowest: int, highest: int) -> int:
    if type(value) is not int or not lowest <= value <= highest:
        raise ValueError(f"{name} is not from {lowest} to {highest}")
    return value


def read_file_fields(fields: object) -> SavedFile:
    """The inverse of `file_fields`; ValueError."""
    if not isinstance(fields, dict):
        raise ValueError("a file has no size")
    xxh3 = _text(fields, "xxh3", 16)
    if not _XXH3.fullmatch(xxh3):
        raise ValueError("a digest is none")
    source = fields.get("source")
    if source is not None:
        if not isinstance(source, list) or len(source) != 5:
            raise ValueError("a source is none")
        source = tuple(_bounded(each, "source", 0, 2 * LONG_MAX + 1) for each in source)
    return SavedFile(_integer(fields, "size_bytes"), xxh3, source)


def _files(fields: Fields, is_name: Any) -> dict[str, SavedFile]:
    found: dict[str, SavedFile] = {}
    for name, each in _typed(fields, "files", dict).items():
        if not is_name(name):
            raise ValueError(f"no file of a backup has the name {name[:300]!r}")
        found[name] = saved = read_file_fields(each)
        has_own_bound = is_segment(name) or name in (METADATA_FILE, GROUPS_FILE)
        if not has_own_bound and saved.size_bytes > SMALL_FILE_BYTES_MAX:
            raise ValueError(f"{name} has more than {SMALL_FILE_BYTES_MAX:,} bytes")
    return found


def _is_of_a_log(name: str) -> bool:
    if name in (LEADER_EPOCH_FILE, PARTITION_METADATA_FILE):
        return True
    return is_segment(name) or (
        _SNAPSHOT.fullmatch(name) is not None and int(name[:20]) <= LONG_MAX
    )


def _partition(fields: object) -> SavedPartition:
    if not isinstance(fields, dict):
        raise ValueError("a partition is none")
    name = TopicPartition(_text(fields, "topic", 249), _integer(fields, "partition", 0, INT_MAX))
    if (reason := invalid_topic_name(name.topic)) is not None or partition_of(str(name)) != name:
        raise ValueError(reason or f"{name} is no name of a log")
    start = _integer(fields, "start_offset")
    end = _integer(fields, "end_offset", start)
    outcomes = _typed(fields, "outcomes", list)
    if len(outcomes) > OUTCOMES_MAX:
        raise ValueError(f"{name} has more than {OUTCOMES_MAX} outcomes")
    files = _files(fields, _is_of_a_log)
    if PARTITION_METADATA_FILE not in files or not any(map(is_segment, files)):
        raise ValueError(f"{name} has no {PARTITION_METADATA_FILE} or no segment")
    return SavedPartition(
        name,
        parse_uuid(_text(fields, "topic_id", 22)),
        start,
        end,
        _integer(fields, "stable_offset", 0, end),
        tuple(_outcome(each) for each in outcomes),
        files,
    )


def _outcome(value: object) -> Outcome:
    match value:
        case [int(producer_id), int(epoch), bool(committed)]:
            return Outcome(
                _bounded(producer_id, "a producer id", 0, LONG_MAX),
                _bounded(epoch, "an epoch", 0, 2**15 - 1),
                committed,
            )
    raise ValueError("an outcome of a transaction is none")
