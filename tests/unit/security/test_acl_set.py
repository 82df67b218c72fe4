"""Sets of ACLs: every pattern that covers a name is found, and changes leave the old set as it was.

tests/model/test_acl_decisions.py compares decisions with those of Apache Kafka.
"""

from __future__ import annotations

import random

import pytest

from kbroker.security.acl_set import NO_ACL_SET, AclSet
from kbroker.security.acls import (
    NO_ACLS,
    Acl,
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceAcls,
    invalid_entry,
    invalid_pattern,
)
from kbroker.security.rights import Operation, ResourceType
from tests.support.acls import acl_set

READ = Entry("User:a", "*", Operation.READ, Permission.ALLOW)


def topic(name: str, kind: PatternType = PatternType.LITERAL) -> Pattern:
    return Pattern(ResourceType.TOPIC, kind, name)


def prefix(name: str) -> Pattern:
    return topic(name, PatternType.PREFIXED)


@pytest.mark.parametrize("seed", range(20))
def test_the_covering_patterns_are_those_of_a_plain_search(seed: int) -> None:
    dice = random.Random(seed)

    def name() -> str:
        return "".join(dice.choices("ab.\u00e9", k=dice.randrange(1, 6)))

    made = [dice.choice((topic, prefix))(name()) for _ in range(dice.choice((0, 3, 60)))]
    made += [topic("*")] * dice.randrange(2)
    acls = acl_set(Acl(pattern, READ) for pattern in made)
    for asked in (name() for _ in range(200)):
        found = [pattern for pattern, _ in acls.patterns_covering(ResourceType.TOPIC, asked)]
        expected = [each for each in {*made} if each.covers(asked)]
        assert sorted(found) == sorted(expected), asked
        prefixes = [len(each.name) for each in found if each.kind is PatternType.PREFIXED]
        assert prefixes == sorted(prefixes, reverse=True)
        assert not list(acls.patterns_covering(ResourceType.GROUP, asked))


@pytest.mark.parametrize("seed", range(20))
def test_a_change_is_found_and_applied(seed: int) -> None:
    dice = random.Random(seed)

    def some() -> list[Acl]:
        return [
            Acl(
                Pattern(
                    dice.choice((ResourceType.TOPIC, ResourceType.GROUP)),
                    dice.choice((PatternType.LITERAL, PatternType.PREFIXED)),
                    dice.choice("abc*"),
                ),
                Entry(
                    f"User:{dice.choice('xy')}",
                    "*",
                    dice.choice((Operation.READ, Operation.ALL)),
                    dice.choice((Permission.DENY, Permission.ALLOW)),
                ),
            )
            for _ in range(dice.randrange(20))
        ]

    before, after = acl_set(some()), acl_set(some())
    kept = list(before)
    made = before.with_changed(after.changed_since(before))
    assert made == after
    assert sorted(made) == sorted(after)
    assert len(made) == len(list(after))
    assert list(before) == kept
    assert not after.changed_since(after)
    assert not made.changed_since(after)


@pytest.mark.parametrize("seed", range(20))
def test_a_set_that_has_changed_often_is_the_same_as_a_new_one(seed: int) -> None:
    dice = random.Random(seed)
    acls, kept = NO_ACL_SET, []
    for _ in range(40):
        changed: dict[Pattern, ResourceAcls] = {}
        for _ in range(dice.randrange(1, 4)):
            name = "".join(dice.choices("ab", k=dice.randrange(1, 4)))
            pattern = dice.choice((topic, prefix))(dice.choice((name, name, "*")))
            changed[pattern] = ResourceAcls.of(
                Entry(
                    f"User:{dice.choice('xy*')}", dice.choice(("*", "h")),
                    dice.choice((Operation.READ, Operation.ALL)),
                    dice.choice((Permission.DENY, Permission.ALLOW)),
                )
                for _ in range(dice.randrange(3))
            )  # fmt: skip
        before, acls = acls, acls.with_changed(changed)
        kept.append(before)  # a difference is also taken from a set that is long gone
        fresh = acl_set(acls)
        assert acls == fresh and len(acls) == len(fresh)
        for user in ("User:x", "User:y", "User:z"):
            asked = user, "h", Operation.READ, ResourceType.TOPIC
            assert acls.allows_some(*asked) == fresh.allows_some(*asked)
            for name in ("a", "ab", "aba", "abab", "b", "*"):
                ours, theirs = (each.covering(*asked, name) for each in (acls, fresh))
                assert (ours.is_covered, ours.denied_by, ours.allowed_by) == (
                    theirs.is_covered, theirs.denied_by, theirs.allowed_by
                )  # fmt: skip
        for older in (before, dice.choice(kept)):
            found = acls.changed_since(older)
            assert older.with_changed(found) == acls
            assert all(older.of(pattern) != some for pattern, some in found.items())


