"""The ladder: four ways to build a server, as four small servers that can be read and measured.

Each rung repairs what is wrong with the one below it, and the last is the shape of Apache Kafka and
of kbroker. All of them do the same work (work.py), speak enough of the protocol for the load
generator, and differ only in which thread waits for what (servers.py). They are a lesson, not
brokers: nothing is kept, and Python's interpreter lock is part of what is measured.

The page is docs/ladder.md, the study `kbroker perf ladder`.
"""

from __future__ import annotations

from typing import Final

TITLES: Final = {
    "loop": "one loop",
    "threads": "a thread for each request",
    "selector": "one selector",
    "pool": "one selector and a pool of handlers",
    "selectors": "many selectors and a pool of handlers",
}
