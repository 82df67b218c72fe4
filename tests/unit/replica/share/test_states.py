"""Every cell of the table of a record's states, against what is written here by hand, in a real
share-partition: an event is what really happens to it, and a cell is the state that follows."""

from __future__ import annotations

from typing import Final

import pytest

from kbroker.errors import ErrorCode, InvariantError
from kbroker.replica.share.acquiring import Timed, Wanted, acquire
from kbroker.replica.share.states import STATES, TABLE, Do, Event, State, resolved
from tests.unit.replica.share.world import (
    ACCEPT,
    GAP,
    OTHER,
    REJECT,
    RELEASE,
    RENEW,
    SETTINGS,
    World,
    batches,
)

COLUMNS: Final = (
    "available", "acquired", "prepared", "acknowledged", "archived", "archiving",
)  # fmt: skip
BEFORE: Final = tuple(f"{column} 1" for column in COLUMNS)
# Of a group with a dead-letter topic.
COPIES: Final = SETTINGS._replace(copies=True)

# "": nothing changes. 121: nothing changes, and this is the answer.
CELLS: Final = """
    event             | available  | acquired   | prepared      | acknowledged| archived| archiving
    acquire           | acquired 2 |            |               |             |         |
    accept            | 121        | prepared 1 | 121           | 121         | 121     | 121
    release           | 121        | prepared 1 | 121           | 121         | 121     | 121
    reject            | 121        | prepared 1 | 121           | 121         | 121     | 121
    gap               | 121        | prepared 1 | 121           | 121         | 121     | 121
    renew             | 121        |            | 121           | 121         | 121     | 121
    lock ends         |            | available 1|               |             |         |
    session ends      |            | available 1|               |             |         |
    short session ends|            | available 0|               |             |         |
    not sent          |            | available 0|               |             |         |
    not there         | archived 1 |            |               |             |         |
    expired           | archived 1 |            |               |             |         |
    used up           | archived 1 |            |               |             |         |
    copied            |            |            |               |             |         | archived 1
    log starts later  | done       | done       | done          | done        | done    | done
    written           |            |            | acknowledged 1|             |         |
    write failed      |            |            | acquired 1    |             |         |
    last lock ends    |            | archived 1 |               |             |         |
    last session      |            | archived 1 |               |             |         |
    lock and a copy   |            | archiving 1|               |             |         |
    session and a copy|            | archiving 1|               |             |         |
    used up and a copy| archiving 1|            |               |             |         |
"""
TYPES: Final = {"accept": ACCEPT, "release": RELEASE, "reject": REJECT, "gap": GAP, "renew": RENEW}
EVENTS: Final = {event.name.lower().replace("_", " "): event for event in Event}


def rows() -> list[tuple[str, str, str]]:
    lines = [[cell.strip() for cell in line.split("|")] for line in CELLS.strip().splitlines()]
    assert tuple(lines[0][1:]) == COLUMNS
    return [
        (event, column, cell)
        for event, *cells in lines[1:]
        for column, cell in zip(COLUMNS, cells, strict=True)
    ]


def world_with(column: str) -> World:
    """Offset 1 is in that state, delivered once; offset 0 holds the window open."""
    world = World(batches(1, 1))
    world.fetch(OTHER, to=0)
    world.fetch(to=1)
    if column == "available":
        world.partition.end_session(1, SETTINGS, world.now_ms)
        world.write()
    elif column in ("prepared", "acknowledged"):
        world.say(1, 1, ACCEPT)
    elif column in ("archived", "archiving"):
        world.settings = COPIES if column == "archiving" else SETTINGS
        world.say(1, 1, REJECT)
    if column in ("acknowledged", "archived", "archiving"):
        world.write()
    elif column == "prepared":
        assert world.partition.take_write() is not None
    return world


