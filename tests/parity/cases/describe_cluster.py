"""DescribeCluster (60): the brokers, kinds of endpoints, fenced ones, authorized operations."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import build
from tests.parity.talk import Talk

VERSIONS = range(3)

book = Book()
cases = book.cases


def ask(version: int, *, operations: bool = False, endpoint: int = 1, fenced: bool = False) -> Any:
    return build(
        ApiKey.DESCRIBE_CLUSTER,
        version,
        include_cluster_authorized_operations=operations,
        endpoint_type=endpoint,
        include_fenced_brokers=fenced,
    )


@book.case("asked", versions=VERSIONS, over={"operations": True, "no operations": False})
def asked(talk: Talk, version: int, operations: bool) -> None:
    talk.ask(ask(version, operations=operations))


@book.case("with fenced brokers", versions=VERSIONS)
def fenced(talk: Talk, version: int) -> None:
    talk.ask(ask(version, fenced=True, operations=True))


@book.case(
    "an endpoint type", versions=VERSIONS, over={str(n): n for n in (-128, -1, 0, 1, 2, 3, 127)}
)
def endpoint(talk: Talk, version: int, number: int) -> None:
    talk.ask(ask(version, endpoint=number))
    talk.ask(ask(version, endpoint=number, operations=True, fenced=True))


add_shapes(book, ApiKey.DESCRIBE_CLUSTER, VERSIONS, lambda talk, version: ask(version))
