"""`kbroker kafka-consumer-groups --describe`: offsets and lag, members, states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.cli.kafka_consumer_groups import Asked, say_error
from kbroker.cli.kafka_tool import exception_of, fail
from kbroker.cli.output import say, say_to_programs
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.partitions import log_ends, still_there

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.group_descriptions import GroupDescription, GroupMember
    from kbroker.peer.group_messages import Committed
    from kbroker.peer.groups import Groups
    from kbroker.types import TopicPartition

NONE: Final = "-"
_REBALANCES: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


class Column(NamedTuple):
    """`grows`: it is as wide as its widest cell. Without a width it is the last one."""

    title: str
    width: int
    grows: bool = False


_GROUP: Final = Column("GROUP", 15, True)


def print_columns(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], *, end: str = ""
) -> None:
    """After an empty line."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [
        max([column.width, *(len(row[at]) for row in cells)]) if column.grows else column.width
        for at, column in enumerate(columns)
    ]
    say_to_programs("")
    for line in [[column.title for column in columns], *cells]:
        padded = [f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)]
        say_to_programs(" ".join(padded) + end)


def describe(client: Client, asked: Asked) -> None:
    from kbroker.peer.groups import Groups

    groups = Groups(client)
    # All before the first is printed: one that is not there is an error of the command.
    found = [_described(groups, name) for name in sorted(asked.groups)]
    for group in found:
        if asked.has("members"):
            _print_members(group, verbose=asked.has("verbose"))
        elif asked.has("state"):
            _print_state(groups, group, verbose=asked.has("verbose"))
        else:
            _print_offsets(client, groups, group, verbose=asked.has("verbose"))


