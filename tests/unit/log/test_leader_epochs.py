"""Leader epochs: assigned, asked for, cut at both ends, and in step with their file."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.log.engine.checkpoints import LEADER_EPOCH_FILE, read_leader_epochs
from kbroker.log.engine.leader_epochs import LeaderEpochs
from kbroker.testing.file_faults import Fault, FileFaults


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochs:
    made = LeaderEpochs(tmp_path)
    for epoch, start in ((2, 0), (3, 10), (5, 30)):
        made.assign(epoch, start)
    return made


def same_on_disk(epochs: LeaderEpochs, end_offset: int) -> bool:
    epochs.settle(end_offset)
    again = LeaderEpochs(epochs.path.parent)
    return read_leader_epochs(epochs.path) == epochs.entries == again.entries


def test_only_a_newer_epoch_is_assigned(epochs: LeaderEpochs) -> None:
    epochs.assign(5, 40)
    epochs.assign(4, 40)
    assert epochs.entries == [(2, 0), (3, 10), (5, 30)]
    assert epochs.latest == 5
    assert same_on_disk(epochs, 31)


def test_an_epoch_without_a_batch_gives_way(epochs: LeaderEpochs) -> None:
    epochs.assign(6, 30)
    assert epochs.entries == [(2, 0), (3, 10), (6, 30)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (1, (1, 0)), (2, (2, 10)), (3, (3, 30)), (4, (3, 30)), (5, (5, 77)),
     (6, (-1, -1))],
)  # fmt: skip
def test_how_far_an_epoch_came(epochs: LeaderEpochs, asked: int, answer: tuple[int, int]) -> None:
    assert epochs.end_offset_for(asked, 77) == answer


def test_none_known(tmp_path: Path) -> None:
    epochs = LeaderEpochs(tmp_path)
    assert (epochs.latest, epochs.end_offset_for(0, 5)) == (-1, (-1, -1))


def test_cut_from_the_end(epochs: LeaderEpochs) -> None:
    epochs.truncate_from_end(31)
    assert len(epochs.entries) == 3
    epochs.truncate_from_end(30)
    assert epochs.entries == [(2, 0), (3, 10)]
    assert same_on_disk(epochs, 31)


def test_cut_from_the_start(epochs: LeaderEpochs) -> None:
    epochs.truncate_from_start(0)
    assert epochs.entries[0] == (2, 0)
    epochs.truncate_from_start(12)
    assert epochs.entries == [(3, 12), (5, 30)]
    epochs.truncate_from_start(30)
    assert epochs.entries == [(5, 30)]
    assert same_on_disk(epochs, 31)


def test_the_file_is_written_when_a_recovery_point_needs_it(epochs: LeaderEpochs) -> None:
    assert not epochs.path.exists() and epochs.unsettled_from == 0
    epochs.settle(0)
    assert not epochs.path.exists()
    epochs.settle(1)
    assert read_leader_epochs(epochs.path) == epochs.entries
    epochs.assign(7, 50)
    epochs.truncate_from_start(12)  # every start of the broker finds that again
    assert epochs.unsettled_from == 50
    epochs.settle(50)
    assert read_leader_epochs(epochs.path)[0] == (2, 0)
    epochs.write(51)
    assert read_leader_epochs(epochs.path) == epochs.entries == [(3, 12), (5, 30), (7, 50)]
    assert epochs.unsettled_from == 50
    epochs.settled_with_volume()
    assert epochs.unsettled_from > 51


def test_epochs_that_the_volume_did_not_take_are_not_settled(epochs: LeaderEpochs) -> None:
    with (
        FileFaults(Fault(("write",), "leader-epoch", error=errno.ENOSPC)),
        pytest.raises(OSError, match="No space"),
    ):
        epochs.write(31)
    epochs.settled_with_volume()
    assert epochs.unsettled_from == 0
    assert same_on_disk(epochs, 31)


@pytest.mark.parametrize("change", [lambda it: it.settle(50), lambda it: it.clear()])
def test_a_new_file_is_on_the_disk_before_it_replaces_the_old_one(
    epochs: LeaderEpochs, change: Callable[[LeaderEpochs], None]
) -> None:
    epochs.settle(31)
    epochs.assign(7, 40)
    with FileFaults() as faults:
        change(epochs)
    done = [(each.operation, Path(each.path).suffix) for each in faults.seen]
    assert done.index(("sync", ".tmp")) < done.index(("rename", ".tmp"))
    assert done[-1] == ("sync", "")
    assert same_on_disk(epochs, 50)


def test_of_a_log_that_begins_anew_the_file_says_nothing_at_once(epochs: LeaderEpochs) -> None:
    epochs.settle(31)
    epochs.clear()
    assert read_leader_epochs(epochs.path) == epochs.entries == []
    assert epochs.unsettled_from > 31


def test_a_file_that_a_power_cut_emptied(tmp_path: Path) -> None:
    (tmp_path / LEADER_EPOCH_FILE).write_bytes(b"")
    assert LeaderEpochs(tmp_path).entries == []
    assert LeaderEpochs(tmp_path, data=b"").entries == []


def test_which_epoch_wrote_an_offset(epochs: LeaderEpochs, tmp_path: Path) -> None:
    found = [epochs.epoch_at(offset) for offset in (0, 9, 10, 29, 30, 1000)]
    assert found == [2, 2, 3, 3, 5, 5]
    epochs.truncate_from_start(12)
    assert [epochs.epoch_at(offset) for offset in (11, 12)] == [-1, 3]
    assert LeaderEpochs(tmp_path / "none").epoch_at(0) == -1
