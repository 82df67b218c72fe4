"""What there is none of here: rules, tokens, passwords and transactions; every version.

kio writes the requests. It reads no answer with a time of -1, so those of three APIs are compared
byte by byte with the answers of Apache Kafka 4.3.0.
"""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode
from kbroker.handlers.acls import NO_AUTHORIZER
from kbroker.protocol.versions import SERVED
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, part_of, request_of, written

DISABLED = (ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
A_SECOND = datetime.timedelta(seconds=1)
VERSIONS = range(1, 4)
RENEWED = range(1, 3)


def trouble(answer: Any) -> tuple[int, str | None]:
    return answer.error_code.value, answer.error_message


# --- rules ------------------------------------------------------------------------------------


def a_filter(**fields: int) -> dict[str, Any]:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    } | fields


def describe_acls(version: int, **fields: int) -> Any:
    return request_of(ApiKey.DESCRIBE_ACLS, version, **a_filter(**fields))


def create_acls(version: int, *rules: dict[str, int]) -> Any:
    whole = {"resource_type": 2, "resource_pattern_type": 3, "operation": 3, "permission_type": 3}
    named = {"resource_name": "t", "principal": "User:ann", "host": "*"}
    creations = tuple(
        part_of(ApiKey.CREATE_ACLS, version, "AclCreation", **(whole | named | rule))
        for rule in rules
    )
    return request_of(ApiKey.CREATE_ACLS, version, creations=creations)


def delete_acls(version: int, *filters: dict[str, int]) -> Any:
    parts = tuple(
        part_of(ApiKey.DELETE_ACLS, version, "DeleteAclsFilter", **a_filter(**each))
        for each in filters
    )
    return request_of(ApiKey.DELETE_ACLS, version, filters=parts)


@pytest.mark.parametrize("version", VERSIONS)
def test_there_are_no_rules(version: int) -> None:
    broker = FakeBroker()
    described = broker.call(describe_acls(version))
    assert (trouble(described), described.resources) == (DISABLED, ())
    for count in (0, 1, 3):
        created = broker.call(create_acls(version, *[{}] * count)).results
        assert [trouble(result) for result in created] == [DISABLED] * count
        deleted = broker.call(delete_acls(version, *[{}] * count)).filter_results
        assert [(trouble(r), r.matching_acls) for r in deleted] == [(DISABLED, ())] * count


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["resource_type", "pattern_type", "operation", "permission_type"])
def test_an_unknown_element_closes_the_connection(version: int, kind: str) -> None:
    of_filter = f"{kind}_filter" if kind in ("resource_type", "pattern_type") else kind
    of_rule = "resource_pattern_type" if kind == "pattern_type" else kind
    for asked in (
        describe_acls(version, **{of_filter: 0}),
        create_acls(version, {}, {of_rule: 0}),
        delete_acls(version, {}, {of_filter: 0}),
    ):
        assert "unknown" in (FakeBroker().ask(asked).closed or "")


# --- tokens -----------------------------------------------------------------------------------


def create_token(version: int, owner: tuple[str | None, str | None] = (None, None)) -> Any:
    key = ApiKey.CREATE_DELEGATION_TOKEN
    renewer = part_of(
        key, version, "CreatableRenewers", principal_type="User", principal_name="ann"
    )
    fields: dict[str, Any] = {"renewers": (renewer,), "max_lifetime": A_SECOND}
    if version >= 3:
        fields |= {"owner_principal_type": owner[0], "owner_principal_name": owner[1]}
    return request_of(key, version, **fields)


def renew_token(version: int) -> Any:
    return request_of(ApiKey.RENEW_DELEGATION_TOKEN, version, hmac=b"code", renew_period=A_SECOND)


def expire_token(version: int) -> Any:
    return request_of(
        ApiKey.EXPIRE_DELEGATION_TOKEN, version, hmac=b"code", expiry_time_period=A_SECOND
    )


def describe_token(version: int, *owners: str, all_owners: bool = False) -> Any:
    key = ApiKey.DESCRIBE_DELEGATION_TOKEN
    parts = tuple(
        part_of(
            key,
            version,
            "DescribeDelegationTokenOwner",
            principal_type="User",
            principal_name=owner,
        )
        for owner in owners
    )
    return request_of(key, version, owners=None if all_owners else parts)


