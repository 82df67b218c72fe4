"""DescribeAcls, CreateAcls and DeleteAcls (29-31), where no authorizer is configured."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import build
from tests.parity.talk import Talk

VERSIONS = range(1, 4)

book = Book()
cases = book.cases

# A filter's fields: the type of resource, of pattern, the operation and the permission.
KINDS: dict[str, tuple[int, int, int, int]] = {
    "anything": (1, 1, 1, 1),
    "a topic": (2, 3, 3, 3),
    "with a prefix": (2, 4, 3, 3),
    "matching": (2, 2, 3, 3),
    "numbers that nothing has": (99, 44, -5, 77),
    "an unknown resource": (0, 3, 3, 3),
    "an unknown pattern": (2, 0, 3, 3),
    "an unknown operation": (2, 3, 0, 3),
    "an unknown permission": (2, 3, 3, 0),
}
Kinds = tuple[int, int, int, int]
NAMES: dict[str, str | None] = {"null": None, "empty": "", "named": "orders"}


def the_filter(kinds: Kinds, name: str | None = None) -> dict[str, Any]:
    resource, pattern, operation, permission = kinds
    return {
        "resource_type_filter": resource,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": name,
        "host_filter": name,
        "operation": operation,
        "permission_type": permission,
    }


def rule(kinds: Kinds, name: str = "orders", principal: str = "User:ann") -> dict[str, Any]:
    resource, pattern, operation, permission = kinds
    return {
        "resource_type": resource,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": principal,
        "host": "*",
        "operation": operation,
        "permission_type": permission,
    }


def describe(version: int, kinds: Kinds = (1, 1, 1, 1), name: str | None = None) -> Any:
    return build(ApiKey.DESCRIBE_ACLS, version, **the_filter(kinds, name))


def create(version: int, *rules: dict[str, Any]) -> Any:
    return build(ApiKey.CREATE_ACLS, version, creations=rules)


def delete(version: int, *filters: dict[str, Any]) -> Any:
    return build(ApiKey.DELETE_ACLS, version, filters=filters)


@book.case("describe", versions=VERSIONS, over=KINDS)
def described(talk: Talk, version: int, kinds: Kinds) -> None:
    talk.ask(describe(version, kinds))


@book.case("describe by name", versions=VERSIONS, over=NAMES)
def described_by_name(talk: Talk, version: int, name: str | None) -> None:
    talk.ask(describe(version, (2, 3, 3, 3), name))


@book.case("create", versions=VERSIONS, over=KINDS)
def created(talk: Talk, version: int, kinds: Kinds) -> None:
    talk.ask(create(version, rule(kinds)))
    talk.ask(create(version, rule((2, 3, 3, 3)), rule(kinds)))


@book.case("create what is no rule", versions=VERSIONS)
def no_rule(talk: Talk, version: int) -> None:
    talk.ask(create(version, rule((4, 3, 3, 3), "not-the-cluster"), rule((2, 3, 3, 3), "", "x")))


@book.case("create many", versions=VERSIONS, over={str(n): n for n in (0, 1, 3)})
def create_many(talk: Talk, version: int, count: int) -> None:
    talk.ask(create(version, *[rule((2, 3, 3, 3))] * count))


@book.case("delete", versions=VERSIONS, over=KINDS)
def deleted(talk: Talk, version: int, kinds: Kinds) -> None:
    talk.ask(delete(version, the_filter(kinds)))
    talk.ask(delete(version, the_filter((1, 1, 1, 1)), the_filter(kinds, "x")))


@book.case("delete many", versions=VERSIONS, over={str(n): n for n in (0, 1, 3)})
def delete_many(talk: Talk, version: int, count: int) -> None:
    talk.ask(delete(version, *[the_filter((1, 1, 1, 1))] * count))


add_shapes(
    book, ApiKey.DESCRIBE_ACLS, VERSIONS, lambda talk, version: describe(version), title="describe"
)
add_shapes(
    book,
    ApiKey.CREATE_ACLS,
    VERSIONS,
    lambda talk, version: create(version, rule((2, 3, 3, 3))),
    title="create",
)
add_shapes(
    book,
    ApiKey.DELETE_ACLS,
    VERSIONS,
    lambda talk, version: delete(version, the_filter((1, 1, 1, 1))),
    title="delete",
)
