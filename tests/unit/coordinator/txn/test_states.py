"""Every cell of the table of transactional ids, against what is written here by hand, in real ids.

Each row is a request as a client sends it, each column the id that it meets; a cell says what the
client is answered, and the state that is written. The cells of Prepare* were asked of Apache Kafka
4.3.0 while the broker that the marker was for was stopped.
"""

from __future__ import annotations

from typing import Final

import pytest

from kbroker.coordinator.txn import decisions
from kbroker.coordinator.txn.draw_transactions import generated
from kbroker.coordinator.txn.image import NO_PAIR, Pair, TransactionImage
from kbroker.coordinator.txn.states import TABLE, Do, Event, State
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from tests.support.source_tree import ROOT

ORDERS: Final = frozenset({TopicPartition("orders", 0)})
MORE: Final = frozenset({TopicPartition("orders", 1)})
ID, BEFORE, FRESH, FOREIGN = 7, 6, 100, 99
EPOCH, LAST = 5, 4
START, NOW = 1_000, 50_000
COLUMNS: Final = ("none", "pending", "E", "O", "PC", "PA", "CC", "CA")
STATES: Final = dict(zip(COLUMNS, State, strict=True))

# An error's number; or what is written, and after it an answer that is no success.
CELLS: Final = """
    request            | none | pending | E     | O     | PC | PA | CC    | CA
    init               | E    | 51      | E     | PA 51 | 51 | 51 | E     | E
    init current       | E    | 51      | E     | PA 51 | 51 | 51 | E     | E
    init last          | E    | 51      | E     | PA 51 | 51 | 51 | E     | E
    init old           | E    | 51      | 90    | PA 51 | 51 | 51 | 90    | 90
    init foreign       | E    | 51      | 90    | 90    | 51 | 51 | 90    | 90
    add                | 49   | 51      | O     | O     | 51 | 51 | O     | O
    add known          | 49   | 51      | O     | -     | 51 | 51 | O     | O
    add old            | 49   | 51      | 90    | 90    | 51 | 51 | 90    | 90
    add foreign        | 49   | 51      | 49    | 49    | 51 | 51 | 49    | 49
    1 commit           | 49   | 51      | 48    | PC    | 51 | 51 | -     | 48
    1 abort            | 49   | 51      | 48    | PA    | 51 | 51 | 48    | -
    1 commit old       | 49   | 90      | 90    | 90    | 90 | 90 | 90    | 90
    1 abort last       | 49   | 90      | 90    | 90    | 90 | 90 | 90    | 90
    1 commit foreign   | 49   | 49      | 49    | 49    | 49 | 49 | 49    | 49
    2 commit           | 49   | 51      | 48    | PC    | 51 | 51 | 48    | 48
    2 abort            | 49   | 51      | PA    | PA    | 51 | 51 | PA    | PA
    2 commit last      | 49   | 51      | 90    | 90    | 51 | 51 | -     | 48
    2 abort last       | 49   | 51      | 90    | 90    | 51 | 51 | 48    | -
    2 commit old       | 49   | 51      | 90    | 90    | 51 | 51 | 90    | 90
    2 abort foreign    | 49   | 51      | 49    | 49    | 51 | 51 | 49    | 49
    timeout            |      | -       | -     | PA    | -  | -  | -     | -
    marked             |      | -       | -     | -     | CC | CA | -     | -
    expire             |      | -       | gone  | -     | -  | -  | gone  | gone
"""


def rows() -> list[tuple[str, str, str]]:
    lines = [[cell.strip() for cell in line.split("|")] for line in CELLS.strip().splitlines()]
    assert tuple(lines[0][1:]) == COLUMNS
    return [
        (request, column, cell)
        for request, *cells in lines[1:]
        for column, cell in zip(COLUMNS, cells, strict=True)
        if cell
    ]


def image_in(state: State) -> TransactionImage:
    is_open = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    return TransactionImage(
        ID, EPOCH, 60_000, state, START, -1 if state is State.EMPTY else START,
        ORDERS if is_open else frozenset(), BEFORE, last_epoch=LAST, client_version=2,
    )  # fmt: skip


PAIRS: Final = {
    "current": Pair(ID, EPOCH),
    "last": Pair(ID, LAST),
    "old": Pair(ID, LAST - 2),
    "foreign": Pair(FOREIGN, EPOCH),
}


def decide(request: str, image: TransactionImage | None, pending: bool) -> decisions.Decision:
    what, *words = request.split()
    whose = next((PAIRS[word] for word in words if word in PAIRS), PAIRS["current"])
    if what == "init":
        whose = whose if words else NO_PAIR
        return decisions.init(image, whose, 60_000, 2, NOW, pending=pending, fresh_id=FRESH)
    if what == "add":
        added = ORDERS if "known" in words else MORE
        return decisions.add(image, whose, added, 0, NOW, pending=pending)
    if what in "12":
        version = 2 if what == "2" else 0
        committed = "commit" in words
        return decisions.end(image, whose, version, NOW, committed=committed, pending=pending)
    assert image is not None
    if what == "timeout":
        return decisions.time_out(image, 2, NOW, pending=pending)
    if what == "expire":
        return decisions.expire(image, pending=pending)
    # Markers are of a Prepare that is written: nothing else is under way then.
    return decisions.Decision(Do.NOTHING) if pending else decisions.complete(image, NOW)


def in_words(decision: decisions.Decision) -> str:
    if decision.do is Do.FORGET:
        return "gone"
    words = []
    if decision.image is not None:
        words.append(next(name for name, state in STATES.items() if state is decision.image.state))
    if decision.code:
        words.append(str(decision.code.value))
    return " ".join(words) or "-"


@pytest.mark.parametrize(("request_", "column", "cell"), rows())
def test_each_cell(request_: str, column: str, cell: str) -> None:
    state = STATES[column]
    image = None if state is State.NONE else image_in(max(state, State.EMPTY))
    assert in_words(decide(request_, image, state is State.PENDING)) == cell


def test_the_rows_here_are_all_events() -> None:
    requests = {request for request, _, _ in rows()}
    image = image_in(State.ONGOING)
    found = set()
    for request in requests:
        what, *words = request.split()
        whose = next((PAIRS[word] for word in words if word in PAIRS), PAIRS["current"])
        if what == "init":
            found.add(decisions.init_event(image, whose if words else NO_PAIR))
        elif what in "12":
            committed, raises = "commit" in words, what == "2"
            found.add(decisions.end_event(image, whose, committed=committed, raises=raises))
    adds = {Event.ADD, Event.ADD_KNOWN, Event.ADD_OLD, Event.ADD_FOREIGN}
    assert found == {*Event} - adds - {Event.TIMEOUT, Event.MARKED, Event.EXPIRE}
    assert {"add", "add known", "add old", "add foreign", "timeout", "marked"} < requests


def test_impossible_events_are_of_unknown_ids_only() -> None:
    never = {(state, event) for (state, event), cell in TABLE.items() if cell.do is Do.NEVER}
    assert never == {(State.NONE, each) for each in (Event.TIMEOUT, Event.MARKED, Event.EXPIRE)}


def test_a_refusal_has_an_error_and_changes_nothing() -> None:
    for (state, event), cell in TABLE.items():
        if cell.do is Do.REFUSE:
            assert cell.code is not ErrorCode.NONE and cell.to is state, (state, event)
        else:
            assert cell.code is ErrorCode.NONE, (state, event)


def test_the_page_is_drawn_from_the_table() -> None:
    assert generated() in (ROOT / "docs" / "transactions.md").read_text(encoding="utf-8")
