"""The text files of a data directory: Kafka's formats, whole replacements, and damage."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from kbroker.log.engine.checkpoints import (
    CheckpointError,
    read_leader_epochs,
    read_offsets,
    read_partition_metadata,
    replace_file,
    write_leader_epochs,
    write_offsets,
    write_partition_metadata,
)
from kbroker.types import TopicPartition


def test_offsets_as_kafka_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    assert read_offsets(path) == {}
    offsets = {TopicPartition("b", 1): 5, TopicPartition("a-b", 0): 2**40}
    write_offsets(path, offsets)
    assert path.read_text() == "0\n2\na-b 0 1099511627776\nb 1 5\n"
    assert read_offsets(path) == offsets
    write_offsets(path, {})
    assert path.read_text() == "0\n0\n"


def test_leader_epochs_as_kafka_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    write_leader_epochs(path, [(0, 0), (3, 17)])
    assert path.read_text() == "0\n2\n0 0\n3 17\n"
    assert read_leader_epochs(path) == [(0, 0), (3, 17)]


@pytest.mark.parametrize(
    "text",
    ["", "1\n0\n", "0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na 0 b\n", "0\nx\n", "\xff\xfe"],
)
def test_damaged_checkpoints(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(text.encode("latin-1"))
    for read in (read_offsets, read_leader_epochs):
        with pytest.raises(CheckpointError):
            read(path)


@pytest.mark.parametrize("offset", ["-5", "-1", str(2**63)])
def test_an_offset_that_no_log_has_is_damage(tmp_path: Path, offset: str) -> None:
    path = tmp_path / "log-start-offset-checkpoint"
    path.write_text(f"0\n2\na 0 7\nb 1 {offset}\n")
    with pytest.raises(CheckpointError, match=f"no offset in 'b 1 {offset}'"):
        read_offsets(path)


@pytest.mark.parametrize("line", ["0 -1", "-1 0", f"0 {2**63}", f"{2**31} 0"])
def test_an_epoch_that_no_leader_has_is_damage(tmp_path: Path, line: str) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(f"0\n1\n{line}\n")
    with pytest.raises(CheckpointError, match=f"no epoch in '{line}'"):
        read_leader_epochs(path)


@pytest.mark.parametrize("text", ["0\n2\n3 0\n3 5\n", "0\n2\n3 9\n4 5\n"])
def test_epochs_rise(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(CheckpointError, match="goes back"):
        read_leader_epochs(path)


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    replace_file(path, "old")

    def fails(handle: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError):
        replace_file(path, "new")
    assert path.read_text() == "old"


def test_topic_ids(tmp_path: Path) -> None:
    ident = uuid.UUID("ffee0011-2233-4455-6677-8899aabbccdd")
    path = tmp_path / "partition.metadata"
    assert read_partition_metadata(path) is None
    write_partition_metadata(path, ident)
    assert path.read_text() == "version: 0\ntopic_id: _-4AESIzRFVmd4iZqrvM3Q"
    assert read_partition_metadata(path) == ident
    path.write_text("")
    assert read_partition_metadata(path) is None
    for text in ("version: 1\ntopic_id: _-4AESIzRFVmd4iZqrvM3Q", "version: 0", "version: 0\n"
                 "topic_id: short", "\x00\xff"):  # fmt: skip
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(CheckpointError):
            read_partition_metadata(path)
