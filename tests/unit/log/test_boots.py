"""Which starts are lossy: what a crash of the machine may have taken, and what one of ours cannot.

A power cut is a directory as it is on the disk and another boot; a kill is one in the same.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from kbroker.log.opening import data_directory
from kbroker.log.opening.data_directory import (
    BOOT_FILE,
    CLEAN_SHUTDOWN_FILE,
    UNKNOWN_BOOT,
    DataDirectory,
    lock_names,
)
from kbroker.log.opening.mounts import UNKNOWN_MOUNT
from kbroker.testing.file_faults import Fault, FileFaults
from tests.support.led_log import LedLogManager
from tests.support.record_batches import build_batch
from tests.support.same_machine import copy_as_the_same
from tests.unit.log.test_manager import TOPIC, Managers, lead, managers, names, run

__all__ = ["managers"]


class Machine:
    """A broker's directory with one log in it, from one crash to the next."""

    def __init__(self, managers: Managers) -> None:
        self.managers = managers
        self.data = managers.root / "data"
        self.manager = managers.start(boot_id="a")
        lead(self.manager.open("words", 0, TOPIC, {})).append(build_batch())

    def start(self, boot_id: str, *, foreign: bool = False, copied: bool = False) -> LedLogManager:
        """Over what the last one left, which was killed unless it was stopped. `copied`: over a
        copy of that; else it is as if this were the same directory, with the same lock."""
        path = self.managers.root / f"data{len(self.managers.started)}"
        (shutil.copytree if copied else copy_as_the_same)(self.data, path)
        self.data = path
        self.manager = LedLogManager([path], boot_id=boot_id)
        self.managers.started.append(self.manager)
        self.manager.start(foreign={path} if foreign else ())
        return self.manager


@pytest.fixture
def machine(managers: Managers) -> Machine:
    return Machine(managers)


def test_a_lock_has_one_name_in_one_boot_and_a_copy_has_another(tmp_path: Path) -> None:
    def names_of(path: Path, boot_id: str) -> list[str]:
        directory = DataDirectory(path, boot_id)
        assert lock_names([directory]) == []
        directory.open()
        names = lock_names([directory])
        directory.close(clean=True)
        assert lock_names([directory]) == []
        return names

    before = names_of(tmp_path / "data", "a")
    assert len(before) == 1 and names_of(tmp_path / "data", "a") == before
    assert names_of(tmp_path / "data", "b") != before
    assert names_of(tmp_path / "data", UNKNOWN_BOOT) == []
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    assert names_of(tmp_path / "copy", "a") != before


def test_a_process_that_is_killed_loses_nothing_and_a_machine_may(machine: Machine) -> None:
    assert not machine.start("a").lossy
    assert machine.start("b").lossy


