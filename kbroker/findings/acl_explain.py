"""A decision of the authorizer, with its reason: for `kbroker acl explain` and the console.

The ACLs that cover the resource are described, `super.users` and `allow.everyone.if.no.acl.found`
are read from a broker, and `Rules.decide` decides: the function with which a broker does. So the
answer is that of the cluster as it is now, whether or not the principal has ever connected.

Without a host the answer is that for a host which no ACL names, and hosts with another answer are
named beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError, UsageError
from kbroker.findings.acl_words import OPERATION_NAMES, TYPE_NAMES, java_text
from kbroker.security.acl_filter import AclFilter
from kbroker.security.acl_set import NO_ACL_SET, AclSet
from kbroker.security.acls import (
    EVERYONE,
    WILDCARD,
    Acl,
    Pattern,
    PatternType,
    Permission,
    ResourceAcls,
)
from kbroker.security.authorizer import Decision, Reason, Rules, super_users
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbroker.peer.client import Client

_SUPER_USERS: Final = "super.users"
_ALLOW_IF_NO_ACL: Final = "allow.everyone.if.no.acl.found"
# No ACL can have it, since it is no address.
_ANY_HOST: Final = "any host"
_NO_AUTHORIZER: Final = "NoAuthorizer"


class Question(NamedTuple):
    principal: str
    operation: Operation
    type: ResourceType
    name: str
    host: str | None  # None: any


class Answer(NamedTuple):
    """`decision` None: the cluster has no authorizer. `but_hosts`: where the answer is another, if
    no host was asked for. `unknown`: settings that the broker does not describe."""

    question: Question
    decision: Decision | None
    but_hosts: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        return self.decision is None or self.decision.allowed


def answer_of(client: Client, question: Question) -> Answer:
    from kbroker.peer.security import Security

    everything = AclFilter(
        question.type, question.name, PatternType.MATCH, None, None, Operation.ANY, Permission.ANY
    )
    try:
        acls = Security(client).acls(everything)
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            return Answer(question, None)
        raise
    rules, unknown = _rules_of(client)
    return decided(question, rules, acls, unknown)


def decided(
    question: Question, rules: Rules, acls: Iterable[Acl], unknown: tuple[str, ...] = ()
) -> Answer:
    """`acls` are all that cover the resource."""
    some = list(acls)
    covering = _set_of(some)

    def decide(host: str) -> Decision:
        return rules.decide(
            covering, question.principal, host, question.operation, question.type, question.name
        )

    if question.host is not None:
        return Answer(question, decide(java_text(question.host)), (), unknown)
    decision = decide(_ANY_HOST)
    hosts = {
        each.entry.host for each in some if each.entry.principal in (question.principal, EVERYONE)
    }
    others = sorted(
        host for host in hosts - {WILDCARD} if decide(host).allowed is not decision.allowed
    )
    return Answer(question, decision, tuple(others), unknown)


def _set_of(acls: Iterable[Acl]) -> AclSet:
    entries: dict[Pattern, list[Any]] = {}
    for pattern, entry in acls:
        entries.setdefault(pattern, []).append(entry)
    return NO_ACL_SET.with_changed(
        {pattern: ResourceAcls.of(some) for pattern, some in entries.items()}
    )


def _rules_of(client: Client) -> tuple[Rules, tuple[str, ...]]:
    """The rules beside the ACLs, and settings that are not described: Apache Kafka's broker knows
    these as its authorizer's, and hides their values."""
    from kbroker.peer.config_messages import BROKER_RESOURCE, Resource

    node_id = min(client.metadata([]).brokers, default=None)
    if node_id is None:
        raise UsageError("the cluster names no broker", "name one with -b")
    values = {
        each.name: each.value
        for each in client.configs(
            Resource(BROKER_RESOURCE, str(node_id)), [_SUPER_USERS, _ALLOW_IF_NO_ACL]
        )
    }
    unknown = tuple(key for key in (_SUPER_USERS, _ALLOW_IF_NO_ACL) if values.get(key) is None)
    rules = Rules(
        super_users(values.get(_SUPER_USERS) or ""), values.get(_ALLOW_IF_NO_ACL) == "true"
    )
    return rules, unknown


# --- how it is written ----------------------------------------------------------------------------


def document_of_acl(acl: Acl) -> dict[str, str]:
    (type_, kind, name), (principal, host, operation, permission) = acl
    return {
        "resource_type": TYPE_NAMES.get(type_, type_.name.lower()),
        "resource_name": name,
        "pattern_type": kind.name.lower(),
        "principal": principal,
        "host": host,
        "operation": OPERATION_NAMES.get(operation, operation.name),
        "permission": permission.name.lower(),
    }


def document_of(answer: Answer) -> dict[str, Any]:
    question, decision = answer.question, answer.decision
    acl = None if decision is None else decision.acl
    return {
        "principal": question.principal,
        "operation": OPERATION_NAMES[question.operation],
        "resource_type": TYPE_NAMES[question.type],
        "resource_name": question.name,
        "host": question.host,
        "allowed": answer.allowed,
        "reason": _NO_AUTHORIZER if decision is None else decision.reason.value,
        "acl": None if acl is None else document_of_acl(acl),
        "other_answer_for_hosts": list(answer.but_hosts),
        "unknown_settings": list(answer.unknown),
    }


def lines_of(answer: Answer) -> list[str]:
    question = answer.question
    host = "any host" if question.host is None else question.host
    word, verb = ("allowed", "may") if answer.allowed else ("denied", "may not")
    operation = OPERATION_NAMES[question.operation]
    on = _resource(question.type, question.name)
    lines = [
        f"{word}: {question.principal} {verb} {operation} {on} from {host}",
        f"rule: {_rule(answer)}",
    ]
    if answer.but_hosts:
        word = "not " if answer.allowed else ""
        lines.append(f"but {word}from {', '.join(answer.but_hosts)} -> ask with --host")
    lines += [
        f"note: the broker does not describe {key}; the answer is that for its default"
        for key in answer.unknown
    ]
    return lines


def _rule(answer: Answer) -> str:
    decision = answer.decision
    if decision is None:
        return "the cluster has no authorizer: everything is allowed"
    if decision.acl is not None:
        return line_of(decision.acl)
    if decision.reason is Reason.SUPER_USER:
        return f"{answer.question.principal} is one of {_SUPER_USERS}"
    if decision.reason is Reason.NO_ACL_ALLOWS:
        return f"no ACL covers the resource, and {_ALLOW_IF_NO_ACL} is true"
    if decision.is_covered:
        return "ACLs cover the resource, and none allows it"
    return f"no ACL covers the resource, and {_ALLOW_IF_NO_ACL} is false"


def line_of(acl: Acl) -> str:
    """`allow User:anna Read topic orders from *`."""
    (type_, kind, name), (principal, host, operation, permission) = acl
    prefixed = " (prefixed)" if kind is PatternType.PREFIXED else ""
    return (
        f"{permission.name.lower()} {principal} {OPERATION_NAMES.get(operation, operation.name)} "
        f"{_resource(type_, name)}{prefixed} from {host}"
    )


def _resource(type_: ResourceType, name: str) -> str:
    label = TYPE_NAMES.get(type_, type_.name.lower())
    return f"the {label}" if type_ is ResourceType.CLUSTER else f"{label} {name}"
