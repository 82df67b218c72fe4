"""What the process and its disks use: memory and its limit, descriptors, CPU, bytes of disks.

Read from /proc, /sys and the cgroup on each call, a few system calls in all; nothing is kept open.
What this machine does not tell (a log directory on no block device, /proc/self/io forbidden in a
container) is left out, and so its metrics have no samples. Any thread.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

SECTOR_BYTES: Final = 512
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
# Fields of /sys/dev/block/M:m/stat.
_SECTORS_READ: Final = 2
_SECTORS_WRITTEN: Final = 6
# Fields of /proc/self/stat after the name in parentheses.
_THREADS: Final = 17
_START_TICKS: Final = 19


class DiskBytes(NamedTuple):
    read: int
    written: int


class DirectorySpace(NamedTuple):
    free: int
    total: int


class Process(NamedTuple):
    resident_bytes: int
    cpu_s: float
    open_fds: int
    max_fds: int
    threads: int
    start_wall_s: float


def process(now_wall_s: float, root: Path = Path("/proc")) -> Process:
    """This process, now."""
    statm = (root / "self/statm").read_text().split()
    fields = (root / "self/stat").read_text().rpartition(")")[2].split()
    times = os.times()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    uptime_s = float((root / "uptime").read_text().split()[0])
    age_s = uptime_s - int(fields[_START_TICKS]) / _TICKS_PER_S
    return Process(
        resident_bytes=int(statm[1]) * _PAGE_BYTES,
        cpu_s=times.user + times.system,
        open_fds=len(os.listdir(root / "self/fd")) - 1,  # without the one of this look
        max_fds=soft,
        threads=int(fields[_THREADS]),
        start_wall_s=now_wall_s - age_s,
    )


def process_disk_bytes(root: Path = Path("/proc")) -> DiskBytes | None:
    """What this process had read from and sent to disks; the page cache is not counted."""
    try:
        found = dict(
            line.split(": ", 1) for line in (root / "self/io").read_text().splitlines() if line
        )
        return DiskBytes(int(found["read_bytes"]), int(found["write_bytes"]))
    except (OSError, KeyError, ValueError):
        return None


def disks_of(directories: Sequence[str], sys_root: Path = Path("/sys")) -> dict[str, DiskBytes]:
    """The block devices that hold these directories, by name, with their counts since boot."""
    found: dict[str, DiskBytes] = {}
    for directory in directories:
        try:
            device = os.stat(directory).st_dev
            place = sys_root / f"dev/block/{os.major(device)}:{os.minor(device)}"
            name = place.resolve().name
            fields = (place / "stat").read_text().split()
            found[name] = DiskBytes(
                int(fields[_SECTORS_READ]) * SECTOR_BYTES,
                int(fields[_SECTORS_WRITTEN]) * SECTOR_BYTES,
            )
        except (OSError, IndexError, ValueError):
            continue  # an overlay, a network or a memory file system: no device of its own
    return found


def space_of(directory: str) -> DirectorySpace | None:
    """Free and total space of the file system, as its user may have it."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return DirectorySpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def memory_limit(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """What this process may use: the least of its cgroups' limits and the machine's memory."""
    line = next(
        line for line in (proc / "meminfo").read_text().splitlines() if line.startswith("MemTotal")
    )
    limit = int(line.split()[1]) * 1024
    try:
        groups = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return limit
    for group in groups:
        number, controllers, path = group.split(":", 2)
        if number == "0" and not controllers:
            limit = min(limit, _least(cgroups, path, "memory.max"))
        elif "memory" in controllers.split(","):
            limit = min(limit, _least(cgroups / "memory", path, "memory.limit_in_bytes"))
    return limit


def _least(mount: Path, group: str, name: str) -> int:
    """The least limit of a cgroup and those above it; in a container its own is the mount's."""
    least = 1 << 63
    at = mount / group.lstrip("/")
    while True:
        try:
            text = (at / name).read_text().strip()
            if text != "max":
                least = min(least, int(text))
        except (OSError, ValueError):
            pass
        if at == mount or mount not in at.parents:
            return least
        at = at.parent
