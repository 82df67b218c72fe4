"""Which ACLs the options of `kbroker acl` mean: those of Apache Kafka's `kafka-acls`.

Their words are those of `findings/acl_words.py`. `--producer`, `--consumer` and `--idempotent` are
the ACLs that such a client needs; they allow, and take no `--operation`.

Pure functions on the options that click has parsed; trouble is a UsageError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import click

from kbroker.errors import UsageError
from kbroker.findings.acl_words import (
    check_operation,
    check_principal,
    java_text,
    parse_operation,
)
from kbroker.security.acl_filter import AclFilter
from kbroker.security.acls import WILDCARD, Acl, Entry, Pattern, PatternType, Permission
from kbroker.security.rights import CLUSTER_NAME, Operation, ResourceType

Command = TypeVar("Command", bound=Callable[..., Any])

_PRODUCER: Final = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
_PRODUCER_TRANSACTION: Final = (Operation.WRITE, Operation.DESCRIBE)
_CONSUMER: Final = (Operation.READ, Operation.DESCRIBE)
_CONSUMER_GROUP: Final = (Operation.READ,)


class Named(NamedTuple):
    """The options of a command, as click has parsed them."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    delegation_tokens: tuple[str, ...] = ()
    user_principals: tuple[str, ...] = ()
    cluster: bool = False
    pattern_type: str = "literal"
    allow_principals: tuple[str, ...] = ()
    deny_principals: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    deny_hosts: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False


def resource_options(kinds: Sequence[str]) -> Callable[[Command], Command]:
    """Adds the options that name resources; `kinds` of patterns are allowed."""

    def add(function: Command) -> Command:
        for option in (
            click.option(
                "--resource-pattern-type",
                "pattern_type",
                type=click.Choice(kinds, case_sensitive=False),
                default="literal",
                show_default=True,
                help="Whether a name is the whole name, or the beginning of names.",
            ),
            click.option("--cluster", is_flag=True, help="The cluster itself."),
            _names("--user-principal", "user_principals", "A user, TYPE:NAME."),
            _names("--delegation-token", "delegation_tokens", "A token's id."),
            _names("--transactional-id", "transactional_ids", "Repeatable, as the others."),
            _names("--group", "groups", "A group; * is all.", "-g"),
            _names("--topic", "topics", "A topic; * is all. Repeatable.", "-t"),
        ):
            function = option(function)
        return function

    return add


def entry_options(function: Command) -> Command:
    """Adds the options that say who may do what."""
    for option in (
        click.option("--idempotent", is_flag=True, help="With --producer: IdempotentWrite, too."),
        click.option(
            "--consumer", is_flag=True, help="Read and Describe of --topic, Read of --group."
        ),
        click.option(
            "--producer",
            is_flag=True,
            help="Write, Describe, Create of --topic; Write, Describe of --transactional-id.",
        ),
        _names("--operation", "operations", "Read, Write, ...; All if left out.", kind="OPERATION"),
        _names("--deny-host", "deny_hosts", "Where it may not; everywhere if left out.", kind="IP"),
        _names("--allow-host", "allow_hosts", "From where; everywhere if left out.", kind="IP"),
        _names("--deny-principal", "deny_principals", "TYPE:NAME that may not."),
        _names("--allow-principal", "allow_principals", "TYPE:NAME that may, as User:anna."),
    ):
        function = option(function)
    return function


def _names(option: str, name: str, text: str, *short: str, kind: str = "NAME") -> Any:
    return click.option(*short, option, name, metavar=kind, multiple=True, help=text)


# --- what they mean -------------------------------------------------------------------------------


def acls_of(named: Named) -> list[Acl]:
    """The ACLs that `add` makes."""
    if not (named.allow_principals or named.deny_principals):
        raise UsageError("no principal is named", "add --allow-principal or --deny-principal")
    made = [
        Acl(pattern, Entry(principal, host, operation, permission))
        for pattern, operations in _patterns(named)
        for operation in operations
        for permission, principal, host in _subjects(named)
    ]
    return list(dict.fromkeys(made))


def removal_of(named: Named) -> list[AclFilter]:
    """The filters of `remove`: of the ACLs that `add` makes with the same options; without a
    principal, of all ACLs of the resources."""
    if named.allow_principals or named.deny_principals:
        return [_exactly(acl) for acl in acls_of(named)]
    if _is_convenience(named):
        raise UsageError("no principal is named", "add --allow-principal")
    if named.allow_hosts or named.deny_hosts or named.operations:
        raise UsageError(
            "hosts and operations are named without a principal", "add --allow-principal"
        )
    if not list(_resources(named)):
        raise UsageError("no resource is named", "add --topic, --group, --cluster or another")
    return filters_of(named, None)


