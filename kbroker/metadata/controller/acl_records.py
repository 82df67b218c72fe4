"""Where ACLs live in the metadata store, and how their nodes are written.

    /kafka-acl/TYPE/NAME                          the ACLs of a literal name; "*": of all names
    /kafka-acl-extended/prefixed/TYPE/NAME        the ACLs of the names that begin with NAME
    /kafka-acl-changes/acl_changes_N              a notice: the ACLs of a literal name changed
    /kafka-acl-extended-changes/acl_changes_N     the same of a prefix

Place in the flow: as `records.py` for the other nodes. Paths and contents are those of Apache
Kafka's AclAuthorizer up to 3.9, so its `kafka-acls` reads and writes them, too. TYPE is "Topic",
"Group" and so on; N are ten digits that the store counts.

A node that does not read back as expected is a DataDirectoryError that names it: an ACL that denies
is not to be lost with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from kbroker.errors import DataDirectoryError
from kbroker.metadata.controller.records import Fields
from kbroker.metadata.store.base import check_path
from kbroker.security.acls import (
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceAcls,
    invalid_entry,
    invalid_pattern,
)
from kbroker.security.rights import RESOURCE_NAMES, Operation, ResourceType

LITERAL_CHANGES: Final = "/kafka-acl-changes"
PREFIXED_CHANGES: Final = "/kafka-acl-extended-changes"
CHANGES: Final = (LITERAL_CHANGES, PREFIXED_CHANGES)
_NOTICE: Final = "acl_changes_"
_ROOTS: Final = MappingProxyType(
    {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
)
_CHANGES_OF: Final = MappingProxyType(
    {PatternType.LITERAL: LITERAL_CHANGES, PatternType.PREFIXED: PREFIXED_CHANGES}
)
_VERSION: Final = 1

# By kind and type of resource.
FOLDERS: Final = MappingProxyType(
    {
        (kind, type_): f"{root}/{name}"
        for kind, root in _ROOTS.items()
        for type_, name in RESOURCE_NAMES.items()
    }
)
# Parents before children.
ACL_FOLDERS: Final = (
    _ROOTS[PatternType.LITERAL],
    "/kafka-acl-extended",
    _ROOTS[PatternType.PREFIXED],
    *FOLDERS.values(),
    *CHANGES,
)

# "ClusterAction", "Allow": as its nodes have them.
_OPERATION_NAMES: Final[Mapping[Operation, str]] = MappingProxyType(
    {
        each: "".join(part.capitalize() for part in each.name.split("_"))
        for each in Operation
        if each is not Operation.ANY
    }
)
_OPERATIONS: Final = MappingProxyType({name: each for each, name in _OPERATION_NAMES.items()})
_PERMISSIONS: Final = MappingProxyType({"Allow": Permission.ALLOW, "Deny": Permission.DENY})
_PERMISSION_NAMES: Final = MappingProxyType({each: name for name, each in _PERMISSIONS.items()})


def acl_path(pattern: Pattern) -> str:
    """ValueError: the store has no node of this name."""
    path = f"{FOLDERS[pattern.kind, pattern.type]}/{pattern.name}"
    if "/" in pattern.name:
        raise ValueError(f"the name {pattern.name!r} contains a slash")
    check_path(path)
    return path


def encode_acls(acls: ResourceAcls) -> bytes:
    entries = [
        {
            "principal": entry.principal,
            "permissionType": _PERMISSION_NAMES[entry.permission],
            "host": entry.host,
            "operation": _OPERATION_NAMES[entry.operation],
        }
        for entry in acls
    ]
    return _encode({"acls": entries, "version": _VERSION})


def decode_acls(path: str, data: bytes) -> ResourceAcls:
    """DataDirectoryError."""
    fields = Fields(path, data)
    entries: list[Any] = fields.get("acls", list)
    return ResourceAcls.of(_entry(fields, each) for each in entries)


def _entry(fields: Fields, found: Any) -> Entry:
    if not isinstance(found, dict):
        raise fields.damaged("an ACL is no object")
    principal, host = found.get("principal"), found.get("host")
    operation = _OPERATIONS.get(str(found.get("operation")))
    permission = _PERMISSIONS.get(str(found.get("permissionType")))
    if not isinstance(principal, str) or not isinstance(host, str):
        raise fields.damaged("an ACL lacks its principal or host")
    if operation is None or permission is None:
        raise fields.damaged("the operation or permission of an ACL is unknown")
    entry = Entry(principal, host, operation, permission)
    if reason := invalid_entry(entry):
        raise fields.damaged(reason)
    return entry


def pattern_at(kind: PatternType, type_: ResourceType, name: str) -> Pattern:
    """Of a node in a folder; DataDirectoryError: its name is none of a resource of this type."""
    pattern = Pattern(type_, kind, name)
    if reason := invalid_pattern(pattern):
        raise DataDirectoryError(
            f"the node {FOLDERS[kind, type_]}/{name} is of no resource: {reason}",
            "remove the node",
        )
    return pattern


def notice_path(pattern: Pattern) -> str:
    """The store appends a number."""
    return f"{_CHANGES_OF[pattern.kind]}/{_NOTICE}"


def notice_number(name: str) -> int | None:
    """Of a node in one of the folders of notices; None: it is no notice."""
    digits = name.removeprefix(_NOTICE)
    if digits == name or not (digits.isdecimal() and digits.isascii() and len(digits) < 20):
        return None
    return int(digits)


def encode_notice(pattern: Pattern) -> bytes:
    if pattern.kind is PatternType.LITERAL:
        return f"{pattern.type.name}:{pattern.name}".encode()
    return _encode(
        {
            "version": _VERSION,
            "resourceType": pattern.type.name,
            "name": pattern.name,
            "patternType": pattern.kind.name,
        }
    )


def decode_notice(path: str, data: bytes) -> Pattern | None:
    """None: it names no resource that can have ACLs."""
    try:
        if path.startswith(f"{LITERAL_CHANGES}/"):
            type_, _, name = data.decode().partition(":")
            pattern = Pattern(ResourceType[type_.upper()], PatternType.LITERAL, name)
        else:
            fields = Fields(path, data)
            pattern = Pattern(
                ResourceType[fields.get("resourceType", str).upper()],
                PatternType[fields.get("patternType", str).upper()],
                fields.get("name", str),
            )
        acl_path(pattern)
    except (KeyError, ValueError, DataDirectoryError):
        return None
    return pattern if invalid_pattern(pattern) is None else None


def _encode(fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
