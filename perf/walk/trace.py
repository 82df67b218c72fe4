"""The trace of a process: its file, and whose functions the events of it are.

    with Trace(folder) as trace:            # its environment goes to the process
        calls = trace.record(act, pid)      # what ran from `act` until all was quiet again

A *unit* is a compiled module or a Python module of kbroker, by its dotted name without "kbroker.".
Functions of headers and of a .pxd belong to the unit that they are compiled into.
"""

from __future__ import annotations

import bisect
import mmap
import re
import struct
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, Self

from perf.walk.traced import PYTHON_BIT

HEADER: Final = struct.Struct("<QQQ")  # on, capacity, count
EVENT: Final = struct.Struct("<QQQ")  # function, caller, thread
EVENTS_MAX: Final = 1 << 18
# After the answer: long enough for the rest of the request's work, shorter than a timer's period.
QUIET_S, LOOK_S, QUIET_WAIT_S = 0.01, 0.002, 0.1
_MANGLED: Final = re.compile(r"__pyx_(?:f|pw|pf|tp_new|tp_dealloc)_(.+)")
_COMPILED: Final = re.compile(r"kbroker/(.+?)\.[\w-]+\.so$")


class Function(NamedTuple):
    """Where a call went."""

    unit: str
    name: str
    compiled: bool


class Call(NamedTuple):
    """A function that was entered, and the one that was running; None: the thread's first."""

    function: Function
    caller: Function | None
    thread: str


class TraceError(Exception):
    """More calls than a trace holds."""


class Trace:
    """The file that a traced process maps, from before its start on."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.names_path = folder / "walk", folder / "names"
        self.names_path.touch()
        with self.path.open("wb") as file:
            file.truncate(HEADER.size + EVENT.size * EVENTS_MAX)
        with self.path.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), 0)
        HEADER.pack_into(self._mapped, 0, 0, EVENTS_MAX, 0)

    def variables(self, sources: Path, library: Path) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(library),
            "PERF_WALK_FILE": str(self.path),
            "PERF_WALK_NAMES": str(self.names_path),
            "PERF_WALK_SOURCES": f"{sources}/kbroker/",
        }

    def record(self, act: Callable[[], object], pid: int) -> list[Call]:
        """What this process called from before `act` until nothing more was called."""
        HEADER.pack_into(self._mapped, 0, 1, EVENTS_MAX, 0)
        try:
            act()
            self._wait_until_quiet()
        finally:
            struct.pack_into("<Q", self._mapped, 0, 0)
        count = self._count()
        if count > EVENTS_MAX:
            raise TraceError(f"{count:,} calls; a trace holds {EVENTS_MAX:,}")
        symbols = Symbols(pid, self.names_path)
        data = self._mapped[HEADER.size : HEADER.size + count * EVENT.size]
        threads = _threads(pid)
        return [
            Call(entered, symbols.of(caller), threads.get(thread, "?"))
            for function, caller, thread in EVENT.iter_unpack(data)
            if (entered := symbols.of(function)) is not None
        ]

    def _count(self) -> int:
        return int(HEADER.unpack_from(self._mapped)[2])

    def _wait_until_quiet(self) -> None:
        give_up_s = time.monotonic() + QUIET_WAIT_S
        count, since_s = self._count(), time.monotonic()
        while (now_s := time.monotonic()) < give_up_s and now_s - since_s < QUIET_S:
            time.sleep(LOOK_S)
            if self._count() != count:
                count, since_s = self._count(), time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._mapped.close()


def _threads(pid: int) -> dict[int, str]:
    """Names by id."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[int(task.name)] = (task / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    return found


class Symbols:
    """Functions of a process, by their numbers in an event."""

    def __init__(self, pid: int, names_path: Path) -> None:
        self._python = _python_functions(names_path.read_text(encoding="utf-8"))
        self._starts, self._modules = _modules(Path(f"/proc/{pid}/maps").read_text())

    def of(self, number: int) -> Function | None:
        """None for a function that is not kbroker's."""
        if number & PYTHON_BIT:
            return self._python.get(number ^ PYTHON_BIT)
        at = bisect.bisect_right(self._starts, number) - 1
        return _compiled(self._modules[at], number - self._starts[at]) if at >= 0 else None


def _python_functions(names: str) -> dict[int, Function]:
    found = {}
    for line in names.splitlines():
        number, file, name = line.split("\t")
        unit = file.rpartition("/kbroker/")[2].removesuffix(".py").replace("/", ".")
        found[int(number)] = Function(unit.removesuffix(".__init__"), name, False)
    return found


def _modules(maps: str) -> tuple[list[int], list[str]]:
    """Where each mapped file begins in memory, in order; "" of one that is no unit."""
    begins: dict[int, str] = {}
    for line in maps.splitlines():
        words = line.split(maxsplit=5)
        if int(words[2], 16) == 0:
            begins[int(words[0].partition("-")[0], 16)] = words[5] if len(words) > 5 else ""
    starts = sorted(begins)
    return starts, [begins[start] for start in starts]


@cache
def _compiled(module: str, offset: int) -> Function | None:
    unit = unit_of(module)
    return None if unit is None else Function(unit, _name(module, unit, offset), True)


def unit_of(module: str) -> str | None:
    """Of a compiled module's file; None of another one."""
    found = _COMPILED.search(module)
    return found[1].replace("/", ".") if found else None


def _name(module: str, unit: str, offset: int) -> str:
    addresses, names = _symbols(module)
    at = bisect.bisect_right(addresses, offset) - 1
    return plain_name(names[at], unit) if at >= 0 else f"{offset:#x}"


@cache
def _symbols(module: str) -> tuple[list[int], list[str]]:
    listed = subprocess.run(
        ["nm", "-n", "--defined-only", module], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in listed.splitlines()]
    code = [(int(row[0], 16), row[2]) for row in rows if row[1] in "tT"]
    return [address for address, _ in code], [name for _, name in code]


def plain_name(symbol: str, unit: str) -> str:
    """As the source has it: of net._channel `__pyx_f_7kbroker_3net_8_channel_wake` is `wake`. Of
    another unit's .pxd the unit comes before it: `_sync.now`."""
    found = _MANGLED.match(symbol)
    if found is None:
        return symbol.partition(".")[0]
    parts, rest = _pieces(found[1].partition(".")[0])
    names = [part for part in parts if part != "kbroker"]
    own = unit.split(".")
    names = names[len(own) :] if names[: len(own)] == own else names[-1:]
    return ".".join([*names, re.sub(r"^\d+", "", rest)])


def _pieces(mangled: str) -> tuple[list[str], str]:
    """`7kbroker_3net_wake`: kbroker and net, and what is left."""
    parts = []
    while found := re.match(r"(\d+)", mangled):
        size, at = int(found[1]), found.end()
        if mangled[at + size : at + size + 1] != "_":
            break
        parts.append(mangled[at : at + size])
        mangled = mangled[at + size + 1 :]
    return parts, mangled