def happens(world: World, event: str) -> ErrorCode | None:
    partition, once = world.partition, SETTINGS._replace(deliveries=1)
    if event.endswith(" and a copy"):
        once = once._replace(copies=True)
        event = event.removesuffix(" and a copy")
        event = event if event == "used up" else f"last {event}"
    if event in TYPES:
        return world.say(1, 1, TYPES[event]).code
    if event == "acquire":
        world.fetch(OTHER)
    elif event in ("lock ends", "last lock ends", "last lock"):
        settings = once if event.startswith("last") else SETTINGS
        partition.ranges.deadline_ms[0] += 1  # that of offset 0 holds on
        partition.end_locks(world.now_ms + SETTINGS.lock_ms, settings)
    elif event in ("session ends", "last session"):
        settings = once if event.startswith("last") else SETTINGS
        partition.end_session(1, settings, world.now_ms)
    elif event == "short session ends":
        partition.end_session(1, once._replace(short_ms=1), world.now_ms)
    elif event == "not sent":
        partition.give_back(1, 1, 1)
    elif event == "not there":
        world.fetch(to=1, aborted=[world.log[1]])
    elif event == "expired":
        found = [*world.log[:2]]
        acquire(
            partition, OTHER, 1, found, Wanted(0, 1), SETTINGS, world.now_ms, (),
            [Timed(1, 1, None)],
        )  # fmt: skip
    elif event == "used up":
        world.settings = once
        world.fetch()
    elif event == "copied":
        partition.copied(1, 1, SETTINGS)
    elif event == "log starts later":
        partition.log_starts_at(2)
    elif partition.writing is not None:
        failed = ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = failed if event == "write failed" else ErrorCode.NONE
        partition.written(code, SETTINGS, world.now_ms)
    return None


@pytest.mark.parametrize(("event", "column", "cell"), rows())
def test_cell(event: str, column: str, cell: str) -> None:
    world = world_with(column)
    before = dict(zip(COLUMNS, BEFORE, strict=True))[column]
    assert world.state(1) == before

    code = happens(world, event)

    assert world.state(1) == (before if cell in ("", "121") else cell)
    assert (code is ErrorCode.INVALID_RECORD_STATE) is (cell == "121")


def test_the_rows_above_are_all_events() -> None:
    assert {event for event, _, _ in rows()} >= EVENTS.keys()
    assert TABLE.keys() == set(Event)
    assert all(row.keys() == set(STATES) for row in TABLE.values())


@pytest.mark.parametrize(("event", "column", "cell"), rows())
def test_the_table_says_the_same(event: str, column: str, cell: str) -> None:
    if event not in EVENTS:
        return
    found = TABLE[EVENTS[event]][State[column.upper()]]
    assert (found.do is Do.REFUSE) is (cell == "121")
    if cell == "" and event not in ("renew",):
        assert found.do in (Do.NOTHING, Do.NEVER)
    if cell.startswith("prepared"):
        assert found.do is Do.PREPARE


@pytest.mark.parametrize("column", [state for state in COLUMNS if state != "prepared"])
@pytest.mark.parametrize("event", [Event.WRITTEN, Event.WRITE_FAILED])
def test_a_write_that_is_not_under_way_cannot_end(event: Event, column: str) -> None:
    world = world_with(column)
    with pytest.raises(InvariantError):
        world.partition.follow(1, event, SETTINGS)
    with pytest.raises(InvariantError):
        world.partition.written(ErrorCode.NONE, SETTINGS, world.now_ms)


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize(("count", "is_last"), [(1, False), (2, True), (3, True)])
def test_resolved(count: int, is_last: bool, copies: bool) -> None:
    given_up = State.ARCHIVING if copies else State.ARCHIVED
    limited = given_up if is_last else State.AVAILABLE
    assert resolved(State.LIMITED, count, 2, copies=copies) is limited
    assert resolved(State.GIVEN_UP, count, 2, copies=copies) is given_up
    assert resolved(State.ACKNOWLEDGED, count, 2, copies=copies) is State.ACKNOWLEDGED


@pytest.mark.parametrize(("kind", "count"), [(RELEASE, 1), (RELEASE, 2)])
def test_a_release_of_the_last_delivery_archives(kind: int, count: int) -> None:
    world = World(batches(1, 1), settings=SETTINGS._replace(deliveries=2))
    world.fetch(OTHER, to=0)
    for _ in range(count):
        world.fetch(to=1)
        world.done(1, 1, kind)
    assert world.state(1) == ("available 1" if count == 1 else "archived 2")