NO_TIMES = "ff" * 24
REFUSED = {
    1: f"0040 0004 55736572 0009 414e4f4e594d4f5553 {NO_TIMES} 0000 00000000 00000000",
    2: f"0040 05 55736572 0a 414e4f4e594d4f5553 {NO_TIMES} 01 01 00000000 00",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_no_client_has_authenticated_and_may_have_a_token(version: int) -> None:
    answer = FakeBroker().ask(create_token(version)).answer
    anonymous = "05 55736572 0a 414e4f4e594d4f5553"
    assert answer == bytes.fromhex(
        REFUSED.get(version, f"0040 {anonymous} {anonymous} {NO_TIMES} 01 01 00000000 00")
    )


def test_the_owner_of_a_token_is_named_again() -> None:
    answer = FakeBroker().ask(create_token(3, ("Group", "g"))).answer or b""
    assert answer.startswith(bytes.fromhex("0040") + b"\x06Group\x02g\x05User\x0aANONYMOUS")
    for owner in (("User", None), ("User", ""), (None, "ann")):
        answer = FakeBroker().ask(create_token(3, owner)).answer or b""
        assert answer.startswith(b"\x00\x40\x05User\x0aANONYMOUS\x05User\x0aANONYMOUS")


@pytest.mark.parametrize("version", RENEWED)
def test_no_token_is_renewed_or_expires(version: int) -> None:
    rest = "00000000 00" if version >= 2 else "00000000"
    for asked in (renew_token(version), expire_token(version)):
        assert FakeBroker().ask(asked).answer == bytes.fromhex(f"0040 {'ff' * 8} {rest}")


@pytest.mark.parametrize("version", VERSIONS)
def test_there_are_no_tokens(version: int) -> None:
    for asked in (
        describe_token(version, all_owners=True),
        describe_token(version),
        describe_token(version, "ann", "bob"),
    ):
        answer = FakeBroker().call(asked)
        assert (answer.error_code.value, answer.tokens) == (NOT_ALLOWED, ())


# --- passwords --------------------------------------------------------------------------------


def users(*names: str, all_owners: bool = False) -> Any:
    key = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    named = tuple(part_of(key, 0, "UserName", name=name) for name in names)
    return request_of(key, 0, users=None if all_owners else named)


def test_no_user_has_a_password() -> None:
    for asked in (users(all_owners=True), users()):
        answer = FakeBroker().call(asked)
        assert (*trouble(answer), answer.results) == (0, "", ())


def test_users_by_name() -> None:
    answer = FakeBroker().call(users("zoe", "ann", "zoe", ""))
    assert trouble(answer) == (0, "")
    assert [(r.user, r.error_code.value, r.credential_infos) for r in answer.results] == [
        ("zoe", ErrorCode.DUPLICATE_RESOURCE, ()),
        ("ann", ErrorCode.RESOURCE_NOT_FOUND, ()),
        ("", ErrorCode.RESOURCE_NOT_FOUND, ()),
    ]
    assert all(result.error_message for result in answer.results)


# --- transactions -----------------------------------------------------------------------------


def list_transactions(version: int, *states: str) -> Any:
    fields: dict[str, Any] = {"state_filters": states, "producer_id_filters": (5, -1)}
    if version >= 1:
        fields["duration_filter"] = 7
    if version >= 2:
        fields["transactional_id_pattern"] = "("
    return request_of(ApiKey.LIST_TRANSACTIONS, version, **fields)


def describe_transactions(*ids: str) -> Any:
    return request_of(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids)


@pytest.mark.parametrize("version", range(3))
def test_there_are_no_transactions_in_any_state(version: int) -> None:
    answer = FakeBroker().call(list_transactions(version))
    assert (answer.error_code.value, answer.transaction_states) == (0, ())
    assert answer.unknown_state_filters == ()
    answer = FakeBroker().call(list_transactions(version, "Bogus", "Ongoing", "ongoing", "Bogus"))
    assert (answer.error_code.value, answer.transaction_states) == (0, ())
    assert answer.unknown_state_filters == ("Bogus", "ongoing")


def test_no_transactional_id_is_known() -> None:
    answer = FakeBroker().call(describe_transactions("b", "", "b"))
    not_found = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert [(t.transactional_id, t.error_code.value) for t in answer.transaction_states] == [
        ("b", not_found),
        ("", ErrorCode.INVALID_REQUEST),
        ("b", not_found),
    ]
    assert {(t.transaction_state, t.producer_id, t.topics) for t in answer.transaction_states} == {
        ("", 0, ())
    }


def test_an_id_that_is_named_again_is_answered_again_within_bounds() -> None:
    request = FakeBroker().ask(describe_transactions(*[""] * 200_000))
    assert len(request.answer or b"") < (1 << 20) + 16 * len(request.body) + 100
    names = [f"{number:04}" for number in range(9_999)]
    answer = FakeBroker().call(describe_transactions(*names))
    assert [each.transactional_id for each in answer.transaction_states] == names


# --- every one --------------------------------------------------------------------------------

ALL = [
    *(describe_acls(v) for v in VERSIONS),
    *(create_acls(v, {}) for v in VERSIONS),
    *(delete_acls(v, {}) for v in VERSIONS),
    *(create_token(v) for v in VERSIONS),
    *(renew_token(v) for v in RENEWED),
    *(expire_token(v) for v in RENEWED),
    *(describe_token(v, "ann") for v in VERSIONS),
    users("ann"),
    *(list_transactions(v, "Ongoing") for v in range(3)),
    describe_transactions("a"),
]
KINDS = sorted({(int(e.__api_key__), int(e.__version__)) for e in ALL})


def test_every_version_is_here() -> None:
    keys = {key for key, _ in KINDS}
    served = [
        (int(key), v) for key, r in SERVED.items() if key in keys for v in range(r.min, r.max + 1)
    ]
    assert sorted(served) == KINDS
    assert len(keys) == 10


@pytest.mark.parametrize("asked", ALL, ids=lambda asked: type(asked).__name__)
def test_a_request_cut_anywhere_closes_the_connection(asked: Any) -> None:
    body = written(asked)
    for size in range(len(body)):
        request = FakeBroker().send(asked.__api_key__, asked.__version__, body[:size])
        assert request.answer is None
        assert request.closed is not None


@settings(deadline=None)
@given(which=st.sampled_from(KINDS), body=st.binary())
def test_any_bytes_are_answered_or_closed(which: tuple[int, int], body: bytes) -> None:
    request = FakeBroker().send(*which, body)
    assert (request.answer is None) != (request.closed is None)
