"""ACLs, as our clients describe, create and delete them (KIP-140, KIP-290).

As `messages`: records of the tables to values and back. An element that this version does not know,
of a broker that is newer, is an error that names it. Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import error_code
from kbroker.protocol import messages as tables
from kbroker.protocol.wire import Reader
from kbroker.security.acls import Acl, Entry, Pattern, PatternType, Permission
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.security.acl_filter import AclFilter

E = TypeVar("E", bound=IntEnum)


class CreateResult(NamedTuple):
    error: ErrorCode
    message: str | None


class DeleteResult(NamedTuple):
    """`acls` are those that matched a filter and are deleted."""

    error: ErrorCode
    message: str | None
    acls: list[Acl]


def encode_describe_acls(version: int, wanted: AclFilter) -> bytes:
    return tables.describe_acls.Request(
        resource_type_filter=wanted.type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.kind,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    ).encode(version)


def decode_describe_acls(reader: Reader, version: int) -> list[Acl]:
    answer = tables.describe_acls.Response.read(reader, version)
    error = error_code(answer.error_code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, answer.error_message or "the ACLs cannot be described")
    return [
        _acl(
            (resource.resource_type, resource.pattern_type, resource.resource_name),
            (each.principal, each.host, each.operation, each.permission_type),
        )
        for resource in answer.resources
        for each in resource.acls
    ]


def encode_create_acls(version: int, acls: Sequence[Acl]) -> bytes:
    table = tables.create_acls
    creations = [
        table.AclCreation(
            resource_type=pattern.type,
            resource_name=pattern.name,
            resource_pattern_type=pattern.kind,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in acls
    ]
    return table.Request(creations=creations).encode(version)


def decode_create_acls(reader: Reader, version: int) -> list[CreateResult]:
    """In the order of the request."""
    return [
        CreateResult(error_code(each.error_code), each.error_message)
        for each in tables.create_acls.Response.read(reader, version).results
    ]


def encode_delete_acls(version: int, filters: Sequence[AclFilter]) -> bytes:
    table = tables.delete_acls
    wanted = [
        table.DeleteAclsFilter(
            resource_type_filter=each.type,
            resource_name_filter=each.name,
            pattern_type_filter=each.kind,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in filters
    ]
    return table.Request(filters=wanted).encode(version)


def decode_delete_acls(reader: Reader, version: int) -> list[DeleteResult]:
    """In the order of the request. An ACL that could not be deleted is its filter's error."""
    results = []
    for result in tables.delete_acls.Response.read(reader, version).filter_results:
        failed = [each for each in result.matching_acls if each.error_code != ErrorCode.NONE]
        code, message = result.error_code, result.error_message
        if code == ErrorCode.NONE and failed:
            code, message = failed[0].error_code, failed[0].error_message
        deleted = [
            _acl(
                (each.resource_type, each.pattern_type, each.resource_name),
                (each.principal, each.host, each.operation, each.permission_type),
            )
            for each in result.matching_acls
            if each.error_code == ErrorCode.NONE
        ]
        results.append(DeleteResult(error_code(code), message, deleted))
    return results


def _acl(pattern: tuple[int, int, str], entry: tuple[str, str, int, int]) -> Acl:
    type_, kind, name = pattern
    principal, host, operation, permission = entry
    return Acl(
        Pattern(_member(ResourceType, type_), _member(PatternType, kind), name),
        Entry(principal, host, _member(Operation, operation), _member(Permission, permission)),
    )


def _member(kind: type[E], number: int) -> E:
    try:
        return kind(number)
    except ValueError:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the broker has ACLs with a {kind.__name__} {number}, which is not known here",
        ) from None
