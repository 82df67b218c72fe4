"""What bytes cost, whatever the threads do: the memory, the network and the disks of a machine.

A byte that is produced comes from the network card into memory, is copied into the broker's buffer,
read for its CRC, copied into the page cache, and read once more on its way to the disk. A byte that
is fetched from the page cache is copied into the socket's buffers and read by the card. Each copy
reads and writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

PRODUCE_PASSES: Final = 1 + 2 + 1 + 2 + 1
FETCH_PASSES: Final = 2 + 1
GIGABYTE: Final = 1e9


@dataclass(frozen=True)
class Machine:
    """As its makers state it. Bytes a second."""

    cores: int
    memory: float
    network: float  # each way
    disks: float  # all together, writing


@dataclass(frozen=True)
class Bound:
    what: Literal["memory", "network", "disks"]
    bytes_per_s: float


def bounds(machine: Machine, kind: Literal["produce", "fetch"]) -> list[Bound]:
    """The lowest first."""
    passes = PRODUCE_PASSES if kind == "produce" else FETCH_PASSES
    found = [Bound("memory", machine.memory / passes), Bound("network", machine.network)]
    if kind == "produce":
        found.append(Bound("disks", machine.disks))
    return sorted(found, key=lambda bound: bound.bytes_per_s)
