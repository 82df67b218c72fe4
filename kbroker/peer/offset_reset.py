"""Where a group's offsets go: planned from the logs and the offsets of now, then committed.

    plan = planned(client, committed, partitions, Reset(Mode.TO_EARLIEST))
    errors = groups.commit(group, plan.after)

The group must have no members (`check_idle`): their next commit would undo it. An offset outside of
its log becomes the nearest one inside, which is a warning of the plan. For `kbroker group reset`
and the console. Owner: the client's thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import UserError
from kbroker.peer.group_descriptions import DEAD, SHARE, describe_group
from kbroker.peer.messages import EARLIEST_TIMESTAMP
from kbroker.peer.partitions import Chosen, existing, log_ends, log_offsets, still_there

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.groups import Groups
    from kbroker.types import TopicPartition

_IDLE: Final = ("Empty", DEAD)


class Mode(StrEnum):
    """In the words of Kafka's own tool; TO_MOMENT is its to-datetime and by-duration."""

    TO_EARLIEST = "to_earliest"
    TO_LATEST = "to_latest"
    TO_CURRENT = "to_current"  # the committed offset, else the end
    TO_OFFSET = "to_offset"
    TO_MOMENT = "to_moment"  # the first record since then, else the end
    SHIFT_BY = "shift_by"
    TO_GIVEN = "to_given"  # an offset for each partition


class Reset(NamedTuple):
    """`number`: the offset, the moment in milliseconds, or by how many records."""

    mode: Mode
    number: int = 0
    given: Mapping[TopicPartition, int] = {}


class Plan(NamedTuple):
    """`before`: what is committed now; a partition may have nothing. `too_old`: partitions where no
    record is as young as the moment that was asked for."""

    before: Mapping[TopicPartition, int]
    after: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    warnings: tuple[str, ...]
    too_old: tuple[TopicPartition, ...] = ()


def committed_offsets(groups: Groups, group: str) -> dict[TopicPartition, int]:
    return {
        where: result.offset
        for where, result in groups.offsets(group).items()
        if result.offset >= 0
    }


def check_idle(groups: Groups, group: str) -> None:
    """UserError: it has members, or is a share group, which commits nothing."""
    described = describe_group(groups, group)
    if described is None:
        return
    if described.kind == SHARE:
        raise UserError(
            f"group '{group}' is a share group, which commits no offsets",
            "kafka-share-groups --reset-offsets moves where it begins",
        )
    if described.members or described.state not in _IDLE:
        raise UserError(
            f"group '{group}' is {described.state} with {len(described.members)} members",
            "stop its consumers first: they would commit over it",
        )


def partitions_of_group(
    client: Client, group: str, committed: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """Every partition of the topics that the group has offsets of, as Kafka's tool means it."""
    topics = sorted({where.topic for where in still_there(client, committed)})
    if not topics:
        raise UserError(f"group '{group}' has committed nothing", "name topics with -t")
    return existing(client, [Chosen(topic, ()) for topic in topics])


def planned(
    client: Client,
    committed: Mapping[TopicPartition, int],
    partitions: list[TopicPartition],
    reset: Reset,
) -> Plan:
    """Nothing changes by it."""
    starts = log_offsets(client, partitions, EARLIEST_TIMESTAMP)
    ends = log_ends(client, partitions)
    since: Mapping[TopicPartition, int] = {}
    if reset.mode is Mode.TO_MOMENT:
        since = log_offsets(client, partitions, max(reset.number, 0))
    after: dict[TopicPartition, int] = {}
    warnings: list[str] = []
    for where in partitions:
        offset = _wanted(reset, where, committed.get(where), starts, ends, since)
        if offset is None:
            warnings.append(f"{where} has no committed offset to shift from, left out")
            continue
        inside = min(max(offset, starts[where]), ends[where])
        if inside != offset:
            warnings.append(f"{where} has no offset {offset}, its nearest one is {inside}")
        after[where] = inside
    too_old = tuple(where for where, offset in since.items() if offset < 0)
    return Plan(committed, after, starts, ends, tuple(warnings), too_old)


def _wanted(
    reset: Reset,
    where: TopicPartition,
    before: int | None,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    since: Mapping[TopicPartition, int],
) -> int | None:
    match reset.mode:
        case Mode.TO_EARLIEST:
            return starts[where]
        case Mode.TO_LATEST:
            return ends[where]
        case Mode.TO_CURRENT:
            return ends[where] if before is None else before
        case Mode.TO_OFFSET:
            return reset.number
        case Mode.TO_MOMENT:
            return since[where] if since[where] >= 0 else ends[where]
        case Mode.SHIFT_BY:
            return None if before is None else before + reset.number
        case Mode.TO_GIVEN:
            return reset.given[where]
