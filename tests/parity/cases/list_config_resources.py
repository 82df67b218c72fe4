"""ListConfigResources (74): the resources that can have a configuration, by kind."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import build, raw, tagged
from tests.parity.talk import Talk

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32

book = Book()
cases = book.cases


def ask(version: int, *kinds: int) -> Any:
    return build(ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=list(kinds))


def without_other_topics(talk: Talk) -> Any:
    """Other cases make topics of their own."""

    def view(data: Any) -> Any:
        resources = data["config_resources"]
        data["config_resources"] = [
            r for r in resources if r.get("resource_type") != TOPIC or talk.mine(r["resource_name"])
        ]
        return data

    return view


@book.case("client metrics", versions=[0])
def client_metrics(talk: Talk, version: int) -> None:
    talk.ask(ask(version))


KINDS: dict[str, tuple[int, ...]] = {
    "every kind": (),
    **{f"kind {kind}": (kind,) for kind in (TOPIC, BROKER, LOGGER, METRICS, GROUP)},
    **{f"kind {kind}": (kind,) for kind in (0, 1, 3, 5, 64, 127, -1)},
    "brokers and loggers": (BROKER, LOGGER),
    "loggers and brokers": (LOGGER, BROKER),
    "a kind twice": (BROKER, BROKER),
    "topics and groups": (TOPIC, GROUP),
    "all five": (TOPIC, BROKER, LOGGER, METRICS, GROUP),
    "one that does not exist among them": (BROKER, 99, TOPIC),
}


@book.case("by kind", versions=[1], over=KINDS)
def by_kind(talk: Talk, version: int, kinds: tuple[int, ...]) -> None:
    talk.topic("a")
    talk.topic("b")
    talk.ask(ask(version, *kinds), view=without_other_topics(talk))


@book.case("a topic that is gone", versions=[1])
def gone(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.delete(name)
    talk.ask(ask(version, TOPIC), view=without_other_topics(talk))


@book.case("unknown tagged fields", versions=range(2))
def unknown_tags(talk: Talk, version: int) -> None:
    kinds = (BROKER,) if version else ()
    talk.ask(tagged(ask(version, *kinds), {9: b"x"}), header_tags={77: b"yz"})


@book.case("bytes behind the message", versions=range(2))
def longer(talk: Talk, version: int) -> None:
    request = ask(version, *((BROKER,) if version else ()))
    talk.ask(raw(request, raw(request).body + b"more"))


@book.case("cut short", versions=range(2))
def cut(talk: Talk, version: int) -> None:
    talk.ask(raw(ask(version), b""))


@book.case("null kinds", versions=[1])
def null(talk: Talk, version: int) -> None:
    talk.ask(raw(ask(version), b"\x00\x00"))


@book.case("a version that is not served")
def beyond(talk: Talk) -> None:
    talk.ask(raw(ask(1), version=2))
