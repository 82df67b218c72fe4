"""One look at a log's directory tells what the loader would find file by file."""

from __future__ import annotations

import shutil
from pathlib import Path

from kbroker.log.engine.checkpoints import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE
from kbroker.log.engine.file_operations import look_at_log
from kbroker.log.engine.segment_files import SegmentFile, find_segments
from tests.support.record_batches import build_batch

BATCH = build_batch([b"a", b"b"])


def a_directory(path: Path) -> Path:
    """With segments, the swap of one that replaces the first, and what does not belong there."""
    path.mkdir()
    for base_offset, data in ((0, b"old"), (2, BATCH), (4, b"")):
        for suffix in ("log", "index", "timeindex"):
            path.joinpath(f"{base_offset:020d}.{suffix}").write_bytes(data)
    path.joinpath(f"{0:020d}.log.swap").write_bytes(BATCH)
    path.joinpath(f"{7:020d}.index").write_bytes(b"of no segment")
    path.joinpath(f"{9:020d}.log").mkdir()
    path.joinpath("link").symlink_to(path / PARTITION_METADATA_FILE)
    path.joinpath(PARTITION_METADATA_FILE).write_bytes(b"metadata")
    path.joinpath(LEADER_EPOCH_FILE).write_bytes(b"epochs")
    return path


def test_the_contents_of_a_directory(tmp_path: Path) -> None:
    path = a_directory(tmp_path / "words-0")
    found = look_at_log(path, PARTITION_METADATA_FILE, LEADER_EPOCH_FILE)
    assert found is not None
    assert (found.metadata, found.epochs) == (b"metadata", b"epochs")
    assert found.sizes.keys() == {each.name for each in path.iterdir()}
    assert found.sizes[f"{2:020d}.log"] == found.sizes[f"{0:020d}.log.swap"] == len(BATCH)
    assert {name for name, size in found.sizes.items() if size < 0} == {f"{9:020d}.log", "link"}


def test_the_segments_are_the_same(tmp_path: Path) -> None:
    looked, listed = (a_directory(tmp_path / name) for name in ("a-0", "b-0"))
    found = look_at_log(looked, PARTITION_METADATA_FILE, LEADER_EPOCH_FILE)
    assert found is not None
    segments = find_segments(looked, found.sizes)
    shutil.rmtree(listed / f"{9:020d}.log")
    shutil.rmtree(looked / f"{9:020d}.log")
    assert find_segments(listed) == [each for each in segments if each.base_offset != 9]
    assert SegmentFile(0, len(BATCH)) in segments
    assert {each.name for each in looked.iterdir()} == {each.name for each in listed.iterdir()}


def test_no_directory(tmp_path: Path) -> None:
    assert look_at_log(tmp_path / "none-0", PARTITION_METADATA_FILE, LEADER_EPOCH_FILE) is None
