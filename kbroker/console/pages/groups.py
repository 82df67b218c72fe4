"""The cluster's groups of every type: state, members and lag.

All coordinators are asked for their groups at once. Members and offsets are asked for those on the
page: a request for each type and coordinator, one for the offsets of each group, and one to each
leader for the ends of the logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.console.asked import ROWS_MAX
from kbroker.console.group_lag import log_ends
from kbroker.console.page import (
    Cell,
    Column,
    Field,
    Form,
    Page,
    Section,
    Table,
    Tone,
    Unit,
    to,
)
from kbroker.peer.group_descriptions import SHARE, describe_listed
from kbroker.peer.groups import Groups

if TYPE_CHECKING:
    from kbroker.console.asked import Asked
    from kbroker.peer.group_descriptions import GroupDescription
    from kbroker.peer.group_messages import Committed
    from kbroker.peer.groups import Listed
    from kbroker.types import TopicPartition

SEARCH_CHARS_MAX: Final = 1_000
GROUPS_AT_ONCE: Final = 20
# With offsets, of all groups of a page; groups after those have no lag.
PARTITIONS_MAX: Final = 50_000
TYPES: Final = ("classic", "consumer", "share", "streams")
_REBALANCING: Final = frozenset(
    {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady"}
)
_COLUMNS: Final = (
    Column("group", "Group"),
    Column("type", "Type"),
    Column("state", "State"),
    Column("members", "Members", Unit.COUNT),
    Column("lag", "Lag", Unit.COUNT),
    Column("coordinator", "Coordinator"),
)


def make(asked: Asked) -> Page:
    search = asked.query.get("q", "")[:SEARCH_CHARS_MAX]
    kind = asked.query.get("type", "")
    first = asked.number("first", 0)
    wanted = search.lower()
    groups = Groups(asked.client)
    found = [
        each
        for each in groups.list_groups(of_all=False)
        if wanted in each.group.group.lower() and kind in ("", type_of(each))
    ]
    asked.pause()
    page = found[first : first + ROWS_MAX]
    described = describe_listed(asked.client, page)
    asked.pause()
    committed = _offsets(asked, groups, [each for each in page if type_of(each) != SHARE])
    ends = log_ends(asked, {where for offsets in committed.values() for where in offsets})
    following = ""
    if first + ROWS_MAX < len(found):
        following = to("groups", q=search or None, type=kind or None, first=first + ROWS_MAX)
    sections: list[Section] = [
        Form("search", "Search", to("groups"), _fields(search, kind), "Search"),
        Table(
            "groups",
            "Groups",
            _COLUMNS,
            [
                _row(
                    each, described.get(each.group.group), committed.get(each.group.group, {}), ends
                )
                for each in page
            ],
            empty="no group is as you asked" if search or kind else "there are no groups",
            total=len(found),
            next_path=following,
        ),
    ]
    return Page("Groups", sections, refresh_s=10)


def _offsets(
    asked: Asked, groups: Groups, listed: Sequence[Listed]
) -> dict[str, dict[TopicPartition, Committed]]:
    """Of the first ones, until they have more partitions than a page asks for."""
    found: dict[str, dict[TopicPartition, Committed]] = {}
    partitions = 0
    for begin in range(0, len(listed), GROUPS_AT_ONCE):
        if partitions > PARTITIONS_MAX:
            break
        some = groups.offsets_of_all(listed[begin : begin + GROUPS_AT_ONCE])
        partitions += sum(map(len, some.values()))
        found |= some
        asked.pause()
    return found


def type_of(listed: Listed) -> str:
    """Of a broker that is too old to say: what it was made by."""
    return listed.group.group_type.lower() or (
        SHARE if listed.group.protocol_type == SHARE else "classic"
    )


def _fields(search: str, kind: str) -> Sequence[Field]:
    return (
        Field("q", "Name", search, kind="search"),
        Field("type", "Type", kind, options=(("", "all"), *((each, each) for each in TYPES))),
    )


def state_tone(state: str) -> Tone:
    if state in _REBALANCING:
        return Tone.WARN
    return Tone.GOOD if state == "Stable" else Tone.QUIET


def _row(
    listed: Listed,
    described: GroupDescription | None,
    committed: Mapping[TopicPartition, Committed],
    ends: Mapping[TopicPartition, int],
) -> list[Cell]:
    state = listed.group.state
    if described is not None and not described.error and described.state:
        state = described.state
    lags = [
        max(0, ends[where] - commit.offset)
        for where, commit in committed.items()
        if commit.offset >= 0 and where in ends
    ]
    members = None if described is None or described.error else len(described.members)
    return [
        Cell(listed.group.group, to("groups", listed.group.group)),
        Cell(type_of(listed)),
        Cell(state, tone=state_tone(state)),
        Cell(members),
        Cell(sum(lags) if lags else None),
        Cell(listed.coordinator, to("brokers", listed.coordinator)),
    ]
