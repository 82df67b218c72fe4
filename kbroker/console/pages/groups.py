"""The cluster's groups of every type: state, members and lag.

All coordinators are asked for their groups at once. Members and offsets are asked for those on the
page: a request for each type and coordinator, one for the offsets of each group, and one to each
leader for the ends of the logs. Groups of a broker without an answer are left out, with a notice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from kbroker.console.asked import ROWS_MAX
from kbroker.console.group_lag import NO_ENDS, log_ends
from kbroker.console.group_listing import by_name, list_groups, silent_notices
from kbroker.console.page import (
    Cell,
    Column,
    Field,
    Form,
    Notice,
    Page,
    Section,
    Table,
    Tone,
    Unit,
    to,
)
from kbroker.findings.pieces import in_pieces
from kbroker.peer.group_descriptions import SHARE, describe_listed
from kbroker.peer.groups import Groups

if TYPE_CHECKING:
    from kbroker.console.asked import Asked
    from kbroker.console.group_listing import Listing
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
    listing = list_groups(asked.client, asked.pause)
    found = [
        each
        for each in in_pieces(listing.groups, asked.pause)
        if wanted in each.group.group.lower() and kind in ("", type_of(each))
    ]
    page = list(islice(by_name(found, asked.pause), first, first + ROWS_MAX))
    described = describe_listed(asked.client, page)
    asked.pause()
    committed = _offsets(asked, groups, [each for each in page if type_of(each) != SHARE])
    ends = log_ends(asked, {where for offsets in committed.values() for where in offsets})
    following = ""
    if first + ROWS_MAX < len(found):
        following = to("groups", q=search or None, type=kind or None, first=first + ROWS_MAX)
    read = {name: _read(offsets) for name, offsets in committed.items()}
    unknown = sum(not each.keys() <= ends.keys() for each in read.values())
    sections: list[Section] = [
        *_notices(listing, unknown),
        Form("search", "Search", to("groups"), _fields(search, kind), "Search"),
        Table(
            "groups",
            "Groups",
            _COLUMNS,
            [
                _row(
                    each,
                    described.get(each.group.group),
                    _lag(read.get(each.group.group, {}), ends),
                )
                for each in page
            ],
            empty="no group is as you asked" if search or kind else "there are no groups",
            total=len(found),
            next_path=following,
        ),
    ]
    return Page("Groups", sections, refresh_s=10)


def _notices(listing: Listing, unknown: int) -> Iterator[Notice]:
    """`unknown`: groups whose lag is."""
    yield from silent_notices(listing)
    if unknown:
        what = f"groups whose lag is not known: {unknown}"
        yield Notice(Tone.WARN, f"{what}, as {NO_ENDS}", "see the page of brokers")


def _read(committed: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, int]:
    return {where: each.offset for where, each in committed.items() if each.offset >= 0}


def _lag(read: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int | None:
    """None: the group has committed nothing, or the end of a log is not known."""
    if not read or not read.keys() <= ends.keys():
        return None
    return sum(max(0, ends[where] - offset) for where, offset in read.items())


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
    lag: int | None,
) -> list[Cell]:
    state = listed.group.state
    if described is not None and not described.error and described.state:
        state = described.state
    members = None if described is None or described.error else len(described.members)
    return [
        Cell(listed.group.group, to("groups", listed.group.group)),
        Cell(type_of(listed)),
        Cell(state, tone=state_tone(state)),
        Cell(members),
        Cell(lag),
        Cell(listed.coordinator, to("brokers", listed.coordinator)),
    ]
