"""DescribeClientQuotas (48): filters, where there are no quotas."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import build, raw, tagged
from tests.parity.talk import Talk

VERSIONS = range(2)
EXACT, DEFAULT, ANY = 0, 1, 2

book = Book()
cases = book.cases

Component = tuple[str, int, str | None]


def ask(version: int, *components: Component, strict: bool = False) -> Any:
    return build(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        version,
        components=[
            {"entity_type": kind, "match_type": match, "match": name}
            for kind, match, name in components
        ],
        strict=strict,
    )


FILTERS: dict[str, tuple[Component, ...]] = {
    "everything": (),
    **{f"every {kind}": ((kind, ANY, None),) for kind in ("user", "client-id", "ip")},
    **{f"the default {kind}": ((kind, DEFAULT, None),) for kind in ("user", "client-id", "ip")},
    "a user": (("user", EXACT, "alice"),),
    "a client": (("client-id", EXACT, "c"),),
    "an address": (("ip", EXACT, "127.0.0.1"),),
    "a host": (("ip", EXACT, "no-such-host.invalid"),),
    "a user and a client": (("user", EXACT, "alice"), ("client-id", EXACT, "c")),
    "any user and the default client": (("user", ANY, None), ("client-id", DEFAULT, None)),
    "a user and an address": (("user", EXACT, "alice"), ("ip", EXACT, "1.2.3.4")),
    "a client and any address": (("client-id", EXACT, "c"), ("ip", ANY, None)),
    "a user twice": (("user", EXACT, "alice"), ("user", EXACT, "bob")),
    "a kind that does not exist": (("host", ANY, None),),
    "a kind that does not exist behind a user": (("user", ANY, None), ("group", ANY, None)),
    "a kind in capitals": (("USER", ANY, None),),
    "no kind": (("", ANY, None),),
    "no kind and no name": (("", EXACT, ""),),
    "an exact name that is null": (("user", EXACT, None),),
    "an exact name that is empty": (("user", EXACT, ""),),
    "a default with a name": (("user", DEFAULT, "alice"),),
    "any with a name": (("user", ANY, "alice"),),
    "any address with a name": (("ip", ANY, "x"),),
    **{f"match type {match}": (("user", match, None),) for match in (3, -1, 127)},
    "match type 3 of what does not exist": (("zz", 3, "x"),),
    "match type 3 twice": (("user", 3, "x"), ("user", 3, "x")),
}


@book.case("a filter", versions=VERSIONS, over=FILTERS)
def filters(talk: Talk, version: int, components: tuple[Component, ...]) -> None:
    talk.ask(ask(version, *components))


@book.case("a strict filter", versions=[1], over=FILTERS)
def strict(talk: Talk, version: int, components: tuple[Component, ...]) -> None:
    talk.ask(ask(version, *components, strict=True))


@book.case("unknown tagged fields", versions=[1])
def unknown_tags(talk: Talk, version: int) -> None:
    asked = ask(version, ("user", ANY, None))
    talk.ask(tagged(asked, {9: b"x"}), header_tags={77: b"yz"})


@book.case("bytes behind the message", versions=VERSIONS)
def longer(talk: Talk, version: int) -> None:
    request = ask(version, ("user", ANY, None))
    talk.ask(raw(request, raw(request).body + b"more"))


@book.case("cut short", versions=VERSIONS)
def cut(talk: Talk, version: int) -> None:
    request = ask(version, ("user", ANY, None))
    talk.ask(raw(request, raw(request).body[:-1]))


@book.case("null filters", versions=VERSIONS)
def null(talk: Talk, version: int) -> None:
    talk.ask(raw(ask(version), b"\x00\x00\x00" if version else b"\xff\xff\xff\xff\x00"))


@book.case("a version that is not served")
def beyond(talk: Talk) -> None:
    talk.ask(raw(ask(1), version=2))
