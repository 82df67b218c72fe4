"""The page of security: lists without values, and decisions of the authorizer."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.console.asked import ROWS_MAX
from kbroker.console.page import Tone
from kbroker.console.pages import security
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.quota_messages import EntityQuotas
from kbroker.peer.token_messages import KnownToken
from kbroker.peer.user_messages import UserScram
from kbroker.quota.entities import EVERY, QuotaEntity
from kbroker.security.acl_filter import AclFilter
from kbroker.security.acls import Acl, Entry, Pattern, PatternType, Permission
from kbroker.security.delegation_token import DelegationToken
from kbroker.security.rights import Operation, ResourceType
from kbroker.security.session import Principal
from tests.unit.console.fake_cluster import (
    FakeClient,
    asked_of,
    cluster_of,
    facts,
    forms,
    names,
    notices,
    rows,
    table_of,
)

ANNA = "User:anna"
SECRET = b"\xde\xad\xbe\xef" * 16


def acl(
    name: str, operation: Operation = Operation.READ, permission: Permission = Permission.ALLOW
) -> Acl:
    pattern = Pattern(ResourceType.TOPIC, PatternType.LITERAL, name)
    return Acl(pattern, Entry(ANNA, "*", operation, permission))


class Answers:
    """In place of `Security`; an answer that is an error is raised."""

    def __init__(self) -> None:
        token = DelegationToken(
            "t1", Principal("User", "anna"), Principal("User", "bert"), (), 1, 3, 2
        )
        self.found: dict[str, Any] = {
            "acls": [acl("orders"), acl("bills", permission=Permission.DENY)],
            "users": [
                UserScram("zoe", {"SCRAM-SHA-512": 4096}),
                UserScram("anna", {"b": 2, "a": 1}),
            ],
            "quotas": [EntityQuotas(QuotaEntity(user=EVERY), {"request_percentage": 12.5})],
            "tokens": [KnownToken(token, SECRET)],
        }
        self.filters: list[AclFilter] = []

    def __call__(self, client: Any) -> Answers:
        return self

    def acls(self, wanted: AclFilter) -> Any:
        self.filters.append(wanted)
        return self._raised("acls")

    def users(self) -> Any:
        return self._raised("users")

    def quotas(self) -> Any:
        return self._raised("quotas")

    def tokens(self) -> Any:
        return self._raised("tokens")

    def _raised(self, name: str) -> Any:
        answer = self.found[name]
        if isinstance(answer, ErrorCode):
            raise KafkaError(answer)
        return list(answer)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    made = Answers()
    monkeypatch.setattr(security, "Security", made)
    monkeypatch.setattr("kbroker.peer.security.Security", made)
    return made


def client() -> FakeClient:
    made = FakeClient(cluster_of((1,)))
    made.settings = {"1": {"super.users": "User:root", "allow.everyone.if.no.acl.found": "false"}}
    return made


def test_lists_have_no_values(answers: Answers) -> None:
    page = security.make(asked_of(client()))
    assert [row["resource_name"] for row in rows(page, "acls")] == ["bills", "orders"]
    assert [(row["user"], row["mechanism"]) for row in rows(page, "users")] == [
        ("anna", "a"), ("anna", "b"), ("zoe", "SCRAM-SHA-512"),
    ]  # fmt: skip
    assert rows(page, "quotas") == [
        {"user": "(default)", "client_id": None, "ip": None, "quota": "request_percentage",
         "value": 12.5},
    ]  # fmt: skip
    assert rows(page, "tokens")[0]["owner"] == ANNA
    text = repr(page)
    assert SECRET.hex() not in text and repr(SECRET)[2:-1] not in text and "hmac" not in text
    assert not notices(page)


def test_parts_that_a_cluster_does_not_have_are_no_trouble(answers: Answers) -> None:
    answers.found["acls"] = ErrorCode.SECURITY_DISABLED
    answers.found["tokens"] = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    answers.found["quotas"] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    page = security.make(asked_of(client()))
    assert "users" in names(page) and "acls" not in names(page)
    assert len(notices(page, Tone.QUIET)) == 2
    assert notices(page, Tone.WARN) == [
        "quotas: you may not see this (CLUSTER_AUTHORIZATION_FAILED)"
    ]


def test_acls_are_found_by_a_filter_which_the_next_page_keeps(answers: Answers) -> None:
    answers.found["acls"] = [acl(f"t{number:04}") for number in range(ROWS_MAX + 5)]
    query = {"principal": ANNA, "type": "topic", "name": "t0", "pattern": "match"}
    page = security.make(asked_of(client(), **query))
    assert answers.filters[-1] == AclFilter(
        ResourceType.TOPIC, "t0", PatternType.MATCH, ANNA, None, Operation.ANY, Permission.ANY
    )
    table = table_of(page, "acls")
    assert (len(table.rows), table.total) == (ROWS_MAX, ROWS_MAX + 5)
    for part in ("principal=User%3Aanna", "type=topic", "pattern=match", "acls_from=500"):
        assert part in table.next_path
    page = security.make(asked_of(client(), **query, acls_from="500"))
    assert len(rows(page, "acls")) == 5 and not table_of(page, "acls").next_path
    assert forms(page)["acls_filter"].fields[0].value == ANNA


@pytest.mark.parametrize(
    "query", [{"type": "planet"}, {"pattern": "regex"}, {"principal": "no principal"}]
)
def test_a_filter_that_is_none_asks_nothing(answers: Answers, query: dict[str, str]) -> None:
    page = security.make(asked_of(client(), **query))
    assert not answers.filters and len(notices(page, Tone.WARN)) == 1
    assert "users" in names(page)


def may(**query: str) -> dict[str, str]:
    return {f"may_{name}": value for name, value in query.items()}


@pytest.mark.parametrize(
    ("query", "allowed", "rule"),
    [
        (may(principal=ANNA, operation="Read", type="topic", name="orders"), True,
         "allow User:anna Read topic orders from *"),
        (may(principal="User:bert", operation="Read", type="topic", name="orders"), False,
         "ACLs cover the resource, and none allows it"),
        (may(principal="User:root", operation="Alter", type="cluster"), True,
         "User:root is one of super.users"),
    ],
)  # fmt: skip
def test_a_decision_and_its_rule(
    answers: Answers, query: dict[str, str], allowed: bool, rule: str
) -> None:
    answers.found["acls"] = [acl("orders")]
    page = security.make(asked_of(client(), **query))
    found = facts(page, "explained")
    assert (found["allowed"], found["rule"]) == (allowed, rule)


@pytest.mark.parametrize(
    "query",
    [
        may(principal="anna", operation="Read", type="topic", name="a"),
        may(principal=ANNA, operation="Fly", type="topic", name="a"),
        may(principal=ANNA, operation="Read", type="planet", name="a"),
        may(principal=ANNA, operation="Read", type="topic", name=""),
        may(principal=ANNA, operation="Read", type="cluster"),
    ],
)
def test_a_question_that_is_none(answers: Answers, query: dict[str, str]) -> None:
    page = security.make(asked_of(client(), **query))
    assert "explained" not in names(page) and len(notices(page, Tone.WARN)) == 1
    assert "may" in forms(page) and "users" in names(page)


def test_without_an_authorizer_everything_is_allowed(answers: Answers) -> None:
    answers.found["acls"] = ErrorCode.SECURITY_DISABLED
    query = may(principal=ANNA, operation="Read", type="topic", name="orders")
    page = security.make(asked_of(client(), **query))
    assert facts(page, "explained")["allowed"] is True


def test_many_acls_are_put_in_order_with_pauses(answers: Answers) -> None:
    answers.found["acls"] = [acl(f"t-{7 * n % 2_000:04d}") for n in range(2_000)]
    pauses: list[None] = []
    request = asked_of(FakeClient(cluster_of((1,))), acls_from="1000")
    page = security.make(request._replace(pause=lambda: pauses.append(None)))
    assert [row["resource_name"] for row in rows(page, "acls")] == [
        f"t-{n:04d}" for n in range(1_000, 1_500)
    ]
    assert len(pauses) >= 10
