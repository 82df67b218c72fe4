"""`kbroker top` on a terminal: draws with rich until it is interrupted; keys change the page.

`k` is the summary, the others are the keys of the console; `q` leaves; any other key looks again at
once. Where standard input is no terminal there are no keys.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kbroker.cli.page_text import draw_page
from kbroker.cli.top import View, draw, frames
from kbroker.cli.top_pages import BY_KEY, PAGES, page_of
from kbroker.console.page import Page
from kbroker.console.sections import any_refusal
from kbroker.errors import KafkaError, UserError

if TYPE_CHECKING:
    from rich.console import Group

    from kbroker.peer.client import Client

SUMMARY_KEY: Final = "k"
LEAVE_KEY: Final = "q"
# A key is one character; an arrow sends several.
_KEY_BYTES_MAX: Final = 64

# Waits for so many ms at most: the key that was pressed, or "".
Wait = Callable[[int], str]


def live(client: Client, view: View, page: str | None, wait: Wait | None = None) -> None:
    """`page` None: the summary. `wait` is for tests."""
    try:
        from rich.live import Live
    except ModuleNotFoundError:
        raise UserError(
            "top draws with rich, which is not installed",
            "pip install 'kbroker[ui]', or kbroker top -n 1",
        ) from None
    summary = _Summary(client, view)

    def drawn(page: str | None) -> Group:
        if page is None:
            return summary.drawn()
        found = page_of(client, page)
        return draw_page(found, view.rows, headline(found.title))

    # What is wrong at the start is an error of the command.
    first = summary.first() if page is None else drawn(page)
    with _keys(client) if wait is None else _given(wait) as waiting:
        screen = Live(first, screen=True, auto_refresh=False)
        try:
            screen.start(refresh=True)
            while (key := waiting(view.interval_ms)) != LEAVE_KEY:
                page = None if key == SUMMARY_KEY else BY_KEY.get(key, page)
                screen.update(drawn(page), refresh=True)
        except KeyboardInterrupt:
            return  # that is another way to leave it
        finally:
            screen.stop()  # also when it was left while it began


class _Summary:
    """Frames one after another; a cluster that does not answer is a line."""

    def __init__(self, client: Client, view: View) -> None:
        self._client = client
        self._view = view
        self._frames = self._begin()

    def _begin(self) -> Iterator[dict[str, Any]]:
        return frames(self._client, self._view, None, wait=lambda: None)

    def first(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        keys = Text(headline("Summary"), style="dim")
        return Group(draw(next(self._frames), self._view.rows), Text(), keys)

    def drawn(self) -> Group:
        try:
            return self.first()
        except (KafkaError, UserError) as error:
            self._frames = self._begin()
            page = Page("Summary", [any_refusal("summary", error)])
            return draw_page(page, self._view.rows, headline(page.title))


def headline(title: str) -> str:
    keys = ", ".join(f"{key} {name}" for name, key in PAGES.items())
    return f"{title}   ({SUMMARY_KEY} summary, {keys}, {LEAVE_KEY} quit)"


@contextmanager
def _given(wait: Wait) -> Iterator[Wait]:
    yield wait


@contextmanager
def _keys(client: Client) -> Iterator[Wait]:
    """Keys come without Enter meanwhile."""

    def sleep(duration_ms: int) -> str:
        client.cluster.sleep_ms(duration_ms)
        return ""

    if not sys.stdin.isatty():
        yield sleep
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()

    def wait(duration_ms: int) -> str:
        ready, _, _ = select.select([terminal], [], [], duration_ms / 1000)
        if not ready:
            return ""
        # Nothing: the terminal is gone, and has no more keys.
        return os.read(terminal, _KEY_BYTES_MAX).decode(errors="replace") or LEAVE_KEY

    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield wait
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
