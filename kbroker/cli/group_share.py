"""`kbroker group describe` of a share group: its members, where it begins to read, and its lag.

Records before the start of a partition are done. The lag counts those from the start on that are
not: the broker knows which of them are. A partition may be with many members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.output import as_cell, print_table, say
from kbroker.errors import ErrorCode
from kbroker.peer.partitions import by_partition, total
from kbroker.peer.share_group_messages import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.peer.groups import Groups
    from kbroker.peer.share_group_messages import DescribedShareGroup, ShareOffset
    from kbroker.types import TopicPartition


def described(groups: Groups, name: str) -> dict[str, Any] | None:
    """None: there is no share group of this name."""
    group = groups.describe_share(name)
    if group is None:
        return None
    node_id, _ = groups.coordinator(name)
    return description(group, node_id, groups.share_offsets(name))


def description(
    group: DescribedShareGroup, node_id: int, offsets: Mapping[TopicPartition, ShareOffset]
) -> dict[str, Any]:
    readers: dict[TopicPartition, list[str]] = {}
    for member in group.members:
        for where in member.partitions:
            readers.setdefault(where, []).append(member.member_id)
    rows: list[dict[str, Any]] = []
    for where in by_partition(dict.fromkeys([*offsets, *readers], 0)):
        offset = offsets.get(where)
        error = ErrorCode.NONE if offset is None else offset.error
        rows.append(
            {
                "topic": where.topic,
                "partition": where.partition,
                "start": None if offset is None or error else _known(offset.start),
                "lag": None if offset is None or error else _known(offset.lag),
                "error": error.name if error else None,
                "members": readers.get(where, []),
            }
        )
    return {
        "group": group.group,
        "state": group.state,
        "protocol_type": "share",
        "protocol": group.assignor,
        "coordinator": node_id,
        "lag": total(row["lag"] for row in rows),
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [str(where) for where in member.partitions],
            }
            for member in group.members
        ],
        "partitions": rows,
    }


def _known(number: int) -> int | None:
    return None if number == UNKNOWN else number


def show(description: dict[str, Any], *, members: bool) -> None:
    count = len(description["members"])
    say(
        f"{description['group']}  {description['state']}, share group, "
        f"{count} member{'' if count == 1 else 's'}, "
        f"coordinator {description['coordinator']}, lag {description['lag']}"
    )
    print_table(
        ("TOPIC", "PARTITION", "START", "LAG", "MEMBERS"),
        [
            [row["topic"], row["partition"], as_cell(row["start"]), as_cell(row["lag"]),
             row["error"] or len(row["members"])]
            for row in description["partitions"]
        ],
    )  # fmt: skip
    if not members or not description["members"]:
        return
    click.echo()
    rows = [
        [as_cell(member[column]) for column in ("member_id", "client_id", "host")]
        + [" ".join(member["partitions"]) or "-"]
        for member in description["members"]
    ]
    print_table(("MEMBER", "CLIENT", "HOST", "PARTITIONS"), rows)
