"""DescribeAcls, CreateAcls and DeleteAcls (29-31): there is no authorizer.

Each answers as an Apache Kafka without an authorizer does: SECURITY_DISABLED, for the whole request
or for each rule that was named. Tools know that code: MirrorMaker copies no rules then and goes on.
A field that is 0, which means "unknown", closes the connection, as there.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode
from kbroker.protocol import messages
from kbroker.protocol.wire import ProtocolError

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages import create_acls, delete_acls, describe_acls

NO_AUTHORIZER: Final = "no authorizer is configured"

_UNKNOWN: Final = 0  # of a resource's type, a pattern's, an operation and a permission


def handle_describe(services: Services, call: Call[describe_acls.Request]) -> None:
    _check_filter(call.message)
    call.fail(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def handle_create(services: Services, call: Call[create_acls.Request]) -> None:
    for rule in call.message.creations:
        _check(rule.resource_type, rule.resource_pattern_type, rule.operation, rule.permission_type)
    call.fail(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def create_failure(
    call: Call[create_acls.Request], code: ErrorCode, message: str | None
) -> create_acls.Response:
    """A result for each rule, though it has no name: the same rule twice has two."""
    table = messages.create_acls
    result = table.AclCreationResult(error_code=code, error_message=message)
    return table.Response(results=[result] * len(call.message.creations))


def handle_delete(services: Services, call: Call[delete_acls.Request]) -> None:
    for each in call.message.filters:
        _check_filter(each)
    call.fail(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def delete_failure(
    call: Call[delete_acls.Request], code: ErrorCode, message: str | None
) -> delete_acls.Response:
    table = messages.delete_acls
    result = table.DeleteAclsFilterResult(error_code=code, error_message=message)
    return table.Response(filter_results=[result] * len(call.message.filters))


def _check_filter(each: Any) -> None:
    _check(
        each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type
    )


def _check(*kinds: int) -> None:
    if _UNKNOWN in kinds:
        raise ProtocolError("a rule or filter has an unknown element")
