"""Filters of ACLs, as DescribeAcls and DeleteAcls have them (KIP-140, KIP-290).

Place in the flow: `handlers/acls.py` makes them of requests; an `AclSet` is searched by them. With
a name and a type, the search is a look-up; else it looks at the ACLs of a type, or at all.

Immutable; any thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kbroker.security.acl_set import AclSet
from kbroker.security.acls import (
    Acl,
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceAcls,
)
from kbroker.security.rights import Operation, ResourceType


class AclFilter(NamedTuple):
    """None, and ANY, match everything. MATCH: every pattern that covers the name."""

    type: ResourceType
    name: str | None
    kind: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    @property
    def is_search(self) -> bool:
        """Whether it names no resource, so that all are looked at."""
        return self.type is ResourceType.ANY or self.name is None

    def matches_of(self, acls: AclSet) -> Iterator[Acl]:
        for pattern, some in self._resources(acls):
            if not self._is_of(pattern):
                continue
            for entry in some.of_subject(self.principal, self.host):
                if self._matches(entry):
                    yield Acl(pattern, entry)

    def _resources(self, acls: AclSet) -> Iterator[tuple[Pattern, ResourceAcls]]:
        """All that may match, and perhaps more."""
        if self.type is ResourceType.ANY:
            yield from acls.items()
        elif self.name is None:
            yield from acls.items_of(self.type)
        elif self.kind is PatternType.MATCH:
            yield from acls.patterns_covering(self.type, self.name)
        else:
            for kind in (PatternType.LITERAL, PatternType.PREFIXED):
                pattern = Pattern(self.type, kind, self.name)
                yield pattern, acls.of(pattern)

    def _is_of(self, pattern: Pattern) -> bool:
        if self.type not in (ResourceType.ANY, pattern.type):
            return False
        if self.kind not in (PatternType.ANY, PatternType.MATCH, pattern.kind):
            return False
        if self.name is None:
            return True
        if self.kind is PatternType.MATCH:
            return pattern.covers(self.name)
        return pattern.name == self.name

    def _matches(self, entry: Entry) -> bool:
        """Of the principal and host that are wanted."""
        return self.operation in (Operation.ANY, entry.operation) and self.permission in (
            Permission.ANY,
            entry.permission,
        )
