"""ACLs as values: a resource pattern, and who may or may not do what from where.

Place in the flow: the cluster image has an `AclSet` (`acl_set.py`) of these; the authorizer decides
with it (`authorizer.py`), and the handlers of DescribeAcls, CreateAcls and DeleteAcls read and
change it. Types, pattern types, operations and permissions have their numbers on the wire
(KIP-11, KIP-290).

An ACL of a `ResourceAcls` is a bit, for its operation, under its principal and host: 100,000 ACLs
of one resource take no object each, and a question is four look-ups.

Immutable; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from kbroker.outside_text import can_be_told
from kbroker.security.rights import CLUSTER_NAME, Operation, ResourceType

WILDCARD: Final = "*"
EVERYONE: Final = "User:*"


class PatternType(IntEnum):
    """ANY and MATCH are for filters only: MATCH means every pattern that covers the name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class Pattern(NamedTuple):
    """The resources of a type that have this name, or a name that begins with it.

    The literal name "*" is every resource of the type.
    """

    type: ResourceType
    kind: PatternType
    name: str

    def covers(self, name: str) -> bool:
        if self.kind is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class Entry(NamedTuple):
    """`principal` is TYPE:NAME, or User:* for everyone; `host` an address, or "*"."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class Acl(NamedTuple):
    pattern: Pattern
    entry: Entry

    def __str__(self) -> str:
        """As Apache Kafka's authorizer writes it into its log."""
        type_, kind, name = self.pattern
        principal, host, operation, permission = self.entry
        return (
            f"StandardAcl[resourceType={type_.name}, resourceName={name}, patternType={kind.name}, "
            f"principal={principal}, host={host}, operation={operation.name}, "
            f"permissionType={permission.name}]"
        )


Subject = tuple[str, str]  # principal and host
Bits = tuple[int, int]  # denied and allowed operations: 1 << operation

_NO_BITS: Final = (0, 0)

# The bits of the operations whose ACL is one for this operation, too.
DENY_BITS: Final[Mapping[Operation, int]] = MappingProxyType(
    {each: 1 << each | 1 << Operation.ALL for each in Operation}
)
_IMPLY_DESCRIBE: Final = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
ALLOW_BITS: Final[Mapping[Operation, int]] = MappingProxyType(
    {
        **DENY_BITS,
        Operation.DESCRIBE: DENY_BITS[Operation.DESCRIBE] | sum(1 << op for op in _IMPLY_DESCRIBE),
        Operation.DESCRIBE_CONFIGS: (
            DENY_BITS[Operation.DESCRIBE_CONFIGS] | 1 << Operation.ALTER_CONFIGS
        ),
    }
)


class ResourceAcls:
    """All ACLs of one pattern."""

    __slots__ = ("bits",)

    def __init__(self, bits: Mapping[Subject, Bits]) -> None:
        """`bits` has no subject without an ACL, and is not changed afterwards."""
        self.bits = bits

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> ResourceAcls:
        return NO_ACLS.with_entries(entries)

    def __bool__(self) -> bool:
        return bool(self.bits)

    def __len__(self) -> int:
        return sum(deny.bit_count() + allow.bit_count() for deny, allow in self.bits.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResourceAcls) and self.bits == other.bits

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Entry]:
        return self.of_subject(None, None)

    def of_subject(self, wanted: str | None, at: str | None) -> Iterator[Entry]:
        """Those of this principal and this host; None: of any."""
        for (principal, host), both in self.bits.items():
            if wanted not in (None, principal) or at not in (None, host):
                continue
            for permission, bits in zip((Permission.DENY, Permission.ALLOW), both, strict=True):
                if bits:
                    for operation in operations_of(bits):
                        yield Entry(principal, host, operation, permission)

    def __contains__(self, entry: Entry) -> bool:
        both = self.bits.get((entry.principal, entry.host), _NO_BITS)
        return bool(both[entry.permission is Permission.ALLOW] & 1 << entry.operation)

    def with_entries(self, entries: Iterable[Entry]) -> ResourceAcls:
        bits = dict(self.bits)
        for principal, host, operation, permission in entries:
            deny, allow = bits.get((principal, host), _NO_BITS)
            if permission is Permission.DENY:
                deny |= 1 << operation
            else:
                allow |= 1 << operation
            bits[principal, host] = deny, allow
        return ResourceAcls(bits)

    def without_entries(self, entries: Iterable[Entry]) -> ResourceAcls:
        bits = dict(self.bits)
        for principal, host, operation, permission in entries:
            deny, allow = bits.get((principal, host), _NO_BITS)
            if permission is Permission.DENY:
                deny &= ~(1 << operation)
            else:
                allow &= ~(1 << operation)
            if deny or allow:
                bits[principal, host] = deny, allow
            else:
                bits.pop((principal, host), None)
        return ResourceAcls(bits)


NO_ACLS: Final = ResourceAcls(MappingProxyType({}))


def operations_of(bits: int) -> Iterator[Operation]:
    """In the order of their numbers."""
    for operation in Operation:
        if bits & 1 << operation:
            yield operation


def invalid_pattern(pattern: Pattern) -> str | None:
    """Why no ACL can have this pattern; None: one can."""
    if pattern.type is ResourceType.ANY:
        return "the resource type ANY is for filters only"
    if pattern.kind not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"the pattern type {pattern.kind.name} is for filters only"
    if not pattern.name:
        return "the resource has no name"
    if not can_be_told(pattern.name):
        return "the resource's name is too long to be sent again"
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return f"the only name of a resource of the type CLUSTER is {CLUSTER_NAME}"
    return None


def invalid_entry(entry: Entry) -> str | None:
    """Why no ACL can have this entry; None: one can."""
    if entry.operation is Operation.ANY:
        return "the operation ANY is for filters only"
    if entry.permission is Permission.ANY:
        return "the permission ANY is for filters only"
    if not (can_be_told(entry.principal) and can_be_told(entry.host)):
        return "the principal or the host is too long to be sent again"
    if ":" not in entry.principal:
        return f"the principal '{entry.principal}' is not TYPE:NAME"
    return None