def filters_of(named: Named, principal: str | None) -> list[AclFilter]:
    """The ACLs of the resources that are named, or all, of a principal, or of all."""
    kind = PatternType[named.pattern_type.upper()]
    resources: list[tuple[ResourceType, str | None]] = list(_resources(named))
    if not resources:
        resources.append((ResourceType.ANY, None))
        kind = PatternType.ANY
    return [
        AclFilter(type_, name, kind, principal, None, Operation.ANY, Permission.ANY)
        for type_, name in resources
    ]


def _exactly(acl: Acl) -> AclFilter:
    (type_, kind, name), (principal, host, operation, permission) = acl
    return AclFilter(type_, name, kind, principal, host, operation, permission)


def _is_convenience(named: Named) -> bool:
    return named.producer or named.consumer or named.idempotent


def _patterns(named: Named) -> Iterator[tuple[Pattern, Sequence[Operation]]]:
    kind = PatternType[named.pattern_type.upper()]
    if _is_convenience(named):
        for type_, name, some in _of_clients(named):
            of_cluster = type_ is ResourceType.CLUSTER
            yield Pattern(type_, PatternType.LITERAL if of_cluster else kind, name), some
        return
    operations = tuple(parse_operation(text) for text in named.operations) or (Operation.ALL,)
    resources = list(_resources(named))
    if not resources:
        raise UsageError("no resource is named", "add --topic, --group, --cluster or another")
    for type_, name in resources:
        for operation in operations:
            check_operation(type_, operation)
        yield Pattern(type_, kind, name), operations


def _of_clients(named: Named) -> Iterator[tuple[ResourceType, str, Sequence[Operation]]]:
    if named.operations:
        raise UsageError("--producer and --consumer have their operations", "leave --operation out")
    if named.deny_principals:
        raise UsageError("--producer and --consumer allow", "leave --deny-principal out")
    if not named.topics:
        raise UsageError("a client needs a topic", "add --topic")
    if named.consumer and not named.groups:
        raise UsageError("a consumer needs its group", "add --group")
    if named.groups and not named.consumer:
        raise UsageError("a producer has no group", "leave --group out, or add --consumer")
    if named.idempotent and not named.producer:
        raise UsageError("--idempotent is a producer's", "add --producer")
    if named.cluster or named.delegation_tokens or named.user_principals:
        raise UsageError("a client needs topics, groups and ids alone", "name these")
    for name in named.topics:
        if named.producer:
            yield ResourceType.TOPIC, name, _PRODUCER
        if named.consumer:
            yield ResourceType.TOPIC, name, _CONSUMER
    for name in named.transactional_ids if named.producer else ():
        yield ResourceType.TRANSACTIONAL_ID, name, _PRODUCER_TRANSACTION
    for name in named.groups:
        yield ResourceType.GROUP, name, _CONSUMER_GROUP
    if named.idempotent:
        yield ResourceType.CLUSTER, CLUSTER_NAME, (Operation.IDEMPOTENT_WRITE,)


def _resources(named: Named) -> Iterator[tuple[ResourceType, str]]:
    for type_, names in (
        (ResourceType.TOPIC, named.topics),
        (ResourceType.GROUP, named.groups),
        (ResourceType.TRANSACTIONAL_ID, named.transactional_ids),
        (ResourceType.DELEGATION_TOKEN, named.delegation_tokens),
        (ResourceType.USER, named.user_principals),
    ):
        for name in names:
            yield type_, name
    if named.cluster:
        yield ResourceType.CLUSTER, CLUSTER_NAME


def _subjects(named: Named) -> Iterator[tuple[Permission, str, str]]:
    for permission, principals, hosts in (
        (Permission.ALLOW, named.allow_principals, named.allow_hosts),
        (Permission.DENY, named.deny_principals, named.deny_hosts),
    ):
        if hosts and not principals:
            word = permission.name.lower()
            raise UsageError(f"--{word}-host has no principal", f"add --{word}-principal")
        for principal in principals:
            check_principal(principal)
            for host in hosts or (WILDCARD,):
                yield permission, principal, java_text(host)
