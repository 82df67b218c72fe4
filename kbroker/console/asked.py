"""What a page is made from: the address, the visitor's client, and what only this broker knows.

Place in the flow: `worker.py` makes one on the console's thread and hands it to a module of
`pages/`. A page asks brokers through `client`, which has the visitor's rights: a page
can show no more than they allow. It must not ask `here` for anything that rights protect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metrics.model import Figures
    from kbroker.observe.why.facts import Question
    from kbroker.peer.client import Client

# A page has as many rows of a list at most; the next ones are a link away.
ROWS_MAX = 500


class Here(Protocol):
    """Of the broker that serves the console; `server.console_port` makes one. The console's thread
    calls it; nothing of it waits for a log's lock."""

    @property
    def node_id(self) -> int: ...
    @property
    def config(self) -> BrokerConfig: ...
    def figures(self) -> Figures:
        """What /metrics has, without a row for each partition."""
        ...

    def connections_by_principal(self, most: int) -> tuple[list[tuple[str, str, int]], int]:
        """(listener, principal, open connections), most connections first; and of how many these
        are the first."""
        ...

    def why(self, question: Question) -> dict[str, Any]:
        """As /why answers."""
        ...


class Asked(NamedTuple):
    """`path`: the parts of the address that differ from page to page, as `{"topic": "orders"}`.
    `query`: the first value of each name. `pause`: called after each 200 rows or records: gives up
    the GIL, and raises `Ended` when the visitor has gone or the page's time is over."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    client: Client
    here: Here
    now_ms: int
    may_write: bool
    messages: str  # admin.console.messages: on, keys or off
    pause: Callable[[], None]
    sent: bool = False  # of a write: its form was sent by POST, and `query` has its fields

    def number(self, name: str, default: int, least: int = 0, most: int = 2**63 - 1) -> int:
        """A whole number of the query within bounds. Raises Refused otherwise."""
        text = self.query.get(name, "")
        if not text:
            return default
        try:
            value = int(text) if len(text) <= 20 else None
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise Refused(f"{name} is not a whole number from {least} to {most}")
        return value


class Ended(Exception):
    """The visitor has gone, or the page's time is over."""


class Refused(Exception):
    """The address is of no page, or has a value out of bounds; the text is for the visitor."""

    def __init__(self, what: str, next_step: str = "", status: int = 400) -> None:
        super().__init__(what)
        self.what, self.next_step, self.status = what, next_step, status
