"""The name of a mount: of the kernel's directory for a file system that is mounted from a disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbroker.log.opening.mounts import SYSFS, UNKNOWN_MOUNT, mount_of


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Of a machine with one disk, sda1, with number 8:1."""
    disks = tmp_path / "dev" / "block"
    disks.mkdir(parents=True)
    (disks / "8:1").symlink_to("../../devices/pci0000:00/block/sda/sda1")
    (tmp_path / "fs" / "ext4" / "features").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("kind", ["ext4", "xfs", "f2fs"])
def test_a_file_system_has_another_name_after_each_mount(sysfs: Path, kind: str) -> None:
    device = os.makedev(8, 1)
    assert mount_of(device, sysfs) == UNKNOWN_MOUNT  # of a kind that has no such directory
    mounted = sysfs / "fs" / kind / "sda1"
    mounted.mkdir(parents=True)
    first = mount_of(device, sysfs)
    assert first == f"{kind}-{mounted.stat().st_ino}" == mount_of(device, sysfs)
    mounted.rename(sysfs / "ended")  # so that its number is not given to the next one
    mounted.mkdir()
    assert mount_of(device, sysfs) not in (first, UNKNOWN_MOUNT)
    assert mount_of(os.makedev(8, 2), sysfs) == UNKNOWN_MOUNT


def test_a_machine_without_sysfs_says_nothing(tmp_path: Path) -> None:
    assert mount_of(os.makedev(8, 1), tmp_path / "none") == UNKNOWN_MOUNT


def test_this_machine_answers_the_same_twice(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    assert mount_of(device) == mount_of(device)
    disk = SYSFS / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"
    if disk.exists() and (SYSFS / "fs" / "ext4" / disk.resolve().name).exists():
        assert mount_of(device).startswith("ext4-")
