"""`kbroker acl list|add|remove|explain`: ACLs of a running cluster, with the words of `kafka-acls`.

`remove` asks before it deletes, or needs --force. `explain` answers whether a principal may do
something, and by which rule: with the decision of the broker's own authorizer, over the ACLs and
the settings that the cluster has (`findings/acl_explain.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kbroker.cli.connect import bootstrap_option, connect, refuse
from kbroker.cli.output import output_option, print_table, say, write_json
from kbroker.errors import ErrorCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kbroker.security.acls import Acl

Command = TypeVar("Command", bound=Callable[..., Any])

TITLES: Final = ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
KINDS: Final = ("literal", "prefixed")
KINDS_OF_FILTERS: Final = ("any", "match", *KINDS)


def _options(kinds: Sequence[str], *, entries: bool) -> Callable[[Command], Command]:
    """The options of `kafka-acls`; their module is imported for a command, not for the help of
    `kbroker`."""
    from kbroker.cli.acl_arguments import entry_options, resource_options

    def add(function: Command) -> Command:
        with_resources = resource_options(kinds)(function)
        return entry_options(with_resources) if entries else with_resources

    return add


@click.group("acl")
def command() -> None:
    """List, add, remove and explain ACLs: who may do what."""


@command.command("list")
@click.option("--principal", metavar="TYPE:NAME", help="Those of a principal.")
@_options(KINDS_OF_FILTERS, entries=False)
@bootstrap_option
@output_option
def list_acls(principal: str | None, bootstrap: str, output: str, **named: Any) -> None:
    """ACLs of the named resources, or all."""
    from kbroker.cli.acl_arguments import Named, filters_of
    from kbroker.findings.acl_words import check_principal
    from kbroker.peer.security import Security

    if principal is not None:
        check_principal(principal)
    found: dict[Acl, None] = {}
    with connect(bootstrap) as client:
        for each in filters_of(Named(**named), principal):
            found.update(dict.fromkeys(Security(client).acls(each)))
    _write(found, output)


@command.command("add")
@_options(KINDS, entries=True)
@bootstrap_option
def add(bootstrap: str, **named: Any) -> None:
    """Add ACLs; one that is there already stays.

    \b
    kbroker acl add --allow-principal User:anna --producer --topic orders
    kbroker acl add --deny-principal User:bert --deny-host 10.0.0.7 --operation Read --topic '*'
    """
    from kbroker.cli.acl_arguments import Named, acls_of
    from kbroker.peer.security import Security

    acls = acls_of(Named(**named))
    with connect(bootstrap) as client:
        results = Security(client).create_acls(acls)
    for acl, result in zip(acls, results, strict=True):
        if result.error is not ErrorCode.NONE:
            raise refuse(result.error, _line(acl), result.message)
    for acl in acls:
        say(f"added: {_line(acl)}")


@command.command("remove")
@_options(KINDS_OF_FILTERS, entries=True)
@click.option("--force", is_flag=True, help="Do not ask.")
@bootstrap_option
def remove(force: bool, bootstrap: str, **named: Any) -> None:
    """Remove the ACLs that `add` makes with the same options; without a principal, all of the
    named resources."""
    from kbroker.cli.acl_arguments import Named, removal_of
    from kbroker.peer.security import Security

    filters = removal_of(Named(**named))
    with connect(bootstrap) as client:
        found = list(dict.fromkeys(acl for each in filters for acl in Security(client).acls(each)))
        if not found:
            say("no such ACL")
            return
        if not force:
            _ask(found)
        results = Security(client).delete_acls(filters)
    for each, result in zip(filters, results, strict=True):
        if result.error is not ErrorCode.NONE:
            raise refuse(result.error, each.name or "the cluster's ACLs", result.message)
    for acl in dict.fromkeys(acl for result in results for acl in result.acls):
        say(f"removed: {_line(acl)}")


def _ask(found: Sequence[Acl]) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"{len(found)} ACLs would be removed", "add --force")
    for acl in found:
        say(_line(acl))
    click.confirm("Remove them?", abort=True)


@command.command("explain")
@click.argument("principal", metavar="PRINCIPAL")
@click.argument("operation", metavar="OPERATION")
@click.argument("resource", metavar="RESOURCE")
@click.option("--host", metavar="IP", help="The client's address; any if left out.")
@bootstrap_option
@output_option
def explain(
    principal: str, operation: str, resource: str, host: str | None, bootstrap: str, output: str
) -> None:
    """Whether PRINCIPAL may do OPERATION on RESOURCE, and by which rule.

    RESOURCE is topic:NAME, group:NAME, transactional-id:NAME, delegation-token:ID,
    user-principal:TYPE:NAME or cluster.

    \b
    kbroker acl explain User:anna Read topic:orders --host 10.0.0.7
    """
    from kbroker.findings.acl_explain import Question, answer_of, document_of, lines_of
    from kbroker.findings.acl_words import (
        check_operation,
        check_principal,
        parse_operation,
        parse_resource,
    )

    check_principal(principal)
    type_, name = parse_resource(resource)
    wanted = parse_operation(operation)
    check_operation(type_, wanted)
    with connect(bootstrap) as client:
        answer = answer_of(client, Question(principal, wanted, type_, name, host))
    if output == "json":
        write_json(document_of(answer))
        return
    for line in lines_of(answer):
        say(line)


def _write(acls: Iterable[Acl], output: str) -> None:
    from kbroker.findings.acl_explain import document_of_acl

    rows = [document_of_acl(acl) for acl in sorted(acls)]
    if output == "json":
        write_json(rows)
    else:
        print_table(TITLES, [list(row.values()) for row in rows])


def _line(acl: Acl) -> str:
    from kbroker.findings.acl_explain import line_of

    return line_of(acl)
