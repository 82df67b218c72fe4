"""What a process and the box cost: CPU, memory, and whether anything else was running.

CPU of a process comes from its own clock (the kernel counts ended threads in, to the nanosecond);
by thread name from /proc/PID/task/*/schedstat, which tells a JVM's compiler and collector from its
request threads. Reads only; never a signal.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
OTHERS_CPU_MAX = 0.02  # of the box: more, and a block says nothing
STEAL_MAX = 0.01
# Of the box: what no process is charged for, interrupts and the ways in and out of idling, that a
# block's own work causes; syncs and hand-overs by the thousand came to 11 %.
UNCHARGED_MAX = 0.15
KERNEL_THREADS_PARENT = 2  # kthreadd
SETTLE_STEP_S, SETTLE_TRIES_MAX, SETTLED_CHANGE = 1.5, 6, 0.01


def cpu_ns(pid: int) -> int:
    """CPU time of a process, user and system, all its threads."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def cpu_ns_by_thread(pid: int) -> dict[str, int]:
    """CPU time by thread name, digits at the end taken off so that pools add up."""
    spent: dict[str, int] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = re.sub(r"[-#\s]*\d+$", "", (task / "comm").read_text().strip())
            used = int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread ended between the listing and the reading
        spent[name] = spent.get(name, 0) + used
    return spent


class ThreadWatch:
    """Which part of a process's CPU time its threads of some kinds use, from now to `shares()`.

    `kinds`: how the names of a kind's threads begin. A thread that ends meanwhile takes what it
    used with it: a kind's share is what it used at least.
    """

    def __init__(self, pid: int, kinds: Mapping[str, tuple[str, ...]]) -> None:
        self._pid, self._kinds = pid, kinds
        self._before = self._look()

    def _look(self) -> tuple[int, dict[str, int]]:
        if not self._kinds or self._pid <= 0:
            return 0, {}
        by_name = cpu_ns_by_thread(self._pid)
        return cpu_ns(self._pid), {
            kind: sum(used for name, used in by_name.items() if name.startswith(begins))
            for kind, begins in self._kinds.items()
        }

    def shares(self) -> dict[str, float]:
        """By kind, from 0 to 1; of kinds that there are."""
        whole, by_kind = self._look()
        spent = whole - self._before[0]
        return {
            kind: min(1.0, max(0, used - self._before[1][kind]) / spent)
            for kind, used in by_kind.items()
            if spent > 0
        }


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


@dataclass(frozen=True)
class Memory:
    """Resident memory in bytes; `anonymous` leaves out mapped files."""

    resident: int
    anonymous: int
    peak: int


def memory(pid: int) -> Memory:
    found = {"VmRSS": 0, "RssAnon": 0, "VmHWM": 0}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key in found:
            found[key] = int(value.split()[0]) * 1024
    return Memory(found["VmRSS"], found["RssAnon"], found["VmHWM"])


