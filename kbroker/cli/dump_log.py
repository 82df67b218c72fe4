"""`kbroker dump-log PATH...`: what the files of a log say, offline and read-only.

A PATH is a file of a partition, its directory, or a data directory with many. Without options every
file is printed, a line for each batch or entry; `--records` adds the records. `--verify` prints one
line for each partition and what is wrong, the first bad offset first, and exits with 1 if anything
is. `-J` is for programs: one JSON object a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from kbroker.cli.output import say
from kbroker.errors import UsageError
from kbroker.findings.moments import shown_moment
from kbroker.log.engine.checkpoints import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    read_leader_epochs,
    read_partition_metadata,
)
from kbroker.log.engine.producer_snapshots import decode
from kbroker.log.looking import dump
from kbroker.log.looking.dump import OF_THE_WHOLE_FILE, SegmentFile, StoredBatch
from kbroker.log.looking.verify import Verified, verify
from kbroker.protocol.record_batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    decode_batches,
)
from kbroker.protocol.wire import ProtocolError
from kbroker.types import uuid_text

Entry = Mapping[str, Any]

FLAGS: Final = {
    LOG_APPEND_TIME: "log_append_time",
    TRANSACTIONAL: "transactional",
    CONTROL: "control",
    DELETE_HORIZON: "delete_horizon",
}


@click.command("dump-log")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--records", is_flag=True, help="The records too, not batches alone.")
@click.option("--verify", "only_verify", is_flag=True, help="Say only what is wrong; then exit 1.")
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(paths: tuple[str, ...], records: bool, only_verify: bool, as_json: bool) -> int:
    """Print what the files of a log say, or check them; no broker is asked.

    PATH is a file (.log, .index, .timeindex, .txnindex, .snapshot, a checkpoint), a partition's
    directory, or a data directory.
    """
    if only_verify and records:
        raise UsageError("--verify prints no records", "leave one of --verify and --records out")
    places = [_existing(path) for path in paths]
    if only_verify:
        return _verify(places, as_json)
    damaged = False
    for file in (file for place in places for file in _files(place)):
        damaged |= not _print(file, records, as_json)
    return 1 if damaged else 0


def _existing(text: str) -> Path:
    path = Path(text)
    if not path.exists():
        raise UsageError(f"{text}: there is no such file", "name a file or a directory of a log")
    return path


# --- What there is to read ------------------------------------------------------------------------


def _is_log(directory: Path) -> bool:
    return any(directory.glob("*.log")) or (directory / PARTITION_METADATA_FILE).exists()


def _logs(place: Path) -> list[Path]:
    """The directories of partitions: this one, or those in it."""
    if _is_log(place):
        return [place]
    return sorted(path for path in place.iterdir() if path.is_dir() and _is_log(path))


def _files(place: Path) -> Iterator[Path]:
    if not place.is_dir():
        yield place
        return
    for directory in _logs(place):
        yield from sorted(path for path in directory.iterdir() if _reader_of(path) is not None)


# --- Printing -------------------------------------------------------------------------------------


def _print(path: Path, records: bool, as_json: bool) -> bool:
    """False if it was damaged; the records before the damage are printed."""
    reader = _reader_of(path)
    if reader is None:
        raise UsageError(
            f"{path} is no file that can be printed",
            "it is .log, .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint or"
            " partition.metadata",
        )
    if not as_json:
        say(f"{path}  {path.stat().st_size} bytes")
    try:
        for entry in reader(path, records):
            _show(path, entry, as_json)
    except (ValueError, ProtocolError) as error:  # as every reader of a file says it
        said = str(error) if str(path) in str(error) else f"{path}: {error}"
        say(f"error: {said}", err=True)
        return False
    return True


def _show(path: Path, entry: Entry, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"file": str(path), **entry}, ensure_ascii=False))
        return
    listed = entry.get("records", [])
    say(f"  {_line(entry)}")
    for record in listed:
        say(f"    {_line(record)}")


def _line(entry: Entry) -> str:
    """Names and values beside each other; what is so by a bare word."""
    words = []
    for name, value in entry.items():
        if value is True:
            words.append(name)
        elif name != "records" and value is not False:
            text = json.dumps(value, ensure_ascii=False) if name in ("key", "value") else value
            words.append(f"{name} {text}")
    return "  ".join(words)


Reader = Callable[[Path, bool], Iterable[Entry]]


def _reader_of(path: Path) -> Reader | None:
    return _BY_NAME.get(path.name) or _BY_SUFFIX.get(path.suffix)


def _batches(path: Path, records: bool) -> Iterator[Entry]:
    with SegmentFile(path) as segment:
        for batch in segment.batches():
            entry = _batch(batch)
            if records:
                (decoded,) = decode_batches(segment.bytes_of(batch))
                entry["records"] = [_record(record) for record in decoded.records]
            yield entry


def _batch(batch: StoredBatch) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "first": batch.base_offset,
        "last": batch.last_offset,
        "count": batch.record_count,
        "position": batch.position,
        "bytes": batch.size_bytes,
        "epoch": batch.leader_epoch,
        "codec": batch.codec.name.lower(),
        "time": shown_moment(batch.max_timestamp_ms),
        "crc": f"{batch.crc:08x}",
    }
    if batch.producer_id >= 0:
        entry["producer"] = batch.producer_id
        entry["producer_epoch"] = batch.producer_epoch
        entry["sequence"] = batch.base_sequence
    for bit, name in FLAGS.items():
        if batch.attributes & bit:
            entry[name] = True
    return entry


def _record(record: Record) -> Entry:
    return {
        "offset": record.offset,
        "time": shown_moment(record.timestamp_ms),
        "key": _text(record.key),
        "value": _text(record.value),
        **({"headers": {n: _text(v) for n, v in record.headers}} if record.headers else {}),
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _offsets(path: Path, _records: bool) -> Iterator[Entry]:
    for entry in dump.offset_entries(path):
        yield entry._asdict()


def _times(path: Path, _records: bool) -> Iterator[Entry]:
    for entry in dump.time_entries(path):
        yield {"time": shown_moment(entry.timestamp_ms), "offset": entry.offset}


def _aborted(path: Path, _records: bool) -> Iterator[Entry]:
    for entry in dump.aborted_transactions(path):
        yield entry._asdict()


def _producers(path: Path, _records: bool) -> Iterator[Entry]:
    for entry in decode(path.read_bytes()):
        yield entry._asdict()


def _epochs(path: Path, _records: bool) -> Iterator[Entry]:
    for epoch, start_offset in read_leader_epochs(path):
        yield {"epoch": epoch, "from": start_offset}


def _topic(path: Path, _records: bool) -> Iterator[Entry]:
    topic_id = read_partition_metadata(path)
    yield {"topic_id": uuid_text(topic_id) if topic_id is not None else None}


_BY_SUFFIX: Final[Mapping[str, Reader]] = {
    ".log": _batches,
    ".index": _offsets,
    ".timeindex": _times,
    ".txnindex": _aborted,
    ".snapshot": _producers,
}
_BY_NAME: Final[Mapping[str, Reader]] = {
    LEADER_EPOCH_FILE: _epochs,
    PARTITION_METADATA_FILE: _topic,
}


# --- Verifying ------------------------------------------------------------------------------------


def _verify(places: list[Path], as_json: bool) -> int:
    damaged = False
    for place in places:
        if not place.is_dir():
            raise UsageError(f"{place} is a file", "--verify takes the directory of a partition")
        for directory in _logs(place):
            found = verify(directory)
            damaged |= bool(found.damage)
            _say(found, as_json)
    return 1 if damaged else 0


def _say(found: Verified, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_verified(found), ensure_ascii=False))
        return
    say(
        f"{found.directory.name}: {'damaged' if found.damage else 'sound'};"
        f" records {found.records}, batches {found.batches}, segments {found.segments},"
        f" from offset {found.first_offset} to before {found.next_offset}"
    )
    for damage in found.damage:
        say(f"error: {damage}", err=True)


def _verified(found: Verified) -> dict[str, Any]:
    return {
        "log": found.directory.name,
        "directory": str(found.directory),
        "segments": found.segments,
        "batches": found.batches,
        "records": found.records,
        "first_offset": found.first_offset,
        "next_offset": found.next_offset,
        "damage": [
            {
                "file": str(each.path),
                "offset": each.offset if each.offset != OF_THE_WHOLE_FILE else None,
                "position": each.position,
                "what": each.what,
            }
            for each in found.damage
        ],
    }
