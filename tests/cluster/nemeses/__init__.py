"""Every nemesis by its name."""

from __future__ import annotations

from tests.cluster.nemeses import (
    coordination,
    decisions,
    disks,
    links,
    machine,
    placement,
    processes,
)
from tests.cluster.nemeses.base import Nemesis

NEMESES: dict[str, type[Nemesis]] = {
    each.name: each
    for module in (processes, links, coordination, machine, disks, placement, decisions)
    for each in module.ALL
}