def _described(groups: Groups, name: str) -> GroupDescription:
    from kbroker.peer.group_descriptions import CLASSIC, CONSUMER, describe_group

    require_coordinator(groups, name)
    described = describe_group(groups, name)
    if described is None:
        fail(exception_of(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found."))
    if described.kind not in (CLASSIC, CONSUMER):
        fail(exception_of(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group."))
    return described


def require_coordinator(groups: Groups, name: str, before: str = "") -> None:
    """An error of the command, with these words before it: one may not ask for the group."""
    refused = refusal_of(groups, name)
    if refused:
        fail(before + exception_of(ErrorCode.GROUP_AUTHORIZATION_FAILED, refused))


def refusal_of(groups: Groups, name: str) -> str:
    """Of a group that one may not ask for, the words of the original's client; else none."""
    try:
        groups.coordinator(name)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise
        return (
            f"FindCoordinator request for groupId `CoordinatorKey(idValue='{name}', type=GROUP)`"
            " failed due to authorization failure"
        )
    return ""


def _is_printed(group: GroupDescription, rows: int) -> bool:
    """Says what is with its members, on standard error."""
    if group.state == "Dead":
        say_error(f"Consumer group '{group.group}' does not exist.")
    elif group.state == "Empty":
        say(f"\nConsumer group '{group.group}' has no active members.".lstrip(), err=True)
    elif group.state in _REBALANCES:
        say(f"Warning: Consumer group '{group.group}' is rebalancing.", err=True)
    return group.state != "Dead" and rows > 0


# --- offsets --------------------------------------------------------------------------------------


def _print_offsets(
    client: Client, groups: Groups, group: GroupDescription, *, verbose: bool
) -> None:
    committed = groups.offsets(group.group)
    owners = _by_owner(group.members)
    owned = {where for _, partitions in owners for where in partitions}
    left = sorted(where for where in committed if where not in owned)
    ends = log_ends(client, still_there(client, {*owned, *committed}))
    places = [(member, where) for member, partitions in owners for where in partitions]
    rows = [
        _offsets_row(group.group, member, where, committed.get(where), ends, verbose=verbose)
        for member, where in [*places, *((None, where) for where in left)]
    ]
    if not _is_printed(group, len(rows)):
        return
    epoch = [Column("LEADER-EPOCH", 15)] if verbose else []
    print_columns(
        [
            _GROUP, Column("TOPIC", 15, True), Column("PARTITION", 10), *epoch,
            Column("CURRENT-OFFSET", 15), Column("LOG-END-OFFSET", 15), Column("LAG", 15),
            Column("CONSUMER-ID", 15, True), Column("HOST", 15, True), Column("CLIENT-ID", 0),
        ],
        rows,
    )  # fmt: skip


def _by_owner(
    members: Iterable[GroupMember],
) -> list[tuple[GroupMember, list[TopicPartition]]]:
    """Members that have partitions, those with the most first."""
    reading = sorted(
        (each for each in members if each.assigned), key=lambda each: -len(each.assigned)
    )
    return [(each, sorted(each.assigned)) for each in reading]


def _offsets_row(
    group: str,
    member: GroupMember | None,
    where: TopicPartition,
    commit: Committed | None,
    ends: Mapping[TopicPartition, int],
    *,
    verbose: bool,
) -> list[object]:
    offset = commit.offset if commit is not None and commit.offset >= 0 else None
    end = ends.get(where)
    epoch = commit.leader_epoch if commit is not None and commit.leader_epoch >= 0 else NONE
    lag = NONE if offset is None or end is None else end - offset
    return [
        group, where.topic, where.partition, *([epoch] if verbose else []),
        NONE if offset is None else offset, NONE if end is None else end, lag,
        *((member.member_id, member.host, member.client_id) if member else (NONE, NONE, NONE)),
    ]  # fmt: skip


# --- members --------------------------------------------------------------------------------------


def _print_members(group: GroupDescription, *, verbose: bool) -> None:
    _is_printed(group, len(group.members))
    if group.state == "Dead":
        return
    is_static = any(member.instance_id is not None for member in group.members)
    rows = [
        [
            group.group, member.member_id, *([member.instance_id or ""] if is_static else []),
            member.host, member.client_id, len(member.assigned),
            *(_assignments(group, member) if verbose else []),
        ]
        for member in group.members
    ]  # fmt: skip
    columns = [
        _GROUP, Column("CONSUMER-ID", 15, True),
        *([Column("GROUP-INSTANCE-ID", 17, True)] if is_static else []),
        Column("HOST", 15, True), Column("CLIENT-ID", 15, True), Column("#PARTITIONS", 15),
    ]  # fmt: skip
    if verbose:
        columns += [
            Column("CURRENT-EPOCH", 15), Column("CURRENT-ASSIGNMENT", 20, True),
            Column("TARGET-EPOCH", 15), Column("TARGET-ASSIGNMENT", 20, True),
        ]  # fmt: skip
    print_columns(columns, rows, end="" if verbose else " ")


def _assignments(group: GroupDescription, member: GroupMember) -> list[object]:
    if member.epoch < 0:
        return [NONE, _assignment(member.assigned), NONE, NONE]
    return [
        member.epoch, _assignment(member.assigned), group.assignment_epoch,
        _assignment(member.target),
    ]  # fmt: skip


def _assignment(partitions: Iterable[TopicPartition]) -> str:
    by_topic: dict[str, list[str]] = {}
    for where in sorted(partitions):
        by_topic.setdefault(where.topic, []).append(str(where.partition))
    return ";".join(f"{topic}:{','.join(some)}" for topic, some in by_topic.items()) or NONE


# --- states ---------------------------------------------------------------------------------------


def _print_state(groups: Groups, group: GroupDescription, *, verbose: bool) -> None:
    _is_printed(group, 1)
    if group.state == "Dead":
        return
    node_id, address = groups.coordinator(group.group)
    epochs = [
        NONE if each < 0 else each for each in (group.epoch, group.assignment_epoch) if verbose
    ]
    columns = [
        _GROUP, Column("COORDINATOR (ID)", 25, True), Column("ASSIGNMENT-STRATEGY", 20),
        Column("STATE", 20),
        *((Column("GROUP-EPOCH", 15), Column("TARGET-ASSIGNMENT-EPOCH", 25)) if verbose else ()),
        Column("#MEMBERS", 0),
    ]  # fmt: skip
    row = [
        group.group, f"{address.host}:{address.port}  ({node_id})", group.protocol or NONE,
        group.state, *epochs, len(group.members),
    ]  # fmt: skip
    print_columns(columns, [row])
