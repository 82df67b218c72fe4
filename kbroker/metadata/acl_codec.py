"""Changed ACLs as bytes between brokers: a tag of a difference between images.

Place in the flow: `cluster_delta_codec.py` writes and reads the rest of the difference. A pattern
without ACLs has none any more. Bytes from a peer are not trusted: what could be no ACL is a
ProtocolError.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeVar

from kbroker.protocol.wire import ProtocolError, Reader, Writer
from kbroker.security.acls import (
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceAcls,
    invalid_entry,
    invalid_pattern,
)
from kbroker.security.rights import Operation, ResourceType

E = TypeVar("E", bound=IntEnum)


def tag_of_acls(changed: Mapping[Pattern, ResourceAcls], tag: int) -> dict[int, bytes]:
    """No tag without a change, as of an earlier kbroker."""
    if not changed:
        return {}
    writer = Writer(flexible=True)
    writer.array(len(changed))
    for pattern, acls in changed.items():
        writer.int8(pattern.type)
        writer.int8(pattern.kind)
        writer.string(pattern.name)
        writer.array(len(acls))
        for entry in acls:
            writer.string(entry.principal)
            writer.string(entry.host)
            writer.int8(entry.operation)
            writer.int8(entry.permission)
        writer.tags()
    return {tag: writer.getvalue()}


def changed_acls(reader: Reader) -> dict[Pattern, ResourceAcls]:
    """Raises ProtocolError."""
    changed: dict[Pattern, ResourceAcls] = {}
    for _ in range(reader.array()):
        type_ = _member(ResourceType, reader)
        pattern = Pattern(type_, _member(PatternType, reader), reader.string())
        _valid(invalid_pattern(pattern))
        entries = []
        for _ in range(reader.array()):
            principal, host = reader.string(), reader.string()
            operation = _member(Operation, reader)
            entry = Entry(principal, host, operation, _member(Permission, reader))
            _valid(invalid_entry(entry))
            entries.append(entry)
        reader.tags()
        changed[pattern] = ResourceAcls.of(entries)
    return changed


def _member(kind: type[E], reader: Reader) -> E:
    number = reader.int8()
    try:
        return kind(number)
    except ValueError:
        raise ProtocolError(f"{number} is no {kind.__name__} of an ACL") from None


def _valid(reason: str | None) -> None:
    if reason is not None:
        raise ProtocolError(f"no ACL: {reason}")