def test_a_copy_may_lack_later_acknowledged_records_of_its_original(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """Its original died in the same boot, so no other serves; but it is of some time before."""
    machine.start("a")
    copy = machine.start("a", copied=True)
    assert copy.lossy and "is a copy, or its disk was mounted again" in caplog.text
    assert machine.start("a").lossy  # which was not reported yet
    again = machine.start("a")
    again.remember_boot()
    caplog.clear()
    assert not machine.start("a").lossy and "is a copy" not in caplog.text


def test_a_copy_of_a_broker_that_was_stopped_in_order_is_whole(machine: Machine) -> None:
    machine.manager.stop()
    assert not machine.start("a", copied=True).lossy
    assert not machine.start("a").lossy


def test_a_build_of_before_has_written_the_boot_alone(machine: Machine) -> None:
    (machine.data / BOOT_FILE).write_text("a")
    assert not machine.start("a").lossy
    assert (machine.data / BOOT_FILE).read_text().startswith("a:")
    assert machine.start("a", copied=True).lossy


def mount_as(monkeypatch: pytest.MonkeyPatch, mount: str) -> None:
    monkeypatch.setattr(data_directory, "mount_of", lambda device: mount)


def test_builds_of_before_have_written_no_mount(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount_as(monkeypatch, "ext4-1")
    lock = (machine.data / ".lock").stat()
    (machine.data / BOOT_FILE).write_text(f"a:{lock.st_dev}:{lock.st_ino}")
    assert not machine.start("a").lossy
    assert (machine.data / BOOT_FILE).read_text().endswith(":ext4-1")
    mount_as(monkeypatch, "ext4-2")
    assert machine.start("a").lossy


def test_a_disk_that_becomes_read_only_has_lost_pages_when_it_is_mounted_again(
    managers: Managers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """ext4 with errors=remount-ro, mended in the same boot: device and inodes are as before. No
    file could say that a write has failed."""
    mount_as(monkeypatch, "ext4-1")
    machine = Machine(managers)
    assert not machine.start("a").lossy
    (directory,) = machine.manager.usable
    with FileFaults(Fault(("unlink",), BOOT_FILE, error=errno.EROFS, times=2)):
        directory.fail(OSError(errno.EROFS, "Read-only file system"), {})
        directory.distrust()  # as the stop does
    assert f"{BOOT_FILE} cannot be removed" in caplog.text
    mount_as(monkeypatch, "ext4-2")
    again = machine.start("a")
    assert again.lossy and "its disk was mounted again" in caplog.text
    again.remember_boot()
    assert not machine.start("a").lossy


@pytest.mark.parametrize("now", ["ext4-2", UNKNOWN_MOUNT])
def test_a_disk_that_was_mounted_again_after_a_stop_in_order_is_whole(
    managers: Managers, monkeypatch: pytest.MonkeyPatch, now: str
) -> None:
    mount_as(monkeypatch, "ext4-1")
    machine = Machine(managers)
    machine.manager.stop()
    mount_as(monkeypatch, now)
    assert not machine.start("a").lossy  # by its mark
    assert not machine.start("a").lossy  # killed since, in the same mount
    mount_as(monkeypatch, "ext4-3")
    assert machine.start("a").lossy is (now != UNKNOWN_MOUNT)


def test_a_lock_keeps_its_name_in_every_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By it a broker proves that the process before is dead; a mount ends with no process."""
    directory = DataDirectory(tmp_path / "data", "a")
    directory.open()
    before = directory.lock_name
    mount_as(monkeypatch, "ext4-2")
    assert directory.lock_name == before is not None
    directory.close(clean=True)


def test_a_lossy_start_is_one_until_it_is_known(machine: Machine) -> None:
    assert machine.start("b").lossy
    second = machine.start("b")
    assert second.lossy
    second.remember_boot()
    assert not machine.start("b").lossy
    assert machine.start("c").lossy


def test_an_unreported_loss_is_covered_by_no_clean_stop(machine: Machine) -> None:
    """Its broker was stopped while it waited for its first image."""
    machine.start("b").stop()
    again = machine.start("b")
    assert again.lossy and not again.clean
    again.remember_boot()
    again.stop()
    assert machine.start("c").clean


def test_a_boot_that_is_not_known_is_never_the_same(machine: Machine) -> None:
    assert machine.start("").lossy
    (machine.data / BOOT_FILE).write_bytes(b"\xff")
    assert machine.start("a").lossy


def test_a_clean_stop_takes_the_boot_along(machine: Machine) -> None:
    machine.manager.stop()
    assert not machine.start("b").lossy  # by its mark
    assert not machine.start("b").lossy  # by the boot's name
    assert machine.start("c").lossy


def test_a_new_directory_has_nothing_to_lose(tmp_path: Path) -> None:
    for _ in range(2):
        directory = DataDirectory(tmp_path / "new", "a")
        directory.open()
        assert not directory.lossy
        directory.close(clean=False)
    assert names(tmp_path / "new") >= {BOOT_FILE}
    # One that had something, of which nothing came back.
    directory = DataDirectory(tmp_path / "new", "b")
    directory.open()
    assert directory.lossy
    directory.close(clean=False)


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_of_another_past_is_not_trusted(machine: Machine, clean: bool) -> None:
    if clean:
        machine.manager.stop()
    assert machine.start("a", foreign=True).lossy
    # By now the store knows its id. It was lossy all the same.
    again = machine.start("a")
    assert again.lossy
    again.remember_boot()
    assert not machine.start("a").lossy


def test_a_start_that_goes_no_further_says_nothing_of_this_boot(machine: Machine) -> None:
    manager = machine.start("b")
    manager.stop(as_found=True)
    assert (machine.data / BOOT_FILE).read_text().startswith("a:")
    assert machine.start("b").lossy


@pytest.mark.parametrize("seen", ["in the background", "at the stop"])
def test_pages_that_the_kernel_dropped_are_lost_in_the_same_boot(
    machine: Machine, seen: str
) -> None:
    manager = machine.manager
    log = manager.open("words", 1, TOPIC, {"flush_messages": 1})
    with FileFaults(Fault(("sync",), "words-1", error=errno.EIO)), pytest.raises(OSError):
        lead(log).append(build_batch())
    assert not log.online
    if seen == "in the background":
        run(manager)
        manager.remember_boot()
        assert machine.start("a").lossy
    else:
        manager.stop()
        assert CLEAN_SHUTDOWN_FILE not in names(machine.data)
        assert machine.start("a").lossy
