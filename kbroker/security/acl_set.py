"""All ACLs of the cluster, and which of them cover a resource.

Place in the flow: a part of the cluster image. A change makes a new set with one pattern's ACLs
replaced; the tables of the other types are shared with the old one. There may be 100,000 patterns,
and hundreds of changes a second: a change copies one dictionary, and the difference from the set
before is the change itself.

**Look-up.** Literal and prefixed names are dictionaries. Which prefixes a name has is looked up for
each length that a prefix has, from the longest: there are few lengths.

Immutable, except that a table notes the patterns of each principal at the first question about one;
any thread.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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

# Changes of so many patterns are followed in the notes on principals; after more they are new.
_FOLLOWED_MAX: Final = 100


class _Prefixes:
    """Names, and how many there are of each length."""

    __slots__ = ("_counts", "_lengths", "_names")

    def __init__(self, names: Collection[str], counts: Mapping[int, int] | None = None) -> None:
        self._names = names
        self._counts = Counter(map(len, names)) if counts is None else counts
        self._lengths = sorted(self._counts, reverse=True)

    def of(self, name: str) -> Iterator[str]:
        """Those that `name` begins with, the longest first."""
        here = len(name)
        for length in self._lengths:
            if length <= here and (prefix := name[:length]) in self._names:
                yield prefix

    def replaced_by(self, names: Collection[str], changed: Iterable[str]) -> _Prefixes:
        """Of these names; those that are only there, or only here, are among `changed`."""
        counts = dict(self._counts)
        for name in changed:
            grows = (name in names) - (name in self._names)
            left = counts.get(len(name), 0) + grows
            if left:
                counts[len(name)] = left
            else:
                counts.pop(len(name), None)
        return _Prefixes(names, counts)


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

    def with_changed(self, changed: Collection[tuple[Pattern, ResourceAcls]]) -> _Table:
        literals = [each for each in changed if each[0].kind is not PatternType.PREFIXED]
        others = [each for each in changed if each[0].kind is PatternType.PREFIXED]
        literal, prefixed, prefixes = self.literal, self.prefixed, self.prefixes
        if literals:
            literal = _replaced(literal, literals)
        if others:
            prefixed = _replaced(prefixed, others)
            prefixes = prefixes.replaced_by(prefixed, [pattern.name for pattern, _ in others])
        table = _Table(literal, prefixed, prefixes)
        if self.by_subject is not None and len(changed) <= _FOLLOWED_MAX:
            table.by_subject = _followed(self.by_subject, self, changed)
        return table


def _replaced(
    names: Mapping[str, ResourceAcls], changed: Iterable[tuple[Pattern, ResourceAcls]]
) -> dict[str, ResourceAcls]:
    """`names` with these, which are of the same kind of pattern."""
    kept = dict(names)
    for pattern, acls in changed:
        if acls:
            kept[pattern.name] = acls
        else:
            kept.pop(pattern.name, None)
    return kept


def _followed(
    known: Mapping[str, list[Pattern]],
    table: _Table,
    changed: Iterable[tuple[Pattern, ResourceAcls]],
) -> dict[str, list[Pattern]]:
    """`known` of the table, with these changes."""
    found = dict(known)
    for pattern, acls in changed:
        before = _principals(table.of(pattern.kind).get(pattern.name, NO_ACLS))
        after = _principals(acls)
        for principal in before - after:
            found[principal] = [each for each in found[principal] if each != pattern]
        for principal in after - before:
            found[principal] = [*found.get(principal, ()), pattern]
    return found


def _principals(acls: ResourceAcls) -> set[str]:
    return {principal for principal, _ in acls.bits}


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

    __slots__ = ("__weakref__", "_before", "_changed", "_count", "_tables")

    def __init__(
        self,
        tables: Mapping[ResourceType, _Table],
        count: int,
        before: AclSet | None = None,
        changed: Mapping[Pattern, ResourceAcls] = MappingProxyType({}),
    ) -> None:
        """`changed` since `before`, as long as that is there."""
        self._tables = tables
        self._count = count
        self._before = None if before is None else weakref.ref(before)
        self._changed = changed

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
        return AclSet({**self._tables, **tables}, count, self, changed)

    def changed_since(self, old: AclSet) -> dict[Pattern, ResourceAcls]:
        """What `old.with_changed` needs to be this set."""
        if self._before is not None and self._before() is old:
            return {each: acls for each, acls in self._changed.items() if acls != old.of(each)}
        changed: dict[Pattern, ResourceAcls] = {}
        for type_ in self._tables.keys() | old._tables.keys():
            now, was = self._tables.get(type_, _NO_TABLE), old._tables.get(type_, _NO_TABLE)
            for kind in (PatternType.LITERAL, PatternType.PREFIXED):
                for name, acls in _changed_names(now.of(kind), was.of(kind)):
                    changed[Pattern(type_, kind, name)] = acls
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

    def bits_for(
        self, principal: str, host: str, type_: ResourceType
    ) -> Callable[[str], Bits | None]:
        """A look-up for resources of this type: the operations that the ACLs which cover a name
        deny to the principal from the host, and those that they allow; None: no ACL covers it."""
        table = self._tables.get(type_, _NO_TABLE)
        subjects = _subjects(principal, host)
        literal, prefixed, prefixes = table.literal, table.prefixed, table.prefixes
        everything = literal.get(WILDCARD)
        always = None if everything is None else _bits_of((everything,), subjects)

        def look_up(name: str) -> Bits | None:
            covering = [prefixed[prefix] for prefix in prefixes.of(name)]
            own = literal.get(name)
            if own is not None and name != WILDCARD:
                covering.append(own)
            if not covering:
                return always
            deny, allow = _bits_of(covering, subjects)
            return (deny, allow) if always is None else (deny | always[0], allow | always[1])

        return look_up

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
        prefixes = _Prefixes({each.name for each in denied if each.kind is PatternType.PREFIXED})
        return any(
            (each.kind is PatternType.PREFIXED or each not in denied)
            and next(prefixes.of(each.name), None) is None
            for each in allowed
        )


def _changed_names(
    here: Mapping[str, ResourceAcls], there: Mapping[str, ResourceAcls]
) -> Iterator[tuple[str, ResourceAcls]]:
    if here is there:
        return
    left = len(there)  # of those that are not here any more
    for name, acls in here.items():
        known = there.get(name)
        if known is not None:
            left -= 1
        if known is not acls and known != acls:
            yield name, acls
    if left:
        for name in there:
            if name not in here:
                yield name, NO_ACLS


NO_ACL_SET: Final = AclSet(MappingProxyType({}), 0)


def _subjects(principal: str, host: str) -> list[Subject]:
    """Those whose ACLs are for this principal at this host."""
    return [(principal, host), (principal, WILDCARD), (EVERYONE, host), (EVERYONE, WILDCARD)]


def _bits_of(covering: Iterable[ResourceAcls], subjects: Iterable[Subject]) -> Bits:
    deny = allow = 0
    for acls in covering:
        for subject in subjects:
            bits = acls.bits.get(subject)
            if bits is not None:
                deny |= bits[0]
                allow |= bits[1]
    return deny, allow


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
