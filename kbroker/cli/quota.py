"""`kbroker quota list|set|remove`: what users, clients and addresses may use of a broker.

A quota is of a user, of a client id, of both together, or of an IP address; or of every one that
has no quota of its own. It holds on each broker for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kbroker.cli.connect import bootstrap_option, connect, refuse
from kbroker.cli.output import output_option, say, write_rows
from kbroker.errors import ErrorCode, UsageError

if TYPE_CHECKING:
    from kbroker.quota.entities import QuotaEntity

Command = TypeVar("Command", bound=Callable[..., Any])


def entity_options(command: Command) -> Command:
    for name, of in (("ip", "IP address"), ("client-id", "client id"), ("user", "user")):
        attribute = name.replace("-", "_")
        command = click.option(
            f"--{name}-default", f"{attribute}_default", is_flag=True, help=f"Every {of}."
        )(command)
        command = click.option(f"--{name}", attribute, metavar="NAME", help=f"A {of}.")(command)
    return command


@click.group("quota")
def command() -> None:
    """Show and change quotas of users, clients and addresses."""


@command.command("list")
@entity_options
@bootstrap_option
@output_option
def list_quotas(bootstrap: str, output: str, **named: Any) -> None:
    """Quotas of all entities, or of those with this user, client id or address."""
    from kbroker.peer.security import Security

    wanted = _entity(named)
    with connect(bootstrap) as client:
        found = Security(client).quotas(wanted)
    rows = []
    for entity, quotas in sorted(found, key=lambda each: str(each.entity)):
        for key, value in sorted(quotas.items()):
            rows.append({"entity": str(entity), "quota": key, "value": _number(value)})
    write_rows(rows, ("ENTITY", "QUOTA", "VALUE"), output)


@command.command("set")
@click.argument("quotas", metavar="KEY=VALUE...", nargs=-1, required=True)
@entity_options
@bootstrap_option
def set_quotas(quotas: tuple[str, ...], bootstrap: str, **named: Any) -> None:
    """Set quotas; others of the same entity stay.

    Keys of users and client ids: producer_byte_rate, consumer_byte_rate, request_percentage,
    controller_mutation_rate. Of addresses: connection_creation_rate.
    """
    _alter(bootstrap, _entity_of(named), dict(map(_pair, quotas)), ())


@command.command("remove")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@entity_options
@bootstrap_option
def remove_quotas(keys: tuple[str, ...], bootstrap: str, **named: Any) -> None:
    """Remove quotas; clients that wait because of them go on at once."""
    _alter(bootstrap, _entity_of(named), {}, keys)


def _alter(
    bootstrap: str, entity: QuotaEntity, quotas: Mapping[str, float], removed: Sequence[str]
) -> None:
    from kbroker.peer.security import Security

    with connect(bootstrap) as client:
        results = Security(client).alter_quotas(entity, quotas, removed)
    for each in results:
        if each.error is not ErrorCode.NONE:
            raise refuse(each.error, str(entity), each.message)
    changes = [f"{key}={_number(value)}" for key, value in quotas.items()]
    changes += [f"no {key}" for key in removed]
    say(f"{entity}: {', '.join(changes)}")


def _entity(named: Mapping[str, Any]) -> QuotaEntity | None:
    """None: no part of one is named."""
    from kbroker.quota.entities import EVERY, QuotaEntity

    parts: dict[str, str] = {}
    for part in QuotaEntity._fields:
        name, default = named[part], named[f"{part}_default"]
        if name is not None and (default or not name):
            option = part.replace("_", "-")
            raise UsageError(
                f"--{option} has no name, or is beside --{option}-default", "give one of both"
            )
        if name is not None or default:
            parts[part] = name or EVERY
    return QuotaEntity(**parts) if parts else None


def _entity_of(named: Mapping[str, Any]) -> QuotaEntity:
    entity = _entity(named)
    if entity is None:
        raise UsageError("whose quotas is not said", "give --user, --client-id or --ip")
    return entity


def _pair(text: str) -> tuple[str, float]:
    key, _, value = text.partition("=")
    try:
        return key, float(value)
    except ValueError:
        raise UsageError(f"{text} is no quota", "give KEY=NUMBER") from None


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)
