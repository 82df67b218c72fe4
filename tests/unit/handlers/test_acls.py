"""CreateAcls, DeleteAcls and DescribeAcls where there is an authorizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from kbroker.errors import ErrorCode
from kbroker.limits import TEXT_BYTES_MAX
from kbroker.metadata.controller.acl_changes import CreateResults, DeleteResults
from kbroker.protocol import messages
from kbroker.security.acl_filter import AclFilter
from kbroker.security.acl_set import NO_ACL_SET, AclSet
from kbroker.security.acls import Acl
from kbroker.security.authorizer import AclAuthorizer, Rules
from kbroker.security.denials import Denials
from kbroker.types import ApiKey
from tests.support.acls import acl_set
from tests.unit.handlers.support import FakeBroker, FakeRequest

INVALID: Final = ErrorCode.INVALID_REQUEST
NONE: Final = ErrorCode.NONE


class AclBroker(FakeBroker):
    """A controller that keeps ACLs in its image."""

    def __init__(self, *super_users: str) -> None:
        super().__init__()
        rules = Rules(frozenset(super_users or ("User:ANONYMOUS",)))
        denials = Denials(self.clock)
        self.services.authorizer = AclAuthorizer(rules, lambda: self.controller.image.acls, denials)
        controller: Any = self.controller
        controller.create_acls = self._create
        controller.delete_acls = self._delete

    @property
    def acls(self) -> AclSet:
        return self.controller.image.acls

    def _publish(self, acls: AclSet) -> None:
        self.controller.image = self.controller.image.with_acls(acls)

    def _create(self, acls: Sequence[Acl], done: Callable[[CreateResults], None]) -> None:
        self._publish(acl_set([*self.acls, *acls]))
        done([None for _ in acls])

    def _delete(self, filters: Sequence[AclFilter], done: Callable[[DeleteResults], None]) -> None:
        found = [list(each.matches_of(self.acls)) for each in filters]
        gone = {acl for some in found for acl in some}
        self._publish(acl_set(acl for acl in self.acls if acl not in gone))
        done([*found])

    def answered(self, key: ApiKey, message: Any, version: int = 3) -> Any:
        request = self.send(key, version, message.encode(version))
        assert request.closed is None, request.closed
        return self._decoded(key, request, version)

    @staticmethod
    def _decoded(key: ApiKey, request: FakeRequest, version: int) -> Any:
        table = getattr(messages, key.name.lower())
        return table.Response.decode(request.answer or b"", version)

    def create_acls(self, *rules: tuple[Any, ...], version: int = 3) -> list[int]:
        table = messages.create_acls
        made = [
            table.AclCreation(
                resource_type=type_, resource_name=name, resource_pattern_type=kind,
                principal=principal, host=host, operation=operation, permission_type=permission,
            )
            for type_, name, kind, principal, host, operation, permission in rules
        ]  # fmt: skip
        response = self.answered(ApiKey.CREATE_ACLS, table.Request(creations=made), version)
        return [each.error_code for each in response.results]

    def describe(self, **fields: Any) -> list[tuple[Any, ...]]:
        response = self.answered(
            ApiKey.DESCRIBE_ACLS, messages.describe_acls.Request(**{**ANY, **fields})
        )
        assert response.error_code == NONE
        return sorted(
            (each.resource_type, each.resource_name, each.pattern_type, acl.principal, acl.host,
             acl.operation, acl.permission_type)
            for each in response.resources for acl in each.acls
        )  # fmt: skip


ANY: Final[dict[str, Any]] = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
T: Final = (2, "t", 3, "User:a", "*", 3, 3)
P: Final = (2, "t", 4, "User:a", "h", 4, 2)
ALL_T: Final = (2, "*", 3, "User:*", "*", 2, 3)
G: Final = (3, "t", 3, "User:b", "*", 3, 3)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_rule_has_its_result(version: int) -> None:
    broker = AclBroker()
    rules = [
        T,
        (4, "kafka-cluster", 3, "User:a", "*", 9, 3),
        (4, "c", 3, "User:a", "*", 9, 3),
        (2, "", 3, "User:a", "*", 3, 3),
        (1, "t", 3, "User:a", "*", 3, 3),
        (99, "t", 3, "User:a", "*", 3, 3),
        (2, "t", 1, "User:a", "*", 3, 3),
        (2, "t", 2, "User:a", "*", 3, 3),
        (2, "t", 3, "a", "*", 3, 3),
        (2, "t", 3, "User:a", "*", 1, 3),
        (2, "t", 3, "User:a", "*", 3, 1),
        P,
    ]
    assert broker.create_acls(*rules, version=version) == [
        NONE, NONE, *[INVALID] * 9, NONE,
    ]  # fmt: skip
    assert len(broker.acls) == 3
    assert broker.create_acls(T, version=version) == [NONE]
    assert len(broker.acls) == 3
    assert broker.create_acls(version=version) == []


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, [T, P, ALL_T, G]),
        ({"resource_type_filter": 2}, [T, P, ALL_T]),
        ({"resource_name_filter": "t"}, [T, P, G]),
        ({"resource_name_filter": "t", "resource_type_filter": 2}, [T, P]),
        ({"resource_name_filter": "t", "resource_type_filter": 2, "pattern_type_filter": 4}, [P]),
        ({"resource_name_filter": "tt", "resource_type_filter": 2, "pattern_type_filter": 2},
         [P, ALL_T]),
        ({"resource_name_filter": "t", "pattern_type_filter": 2}, [T, P, ALL_T, G]),
        ({"resource_type_filter": 2, "pattern_type_filter": 2}, [T, P, ALL_T]),
        ({"resource_name_filter": "*", "resource_type_filter": 2}, [ALL_T]),
        ({"resource_name_filter": ""}, []),
        ({"principal_filter": "User:a"}, [T, P]),
        ({"principal_filter": "User:a", "host_filter": "*"}, [T]),
        ({"operation": 3}, [T, G]),
        ({"permission_type": 2}, [P]),
        ({"resource_type_filter": 99}, []),
        ({"operation": -5}, []),
    ],
)  # fmt: skip
def test_filters(fields: dict[str, Any], found: list[tuple[Any, ...]]) -> None:
    broker = AclBroker()
    assert set(broker.create_acls(T, P, ALL_T, G)) == {NONE}
    assert broker.describe(**fields) == sorted(found)
    table = messages.delete_acls
    request = table.Request(filters=[table.DeleteAclsFilter(**{**ANY, **fields})])
    (result,) = broker.answered(ApiKey.DELETE_ACLS, request).filter_results
    is_known = 99 not in fields.values() and -5 not in fields.values()
    assert result.error_code == (NONE if is_known else INVALID)
    assert len(result.matching_acls) == len(found)
    assert broker.describe() == sorted({T, P, ALL_T, G} - {*found})


def test_one_unknown_filter_does_not_disturb_another() -> None:
    broker = AclBroker()
    broker.create_acls(T, G)
    table = messages.delete_acls
    filters = [
        table.DeleteAclsFilter(**{**ANY, "operation": 77}),
        table.DeleteAclsFilter(**{**ANY, "resource_type_filter": 3}),
    ]
    request = table.Request(filters=filters)
    first, second = broker.answered(ApiKey.DELETE_ACLS, request).filter_results
    assert (first.error_code, first.matching_acls) == (INVALID, [])
    assert [each.resource_type for each in second.matching_acls] == [3]
    assert broker.acls != NO_ACL_SET


@pytest.mark.parametrize("key", [ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS])
def test_without_the_right_to_the_cluster(key: ApiKey) -> None:
    broker = AclBroker("User:root")
    if key is ApiKey.DESCRIBE_ACLS:
        response = broker.answered(key, messages.describe_acls.Request(**ANY))
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif key is ApiKey.CREATE_ACLS:
        assert broker.create_acls(T, G) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
    else:
        table = messages.delete_acls
        request = table.Request(filters=[table.DeleteAclsFilter(**ANY)])
        (result,) = broker.answered(key, request).filter_results
        assert result.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_unknown_elements_close_the_connection() -> None:
    broker = AclBroker()
    request = messages.describe_acls.Request(**{**ANY, "operation": 0})
    assert broker.send(ApiKey.DESCRIBE_ACLS, 3, request.encode(3)).closed is not None


UNDECODABLE: Final = "\ufffd" * (TEXT_BYTES_MAX // 2)


@pytest.mark.parametrize(
    "rule",
    [
        (3, UNDECODABLE, 3, "User:a", "*", 3, 3),
        (2, "t", 3, f"User:{UNDECODABLE}", "*", 3, 3),
        (2, "t", 3, "User:a", UNDECODABLE, 3, 3),
    ],
)
def test_a_text_that_grows_when_it_is_read_is_refused(rule: tuple[Any, ...]) -> None:
    """A byte that is no UTF-8 is three when it is sent again: such an ACL could be sent to no
    broker and no client."""
    broker = AclBroker()
    table = messages.create_acls
    fields = zip(
        ("resource_type", "resource_name", "resource_pattern_type", "principal", "host",
         "operation", "permission_type"),
        (each.replace("\ufffd", "?") if isinstance(each, str) else each for each in rule),
        strict=True,
    )  # fmt: skip
    plain = table.AclCreation(**dict(fields))
    body = table.Request(creations=[plain, plain]).encode(3).replace(b"?", b"\xff")
    request = broker.send(ApiKey.CREATE_ACLS, 3, body)
    answer = broker._decoded(ApiKey.CREATE_ACLS, request, 3)
    assert [each.error_code for each in answer.results] == [INVALID] * 2
    assert len(broker.acls) == 0 and broker.describe() == []


def test_a_reason_that_quotes_a_long_name_is_short() -> None:
    broker = AclBroker()
    long = "x" * (TEXT_BYTES_MAX - 10)
    assert broker.create_acls((2, "t", 3, long, "*", 3, 3), T) == [INVALID, NONE]
