"""DescribeAcls, CreateAcls and DeleteAcls with an authorizer, and the rights that they need."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._rights import add_rights
from tests.parity.cases.acls import KINDS, VERSIONS, Kinds, create, delete, describe, rule
from tests.parity.requests import build
from tests.parity.sides import AUTHORIZER
from tests.parity.talk import Talk

book = Book(setup=AUTHORIZER)
cases = book.cases

RULES: dict[str, Kinds] = {
    **KINDS,
    "any resource": (1, 3, 3, 3),
    "any pattern": (2, 1, 3, 3),
    "any operation": (2, 3, 1, 3),
    "any permission": (2, 3, 3, 1),
    "all": (2, 3, 2, 2),
    "a user": (7, 3, 13, 3),
    "a token": (6, 3, 8, 3),
    "an operation that does not fit": (3, 3, 12, 3),
    "an unknown number of a resource": (99, 3, 3, 3),
    "an unknown number of a pattern": (2, 99, 3, 3),
    "an unknown number of an operation": (2, 3, 99, 3),
    "an unknown number of a permission": (2, 3, 3, 99),
}


def own(talk: Talk, kinds: Kinds, name: str = "t", principal: str = "User:ann") -> dict[str, Any]:
    """A rule of this case's own host."""
    return {**rule(kinds, talk.name(name), principal), "host": talk.host}


def wanted(talk: Talk, kinds: Kinds = (1, 1, 1, 1), name: str | None = None) -> dict[str, Any]:
    """A filter of this case's own host."""
    resource, pattern, operation, permission = kinds
    return {
        "resource_type_filter": resource,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": None,
        "host_filter": talk.host,
        "operation": operation,
        "permission_type": permission,
    }


def described(talk: Talk, version: int, kinds: Kinds = (1, 1, 1, 1), name: Any = None) -> Any:
    return build(ApiKey.DESCRIBE_ACLS, version, **wanted(talk, kinds, name))


def sorted_acls(data: Any) -> Any:
    """Their order is that of a set in Apache Kafka."""
    for each in data.get("resources", ()):
        each["acls"].sort(key=repr)
    for each in data.get("filter_results", ()):
        each["matching_acls"].sort(key=repr)
    data.get("resources", []).sort(key=repr)
    return data


def settled(talk: Talk, count: int) -> None:
    asked = described(talk, 3)
    talk.until(lambda: sum(len(r.acls) for r in talk.quietly(asked).resources) == count)


@book.case("create", versions=VERSIONS, over=RULES)
def created(talk: Talk, version: int, kinds: Kinds) -> None:
    made = talk.ask(create(version, own(talk, (2, 3, 3, 3)), own(talk, kinds, "u")))
    if made is None:
        return
    settled(talk, len([each for each in made.results if not each.error_code.value]))
    talk.ask(described(talk, version), view=sorted_acls)
    talk.ask(create(version, own(talk, (2, 3, 3, 3))))


NAMES = {
    "the cluster": ((4, 3, 9, 3), "kafka-cluster", "User:ann"),
    "another cluster": ((4, 3, 9, 3), "c", "User:ann"),
    "a prefix of the cluster": ((4, 4, 9, 3), "kafka-", "User:ann"),
    "no name": ((2, 3, 3, 3), "", "User:ann"),
    "no type of principal": ((2, 3, 3, 3), "t", "ann"),
    "an empty type of principal": ((2, 3, 3, 3), "t", ":ann"),
    "an empty principal": ((2, 3, 3, 3), "t", "User:"),
    "another type of principal": ((2, 3, 3, 3), "t", "Group:a:b"),
    "a name that no topic has": ((2, 3, 3, 3), "a b", "User:ann"),
}


@book.case("create by name", versions=VERSIONS, over=NAMES)
def created_by_name(talk: Talk, version: int, given: tuple[Kinds, str, str]) -> None:
    kinds, name, principal = given
    made = {**rule(kinds, name, principal), "host": talk.host}
    talk.ask(create(version, made, made, own(talk, (2, 4, 4, 2))))


FILTERS: dict[str, tuple[Kinds, str | None]] = {
    **{label: (kinds, None) for label, kinds in KINDS.items()},
    "a name": ((2, 3, 1, 1), "ta"),
    "a name of any kind": ((2, 1, 1, 1), "ta"),
    "a name of any type": ((1, 1, 1, 1), "ta"),
    "matching a name": ((2, 2, 1, 1), "ta"),
    "matching a longer name": ((2, 2, 1, 1), "tab"),
    "matching of any type": ((1, 2, 1, 1), "ta"),
    "an empty name": ((2, 2, 1, 1), ""),
    "an unknown number of a resource": ((99, 3, 3, 3), None),
    "an unknown number of a pattern": ((2, 99, 3, 3), None),
    "an unknown number of an operation": ((2, 3, 99, 3), None),
    "an unknown number of a permission": ((2, 3, 3, 99), None),
}


def some(talk: Talk) -> None:
    acls = [
        {**rule(kinds, name), "host": talk.host}
        for kinds, name in (
            ((2, 3, 3, 3), "ta"),
            ((2, 4, 3, 3), "t"),
            ((2, 4, 4, 2), "ta"),
            ((2, 3, 2, 3), "*"),
            ((2, 3, 3, 3), "tab"),
            ((3, 3, 3, 3), "ta"),
        )
    ]
    talk.quietly(create(3, *acls))
    settled(talk, len(acls))


@book.case("describe and delete", versions=VERSIONS, over=FILTERS)
def described_and_deleted(talk: Talk, version: int, given: tuple[Kinds, str | None]) -> None:
    some(talk)
    kinds, name = given
    talk.ask(described(talk, version, kinds, name), view=sorted_acls)
    again = talk.connect()
    again.ask(
        delete(version, wanted(talk, kinds, name), wanted(talk, (2, 3, 2, 3), "*")),
        view=sorted_acls,
    )


add_rights(
    book,
    "the right to describe",
    VERSIONS,
    ["DESCRIBE C", "DESCRIBE_CONFIGS C"],
    lambda talk, version: describe(version, (5, 3, 3, 3), talk.name("x")),
)
add_rights(
    book,
    "the right to create",
    VERSIONS,
    ["ALTER C", "DESCRIBE C"],
    lambda talk, version: create(version, own(talk, (2, 3, 3, 3)), own(talk, (3, 3, 3, 3))),
)
add_rights(
    book,
    "the right to delete",
    VERSIONS,
    ["ALTER C", "DESCRIBE C"],
    lambda talk, version: delete(
        version, wanted(talk, (5, 3, 3, 3), "x"), wanted(talk, (5, 3, 3, 3), "y")
    ),
)
