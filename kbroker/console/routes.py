"""Addresses of the console: which module makes the page of a path below /ui/.

Place in the flow: `app.py` asks `find` for each request. A page is a row here and a module; rows
with a title are in the navigation, in this order. Level 0: values only.

| kind | module has | answers |
|---|---|---|
| page | `make(asked) -> Page` | GET, as HTML or with `?format=json` |
| write | `make(asked) -> Page` | GET has the form, POST (`asked.sent`) changes something |
| tail | `tail(asked) -> Iterator[row, Notice or None]`, `columns_of(asked)` | an event stream |
| download | `download(asked) -> Iterator[bytes]` | a file with a JSON object a line |

A part of a path that browsers would change is sent with a tilde before it (`page.to`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple
from urllib.parse import unquote

ROOT: Final = "/ui"
# More parts than any path has, and longer than any name: such a path is of no page.
_PARTS_MAX: Final = 8


class Kind(StrEnum):
    PAGE = "page"
    WRITE = "write"
    TAIL = "tail"
    DOWNLOAD = "download"


class Route(NamedTuple):
    """`module` is one of `kbroker.console`. `title` and `key` are those of the navigation: the page
    opens with the keys g and `key`. `long`: it may read for seconds, and is made on the thread for
    such pages."""

    pattern: str
    module: str
    title: str = ""
    key: str = ""
    kind: Kind = Kind.PAGE
    long: bool = False

    @property
    def function(self) -> str:
        return self.kind.value if self.kind in (Kind.TAIL, Kind.DOWNLOAD) else "make"


ROUTES: Final = (
    Route("", "pages.overview", "Overview", "o"),
    Route("overview", "pages.overview"),
    Route("topics", "pages.topics", "Topics", "t"),
    Route("topics/{topic}", "pages.topic"),
    Route("topics/{topic}/messages", "pages.messages", long=True),
    Route("topics/{topic}/messages/tail", "message_tail", kind=Kind.TAIL, long=True),
    Route("topics/{topic}/messages/download", "message_download", kind=Kind.DOWNLOAD, long=True),
    Route("groups", "pages.groups", "Groups", "g"),
    Route("groups/{group}", "pages.group"),
    Route("transactions", "pages.transactions", "Transactions", "x"),
    Route("brokers", "pages.brokers", "Brokers", "b"),
    Route("brokers/{broker}", "pages.broker"),
    Route("security", "pages.security", "Security", "s"),
    Route("why", "pages.why", "Why", "w"),
    Route("writes/topics/create", "writes.create_topic", kind=Kind.WRITE),
    Route("writes/topics/{topic}/configure", "writes.configure_topic", kind=Kind.WRITE),
    Route("writes/topics/{topic}/grow", "writes.add_partitions", kind=Kind.WRITE),
    Route("writes/topics/{topic}/delete", "writes.delete_topic", kind=Kind.WRITE),
    Route("writes/groups/{group}/reset", "writes.reset_offsets", kind=Kind.WRITE),
    Route("writes/groups/{group}/delete", "writes.delete_group", kind=Kind.WRITE),
)


class Found(NamedTuple):
    route: Route
    parameters: Mapping[str, str]


def find(raw_path: str) -> Found | None:
    """`raw_path` as it was sent, with its escapes: a slash in a name is %2F there."""
    words = raw_path.removeprefix(ROOT).strip("/")
    parts = words.split("/") if words else []
    if len(parts) > _PARTS_MAX:
        return None
    for route in ROUTES:
        parameters = _matched(route.pattern, parts)
        if parameters is not None:
            return Found(route, parameters)
    return None


def _matched(pattern: str, parts: Sequence[str]) -> dict[str, str] | None:
    wanted = pattern.split("/") if pattern else []
    if len(wanted) != len(parts):
        return None
    parameters: dict[str, str] = {}
    for word, part in zip(wanted, parts, strict=True):
        if word.startswith("{"):
            parameters[word[1:-1]] = unquote(part, errors="replace").removeprefix("~")
        elif word != part:
            return None
    return parameters
