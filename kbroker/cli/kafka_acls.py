"""`kbroker kafka-acls`: with the options and output of kafka-acls.sh.

Which ACLs the options mean is the same as of `kbroker acl` (`acl_arguments.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kbroker.cli.acl_arguments import Named, acls_of, filters_of, removal_of
from kbroker.cli.kafka_tool import (
    FAILED,
    KafkaTool,
    connected,
    exception_of,
    fail,
    flag,
    given_of,
    option,
    refuse,
)
from kbroker.cli.output import say, say_to_programs
from kbroker.errors import ErrorCode, KafkaError, UsageError, UserError
from kbroker.peer.security import Security
from kbroker.security.acl_filter import AclFilter
from kbroker.security.acls import PatternType, Permission
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.security.acls import Acl, Entry, Pattern

_ACTIONS: Final = ("list", "add", "remove")
_PATTERNS: Final = ("ANY", "MATCH", "LITERAL", "PREFIXED")


class _AclTool(KafkaTool):
    def failed(self, error: KafkaError | UserError) -> int:
        """Options that do not go together are on standard error, with the words of `kbroker
        acl`."""
        if isinstance(error, UsageError):
            say(error.message, err=True)
            return FAILED
        text = error.message
        if isinstance(error, KafkaError):
            is_own = error.message == error.code.name
            text = exception_of(error.code, "" if is_own else error.message)
        say_to_programs(f"Error while executing ACL command: {text}")
        return FAILED


def _run(**options: Any) -> None:
    given = given_of(options)
    actions = [each for each in _ACTIONS if each in given]
    if len(actions) != 1:
        refuse("Command must include exactly one action: --list, --add, --remove. ")
    servers = [options[f"bootstrap_{kind}"] for kind in ("server", "controller")]
    bootstraps = [each for each in servers if each is not None]
    if len(bootstraps) != 1:
        which = "Only one" if bootstraps else "One"
        refuse(f"{which} of --bootstrap-server or --bootstrap-controller must be specified")
    named = _named(options)
    with connected(bootstraps[0], options["command_config"]) as client:
        if actions == ["list"]:
            _list(client, named, options["principal"])
        elif actions == ["add"]:
            _add(client, named)
        else:
            _remove(client, named, ask=not options["force"])


def _named(options: Mapping[str, Any]) -> Named:
    kind = options["resource_pattern_type"].upper()
    if kind not in _PATTERNS:
        refuse(f"Cannot parse argument '{kind}' of option resource-pattern-type")
    if options["add"] and kind in ("ANY", "MATCH"):
        refuse(f"A '--resource-pattern-type' value of '{kind}' is not valid when adding acls.")
    return Named(
        topics=options["topic"],
        groups=options["group"],
        transactional_ids=options["transactional_id"],
        delegation_tokens=options["delegation_token"],
        user_principals=options["user_principal"],
        cluster=options["cluster"],
        pattern_type=kind.lower(),
        allow_principals=options["allow_principal"],
        deny_principals=options["deny_principal"],
        allow_hosts=options["allow_host"],
        deny_hosts=options["deny_host"],
        operations=options["operation"],
        producer=options["producer"],
        consumer=options["consumer"],
        idempotent=options["idempotent"],
    )


# --- actions --------------------------------------------------------------------------------------


def _list(client: Client, named: Named, principals: Sequence[str]) -> None:
    filters = filters_of(named, None)
    found = {acl: None for each in filters for acl in Security(client).acls(each)}
    wanted: Sequence[str | None] = principals or [None]
    for principal in wanted:
        if principal is not None:
            say_to_programs(f"ACLs for principal `{principal}`")
        some = [acl for acl in found if principal in (None, acl.entry.principal)]
        for resource, entries in _by_resource(some).items():
            say_to_programs(f"Current ACLs for resource `{resource}`:")
            _print(entries)


def _print(entries: Iterable[Entry], first: str = "") -> None:
    """With an empty line at the end."""
    for number, entry in enumerate(entries):
        say_to_programs(f"{'' if number else first}\t{_text(entry)}")
    say_to_programs("")


def _add(client: Client, named: Named) -> None:
    security = Security(client)
    acls = acls_of(named)
    there: set[Acl] = set()
    for pattern in dict.fromkeys(acl.pattern for acl in acls):
        there.update(security.acls(_of_pattern(pattern)))
    for acl in acls:
        if acl in there:
            resource = _resource(*acl.pattern)
            say_to_programs(f"Acl (pattern={resource}, entry={_text(acl.entry)}) already exists.")
    new = [acl for acl in acls if acl not in there]
    if not new:
        return
    for resource, entries in _by_resource(new).items():
        say_to_programs(f"Adding ACLs for resource `{resource}`: ")
        _print(entries, " ")
    for result in security.create_acls(new):
        _raise(result.error, result.message)


def _remove(client: Client, named: Named, *, ask: bool) -> None:
    by_resource: dict[str, list[AclFilter]] = {}
    for each in removal_of(named):
        resource = _resource(each.type, each.kind, each.name or "")
        by_resource.setdefault(resource, []).append(each)
    for resource, filters in by_resource.items():
        if ask and not _confirmed(resource, filters):
            continue
        for result in Security(client).delete_acls(filters):
            _raise(result.error, result.message)


def _confirmed(resource: str, filters: Sequence[AclFilter]) -> bool:
    if filters[0].principal is None:
        say_to_programs(
            f"Are you sure you want to delete all ACLs for resource filter `{resource}`? (y/n)"
        )
    else:
        say_to_programs("Are you sure you want to remove ACLs: ")
        for number, each in enumerate(filters):
            say_to_programs(f"{'' if number else ' '}\t{_text(each)}")
        say_to_programs(f" from resource filter `{resource}`? (y/n)")
    answer = sys.stdin.readline()
    if not answer:
        fail("There is no answer: add --force")
    return answer.strip().lower() == "y"


def _of_pattern(pattern: Pattern) -> AclFilter:
    type_, kind, name = pattern
    return AclFilter(type_, name, kind, None, None, Operation.ANY, Permission.ANY)


def _by_resource(acls: Iterable[Acl]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for acl in acls:
        found.setdefault(_resource(*acl.pattern), []).append(acl.entry)
    return found


def _resource(type_: ResourceType, kind: PatternType, name: str) -> str:
    return f"ResourcePattern(resourceType={type_.name}, name={name}, patternType={kind.name})"


def _text(entry: Entry | AclFilter) -> str:
    return (
        f"(principal={entry.principal}, host={entry.host}, operation={entry.operation.name},"
        f" permissionType={entry.permission.name})"
    )


def _raise(error: ErrorCode, message: str | None) -> None:
    if error is not ErrorCode.NONE:
        raise KafkaError(error, message or "")


command: Final = _AclTool(
    "kafka-acls",
    callback=_run,
    help="List, add and remove ACLs, with the options of kafka-acls.sh.",
    params=[
        option("bootstrap-server", "HOST:PORT,...", "Brokers to ask first."),
        option("bootstrap-controller", "HOST:PORT,...", "The same as --bootstrap-server."),
        option("command-config", "FILE", "How to authenticate."),
        flag("list", "List ACLs."),
        flag("add", "Add ACLs."),
        flag("remove", "Remove ACLs."),
        flag("force", "Remove without a question."),
        option("principal", "TYPE:NAME", "With --list: of these alone.", multiple=True),
        option("topic", "TOPIC", "A topic; * is all.", multiple=True),
        option("group", "GROUP", "A group; * is all.", multiple=True),
        option("transactional-id", "ID", "A transactional id.", multiple=True),
        option("delegation-token", "ID", "A token's id.", multiple=True),
        option("user-principal", "TYPE:NAME", "A user.", multiple=True),
        flag("cluster", "The cluster itself."),
        option(
            "resource-pattern-type", "|".join(_PATTERNS), "What a name means.", default="LITERAL"
        ),
        option("allow-principal", "TYPE:NAME", "A principal that may.", multiple=True),
        option("deny-principal", "TYPE:NAME", "A principal that may not.", multiple=True),
        option("allow-host", "IP", "From where; everywhere if left out.", multiple=True),
        option("deny-host", "IP", "Where it may not; everywhere if left out.", multiple=True),
        option("operation", "OPERATION", "Read, Write, ...; All if left out.", multiple=True),
        flag("producer", "What a producer needs."),
        flag("consumer", "What a consumer needs."),
        flag("idempotent", "With --producer: IdempotentWrite, too."),
    ],
)
