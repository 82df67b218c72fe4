"""UnregisterBroker (64): brokers that are not there; the others need the one that is."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import build, raw, tagged
from tests.parity.talk import Talk

STRANGER = 77

book = Book()
cases = book.cases


def ask(broker_id: int = STRANGER) -> Any:
    return build(ApiKey.UNREGISTER_BROKER, 0, broker_id=broker_id)


@book.case("who is not registered", over={f"{node}": node for node in (0, STRANGER, 2**31 - 1)})
def stranger(talk: Talk, node: int) -> None:
    talk.ask(ask(node))
    talk.ask(ask(node))


@book.case("what is no broker's id", over={f"{node}": node for node in (-1, -2, -(2**31))})
def no_id(talk: Talk, node: int) -> None:
    talk.ask(ask(node))


@book.case("unknown tagged fields")
def unknown_tags(talk: Talk) -> None:
    talk.ask(tagged(ask(), {9: b"x"}), header_tags={77: b"yz"})


@book.case("bytes behind the message")
def longer(talk: Talk) -> None:
    talk.ask(raw(ask(), raw(ask()).body + b"more"))


@book.case("cut short")
def cut(talk: Talk) -> None:
    talk.ask(raw(ask(), raw(ask()).body[:-2]))


@book.case("a version that is not served")
def beyond(talk: Talk) -> None:
    talk.ask(raw(ask(), version=1))