def test_a_change_of_many_acls_is_not_compared_with_them() -> None:
    """100,000 ACLs, and a tool that changes one after the other."""
    acls = acl_set(Acl(prefix(f"p{number}"), READ) for number in range(2_000))
    acls.allows_some("User:a", "h", Operation.READ, ResourceType.TOPIC)
    changed = acls.with_changed({prefix("q"): ResourceAcls.of([READ])})
    assert changed.changed_since(acls) is not None
    compared: list[object] = []
    one = acls.of(prefix("p7"))
    assert all(each is one or each == one for _, each in acls.items())

    class Counted(ResourceAcls):
        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return super().__eq__(other)

        __hash__ = None  # type: ignore[assignment]

    many = acls.with_changed({prefix(f"p{number}"): Counted(one.bits) for number in range(2_000)})
    compared.clear()
    more = many.with_changed({prefix("q"): ResourceAcls.of([READ])})
    assert list(more.changed_since(many)) == [prefix("q")]
    assert not compared
    assert more._tables[ResourceType.TOPIC].literal is many._tables[ResourceType.TOPIC].literal


def test_one_acl_of_a_resource_goes_and_the_others_stay() -> None:
    """CVE-2024-27309."""
    write = READ._replace(operation=Operation.WRITE)
    deny = READ._replace(permission=Permission.DENY)
    acls = ResourceAcls.of([READ, write, deny])
    assert len(acls) == 3
    assert sorted(acls.without_entries([READ])) == sorted([write, deny])
    assert not acls.without_entries([READ, write, deny])
    assert acls.without_entries([READ, write, deny]) == NO_ACLS
    assert acls.without_entries([READ._replace(host="h")]) == acls
    assert READ in acls and READ._replace(host="h") not in acls


def test_a_pattern_without_acls_leaves_no_trace() -> None:
    """A phantom: the prefix would still cover its names, and so switch off the default."""
    acls = acl_set([Acl(prefix("a"), READ)])
    assert next(acls.patterns_covering(ResourceType.TOPIC, "ab"), None) is not None
    left = acls.with_changed({prefix("a"): NO_ACLS})
    assert next(left.patterns_covering(ResourceType.TOPIC, "ab"), None) is None
    assert left == NO_ACL_SET and len(left) == 0


def test_tables_of_other_types_are_shared() -> None:
    groups = Acl(Pattern(ResourceType.GROUP, PatternType.LITERAL, "g"), READ)
    acls: AclSet = acl_set([groups, Acl(topic("t"), READ)])
    changed = acls.with_changed({topic("u"): ResourceAcls.of([READ])})
    assert changed._tables[ResourceType.GROUP] is acls._tables[ResourceType.GROUP]


@pytest.mark.parametrize(
    ("pattern", "is_valid"),
    [
        (topic("t"), True),
        (topic("*"), True),
        (prefix("t"), True),
        (topic(""), False),
        (topic("t", PatternType.ANY), False),
        (topic("t", PatternType.MATCH), False),
        (Pattern(ResourceType.ANY, PatternType.LITERAL, "t"), False),
        (Pattern(ResourceType.CLUSTER, PatternType.LITERAL, "kafka-cluster"), True),
        (Pattern(ResourceType.CLUSTER, PatternType.LITERAL, "c"), False),
    ],
)
def test_patterns_that_an_acl_may_have(pattern: Pattern, is_valid: bool) -> None:
    assert (invalid_pattern(pattern) is None) is is_valid


@pytest.mark.parametrize(
    ("entry", "is_valid"),
    [
        (READ, True),
        (READ._replace(operation=Operation.ALL), True),
        (READ._replace(principal="User:*"), True),
        (READ._replace(principal="User"), False),
        (READ._replace(operation=Operation.ANY), False),
        (READ._replace(permission=Permission.ANY), False),
    ],
)
def test_entries_that_an_acl_may_have(entry: Entry, is_valid: bool) -> None:
    assert (invalid_entry(entry) is None) is is_valid
