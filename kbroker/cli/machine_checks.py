"""What `kbroker doctor` asks the machine: limits, memory maps, swap, libzstd, disks and the clock.

Each check is a function of measured figures, so that tests can give it any machine; the functions
named `look_at_...` do the measuring. A figure that this kernel does not tell is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from kbroker.clock import Clock
from kbroker.findings.checks import FAILING, NOTE, OK, WARNING, Check, disk

# A connection and each file of a segment (log, two indexes) take one.
FILES_ADVISED: Final = 100_000
FILES_MIN: Final = 4_096
# Each index of a segment is a map; the kernel's default.
MAPS_ADVISED: Final = 65_530
SWAPPINESS_ADVISED_MAX: Final = 10
DIRTY_ADVISED_MAX_CS: Final = 3_000  # the kernel's default
FSYNC_SLOW_MS: Final = 50
_FSYNC_TRIES: Final = 5
_FSYNC_MS_MAX: Final = 30
_FSYNC_BYTES: Final = 4_096
_SLOW_CLOCKS: Final = frozenset({"hpet", "acpi_pm", "jiffies"})
# The first libzstd that refuses what zstd-jni 1.5.6 and later do.
ZSTD_EXACT: Final = 1_05_06
# adjtimex(2): the state of a clock that nothing disciplines, and the bit that says so.
_TIME_ERROR: Final = 5
_STA_UNSYNC: Final = 0x0040
_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"})


def machine(log_dirs: tuple[str, ...], clock: Clock) -> Iterator[Check]:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield files(FILES_ADVISED if hard == resource.RLIM_INFINITY else hard)
    maps_max = number("/proc/sys/vm/max_map_count")
    if maps_max is not None:
        yield maps(maps_max)
    swappiness, swap_bytes = number("/proc/sys/vm/swappiness"), swap_total()
    if swappiness is not None:
        yield swap(swappiness, swap_bytes)
    expire_cs = number("/proc/sys/vm/dirty_expire_centisecs")
    if expire_cs is not None:
        yield write_back(expire_cs, *(dirty_limit(which) for which in ("background_", "")))
    yield look_at_zstd()
    mounts = read("/proc/self/mounts")
    for directory in log_dirs:
        yield from look_at_directory(directory, mounts, clock)
    yield from look_at_clock()


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def number(path: str) -> int | None:
    text = read(path).strip()
    return int(text) if text.isascii() and text.isdecimal() else None


def files(hard: int) -> Check:
    """The broker raises its soft limit to the hard one when it starts."""
    seen = f"{hard} open files are allowed"
    if hard >= FILES_ADVISED:
        return Check(OK, "files", seen)
    fix = f"ulimit -Hn {FILES_ADVISED}, or LimitNOFILE={FILES_ADVISED} in the unit"
    return Check(WARNING if hard >= FILES_MIN else FAILING, "files", seen, fix)


def maps(count_max: int) -> Check:
    seen = f"vm.max_map_count is {count_max}, two for each segment"
    if count_max >= MAPS_ADVISED:
        return Check(OK, "maps", seen)
    return Check(WARNING, "maps", seen, "sysctl -w vm.max_map_count=262144")


def swap_total() -> int:
    for line in read("/proc/meminfo").splitlines():
        if line.startswith("SwapTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def swap(swappiness: int, swap_bytes: int) -> Check:
    if swap_bytes == 0:
        return Check(OK, "swap", "there is none")
    seen = f"vm.swappiness is {swappiness}"
    if swappiness <= SWAPPINESS_ADVISED_MAX:
        return Check(OK, "swap", seen)
    return Check(WARNING, "swap", seen, "sysctl -w vm.swappiness=1: page cache before swap")


def dirty_limit(which: str) -> str:
    """How much the kernel leaves unwritten before it begins (`background_`), before it stops who
    writes (``)."""
    count_bytes = number(f"/proc/sys/vm/dirty_{which}bytes")
    if count_bytes:
        return f"{count_bytes >> 20} MB"
    return f"{number(f'/proc/sys/vm/dirty_{which}ratio') or 0} %"


def write_back(expire_cs: int, begins_at: str, stops_at: str) -> Check:
    """What a power cut takes where nothing is flushed: what the kernel has not written back."""
    seen = (
        f"the kernel writes back what is older than {expire_cs / 100:g} s, or more than {begins_at}"
        f" of memory, and stops who writes at {stops_at} (vm.dirty_*)"
    )
    if expire_cs <= DIRTY_ADVISED_MAX_CS:
        return Check(OK, "write-back", seen)
    fix = f"sysctl -w vm.dirty_expire_centisecs={DIRTY_ADVISED_MAX_CS}: what a power cut takes"
    return Check(WARNING, "write-back", seen, fix)


def look_at_zstd() -> Check:
    from kbroker.protocol._unpacking import zstd_version

    return zstd(zstd_version())


def zstd(version: int) -> Check:
    """No warning: what an older one takes was damaged before its CRC was made."""
    if not version:
        return Check(NOTE, "zstd", "there is no libzstd.so.1: Python unpacks", "install libzstd")
    seen = f"libzstd {version // 10_000}.{version // 100 % 100}.{version % 100}"
    if version >= ZSTD_EXACT:
        return Check(OK, "zstd", seen)
    fix = "install 1.5.6 or later"
    return Check(NOTE, "zstd", f"{seen} takes some damaged batches that Java refuses", fix)


# --- disks ----------------------------------------------------------------------------------------


def look_at_directory(directory: str, mounts: str, clock: Clock) -> Iterator[Check]:
    """The directory, or the one in which it would be made."""
    path = directory
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path) or not os.access(path, os.W_OK | os.X_OK):
        fix = f"chown or chmod {path}, or set log.dirs to a directory of yours"
        yield Check(FAILING, "directory", f"{directory} cannot be written", fix)
        return
    space = os.statvfs(path)
    yield disk("disk", directory, space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize)
    if space.f_files and space.f_favail * 100 // space.f_files < 5:
        yield Check(WARNING, "inodes", f"{directory}: {space.f_favail} left", "remove small files")
    yield file_system(directory, file_system_of(os.path.realpath(path), mounts))
    yield fsync_cost(directory, measure_fsync_ms(path, clock))


def file_system_of(path: str, mounts: str) -> str:
    """The type of the file system that a path is on: the longest mount point that leads to it."""
    best, found = "", ""
    for line in mounts.splitlines():
        cells = line.split()
        if len(cells) < 3:
            continue
        point = cells[1].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, found = point, cells[2]
    return found


def file_system(directory: str, kind: str) -> Check:
    seen = f"{directory} is on {kind or 'an unknown file system'}"
    if kind in _VOLATILE:
        return Check(WARNING, "filesystem", f"{seen}: gone at a reboot", "set log.dirs to a disk")
    if kind in _REMOTE:
        fix = "set log.dirs to a local disk, with ext4 or xfs"
        return Check(WARNING, "filesystem", f"{seen}: locks and renames are not to be trusted", fix)
    return Check(OK, "filesystem", seen)


def measure_fsync_ms(path: str, clock: Clock) -> float | None:
    """The median of a few small writes made durable; None if it could not be tried."""
    taken_ms: list[float] = []
    name = os.path.join(path, f".kbroker-doctor-{os.getpid()}")
    try:
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        os.unlink(name)
        for _ in range(_FSYNC_TRIES):
            before_ns = clock.monotonic_ns()
            os.write(handle, b"\0" * _FSYNC_BYTES)
            os.fsync(handle)
            taken_ms.append((clock.monotonic_ns() - before_ns) / 1e6)
            if sum(taken_ms) > _FSYNC_MS_MAX:
                break
    except OSError:
        return None
    finally:
        os.close(handle)
    return sorted(taken_ms)[len(taken_ms) // 2]


def fsync_cost(directory: str, median_ms: float | None) -> Check:
    if median_ms is None:
        return Check(FAILING, "fsync", f"{directory}: a file could not be made durable",
                     "look at the disk and at dmesg")  # fmt: skip
    seen = f"{directory}: {median_ms:.1f} ms for {_FSYNC_BYTES} bytes"
    if median_ms <= FSYNC_SLOW_MS:
        return Check(OK, "fsync", seen)
    return Check(WARNING, "fsync", seen, "leave log.flush.* alone, or take a faster disk")


# --- the clock ------------------------------------------------------------------------------------


def look_at_clock() -> Iterator[Check]:
    source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource").strip()
    if source:
        yield clock_source(source)
    state = clock_state()
    if state is not None:
        yield synchronized(*state)


def clock_source(source: str) -> Check:
    if source in _SLOW_CLOCKS:
        fix = "boot with clocksource=tsc if the machine has one that is stable"
        return Check(WARNING, "clock", f"read from {source}, a system call each time", fix)
    return Check(OK, "clock", f"read from {source}")


def clock_state() -> tuple[int, int] | None:
    """What adjtimex(2) returns and its status bits, changing nothing."""
    import ctypes

    timex = ctypes.create_string_buffer(512)  # zeroed, so modes=0; larger than any struct timex
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(timex)
    except (OSError, AttributeError):
        return None
    # modes (int, padded), offset, freq, maxerror, esterror (long), status (int)
    long_bytes = ctypes.sizeof(ctypes.c_long)
    begin = 5 * long_bytes
    status = int.from_bytes(timex.raw[begin : begin + 4], "little", signed=True)
    return None if state < 0 else (state, status)


def synchronized(state: int, status: int) -> Check:
    if state == _TIME_ERROR or status & _STA_UNSYNC:
        fix = "run chronyd or systemd-timesyncd: timestamps and the expiry of offsets go by it"
        return Check(WARNING, "time", "nothing keeps the clock right", fix)
    return Check(OK, "time", "the clock is kept right")
