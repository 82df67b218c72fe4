"""Scrapes: one at a time, shared by clients that ask for the same, refused beyond a bound.

The admin thread collects and writes out (`Run`), family by family, and lets go of the GIL after
each; so the control loop only waits, and no other thread waits for a whole scrape. Scrapes that ask
for the same names in the same format while one is under way get its answer: its figures are at
most a scrape old. `ADMIN_JOBS_MAX` different ones may be under way or wait; one more is refused.

On the control loop but for `_make`, which the admin thread runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple, Protocol

from kbroker.admin import exposition
from kbroker.clock import let_go_of_gil
from kbroker.limits import ADMIN_JOBS_MAX
from kbroker.metrics.families import families
from kbroker.metrics.model import Figures

# Does a piece of work on the admin thread.
Run = Callable[[Callable[[], Any]], Awaitable[Any]]


class Source(Protocol):
    """Where figures come from."""

    @property
    def metric_dialects(self) -> Collection[str]: ...
    def figures(self) -> Figures: ...


class ScrapePage(NamedTuple):
    body: bytes
    content_type: str


class Scrapes:
    """`page` may be awaited by any number of requests."""

    def __init__(self, source: Source, run: Run) -> None:
        self._source = source
        self._run = run
        self._under_way: dict[tuple[tuple[str, ...], bool], asyncio.Task[ScrapePage]] = {}

    async def page(self, names: tuple[str, ...], accept: str) -> ScrapePage | None:
        """What /metrics answers; None when too much is under way already."""
        openmetrics = exposition.wants_openmetrics(accept)
        key = (tuple(sorted(set(names))), openmetrics)
        task = self._under_way.get(key)
        if task is None:
            if len(self._under_way) >= ADMIN_JOBS_MAX:
                return None
            task = asyncio.ensure_future(self._run(lambda: self._make(*key)))
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        # A client that goes away must not end what others wait for.
        return await asyncio.shield(task)

    def _make(self, names: tuple[str, ...], openmetrics: bool) -> ScrapePage:
        figures = self._source.figures()
        writer = exposition.Writer(openmetrics)
        parts: list[bytes] = []
        for family in families(figures, self._source.metric_dialects, names):
            parts.append(writer.write(family))
            let_go_of_gil()
        parts.append(exposition.END_OF_OPENMETRICS if openmetrics else b"")
        return ScrapePage(b"".join(parts), exposition.content_type(openmetrics))
