"""Answers that go on: the tail of a topic as an event stream, and downloads.

The control loop has one step after the other made on the console's thread, sends what it brought,
and waits for the visitor to take it; so a stream takes no more of the thread than its rows, and
none once its visitor has gone. `CONSOLE_STREAMS_MAX` at the same time.

    event: rows      [[{"text": ..., "path": ..., "style": ...}, ...], ...]
    event: notice    "a line"
    event: end       "why it ends"

A step's iterator runs on the thread only. The rest runs on the control loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from kbroker.console.page import Notice, Unit
from kbroker.console.request import Gone, Request, Send, begin
from kbroker.console.worker import Job
from kbroker.limits import CONSOLE_STREAM_PAUSE_MS, CONSOLE_STREAM_ROWS_MAX

EVENTS: Final = "text/event-stream"
NDJSON: Final = "application/x-ndjson"

# Has a step made on the thread; raises what it raised, and Gone.
Run = Callable[[Callable[[Job], Any]], Any]
# The words for a visitor of an error; one that is a fault of ours is noted.
Explain = Callable[[Exception], str]


class Steps:
    """An iterator, made and asked on the console's thread. `pause` is the current job's."""

    def __init__(self, make: Callable[[Callable[[], None]], Iterator[Any]], items_max: int) -> None:
        self._make = make
        self._items_max = items_max
        self._items: Iterator[Any] | None = None
        self._job: Job | None = None
        self.over = False

    def __call__(self, job: Job) -> list[Any]:
        """What there is now: up to a bound, or to an item that is None, which is left out."""
        self._job = job
        if self._items is None:
            self._items = self._make(self._pause)
        found: list[Any] = []
        while len(found) < self._items_max:
            try:
                item = next(self._items)
            except StopIteration:
                self.over = True
                break
            if item is None:
                break
            found.append(item)
        return found

    def _pause(self) -> None:
        if self._job is not None:
            self._job.pause()


async def send_tail(
    request: Request,
    send: Send,
    run: Run,
    steps: Callable[[Callable[[], None]], Iterator[Any]],
    units: Sequence[Unit],
    explain: Explain,
) -> None:
    """To its end. `units` are those of a row once the first step is made; what that raises is
    raised before anything is sent."""
    from kbroker.console.render import row_view

    stepping = Steps(steps, CONSOLE_STREAM_ROWS_MAX)

    def step(job: Job) -> tuple[list[bytes], bool]:
        """Events, and whether there may be more at once."""
        items = stepping(job)
        events: list[bytes] = []
        rows: list[Any] = []
        for item in items:
            if isinstance(item, Notice):
                events.append(event("notice", item.what))
            else:
                rows.append([_cell(each._asdict()) for each in row_view(item, units)])
        if rows:
            events.insert(0, event("rows", rows))
        return events, len(items) == CONSOLE_STREAM_ROWS_MAX

    events, at_once = await run(step)
    await begin(send, 200, [("content-type", EVENTS)])
    why = "the tail has ended: follow again"
    try:
        while True:
            # A comment where nothing has come: a connection that is dead shows so.
            await _send(send, b"".join(events) or b":\n\n", request)
            if stepping.over:
                break
            if not at_once:
                await asyncio.sleep(CONSOLE_STREAM_PAUSE_MS / 1000)
            events, at_once = await run(step)
    except Gone:
        raise
    except Exception as error:
        why = explain(error)
    await send({"type": "http.response.body", "body": event("end", why)})


async def send_download(
    request: Request,
    send: Send,
    run: Run,
    steps: Callable[[Callable[[], None]], Iterator[Any]],
    name: str,
    explain: Explain,
) -> None:
    """As a file. One that ends early ends with the reason, as a line of its own."""
    stepping = Steps(steps, 1)
    pieces = await run(stepping)
    disposition = f'attachment; filename="{name}.ndjson"'
    await begin(send, 200, [("content-type", NDJSON), ("content-disposition", disposition)])
    last = b""
    try:
        while not stepping.over:
            await _send(send, b"".join(pieces), request)
            pieces = await run(stepping)
    except Gone:
        raise
    except Exception as error:
        last = json.dumps({"ended_early": explain(error)}).encode() + b"\n"
    else:
        last = b"".join(pieces)
    await send({"type": "http.response.body", "body": last})


def event(kind: str, value: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode()


async def _send(send: Send, body: bytes, request: Request) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
    request.prolong()


def _cell(view: dict[str, Any]) -> dict[str, Any]:
    """What the script makes a cell of."""
    tag = view.pop("tag")
    del view["word"]
    return {**view, "head": tag.startswith("th")}
