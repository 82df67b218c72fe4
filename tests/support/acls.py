"""Sets of ACLs for tests."""

from __future__ import annotations

from collections.abc import Iterable

from kbroker.security.acl_set import NO_ACL_SET, AclSet
from kbroker.security.acls import Acl, Pattern, ResourceAcls


def acl_set(acls: Iterable[Acl]) -> AclSet:
    entries: dict[Pattern, list[Acl]] = {}
    for acl in acls:
        entries.setdefault(acl.pattern, []).append(acl)
    return NO_ACL_SET.with_changed(
        {pattern: ResourceAcls.of(each.entry for each in some) for pattern, some in entries.items()}
    )
