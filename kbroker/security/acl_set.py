"""All ACLs of the cluster, and which of them cover a resource.

Place in the flow: a part of the cluster image. A change makes a new set with one pattern's ACLs
replaced; the tables of the other types are shared with the old one.

**Look-up.** Literal names are a dictionary. Prefixed names are a sorted list. Each prefix of a name
is the greatest element at or below the name, or a prefix of that element: all texts between a
prefix and a name that begins with it begin with it, too. So one bisection, and a walk from each
prefix to the next shorter one of the list (`_parents`), find them all, the longest first.

Immutable, except that a table of prefixes notes its parents at the first look-up; any thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from kbroker.security.acls import (
    ALLOW_BITS,
    DENY_BITS,
    EVERYONE,
    NO_ACLS,
    WILDCARD,
    Acl,
    Bits,
    Pattern,
    PatternType,
    ResourceAcls,
    Subject,
)
from kbroker.security.rights import Operation, ResourceType

# The element is the longest prefix of the list, so none is shorter.
_NO_PARENT: Final = -1


class _Prefixes:
    """Names in their order, and for each the next shorter one that is a prefix of it."""

    __slots__ = ("_parents", "names")

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(names)
        self._parents: list[int] | None = None

    def of(self, name: str) -> Iterator[str]:
        """Those that `name` begins with, the longest first."""
        parents = self._parents
        if parents is None:
            parents = self._parents = _parents_of(self.names)
        at = bisect_right(self.names, name) - 1
        while at != _NO_PARENT:
            each = self.names[at]
            if name.startswith(each):
                yield each
            at = parents[at]


def _parents_of(names: list[str]) -> list[int]:
    parents: list[int] = []
    for index, name in enumerate(names):
        at = index - 1
        while at != _NO_PARENT and not name.startswith(names[at]):
            at = parents[at]
        parents.append(at)
    return parents


class _Table:
    """The ACLs of one type of resource."""

    __slots__ = ("by_subject", "literal", "prefixed", "prefixes")

    def __init__(
        self,
        literal: Mapping[str, ResourceAcls],
        prefixed: Mapping[str, ResourceAcls],
        prefixes: _Prefixes,
    ) -> None:
        self.literal = literal
        self.prefixed = prefixed
        self.prefixes = prefixes
        # The patterns that have ACLs of a principal; made at the first question about it.
        self.by_subject: dict[str, list[Pattern]] | None = None

    def of(self, kind: PatternType) -> Mapping[str, ResourceAcls]:
        return self.prefixed if kind is PatternType.PREFIXED else self.literal

    def with_changed(self, changed: Iterable[tuple[Pattern, ResourceAcls]]) -> _Table:
        literal, prefixed = dict(self.literal), dict(self.prefixed)
        for pattern, acls in changed:
            names = prefixed if pattern.kind is PatternType.PREFIXED else literal
            if acls:
                names[pattern.name] = acls
            else:
                names.pop(pattern.name, None)
        same = prefixed.keys() == self.prefixed.keys()
        return _Table(literal, prefixed, self.prefixes if same else _Prefixes(prefixed))


_NO_TABLE: Final = _Table(MappingProxyType({}), MappingProxyType({}), _Prefixes(()))


class Covering:
    """What the ACLs that cover a resource say about an operation of a principal from a host.

    An ACL is its pattern, the number of its operation, and its principal and host. `denied_by` is
    the first ACL that denies, `allowed_by` the last one that allows: the order is that of Apache
    Kafka, whose log names them. With `denied_by`, `allowed_by` is of no account.
    """

    __slots__ = ("allowed_by", "denied_by", "is_covered")

    def __init__(self) -> None:
        self.is_covered = False
        self.denied_by: tuple[Pattern, int, Subject] | None = None
        self.allowed_by: tuple[Pattern, int, Subject] | None = None


class AclSet:
    """The resources that have ACLs, and these."""

    __slots__ = ("_count", "_tables")

    def __init__(self, tables: Mapping[ResourceType, _Table], count: int) -> None:
        self._tables = tables
        self._count = count

    def __len__(self) -> int:
        """The number of ACLs."""
        return self._count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AclSet):
            return NotImplemented
        return self is other or (
            len(self) == len(other) and dict(self.items()) == dict(other.items())
        )

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Acl]:
        for pattern, acls in self.items():
            for entry in acls:
                yield Acl(pattern, entry)

    def items(self) -> Iterator[tuple[Pattern, ResourceAcls]]:
        for type_ in self._tables:
            yield from self.items_of(type_)

    def items_of(self, type_: ResourceType) -> Iterator[tuple[Pattern, ResourceAcls]]:
        table = self._tables.get(type_, _NO_TABLE)
        for kind in (PatternType.LITERAL, PatternType.PREFIXED):
            for name, acls in table.of(kind).items():
                yield Pattern(type_, kind, name), acls

    def of(self, pattern: Pattern) -> ResourceAcls:
        table = self._tables.get(pattern.type, _NO_TABLE)
        return table.of(pattern.kind).get(pattern.name, NO_ACLS)

    def with_changed(self, changed: Mapping[Pattern, ResourceAcls]) -> AclSet:
        """This set with the ACLs of these patterns replaced; none: the pattern has none."""
        if not changed:
            return self
        count = self._count
        by_type: dict[ResourceType, list[tuple[Pattern, ResourceAcls]]] = {}
        for pattern, acls in changed.items():
            count += len(acls) - len(self.of(pattern))
            by_type.setdefault(pattern.type, []).append((pattern, acls))
        tables = {
            type_: self._tables.get(type_, _NO_TABLE).with_changed(some)
            for type_, some in by_type.items()
        }
        return AclSet({**self._tables, **tables}, count)

    def changed_since(self, old: AclSet) -> dict[Pattern, ResourceAcls]:
        """What `old.with_changed` needs to be this set."""
        changed: dict[Pattern, ResourceAcls] = {}
        for type_ in self._tables.keys() | old._tables.keys():
            now, was = self._tables.get(type_, _NO_TABLE), old._tables.get(type_, _NO_TABLE)
            if now is was:
                continue
            for kind in (PatternType.LITERAL, PatternType.PREFIXED):
                here, there = now.of(kind), was.of(kind)
                for name, acls in here.items():
                    known = there.get(name)
                    if known is not acls and known != acls:
                        changed[Pattern(type_, kind, name)] = acls
                for name in there.keys() - here.keys():
                    changed[Pattern(type_, kind, name)] = NO_ACLS
        return changed

    def patterns_covering(
        self, type_: ResourceType, name: str
    ) -> Iterator[tuple[Pattern, ResourceAcls]]:
        """Literal, then prefixed from the longest, then "*"."""
        table = self._tables.get(type_)
        if table is None:
            return
        literal = table.literal.get(name)
        if literal is not None and name != WILDCARD:
            yield Pattern(type_, PatternType.LITERAL, name), literal
        for prefix in table.prefixes.of(name):
            yield Pattern(type_, PatternType.PREFIXED, prefix), table.prefixed[prefix]
        everything = table.literal.get(WILDCARD)
        if everything is not None:
            yield Pattern(type_, PatternType.LITERAL, WILDCARD), everything

    def covering(
        self, principal: str, host: str, operation: Operation, type_: ResourceType, name: str
    ) -> Covering:
        found = Covering()
        denying, allowing = DENY_BITS[operation], ALLOW_BITS[operation]
        subjects = _subjects(principal, host)
        for pattern, acls in self.patterns_covering(type_, name):
            found.is_covered = True
            denied_by: tuple[int, Subject] | None = None
            allowed_by: tuple[int, Subject] | None = None
            for subject in subjects:
                bits: Bits | None = acls.bits.get(subject)
                if bits is None:
                    continue
                deny, allow = bits[0] & denying, bits[1] & allowing
                if deny:
                    first = (deny & -deny).bit_length() - 1, subject
                    denied_by = first if denied_by is None else min(first, denied_by)
                if allow:
                    last = allow.bit_length() - 1, subject
                    allowed_by = last if allowed_by is None else max(last, allowed_by)
            if denied_by is not None:
                found.denied_by = pattern, *denied_by
                return found
            if allowed_by is not None:
                found.allowed_by = pattern, *allowed_by
        return found

    def allows_some(
        self, principal: str, host: str, operation: Operation, type_: ResourceType
    ) -> bool:
        """Whether an ACL allows this on some resource, and none denies it there (KIP-679).

        No operation is implied here, and ACLs that deny count only if they deny a whole pattern
        that allows: as in Apache Kafka.
        """
        table = self._tables.get(type_)
        if table is None:
            return False
        mask = DENY_BITS[operation]
        denied: set[Pattern] = set()
        allowed: set[Pattern] = set()
        subjects = _subjects(principal, host)
        for pattern in _patterns_of(table, type_, {principal, EVERYONE}):
            acls = table.of(pattern.kind)[pattern.name]
            for subject in subjects:
                deny, allow = acls.bits.get(subject, (0, 0))
                if deny & mask:
                    denied.add(pattern)
                if allow & mask:
                    allowed.add(pattern)
        everything = Pattern(type_, PatternType.LITERAL, WILDCARD)
        if everything in denied:
            return False
        if everything in allowed:
            return True
        prefixes = _Prefixes(each.name for each in denied if each.kind is PatternType.PREFIXED)
        return any(
            (each.kind is PatternType.PREFIXED or each not in denied)
            and next(prefixes.of(each.name), None) is None
            for each in allowed
        )


NO_ACL_SET: Final = AclSet(MappingProxyType({}), 0)


def _subjects(principal: str, host: str) -> list[Subject]:
    """Those whose ACLs are for this principal at this host."""
    return [(principal, host), (principal, WILDCARD), (EVERYONE, host), (EVERYONE, WILDCARD)]


def _patterns_of(
    table: _Table, type_: ResourceType, principals: Iterable[str]
) -> Iterator[Pattern]:
    known = table.by_subject
    if known is None:
        known = {}
        for kind in (PatternType.LITERAL, PatternType.PREFIXED):
            for name, acls in table.of(kind).items():
                pattern = Pattern(type_, kind, name)
                for principal in {principal for principal, _ in acls.bits}:
                    known.setdefault(principal, []).append(pattern)
        table.by_subject = known
    for principal in principals:
        yield from known.get(principal, ())