def proportional_bytes(pid: int) -> int:
    """Resident memory in which a page that n processes share counts 1/n of it (PSS)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


class Reads(NamedTuple):
    """Bytes that a process has read since it was started."""

    asked: int  # by read(2) and its kin, wherever they came from
    from_disk: int  # those that the page cache did not have


def reads(pid: int) -> Reads:
    found = dict.fromkeys(("rchar", "read_bytes"), 0)
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        key, _, value = line.partition(":")
        if key in found:
            found[key] = int(value)
    return Reads(found["rchar"], found["read_bytes"])


def settled_memory(pid: int) -> Memory:
    """Memory once it has stopped moving: a broker may still load things after its ready line."""
    before = memory(pid)
    for _ in range(SETTLE_TRIES_MAX):
        time.sleep(SETTLE_STEP_S)
        now = memory(pid)
        if abs(now.resident - before.resident) < before.resident * SETTLED_CHANGE:
            return now
        before = now
    return before


@dataclass(frozen=True)
class BoxTime:
    """Seconds of the whole box, all CPUs together; only differences mean something."""

    busy_s: float
    steal_s: float
    wall_s: float


def box_time() -> BoxTime:
    """Busy is what was not idle: the kernel clocks idle time, but samples busy time at its ticks.

    A process that works for 100 us a thousand times a second is then seen or missed by chance: the
    sum of the busy columns of a block of a second is off by 2 % of the box, idle time by 0.5 %.
    """
    line = Path("/proc/stat").read_text().splitlines()[0]
    return box_time_of(line, time.monotonic(), os.cpu_count() or 1)


def box_time_of(line: str, wall_s: float, cpus: int) -> BoxTime:
    """From the first line of /proc/stat, in clock ticks, read when the clock showed `wall_s`."""
    _user, _nice, _system, idle, iowait, _irq, _softirq, steal = (
        int(field) for field in line.split()[1:9]
    )
    not_busy_s = (idle + iowait + steal) / CLOCK_TICKS_PER_S
    return BoxTime(wall_s * cpus - not_busy_s, steal / CLOCK_TICKS_PER_S, wall_s)


@dataclass(frozen=True)
class Guard:
    """What ran beside a block, as shares of the box's CPU time."""

    others: float
    steal: float

    @property
    def quiet(self) -> bool:
        return self.others <= OTHERS_CPU_MAX and self.steal <= STEAL_MAX


class Beside(NamedTuple):
    """CPU time by process; apart the kernel's threads, whose work is the block's: its fsyncs."""

    others: dict[int, int]
    kernel: dict[int, int]


def cpu_ns_beside(own: Collection[int]) -> Beside:
    """Of every process but these."""
    found = Beside({}, {})
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in own:
            continue
        try:
            parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
            whose = found.kernel if int(parent) == KERNEL_THREADS_PARENT else found.others
            whose[int(name)] = cpu_ns(int(name))
        except OSError:
            continue  # it ended between the listing and the reading
    return found


def _grown_s(before: Mapping[int, int], now: Mapping[int, int]) -> float:
    return sum(max(0, used - before.get(pid, 0)) for pid, used in now.items()) / 1e9


class Watch:
    """Measures the box from its creation to `guard()`, taking off what these processes used.

    Others are the processes that are there at the end, to the nanosecond. One that came and went is
    seen in the box's time alone, from UNCHARGED_MAX on: /proc/stat is read in ticks, and has time
    that no process is charged for.
    """

    def __init__(self, pids: list[int]) -> None:
        self._pids = [pid for pid in pids if pid > 0]
        self._beside = cpu_ns_beside(self._pids)
        self._box = box_time()
        self._own_ns = sum(map(cpu_ns, self._pids))

    def include(self, pid: int) -> None:
        """One more of the own processes, started since."""
        self._pids.append(pid)

    def guard(self, ended_s: float = 0.0) -> Guard:
        """`ended_s`: CPU seconds of own processes that came and went since."""
        box = box_time()
        span_s = (box.wall_s - self._box.wall_s) * (os.cpu_count() or 1)
        own_s = (sum(map(cpu_ns, self._pids)) - self._own_ns) / 1e9 + ended_s
        beside = cpu_ns_beside(self._pids)
        others_s = _grown_s(self._beside.others, beside.others)
        known_s = own_s + _grown_s(self._beside.kernel, beside.kernel)
        unknown_s = box.busy_s - self._box.busy_s - known_s - UNCHARGED_MAX * span_s
        return Guard(max(others_s, unknown_s) / span_s, (box.steal_s - self._box.steal_s) / span_s)


def touch_pages(directory: Path, size: int) -> None:
    """Write and unlink as many bytes as a block will write.

    The first touch of a guest page costs ten times a later one; without this the block that comes
    first pays for those that follow.
    """
    chunk = bytes(1 << 20)
    path = directory / f"touch-{os.getpid()}"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    try:
        os.unlink(path)
        for _ in range(max(1, size >> 20)):
            os.write(fd, chunk)
    finally:
        os.close(fd)
