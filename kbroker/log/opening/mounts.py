"""Which mount of a file system a file is in: another one after each, and one in all containers.

A disk that fails may be taken out of use with pages that were not written (ext4 with
`errors=remount-ro`, XFS that shuts down). After it is mended and mounted again its device and its
inodes are as before, and the boot of the machine is too. The kernel keeps a directory in sysfs for
each file system that is mounted, from its first mount to its last unmount; the inode of that
directory is a number that it gives once in a boot.

The ids of mounts (`mnt_id`, mount_namespaces(7)) do not serve: a mount gets the id of one that has
just ended, and each container has ids of its own for a file system that stays mounted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

SYSFS: Final = Path("/sys")
# Those that name the directory after the disk.
FILE_SYSTEMS: Final = ("ext4", "xfs", "f2fs")
UNKNOWN_MOUNT: Final = ""


def mount_of(device: int, sysfs: Path = SYSFS) -> str:
    """A name for the mount of the file system on this device (`st_dev`). UNKNOWN_MOUNT: it has no
    disk, is of another kind, or sysfs cannot be read here."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        disk = os.path.basename(os.readlink(sysfs / "dev" / "block" / number))
    except OSError:
        return UNKNOWN_MOUNT
    for kind in FILE_SYSTEMS:
        try:
            return f"{kind}-{os.stat(sysfs / 'fs' / kind / disk).st_ino}"
        except OSError:
            continue
    return UNKNOWN_MOUNT
