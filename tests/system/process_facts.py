"""What the kernel says about a process: memory, mapped files, open files, CPU time, threads."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

AT_START_BYTES_MAX: Final = 93 << 19  # 46.5 MiB
_QUIET_S: Final = 1.0
_QUIET_SHARE: Final = 0.05  # of a processor; an idle broker takes less than half of it
_SETTLES_S: Final = 30.0
SANITIZED: Final = "KBROKER_SANITIZED" in os.environ


def resident_bytes(pid: int) -> int:
    """0 where the build has a sanitizer, which keeps what is freed: no bar is meant for that."""
    return 0 if SANITIZED else _status_kib(pid, "VmRSS") * 1024


def wait_until_quiet(pid: int) -> None:
    """Until a broker has loaded its modules after its ready line, or has had the time for it."""
    until = time.monotonic() + _SETTLES_S
    while time.monotonic() < until:
        began_ns, before_ns = time.monotonic_ns(), cpu_ns(pid)
        time.sleep(_QUIET_S)
        if cpu_ns(pid) - before_ns < _QUIET_SHARE * (time.monotonic_ns() - began_ns):
            return


def assert_small(pid: int) -> None:
    """A broker that has just started: once it is quiet, and not for a moment."""
    until = time.monotonic() + _SETTLES_S
    wait_until_quiet(pid)
    while (resident := resident_bytes(pid)) > AT_START_BYTES_MAX and time.monotonic() < until:
        wait_until_quiet(pid)
    assert resident <= AT_START_BYTES_MAX, f"{resident / (1 << 20):.1f} MiB"


def peak_bytes(pid: int) -> int:
    return 0 if SANITIZED else _status_kib(pid, "VmHWM") * 1024


def forget_peak(pid: int) -> None:
    """`peak_bytes` begins anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise ValueError(f"process {pid} has no {field}")


def mapped_files(pid: int) -> set[str]:
    """Paths of everything mapped, compiled modules among them."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {fields[5] for fields in (line.split(maxsplit=5) for line in lines) if len(fields) == 6}


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def is_stopped(pid: int) -> bool:
    """Every thread has taken a SIGSTOP; kill() returns before that."""
    tasks = _of_threads(pid, "stat")
    return bool(tasks) and all(task.rpartition(")")[2].split()[0] == "T" for task in tasks)


def left_by_peers(port: int) -> int:
    """Connections to a local port whose other end has closed and this one has not (CLOSE_WAIT)."""
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "08" for row in rows)


def cpu_ns(pid: int) -> int:
    """CPU time of the threads that it has now, exact where none of them is running."""
    return sum(int(task.split()[0]) for task in _of_threads(pid, "schedstat"))


def written_bytes(pid: int) -> int:
    """What it has written by system calls: files of every kind, and answers."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "wchar":
            return int(value)
    raise ValueError(f"process {pid} does not say what it has written")


def thread_names(pid: int) -> list[str]:
    return sorted(name.strip() for name in _of_threads(pid, "comm"))


def _of_threads(pid: int, name: str) -> list[str]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            found.append((task / name).read_text())
    return found
