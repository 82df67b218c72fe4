"""A backup may come from anywhere: no file outside of it is opened, and each size has a bound."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.backup import files, groups, manifest
from kbroker.backup.manifest import GROUPS_FILE, LOGS, MANIFEST_FILE
from kbroker.backup.opened_backup import open_backup
from kbroker.errors import DataDirectoryError, UserError
from kbroker.types import TopicPartition
from tests.unit.backup.serving import serving

Document = dict[str, Any]
SEGMENT = f"{0:020d}.log"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    serving(tmp_path / "data").backup(tmp_path / "backup")
    return tmp_path / "backup"


def document(backup: Path) -> Document:
    found: Document = json.loads((backup / MANIFEST_FILE).read_bytes())
    return found


def write(backup: Path, fields: Document) -> None:
    """With the digest that it should have."""
    fields.pop("sha256", None)
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    fields["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (backup / MANIFEST_FILE).write_text(json.dumps(fields))


def set_in(path: str, value: object) -> Callable[[Document], None]:
    """`partitions/0/topic` is where `value` goes; `~` is a `/` within a name."""

    def change(fields: Document) -> None:
        *parents, last = (part.replace("~", "/") for part in path.split("/"))
        at: Any = fields
        for each in parents:
            at = at[int(each)] if isinstance(at, list) else at[each]
        at[int(last) if isinstance(at, list) else last] = value

    return change


def file_named(name: str) -> Callable[[Document], None]:
    return set_in("partitions/0/files", {name: {"size_bytes": 0, "xxh3": "0" * 16}})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (set_in("partitions/0/topic", "../../etc"), "Topic name is invalid"),
        (set_in("partitions/0/topic", ".."), "Topic name is invalid"),
        (set_in("partitions/0/partition", -1), "partition is not from 0"),
        (set_in("partitions/0/partition", True), "partition is missing or of another type"),
        (set_in("partitions/0/partition", 1.0), "partition is missing or of another type"),
        (set_in("partitions/0/partition", 2**31), "partition is not from 0"),
        (set_in("partitions/0/topic_id", "x"), "is not a 22-character id"),
        (set_in("partitions/0/end_offset", -1), "end_offset is not from 0"),
        (set_in("partitions/0/start_offset", 13), "end_offset is not from 13"),
        (set_in("partitions/0/end_offset", 2**63), "end_offset is not from 0"),
        (set_in("partitions/0/outcomes", [[1, 0]]), "an outcome of a transaction is none"),
        (set_in("partitions/0/outcomes", [[1, 2**15, True]]), "an epoch is not from 0"),
        (set_in("partitions/0/outcomes", [[1, 0, True]] * 100_001), "more than 100000 outcomes"),
        (file_named("../../../etc/passwd"), "no file of a backup has the name"),
        (file_named("/etc/passwd"), "no file of a backup has the name"),
        (file_named(f"{SEGMENT}\n"), "no file of a backup has the name"),
        (file_named("\u0660" * 20 + ".log"), "no file of a backup has the name"),
        (file_named(f"{2**63}.log".zfill(24)), "no file of a backup has the name"),
        (file_named(f"{2**63}.snapshot".zfill(29)), "no file of a backup has the name"),
        (file_named(SEGMENT), "has no partition.metadata or no segment"),
        (set_in("files/x", {"size_bytes": 0, "xxh3": "0" * 16}), "has the name 'x'"),
        (set_in("files", {}), "does not name all files"),
        (set_in("files/groups.json/xxh3", "0" * 15 + "g"), "a digest is none"),
        (set_in("files/groups.json/size_bytes", -1), "size_bytes is not from 0"),
        (set_in("files/groups.json/source", [1, 2]), "a source is none"),
        (
            set_in("partitions/0/files/partition.metadata/size_bytes", (64 << 20) + 1),
            "partition.metadata has more than 67,108,864 bytes",
        ),
        (
            set_in("files/logs~recovery-point-offset-checkpoint/size_bytes", (64 << 20) + 1),
            "checkpoint has more than 67,108,864 bytes",
        ),
        (set_in("cluster_id", ""), "cluster_id is no such text"),
        (set_in("cluster_id", "a\nb"), "cluster_id is no such text"),
        (set_in("written_by", "1" * 51), "written_by is no such text"),
        (set_in("offsets_partitions", 10**9), "offsets_partitions is not from 0 to 10000"),
        (set_in("partitions", {}), "partitions is missing or of another type"),
        (set_in("partitions/0", None), "a partition is none"),
        (lambda fields: fields["partitions"].append(fields["partitions"][0]), "a partition twice"),
    ],
)
def test_a_manifest_that_does_not_fit(
    backup: Path, change: Callable[[Document], None], why: str
) -> None:
    fields = document(backup)
    change(fields)
    write(backup, fields)
    with pytest.raises(UserError, match=why):
        open_backup(backup)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "Expecting value"),
        (b"[" * 100_000, "nested too deep"),
        (b"[]", "no manifest of a backup"),
        (b'{"kbroker_backup": 0}', "written_by is missing"),
        (b"\xff", "can't decode"),
    ],
)
def test_bytes_that_are_no_manifest(backup: Path, raw: bytes, why: str) -> None:
    (backup / MANIFEST_FILE).write_bytes(raw)
    with pytest.raises(UserError, match=why):
        open_backup(backup)


def test_a_later_format(backup: Path) -> None:
    fields = document(backup) | {"kbroker_backup": 1, "written_by": "0.3.0", "new": []}
    write(backup, fields)
    with pytest.raises(DataDirectoryError, match=r"format 1 of the backup.* start kbroker 0.3.0"):
        open_backup(backup)


def test_a_manifest_that_was_changed(backup: Path) -> None:
    fields = document(backup) | {"node_id": 8}
    (backup / MANIFEST_FILE).write_text(json.dumps(fields))
    with pytest.raises(UserError, match="it was changed since it was written"):
        open_backup(backup)


def test_a_topic_that_the_metadata_does_not_have(backup: Path) -> None:
    fields = document(backup)
    fields["partitions"][0]["topic_id"] = "AAAAAAAAAAAAAAAAAAAAAA"
    write(backup, fields)
    with pytest.raises(UserError, match="orders-0 is not in its metadata"):
        open_backup(backup)


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


LOG = Path(LOGS, "orders-0", SEGMENT)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda at: replaced(at / LOG, lambda p: p.symlink_to("/etc/passwd")), "neither a file"),
        (lambda at: replaced(at / LOG, os.mkfifo), "neither a file nor a directory"),
        (lambda at: replaced(at / GROUPS_FILE, os.mkfifo), "neither a file nor a directory"),
        (lambda at: replaced(at / MANIFEST_FILE, os.mkfifo), "is no file"),
        (
            lambda at: replaced(at / MANIFEST_FILE, lambda p: p.symlink_to("/etc/passwd")),
            "manifest.json cannot be used",
        ),
        (lambda at: (at / LOG).unlink(), "is not there"),
        (lambda at: os.truncate(at / LOG, 1 << 40), "bytes, not"),
        (lambda at: os.truncate(at / LOG, 1), "it has 1 bytes, not"),
        (lambda at: (at / LOG).with_name("1.log").touch(), "1.log is not in the manifest"),
        (lambda at: (at / LOGS / "other-0").mkdir(), "other-0 is not in the manifest"),
        (lambda at: (at / LOGS / "cleaner-offset-checkpoint").touch(), "not in the manifest"),
        (lambda at: (at / LOGS).rename(at / "x"), "x is not in the manifest|logs is not there"),
    ],
)
def test_files_that_do_not_fit(backup: Path, change: Callable[[Path], object], why: str) -> None:
    change(backup)
    with pytest.raises(UserError, match=why):
        open_backup(backup)


def test_a_directory_that_is_a_link(backup: Path, tmp_path: Path) -> None:
    log = backup / LOGS / "orders-0"
    log.rename(tmp_path / "elsewhere")
    log.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="neither a file nor a directory"):
        open_backup(backup)


def test_a_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert files.read_bounded(path, 5) == b"12345"
    with pytest.raises(ValueError, match="has 5 bytes, more than 4"):
        files.read_bounded(path, 4)


@pytest.mark.parametrize(
    "rows",
    [
        None,
        {},
        [None],
        [["g", "t", 0, 1, 2]],
        [["g", "t", 0, -1, -1, ""]],
        [["g", "t", 0, 2**63, -1, ""]],
        [["g", "t", 2**31, 0, -1, ""]],
        [["g", "t", 0, 0, -2, ""]],
        [["g", "t", 0, 0, -1, None]],
        [["g" * 2**15, "t", 0, 0, -1, ""]],
        [["\ud800", "t", 0, 0, -1, ""]],
    ],
)
def test_committed_offsets_that_do_not_fit(rows: object) -> None:
    with pytest.raises(ValueError, match=r"groups|committed offset"):
        groups.decode(json.dumps({"groups": rows}).encode())


def test_an_encoded_manifest_is_decoded(backup: Path) -> None:
    raw = (backup / MANIFEST_FILE).read_bytes()
    assert manifest.encode(manifest.decode(raw, "here")) == raw
    found = manifest.decode(raw, "here")
    assert {*found.topics()} == {"orders", "prices"}
    assert TopicPartition("orders", 1) in found.partitions
