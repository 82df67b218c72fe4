"""UpdateFeatures (57): refusals, and updates without effect, at any finalized level."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import build, raw, tagged
from tests.parity.talk import Talk

NAME = "transaction.version"
VERSIONS = range(3)
UPGRADE, SAFE, UNSAFE = 1, 2, 3

book = Book()
cases = book.cases


def update(feature: str, level: int, kind: int = UPGRADE) -> dict[str, Any]:
    allow = kind != UPGRADE
    return {
        "feature": feature,
        "max_version_level": level,
        "allow_downgrade": allow,
        "upgrade_type": kind,
    }


def ask(version: int, *updates: dict[str, Any], validate_only: bool = True) -> Any:
    only = {"validate_only": validate_only} if version else {}
    known = [
        {name: value for name, value in each.items() if name != unknown_in(version)}
        for each in updates
    ]
    return build(ApiKey.UPDATE_FEATURES, version, timeout=1000, feature_updates=known, **only)


def unknown_in(version: int) -> str:
    return "upgrade_type" if version == 0 else "allow_downgrade"


@book.case(
    "a level that is refused",
    versions=VERSIONS,
    over={
        "above": update(NAME, 3),
        "far above": update(NAME, 32767),
        "below 0": update(NAME, -1),
        "lowered below 0": update(NAME, -1, SAFE),
        "of no feature": update("nothing.version", 1),
        "of no name": update("", 1),
        "above, as a lowering": update(NAME, 3, SAFE),
    },
)
def refused(talk: Talk, version: int, wanted: dict[str, Any]) -> None:
    talk.ask(ask(version, wanted))


@book.case("a type that is none", versions=range(1, 3), over={f"{n}": n for n in (-1, 0, 4)})
def no_type(talk: Talk, version: int, kind: int) -> None:
    talk.ask(ask(version, update(NAME, 2, kind)))


@book.case("one of two is refused", versions=VERSIONS)
def one_of_two(talk: Talk, version: int) -> None:
    talk.ask(ask(version, update(NAME, 2), update("nothing.version", 1)))


@book.case("only validated", versions=range(1, 3))
def validated(talk: Talk, version: int) -> None:
    talk.ask(ask(version, update(NAME, 2)))


@book.case("none", versions=VERSIONS)
def none(talk: Talk, version: int) -> None:
    talk.ask(ask(version))


@book.case("unknown tagged fields", versions=VERSIONS)
def unknown_tags(talk: Talk, version: int) -> None:
    talk.ask(tagged(ask(version, update(NAME, 9)), {9: b"x"}), header_tags={77: b"yz"})


@book.case("cut short", versions=VERSIONS)
def cut(talk: Talk, version: int) -> None:
    whole = ask(version, update(NAME, 9))
    talk.ask(raw(whole, raw(whole).body[:-2]))


@book.case("a version that is not served")
def beyond(talk: Talk) -> None:
    talk.ask(raw(ask(2, update(NAME, 9)), version=3))
