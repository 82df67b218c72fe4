"""`kbroker group list|describe|why|reset|delete|delete-offsets`: groups of consumers.

A command that changes anything prints what it would do and changes nothing without `--execute`.
Several groups are handled one after the other; one that fails is named on standard error, the
others are done all the same, and the status is 1. Resets are in `group_reset.py`, the history of a
group is in `group_why.py`, the description of a share group in `group_share.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kbroker.cli import group_reset, group_share, group_why
from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.output import (
    as_cell,
    output_option,
    print_table,
    say,
    write_json,
    write_rows,
)
from kbroker.cli.partitions import parse_chosen
from kbroker.cli.topic import report_topics
from kbroker.errors import ErrorCode
from kbroker.peer.partitions import by_partition, existing, lag, log_ends, still_there, total

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.peer.group_descriptions import GroupDescription, GroupMember
    from kbroker.peer.group_messages import Committed
    from kbroker.peer.groups import Groups
    from kbroker.types import TopicPartition

execute_option = click.option(
    "--execute", is_flag=True, help="Do it; without this, only say what would be done."
)
group_argument = click.argument("groups", metavar="GROUP...", nargs=-1, required=True)


@click.group("group")
def command() -> None:
    """List, describe, explain, reset and delete consumer groups."""


command.add_command(group_reset.reset)
command.add_command(group_why.why)


@command.command("list")
@click.option("--state", "states", metavar="STATE", multiple=True, help="Empty, Stable, ...")
@bootstrap_option
@output_option
def list_groups(states: tuple[str, ...], bootstrap: str, output: str) -> None:
    """List groups."""
    from kbroker.peer.groups import Groups

    with connect(bootstrap) as client:
        found = Groups(client).list_groups(states)
    rows = [
        {
            "group": listed.group.group,
            "state": listed.group.state,
            "protocol_type": listed.group.protocol_type,
            "coordinator": listed.coordinator,
        }
        for listed in found
    ]
    write_rows(rows, ("GROUP", "STATE", "TYPE", "COORDINATOR"), output)


@command.command("describe")
@group_argument
@click.option("-m", "--members", is_flag=True, help="Show the members and what they read.")
@bootstrap_option
@output_option
def describe(groups: tuple[str, ...], members: bool, bootstrap: str, output: str) -> int:
    """Show state, committed offsets and lag."""
    from kbroker.peer.group_descriptions import SHARE, describe_group
    from kbroker.peer.groups import Groups

    described: list[dict[str, Any]] = []
    missing: list[str] = []
    with connect(bootstrap) as client:
        asked = Groups(client)
        for name in dict.fromkeys(groups):
            group = describe_group(asked, name)
            of_share = None
            if group is not None and group.kind == SHARE:
                of_share = group_share.described(asked, name)
            if of_share is not None:
                described.append(of_share)
                continue
            committed = asked.offsets(name)
            if group is None and not committed:
                missing.append(name)
                continue
            group = group or _dead(name)
            owners = _owners(group)
            partitions = set(committed) | set(owners)
            ends = log_ends(client, still_there(client, partitions))
            node_id, _ = asked.coordinator(name)
            described.append(_description(group, node_id, committed, owners, ends))
    if output == "json":
        write_json(described)
    else:
        for number, description in enumerate(described):
            if number:
                click.echo()
            show = group_share.show if description["protocol_type"] == "share" else _print
            show(description, members=members)
    for name in missing:
        say(f"error: {ErrorCode.GROUP_ID_NOT_FOUND.name} (69): group '{name}'", err=True)
    return 1 if missing else 0


@command.command("delete")
@group_argument
@execute_option
@bootstrap_option
@output_option
def delete(groups: tuple[str, ...], execute: bool, bootstrap: str, output: str) -> int:
    """Delete groups without members, and the offsets that they have committed."""
    from kbroker.peer.groups import Groups
    from kbroker.peer.messages import TopicResult

    with connect(bootstrap) as client:
        asked = Groups(client)
        results = []
        for name in dict.fromkeys(groups):
            error = asked.delete(name) if execute else _why_not_deleted(asked, name)
            results.append(TopicResult(name, error, _WHY.get(error)))
    return _report(results, "deleted", execute=execute, output=output)


@command.command("delete-offsets")
@click.argument("group", metavar="GROUP")
@click.option(
    "-t", "--topic", "topics", metavar="TOPIC[:0,1]", multiple=True, required=True,
    help="Repeatable.",
)  # fmt: skip
@execute_option
@bootstrap_option
@output_option
def delete_offsets(
    group: str, topics: tuple[str, ...], execute: bool, bootstrap: str, output: str
) -> int:
    """Forget what a group has committed for topics that it does not read now."""
    from kbroker.peer.groups import Groups
    from kbroker.peer.messages import TopicResult

    chosen = [parse_chosen(text) for text in topics]
    with connect(bootstrap) as client:
        asked = Groups(client)
        partitions = existing(client, chosen)
        if execute:
            errors = asked.delete_offsets(group, partitions)
        else:
            errors = _why_not_forgotten(asked, group, partitions)
    results = [
        TopicResult(str(where), errors[where], _WHY.get(errors[where]))
        for where in partitions
        if where in errors
    ]
    return _report(results, "forgotten", execute=execute, output=output)


_WHY: Final = {
    ErrorCode.NON_EMPTY_GROUP: "it has members; stop them first",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group reads it now; stop its members first",
}


def _report(results: list[Any], done: str, *, execute: bool, output: str) -> int:
    status = report_topics(results, done if execute else f"would be {done}", output)
    if not execute and output == "text" and status == 0:
        group_reset.say_dry_run()
    return status


def _why_not_deleted(groups: Groups, name: str) -> ErrorCode:
    """What deleting it would answer now."""
    from kbroker.peer.group_descriptions import describe_group

    described = describe_group(groups, name)
    if described is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NON_EMPTY_GROUP if described.members else ErrorCode.NONE


def _why_not_forgotten(
    groups: Groups, name: str, partitions: list[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    from kbroker.cli.connect import refuse
    from kbroker.peer.group_descriptions import describe_group

    described = describe_group(groups, name)
    if described is None:
        raise refuse(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{name}'", None)
    read = {topic for member in described.members for topic in member.subscribed}
    # Those of a pattern, as far as they are known.
    read |= {where.topic for member in described.members for where in member.assigned}
    return {
        where: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if where.topic in read else ErrorCode.NONE
        for where in partitions
    }


def _dead(name: str) -> GroupDescription:
    """A group without members of which offsets are left."""
    from kbroker.peer.group_descriptions import CLASSIC, DEAD, GroupDescription

    return GroupDescription(ErrorCode.NONE, None, name, CLASSIC, DEAD, "", "", -1, -1, ())


def _owners(group: GroupDescription) -> dict[TopicPartition, GroupMember]:
    return {where: member for member in group.members for where in member.assigned}


def _description(
    group: GroupDescription,
    node_id: int,
    committed: Mapping[TopicPartition, Committed],
    owners: Mapping[TopicPartition, GroupMember],
    ends: Mapping[TopicPartition, int],
) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for where in by_partition(dict.fromkeys([*committed, *owners], 0)):
        commit, member = committed.get(where), owners.get(where)
        offset = commit.offset if commit is not None and commit.offset >= 0 else None
        rows.append(
            {
                "topic": where.topic,
                "partition": where.partition,
                "committed": offset,
                "end": ends.get(where),
                "lag": lag(offset, ends.get(where)),
                "member_id": None if member is None else member.member_id,
                "client_id": None if member is None else member.client_id,
                "host": None if member is None else member.host,
                "metadata": commit.metadata if commit is not None else "",
            }
        )
    return {
        "group": group.group,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "coordinator": node_id,
        "lag": total(row["lag"] for row in rows),
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [str(where) for where, owner in owners.items() if owner is member],
            }
            for member in group.members
        ],
        "partitions": rows,
    }


def _print(description: dict[str, Any], *, members: bool) -> None:
    protocol = f", {description['protocol']}" if description["protocol"] else ""
    count = len(description["members"])
    say(
        f"{description['group']}  {description['state']}{protocol}, "
        f"{count} member{'' if count == 1 else 's'}, "
        f"coordinator {description['coordinator']}, lag {description['lag']}"
    )
    columns = ("topic", "partition", "committed", "end", "lag", "client_id", "host", "member_id")
    print_table(
        ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT", "HOST", "MEMBER"),
        [[as_cell(row[column]) for column in columns] for row in description["partitions"]],
    )
    if not members or not description["members"]:
        return
    click.echo()
    rows = [
        [as_cell(member[column]) for column in ("member_id", "instance_id", "client_id", "host")]
        + [" ".join(member["partitions"]) or "-"]
        for member in description["members"]
    ]
    print_table(("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"), rows)
