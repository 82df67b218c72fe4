"""Fetch (1) and ListOffsets (2) by isolation level: aborted, committed and open transactions."""

from __future__ import annotations

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._transactions import (
    Producer,
    in_transaction,
    read,
    stored_in_transaction,
    with_clock,
)
from tests.parity.data import (
    FETCH_VERSIONS,
    T0,
    batch,
    changed,
    fetch,
    list_offsets,
    part,
    stored,
    topic,
)
from tests.parity.requests import build
from tests.parity.talk import Talk

LIST_VERSIONS = range(2, 12)
SESSIONS = (7, 12, 13, 18)
LONG_POLLS = (4, 12, 18)
BOTH = {"uncommitted": 0, "committed": 1}
SMALL = 100

book = Book(setup="coordinators")
cases = book.cases


def story(talk: Talk, name: str) -> Producer:
    """Offsets of the partition, and their times after T0:

    0-1 aborted, by two batches (0, 1 ms); 2 a plain record (9 ms); 3 committed (5 ms), 4 the abort
    of 0-1, 5 aborted in the same transaction as 7 (3 ms), 6 the commit of 3, 7 (20 ms), 8 the
    abort of 5 and 7; 9 open (4 ms), 10 a plain record (2 ms), 11-12 committed with their marker.
    """
    first, second, third, last = (Producer(talk, each) for each in "abcd")
    for each in (first, second, third, last):
        each.begin(name)
    first.write(name, at=T0)
    first.write(name, at=T0 + 1)
    stored(talk, name, changed(batch(b"plain"), base_timestamp=T0 + 9, max_timestamp=T0 + 9))
    second.write(name, at=T0 + 5)
    first.abort()
    third.write(name, at=T0 + 3)
    second.commit()
    third.write(name, at=T0 + 20)
    third.abort()
    last.write(name, at=T0 + 4)
    stored(talk, name, changed(batch(b"plain"), base_timestamp=T0 + 2, max_timestamp=T0 + 2))
    second.begin(name)
    second.write(name, at=T0 + 2)
    second.commit()
    return last


@book.case("from each offset", versions=FETCH_VERSIONS, over=BOTH)
def each_offset(talk: Talk, version: int, isolation: int) -> None:
    """With an open transaction, and when it is over."""
    name = topic(talk)
    last = story(talk, name)
    for _ in range(2):
        for offset in range(15):
            asked = fetch(talk, version, (name, [part(0, offset)]), isolation=isolation)
            talk.ask(asked, view=read(talk))
        last.commit()


@book.case("a batch at a time", versions=FETCH_VERSIONS, over=BOTH)
def small(talk: Talk, version: int, isolation: int) -> None:
    """The list is that of the records in the answer, not of the whole log."""
    name = topic(talk)
    story(talk, name)
    for offset in range(14):
        asked = fetch(talk, version, (name, [part(0, offset, SMALL)]), isolation=isolation)
        talk.ask(asked, view=read(talk))


@book.case("an isolation level", versions=LONG_POLLS, over={"2": 2, "-1": -1, "127": 127})
def odd(talk: Talk, version: int, isolation: int) -> None:
    name = topic(talk)
    story(talk, name)
    talk.ask(fetch(talk, version, (name, [part(0)]), isolation=isolation), view=read(talk))


@book.case("nothing yet", versions=FETCH_VERSIONS)
def nothing_yet(talk: Talk, version: int) -> None:
    """An empty partition, one that only an open transaction has, one that was only added."""
    name, one = topic(talk, partitions=3), Producer(talk)
    one.begin(name, 1, 2)
    one.write(name, 1)
    asked = fetch(talk, version, (name, [part(0), part(1), part(2)]), isolation=1)
    talk.ask(asked, view=read(talk))


@book.case("waits for the outcome", versions=LONG_POLLS, over={"commit": True, "abort": False})
def waits(talk: Talk, version: int, committed: bool) -> None:
    name, one = topic(talk), Producer(talk)
    one.begin(name)
    one.write(name)
    talk.send(fetch(talk, version, (name, [part(0)]), isolation=1, max_wait=20_000, min_bytes=1))
    talk.nothing(within_ms=50)
    one.end(committed=committed)
    talk.receive(view=read(talk))


@book.case("in a session", versions=SESSIONS)
def session(talk: Talk, version: int) -> None:
    """A partition comes again once its last stable offset has moved."""
    name, one = topic(talk, partitions=2), Producer(talk)
    one.begin(name, 0)
    one.write(name)
    first = fetch(talk, version, (name, [part(0), part(1)]), isolation=1, session=(0, 0))
    session_id = talk.ask(first, view=read(talk)).session_id
    for epoch in (1, 2, 3):
        talk.ask(fetch(talk, version, isolation=1, session=(session_id, epoch)), view=read(talk))
        if epoch == 1:
            one.commit()


@book.case("records deleted below", versions=(4, 12, 18))
def deleted(talk: Talk, version: int) -> None:
    """The start is within an aborted transaction, then within the open one."""
    name = topic(talk)
    story(talk, name)
    for start in (1, 6, 10):
        talk.quietly(
            build(
                ApiKey.DELETE_RECORDS,
                2,
                topics=[{"name": name, "partitions": [{"partition_index": 0, "offset": start}]}],
                timeout=30_000,
            )
        )
        for offset in (start, start + 1):
            asked = fetch(talk, version, (name, [part(0, offset)]), isolation=1)
            talk.ask(asked, view=read(talk))
        for time in (-1, -2):
            talk.ask(list_offsets(7, name, time, isolation_level=1))


@book.case("ListOffsets", versions=LIST_VERSIONS, over=BOTH)
def offsets(talk: Talk, version: int, isolation: int) -> None:
    """Every question, and the times of the story: from the first of all to after the last."""
    name = topic(talk)
    last = story(talk, name)
    for _ in range(2):
        for time in (-1, -2, -3, -4, -5, *(T0 + ms for ms in (-1, 0, 1, 2, 4, 5, 6, 9, 20, 21))):
            asked = list_offsets(version, name, time, isolation_level=isolation)
            talk.ask(asked, view=with_clock)
        last.abort()


@book.case("ListOffsets of an open transaction", versions=LIST_VERSIONS)
def offsets_open(talk: Talk, version: int) -> None:
    """Nothing else is in the partition."""
    name, one = topic(talk), Producer(talk)
    one.begin(name)
    stored_in_transaction(talk, one.name, name, 0, in_transaction(one.pair, 0, b"a", b"b"))
    for time in (-1, -2, -3, T0, T0 + 1, T0 + 2):
        talk.ask(list_offsets(version, name, time, isolation_level=1), view=with_clock)
