"""The ladder: four ways to build a server, as four small servers that can be read and measured.

Each rung repairs what is wrong with the one below it, and the last is the shape of Apache Kafka and
of kbroker. All of them do the same work (perf/ladder/work.py), speak enough of the protocol for the
load generator, and differ only in who waits for what on which thread. They are a lesson, not
brokers: nothing is kept, and Python's interpreter lock is part of what is measured.

The page is docs/ladder.md, the study `kbroker perf ladder`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Design:
    """A rung: what it is called, and what it is."""

    name: str
    title: str


DESIGNS: Final = (
    Design("loop", "one loop"),
    Design("threads", "a thread for each request"),
    Design("selector", "one selector"),
    Design("pool", "one selector and a pool of handlers"),
    Design("selectors", "many selectors and a pool of handlers"),
)
BY_NAME: Final = {design.name: design for design in DESIGNS}
