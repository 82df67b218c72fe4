"""Cases for the requests of any API: odd headers, unknown tags, bytes too many and too few.

`add_shapes(book, versions, make)` adds these cases for a request that `make(talk, version)` gives.
It is asked several times, so asking must not change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from kbroker.protocol.versions import is_flexible
from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import body_of, raw
from tests.parity.talk import Talk, View

Make = Callable[[Talk, int], Any]

CLIENT_IDS: dict[str, str | bytes | None] = {
    "null": None,
    "empty": "",
    "of 32,767 bytes": "c" * 32_767,
    "not UTF-8": b"\xff\xfe",
    "with a line break": "a\nb",
}
UNKNOWN_TAGS = {9_000: b"unknown", 100: b""}


def add_shapes(
    book: Book,
    key: ApiKey,
    versions: Iterable[int],
    make: Make,
    *,
    title: str = "",
    view: View | None = None,
    setup: str | None = None,
) -> None:
    """The cases; `title` tells several requests of one family apart."""
    front = f"{title}: " if title else ""
    versions = list(versions)
    flexible = [v for v in versions if is_flexible(key, v)]

    # A header is read before the request is known: the oldest one and the newest will do.
    ends = sorted({versions[0], versions[-1]})

    @book.case(f"{front}client id", versions=ends, over=CLIENT_IDS, setup=setup)
    def client_id(talk: Talk, version: int, value: str | bytes | None) -> None:
        talk.ask(make(talk, version), client_id=value, view=view)

    @book.case(f"{front}bytes too many", versions=versions, setup=setup)
    def too_many(talk: Talk, version: int) -> None:
        request = make(talk, version)
        talk.ask(raw(request, body_of(request) + b"\x01\x02\x03"), view=view)
        talk.ask(request, view=view)

    @book.case(f"{front}cut anywhere", versions=versions, setup=setup)
    def cut(talk: Talk, version: int) -> None:
        cut_anywhere(talk, make(talk, version))

    @book.case(f"{front}unknown tags in the header", versions=flexible, setup=setup)
    def header_tags(talk: Talk, version: int) -> None:
        talk.ask(make(talk, version), header_tags=UNKNOWN_TAGS, view=view)

    @book.case(f"{front}unknown tags in the body", versions=flexible, setup=setup)
    def body_tags(talk: Talk, version: int) -> None:
        talk.ask(make(talk, version), tags=UNKNOWN_TAGS, view=view)


def cut_anywhere(talk: Talk, request: Any) -> None:
    """The request without its last bytes, from none of it on; which sizes are answered."""
    body = body_of(request)
    ends = [(size, _end(talk, raw(request, body[:size]))) for size in range(len(body))]
    for end, group in groupby(ends, key=lambda each: each[1]):
        sizes = [size for size, _ in group]
        talk.note(f"cut to {sizes[0]}-{sizes[-1]} bytes", end)


def _end(talk: Talk, request: Any) -> str:
    connection = talk.connect()
    answer = connection.ask(request, record=False)
    connection.close()
    return "closed" if answer is None else "answered"
