"""ListGroups (16): every group, by state and by type. Other cases' groups are left out."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import (
    LIST,
    Member,
    commit,
    delete_groups,
    dissolved,
    join,
    stable,
    synced,
    together,
    until,
)
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import Raw, build
from tests.parity.talk import Talk, View

BY_STATE = range(4, 6)
BY_TYPE = range(5, 6)

book = Book(setup="coordinators")
cases = book.cases


def ask(version: int, states: tuple[str, ...] = (), kinds: tuple[str, ...] = ()) -> Any:
    return build(ApiKey.LIST_GROUPS, version, states_filter=states, types_filter=kinds)


def mine(talk: Talk) -> View:
    def view(data: Any) -> Any:
        data["groups"] = [group for group in data["groups"] if talk.mine(group["group_id"])]
        return data

    return view


def one_of_each(talk: Talk) -> None:
    """Stable, Empty, CompletingRebalance, PreparingRebalance, of connect, and with commits only."""
    synced(together(talk, 2, "stable"))
    dissolved(talk, "empty")
    together(talk, 2, "completing")
    leader = stable(talk, "preparing")
    Member(talk, leader.group).send_join()
    until(talk, leader.group, "PreparingRebalance", 2)
    stable(talk, "connect", kind="connect", protocols=(("p", b""),))
    talk.quietly(commit(talk, 9, talk.name("simple"), (talk.topic(), {0: 1})))
    talk.quietly(join(9, talk.name("pending")))
    talk.quietly(delete_groups(2, dissolved(talk, "dead")))


@book.case("all", versions=LIST)
def everything(talk: Talk, version: int) -> None:
    one_of_each(talk)
    talk.ask(ask(version), view=mine(talk))


STATES: dict[str, tuple[str, ...]] = {
    "Stable": ("Stable",),
    "Empty": ("Empty",),
    "CompletingRebalance": ("CompletingRebalance",),
    "PreparingRebalance": ("PreparingRebalance",),
    "Dead": ("Dead",),
    "stable, in small letters": ("stable",),
    "EMPTY, in large ones": ("EMPTY",),
    "two": ("Stable", "Empty"),
    "one that is not there": ("Nonsense",),
    "one that is and one that is not": ("Nonsense", "Stable"),
    "Assigning": ("Assigning",),
    "Reconciling": ("Reconciling",),
    "an empty one": ("",),
    "with a space": (" Stable",),
    "NotReady": ("NotReady",),
}


@book.case("in state", versions=BY_STATE, over=STATES)
def in_state(talk: Talk, version: int, states: tuple[str, ...]) -> None:
    one_of_each(talk)
    talk.ask(ask(version, states), view=mine(talk))


TYPES: dict[str, tuple[str, ...]] = {
    "classic": ("classic",),
    "Classic": ("Classic",),
    "CLASSIC": ("CLASSIC",),
    "consumer": ("consumer",),
    "share": ("share",),
    "streams": ("streams",),
    "two": ("classic", "consumer"),
    "one that is not there": ("nonsense",),
    "one that is and one that is not": ("nonsense", "classic"),
    "an empty one": ("",),
}


@book.case("of type", versions=BY_TYPE, over=TYPES)
def of_type(talk: Talk, version: int, kinds: tuple[str, ...]) -> None:
    one_of_each(talk)
    talk.ask(ask(version, (), kinds), view=mine(talk))


@book.case("of state and type", versions=BY_TYPE)
def of_both(talk: Talk, version: int) -> None:
    one_of_each(talk)
    for states, kinds in (
        (("Empty",), ("classic",)),
        (("Empty",), ("consumer",)),
        (("Nonsense",), ("classic",)),
        (("Empty",), ("nonsense",)),
        (("Nonsense",), ("nonsense",)),
    ):
        talk.ask(ask(version, states, kinds), view=mine(talk))


@book.case("null states", versions=BY_STATE)
def null_states(talk: Talk, version: int) -> None:
    body = b"\x00\x00" if version == 4 else b"\x00\x01\x00"
    talk.ask(Raw(ApiKey.LIST_GROUPS, version, body), view=mine(talk))


@book.case("null types", versions=BY_TYPE)
def null_types(talk: Talk, version: int) -> None:
    talk.ask(Raw(ApiKey.LIST_GROUPS, version, b"\x01\x00\x00"), view=mine(talk))


def _none(talk: Talk, version: int) -> Any:
    return ask(version, *((("Dead",),) if version >= 4 else ()))


add_shapes(
    *(book, ApiKey.LIST_GROUPS, LIST, _none),
    view=lambda data: {**data, "groups": []},
)
