"""Copies of data directories that stand for the directories themselves, as a kill leaves them."""

from __future__ import annotations

import shutil
from pathlib import Path

from kbroker.log.opening.data_directory import BOOT_FILE, LOCK_FILE


def copy_as_the_same(source: Path, target: Path, *, leave_out: str = "") -> None:
    """Copy a tree of data directories. Each copy keeps its own lock's name as that of the boot, so
    a start takes it for the directory that was there, and not for a copy of it. `leave_out`: a
    pattern of names."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(leave_out))
    for boot_file in target.rglob(BOOT_FILE):
        original = source / boot_file.parent.relative_to(target)
        before, after = ((it / LOCK_FILE).stat() for it in (original, boot_file.parent))
        lock, own = (b":%d:%d" % (it.st_dev, it.st_ino) for it in (before, after))
        boot_file.write_bytes(boot_file.read_bytes().replace(lock, own))
