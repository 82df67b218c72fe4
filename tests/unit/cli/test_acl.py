"""`kbroker acl`: which ACLs its options mean, and what `explain` answers."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.cli.acl_arguments import (
    Named,
    acls_of,
    filters_of,
    removal_of,
)
from kbroker.errors import UsageError
from kbroker.findings.acl_explain import Answer, Question, decided, document_of, lines_of
from kbroker.findings.acl_words import parse_operation, parse_resource
from kbroker.security.acls import Acl, Entry, Pattern, PatternType, Permission
from kbroker.security.authorizer import Rules
from kbroker.security.rights import Operation, ResourceType

ANNA = "User:anna"
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
NO_RULES = Rules()
ALLOW, DENY = Permission.ALLOW, Permission.DENY
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


def written(acls: list[Acl]) -> set[tuple[str, str, str, str, str, str]]:
    return {
        (pattern.type.name, pattern.name, entry.principal, entry.host, entry.operation.name,
         entry.permission.name)
        for pattern, entry in acls
    }  # fmt: skip


def test_all_is_the_operation_if_none_is_named() -> None:
    acls = acls_of(Named(topics=("t",), allow_principals=(ANNA,)))
    assert acls == [Acl(Pattern(TOPIC, LITERAL, "t"), Entry(ANNA, "*", Operation.ALL, ALLOW))]


def test_principals_hosts_operations_and_resources_multiply() -> None:
    acls = acls_of(
        Named(
            topics=("a", "b"), groups=("g",), pattern_type="prefixed",
            allow_principals=(ANNA, "User:bert"), allow_hosts=("10.0.0.1", "::1"),
            deny_principals=("User:carl",), operations=("Read", "describe"),
        )
    )  # fmt: skip
    assert len(acls) == len(set(acls)) == 3 * 2 * (2 * 2 + 1)
    assert {acl.pattern.kind for acl in acls} == {PREFIXED}
    assert {acl.entry.host for acl in acls if acl.entry.permission is DENY} == {"*"}
    assert "0:0:0:0:0:0:0:1" in {acl.entry.host for acl in acls}


def test_a_producer() -> None:
    acls = acls_of(
        Named(
            topics=("t",), transactional_ids=("x",), allow_principals=(ANNA,), producer=True,
            idempotent=True, pattern_type="prefixed",
        )
    )  # fmt: skip
    assert written(acls) == {
        ("TOPIC", "t", ANNA, "*", "WRITE", "ALLOW"),
        ("TOPIC", "t", ANNA, "*", "DESCRIBE", "ALLOW"),
        ("TOPIC", "t", ANNA, "*", "CREATE", "ALLOW"),
        ("TRANSACTIONAL_ID", "x", ANNA, "*", "WRITE", "ALLOW"),
        ("TRANSACTIONAL_ID", "x", ANNA, "*", "DESCRIBE", "ALLOW"),
        ("CLUSTER", "kafka-cluster", ANNA, "*", "IDEMPOTENT_WRITE", "ALLOW"),
    }
    kinds = {acl.pattern.type: acl.pattern.kind for acl in acls}
    assert kinds[ResourceType.CLUSTER] is LITERAL and kinds[TOPIC] is PREFIXED


def test_a_consumer() -> None:
    acls = acls_of(Named(topics=("t",), groups=("g",), allow_principals=(ANNA,), consumer=True))
    assert written(acls) == {
        ("TOPIC", "t", ANNA, "*", "READ", "ALLOW"),
        ("TOPIC", "t", ANNA, "*", "DESCRIBE", "ALLOW"),
        ("GROUP", "g", ANNA, "*", "READ", "ALLOW"),
    }


def test_the_filters_of_a_removal() -> None:
    (one,) = removal_of(Named(topics=("t",), allow_principals=(ANNA,), operations=("Read",)))
    assert (one.type, one.name, one.kind) == (TOPIC, "t", LITERAL)
    assert (one.principal, one.host, one.operation, one.permission) == (
        ANNA, "*", Operation.READ, ALLOW,
    )  # fmt: skip
    (every,) = removal_of(Named(topics=("t",), pattern_type="match"))
    assert (every.kind, every.principal, every.operation) == (
        PatternType.MATCH, None, Operation.ANY,
    )  # fmt: skip


def test_the_filters_of_a_list() -> None:
    (everything,) = filters_of(Named(), None)
    assert (everything.type, everything.kind) == (ResourceType.ANY, PatternType.ANY)
    assert [each.name for each in filters_of(Named(topics=("a", "b"), cluster=True), ANNA)] == [
        "a", "b", "kafka-cluster",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("named", "why"),
    [
        (Named(topics=("t",)), "no principal"),
        (Named(allow_principals=(ANNA,)), "no resource"),
        (Named(topics=("t",), allow_principals=("anna",)), "TYPE:NAME"),
        (Named(topics=("t",), allow_principals=(ANNA,), deny_hosts=("10.0.0.1",)), "--deny-host"),
        (Named(topics=("t",), allow_principals=(ANNA,), operations=("Fly",)), "no operation"),
        (
            Named(topics=("t",), allow_principals=(ANNA,), operations=("ClusterAction",)),
            "a topic has no operation ClusterAction",
        ),
        (Named(topics=("t",), allow_principals=(ANNA,), consumer=True), "needs its group"),
        (Named(groups=("g",), allow_principals=(ANNA,), consumer=True), "needs a topic"),
        (Named(topics=("t",), allow_principals=(ANNA,), idempotent=True), "a producer's"),
        (
            Named(topics=("t",), allow_principals=(ANNA,), producer=True, operations=("Read",)),
            "have their operations",
        ),
        (Named(topics=("t",), deny_principals=(ANNA,), producer=True), "allow"),
        (
            Named(topics=("t",), groups=("g",), allow_principals=(ANNA,), producer=True),
            "no group",
        ),
    ],
)
def test_options_that_do_not_go_together(named: Named, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        acls_of(named)


def test_a_removal_without_a_principal_names_no_operation() -> None:
    with pytest.raises(UsageError, match="without a principal"):
        removal_of(Named(topics=("t",), operations=("Read",)))


def test_a_removal_names_resources() -> None:
    with pytest.raises(UsageError, match="no resource"):
        removal_of(Named())


@pytest.mark.parametrize("text", ["AlterConfigs", "alter_configs", "ALTER-CONFIGS"])
def test_operations_in_any_case(text: str) -> None:
    assert parse_operation(text) is Operation.ALTER_CONFIGS


def test_resources_of_explain() -> None:
    assert parse_resource("topic:a:b") == (TOPIC, "a:b")
    assert parse_resource("cluster") == (ResourceType.CLUSTER, "kafka-cluster")
    assert parse_resource("user-principal:User:anna") == (ResourceType.USER, "User:anna")
    for text in ("orders", "topic:", "cluster:other", ""):
        with pytest.raises(UsageError, match=r"resource"):
            parse_resource(text)


# --- explain --------------------------------------------------------------------------------------


def acl(name: str, operation: Operation, permission: Permission = ALLOW, **more: Any) -> Acl:
    pattern = Pattern(more.get("type", TOPIC), more.get("kind", LITERAL), name)
    return Acl(
        pattern,
        Entry(more.get("principal", ANNA), more.get("host", "*"), operation, permission),
    )


def ask(
    *acls: Acl, operation: Operation = Operation.READ, host: str | None = None,
    rules: Rules = NO_RULES,
) -> Answer:  # fmt: skip
    return decided(Question(ANNA, operation, TOPIC, "orders", host), rules, acls)


def test_no_acl() -> None:
    answer = ask()
    assert not answer.allowed
    assert lines_of(answer) == [
        "denied: User:anna may not Read topic orders from any host",
        "rule: no ACL covers the resource, and allow.everyone.if.no.acl.found is false",
    ]
    answer = ask(rules=Rules(allow_if_no_acl=True))
    assert answer.allowed and document_of(answer)["reason"] == "DefaultAllow"


def test_a_super_user() -> None:
    answer = ask(acl("orders", Operation.ALL, DENY), rules=Rules(frozenset({ANNA})))
    assert answer.allowed and document_of(answer)["reason"] == "SuperUser"
    assert lines_of(answer)[1] == "rule: User:anna is one of super.users"


def test_the_acl_that_decides_is_named() -> None:
    allowing = acl("ord", Operation.WRITE, kind=PREFIXED)
    answer = ask(allowing, operation=Operation.DESCRIBE)
    assert lines_of(answer) == [
        "allowed: User:anna may Describe topic orders from any host",
        "rule: allow User:anna Write topic ord (prefixed) from *",
    ]
    denying = acl("*", Operation.ALL, DENY, principal="User:*")
    answer = ask(allowing, denying, operation=Operation.DESCRIBE)
    assert document_of(answer)["acl"] == {
        "resource_type": "topic",
        "resource_name": "*",
        "pattern_type": "literal",
        "principal": "User:*",
        "host": "*",
        "operation": "All",
        "permission": "deny",
    }


def test_acls_of_others_cover_and_do_not_allow() -> None:
    answer = ask(
        acl("orders", Operation.READ, principal="User:bert"), rules=Rules(allow_if_no_acl=True)
    )
    assert not answer.allowed
    assert lines_of(answer)[1] == "rule: ACLs cover the resource, and none allows it"


def test_hosts_where_the_answer_is_another() -> None:
    here = acl("orders", Operation.READ, host="10.0.0.7")
    answer = ask(here, acl("orders", Operation.READ, DENY, host="10.0.0.8"))
    assert not answer.allowed and answer.but_hosts == ("10.0.0.7",)
    assert lines_of(answer)[2] == "but from 10.0.0.7 -> ask with --host"
    assert ask(here, host="10.0.0.7").allowed
    assert not ask(here, host="10.0.0.9").allowed
    six = acl("orders", Operation.READ, host="0:0:0:0:0:0:0:1")
    assert ask(six, host="::1").allowed


def test_a_cluster_without_an_authorizer() -> None:
    answer = Answer(Question(ANNA, Operation.READ, TOPIC, "orders", None), None)
    assert answer.allowed and document_of(answer)["reason"] == "NoAuthorizer"
    assert "has no authorizer" in lines_of(answer)[1]
