"""DescribeAcls, CreateAcls and DeleteAcls (29-31, KIP-140): the ACLs of the cluster.

Any broker describes those of its own image. The controller creates and deletes; the answer comes
when the change is in its image, and it is sent to the other brokers then.

Without an authorizer each answers as an Apache Kafka without one does: SECURITY_DISABLED, for the
whole request or for each rule that was named. Tools know that code: MirrorMaker copies no rules
then and goes on. A field that is 0, which means "unknown", closes the connection, as there.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import short_message
from kbroker.protocol import messages
from kbroker.protocol.wire import ProtocolError
from kbroker.security.acl_filter import AclFilter
from kbroker.security.acls import (
    Acl,
    Entry,
    Pattern,
    PatternType,
    Permission,
    invalid_entry,
    invalid_pattern,
)
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.controller.acl_changes import CreateResults, DeleteResults
    from kbroker.protocol.messages import create_acls, delete_acls, describe_acls

NO_AUTHORIZER: Final = "no authorizer is configured"

_UNKNOWN: Final = 0  # of a resource's type, a pattern's, an operation and a permission

E = TypeVar("E", bound=IntEnum)


def is_for_controller(services: Services, message: Any) -> bool:
    """Of CreateAcls and DeleteAcls. ProtocolError: an element is unknown; the connection that is
    closed for it is the client's, not the one to the controller."""
    _check_message(message)
    return services.authorizer is not None


def handle_describe(services: Services, call: Call[describe_acls.Request]) -> None:
    message = call.message
    _check_filter(message)
    if services.authorizer is None:
        call.fail(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return
    wanted = _filter_of(message)
    found = () if wanted is None else wanted.matches_of(services.controller.image.acls)
    call.answer(
        messages.describe_acls.Response(
            error_code=ErrorCode.NONE, error_message="", resources=_described(found)
        )
    )


def _described(acls: Iterable[Acl]) -> list[describe_acls.DescribeAclsResource]:
    table = messages.describe_acls
    entries: dict[Pattern, list[describe_acls.AclDescription]] = {}
    for pattern, (principal, host, operation, permission) in acls:
        entries.setdefault(pattern, []).append(
            table.AclDescription(
                principal=principal, host=host, operation=operation, permission_type=permission
            )
        )
    return [
        table.DescribeAclsResource(
            resource_type=pattern.type,
            resource_name=pattern.name,
            pattern_type=pattern.kind,
            acls=some,
        )
        for pattern, some in entries.items()
    ]


def handle_create(services: Services, call: Call[create_acls.Request]) -> None:
    _check_message(call.message)
    if services.authorizer is None:
        call.fail(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return
    wanted = [_acl_of(each) for each in call.message.creations]

    def done(results: CreateResults) -> None:
        made = iter(results)
        errors = [each if isinstance(each, KafkaError) else next(made) for each in wanted]
        call.answer_made(lambda: _created(errors))

    services.controller.create_acls([each for each in wanted if isinstance(each, Acl)], done)


def _created(errors: Iterable[KafkaError | None]) -> create_acls.Response:
    table = messages.create_acls
    return table.Response(
        results=[
            table.AclCreationResult(error_code=ErrorCode.NONE, error_message="")
            if error is None
            else table.AclCreationResult(
                error_code=error.code, error_message=short_message(error.message)
            )
            for error in errors
        ]
    )


def create_failure(
    call: Call[create_acls.Request], code: ErrorCode, message: str | None
) -> create_acls.Response:
    """A result for each rule, though it has no name: the same rule twice has two."""
    table = messages.create_acls
    result = table.AclCreationResult(error_code=code, error_message=message)
    return table.Response(results=[result] * len(call.message.creations))


def handle_delete(services: Services, call: Call[delete_acls.Request]) -> None:
    _check_message(call.message)
    if services.authorizer is None:
        call.fail(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return
    wanted = [_filter_of(each) for each in call.message.filters]

    def done(results: DeleteResults) -> None:
        made = iter(results)
        found = [_UNKNOWN_FILTER if each is None else next(made) for each in wanted]
        call.answer_made(lambda: _deleted(found))

    services.controller.delete_acls([each for each in wanted if each is not None], done)


def _deleted(results: DeleteResults) -> delete_acls.Response:
    table = messages.delete_acls
    found = []
    for result in results:
        if isinstance(result, KafkaError):
            found.append(
                table.DeleteAclsFilterResult(
                    error_code=result.code, error_message=short_message(result.message)
                )
            )
            continue
        matching = [
            table.DeleteAclsMatchingAcl(
                error_code=ErrorCode.NONE,
                error_message=None,
                resource_type=pattern.type,
                resource_name=pattern.name,
                pattern_type=pattern.kind,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for pattern, entry in result
        ]
        found.append(
            table.DeleteAclsFilterResult(
                error_code=ErrorCode.NONE, error_message=None, matching_acls=matching
            )
        )
    return table.Response(filter_results=found)


def delete_failure(
    call: Call[delete_acls.Request], code: ErrorCode, message: str | None
) -> delete_acls.Response:
    table = messages.delete_acls
    result = table.DeleteAclsFilterResult(error_code=code, error_message=message)
    return table.Response(filter_results=[result] * len(call.message.filters))


# --- from a request -------------------------------------------------------------------------------


class _NoSuchNumber(Exception):
    """A number that no element has; its message names the element."""


_UNKNOWN_FILTER: Final = KafkaError(
    ErrorCode.INVALID_REQUEST, "an element of the filter is unknown"
)


def _acl_of(rule: create_acls.AclCreation) -> Acl | KafkaError:
    """The rule, or the reason why no ACL can be so."""
    try:
        pattern = Pattern(
            _member(ResourceType, rule.resource_type),
            _member(PatternType, rule.resource_pattern_type),
            rule.resource_name,
        )
        operation = _member(Operation, rule.operation)
        permission = _member(Permission, rule.permission_type)
    except _NoSuchNumber as error:
        return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    entry = Entry(rule.principal, rule.host, operation, permission)
    reason = invalid_pattern(pattern) or invalid_entry(entry)
    return Acl(pattern, entry) if reason is None else KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _filter_of(each: Any) -> AclFilter | None:
    """None: it names an element that there is not, so it matches nothing."""
    try:
        return AclFilter(
            _member(ResourceType, each.resource_type_filter),
            each.resource_name_filter,
            _member(PatternType, each.pattern_type_filter),
            each.principal_filter,
            each.host_filter,
            _member(Operation, each.operation),
            _member(Permission, each.permission_type),
        )
    except _NoSuchNumber:
        return None


def _member(kind: type[E], number: int) -> E:
    try:
        return kind(number)
    except ValueError:
        raise _NoSuchNumber(f"there is no {kind.__name__} {number}") from None


def _check_message(message: Any) -> None:
    if isinstance(message, messages.create_acls.Request):
        for rule in message.creations:
            _check(
                rule.resource_type, rule.resource_pattern_type, rule.operation, rule.permission_type
            )
        return
    for each in message.filters:
        _check_filter(each)


def _check_filter(each: Any) -> None:
    _check(
        each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type
    )


def _check(*kinds: int) -> None:
    if _UNKNOWN in kinds:
        raise ProtocolError("a rule or filter has an unknown element")
