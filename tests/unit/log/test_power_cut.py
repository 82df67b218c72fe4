"""The power goes in the middle of a broker's work with its logs, and comes back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kbroker.errors import KafkaError
from kbroker.log.engine import file_operations
from kbroker.testing.file_faults import FileFaults
from tests.support.power_cut import KINDS, Disk
from tests.unit.log import power_cut_model

HISTORIES = 12
A_ROLL_BEHIND_A_CUT = 528  # whose new name was on the disk before what was cut had left it
A_SOURCE_WITHOUT_ITS_ID = 134  # of the two that a move leaves, the old one


@pytest.mark.parametrize("seed", [*range(HISTORIES), A_ROLL_BEHIND_A_CUT])
def test_promised_records_are_there_when_the_power_is_back(seed: int) -> None:
    assert power_cut_model.run(seed) == power_cut_model.CUTS_PER_HISTORY


@pytest.mark.parametrize("seed", [*range(HISTORIES - 9), A_SOURCE_WITHOUT_ITS_ID])
def test_promised_records_are_there_in_whichever_directory_the_log_was_moved_to(seed: int) -> None:
    assert power_cut_model.run(seed, moves=True) == power_cut_model.CUTS_PER_HISTORY


@pytest.mark.parametrize("unheard", ["*.log", "*-0", "data", "*.cleaned", "log-start*"])
def test_a_disk_that_ignores_a_sync_is_noticed(unheard: str) -> None:
    """Each of these syncs is there for a promise: without it the histories find the loss."""
    with pytest.raises((AssertionError, KafkaError)):  # a log without its start is not opened
        for seed in range(HISTORIES):
            power_cut_model.run(seed, deaf=unheard)


# -- the model of the disk


@pytest.mark.parametrize("kind", KINDS)
def test_synced_bytes_are_left_by_any_disk(kind: str, tmp_path: Path) -> None:
    directory = tmp_path / "it"
    directory.mkdir()
    disk = Disk(directory)
    with FileFaults(before=disk.before):
        file_operations.make_directory(directory / "below")
        file_operations.write_file(directory / "below" / "a", b"first", sync=True)
        file_operations.sync_directory(directory / "below")
        file_operations.sync_directory(directory)
        file_operations.replace_file(directory / "b", b"whole")
        file_operations.write_file(directory / "b", b"torn?", sync=False)
        file_operations.write_file(directory / "c", b"who knows", sync=False)
    for seed in range(50):
        left = tmp_path / f"left-{seed}"
        disk.leave(kind, left, random.Random(seed))
        assert (left / "below" / "a").read_bytes() == b"first"
        assert (left / "b").exists()


def test_bytes_that_were_not_synced_are_left_in_every_way(tmp_path: Path) -> None:
    directory = tmp_path / "it"
    directory.mkdir()
    (directory / "old").write_bytes(b"o" * 2048)
    disk = Disk(directory)
    with FileFaults(before=disk.before):
        file_operations.write_file(directory / "new.tmp", b"n" * 1024, sync=False)
        file_operations.rename(directory / "new.tmp", directory / "new")
        file_operations.write_file(directory / "old", b"N" * 4096, sync=False)
    dice = random.Random(1)
    names, lengths, contents = set(), set(), set()
    for at in range(200):
        for kind in KINDS:
            left = tmp_path / f"{kind}-{at}"
            disk.leave(kind, left, dice)
            names.add((kind, *sorted(path.name for path in left.iterdir())))
            old = (left / "old").read_bytes()
            lengths.add(len(old))
            contents |= {bytes({byte}) for byte in old}
    assert names == {
        ("posix", "old"), ("names", "new", "old"),
        ("journal", "old"), ("journal", "new.tmp", "old"), ("journal", "new", "old"),
    }  # fmt: skip
    assert {2048, 4096} < lengths <= set(range(2048, 4097))
    assert contents == {b"o", b"N", b"\0"}
