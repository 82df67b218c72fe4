"""One group: its lag by partition, how fast it reads, its members, and why it was rebalanced.

Rates are from this page's own visits (`group_samples.py`), so the first one has none. The last
departures are asked of the coordinator; the rebalances are read from the offsets topic only where a
visitor asks for them, and may read that topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.clock import NS_PER_MS
from kbroker.console.asked import ROWS_MAX, Refused
from kbroker.console.group_lag import NO_ENDS, PartitionLag, lags_of
from kbroker.console.group_samples import SAMPLES, Place, Rates, ms_to_catch_up
from kbroker.console.page import (
    Cell,
    Column,
    Fact,
    Facts,
    Links,
    Notice,
    Page,
    Section,
    Table,
    Tone,
    Unit,
    to,
)
from kbroker.console.pages.groups import state_tone
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.group_descriptions import CLASSIC, SHARE, STREAMS, describe_group
from kbroker.peer.groups import Groups

if TYPE_CHECKING:
    from kbroker.console.asked import Asked
    from kbroker.observe.group_history import Rebalance
    from kbroker.peer.group_descriptions import GroupDescription, GroupMember
    from kbroker.peer.group_messages import Unwritten
    from kbroker.types import TopicPartition

REFRESH_S: Final = 5
REBALANCES_MAX: Final = 20
# Of the end of the group's partition of the offsets topic, for one page.
HISTORY_BYTES_MAX: Final = 16 * 1024 * 1024
LISTED_PARTITIONS_MAX: Final = 20
_NOT_FOUND: Final = 404
_NOT_ALLOWED: Final = 403
_LAGS: Final = (
    Column("topic", "Topic"),
    Column("partition", "Partition"),
    Column("committed", "Committed"),
    Column("end", "End"),
    Column("lag", "Lag", Unit.COUNT),
    Column("read_per_s", "Read", Unit.PER_S),
    Column("written_per_s", "Written", Unit.PER_S),
    Column("catches_up_in_ms", "Caught up in", Unit.DURATION_MS),
    Column("member_id", "Member"),
    Column("client_id", "Client"),
    Column("host", "Host"),
    Column("metadata", "Metadata"),
)
_MEMBERS: Final = (
    Column("member_id", "Member"),
    Column("instance_id", "Instance"),
    Column("client_id", "Client"),
    Column("host", "Host"),
    Column("epoch", "Epoch"),
    Column("subscribed", "Subscribed to"),
    Column("assigned", "Partitions", Unit.COUNT),
    Column("which", "Which"),
)
_DEPARTURES: Final = (
    Column("time_ms", "Time", Unit.MOMENT_MS),
    Column("member_id", "Member"),
    Column("why", "Why"),
)
_REBALANCES: Final = (
    Column("time_ms", "Time", Unit.MOMENT_MS),
    Column("epoch", "Epoch"),
    Column("causes", "Why"),
    Column("members", "Members", Unit.COUNT),
    Column("moved", "Partitions moved", Unit.COUNT),
    Column("took_ms", "Took", Unit.DURATION_MS),
)


def make(asked: Asked) -> Page:
    name = asked.path["group"]
    first = asked.number("first", 0)
    groups = Groups(asked.client)
    described = group_of(groups, name)
    node_id, _ = groups.coordinator(name)
    asked.pause()
    lags = lags_of(asked, groups, described)
    asked.pause()
    now_ms = asked.client.cluster.clock.monotonic_ns() // NS_PER_MS
    rates = SAMPLES.add(name, _places(lags), now_ms)
    with_history = asked.query.get("history") == "1"
    unwritten = groups.unwritten(name) if described.kind not in (SHARE, STREAMS) else None
    sections: list[Section] = []
    if unwritten is not None and unwritten.awaited:
        text = f"the rebalance waits for {len(unwritten.awaited)} members"
        sections.append(Notice(Tone.WARN, text, _listed(unwritten.awaited)))
    unknown = sum(each.is_unknown for each in lags.values())
    if unknown:
        text = f"partitions whose lag is not known: {unknown}"
        sections.append(Notice(Tone.WARN, f"{text}, as {NO_ENDS}", "see the page of each topic"))
    sections += [
        _facts(described, node_id, lags, rates),
        Links("more", "More", _links(asked, described)),
        _lag_table(name, lags, rates, first),
        _member_table(described),
    ]
    if unwritten is not None:
        sections.append(_departure_table(unwritten))
        if with_history:
            sections += _rebalances(asked, name)
    # What is read from the log is too much to be read every few seconds.
    refresh_s = 0 if with_history else REFRESH_S
    return Page(name, sections, trail=[("Groups", to("groups"))], refresh_s=refresh_s)


def group_of(groups: Groups, name: str) -> GroupDescription:
    """Refused: there is no such group, or the visitor may not describe it."""
    try:
        described = describe_group(groups, name)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise
        raise Refused(
            "this user may not describe the group",
            "an ACL that allows Describe, or Read, on it is needed",
            status=_NOT_ALLOWED,
        ) from None
    if described is None:
        raise Refused("there is no such group", "see the list of groups", status=_NOT_FOUND)
    return described


def _places(lags: Mapping[TopicPartition, PartitionLag]) -> dict[TopicPartition, Place]:
    return {
        where: Place(each.position, each.end)
        for where, each in lags.items()
        if each.position is not None and each.end is not None
    }


def _facts(
    described: GroupDescription,
    node_id: int,
    lags: Mapping[TopicPartition, PartitionLag],
    rates: Mapping[TopicPartition, Rates],
) -> Facts:
    known = [each.lag for each in lags.values() if each.lag is not None]
    lag = sum(known) if known or not lags else None
    if any(each.is_unknown for each in lags.values()):
        lag = None
    read = written = caught_up = None
    if rates:
        read = sum(each.read_per_s for each in rates.values())
        written = sum(each.written_per_s for each in rates.values())
        caught_up = None if lag is None else ms_to_catch_up(lag, read, written)
    facts = [
        Fact("type", "Type", Cell(described.kind)),
        Fact("state", "State", Cell(described.state, tone=state_tone(described.state))),
        Fact("protocol", "Assignor", Cell(described.protocol or None)),
        Fact("coordinator", "Coordinator", Cell(node_id, to("brokers", node_id))),
        Fact("member_count", "Members", Cell(len(described.members)), Unit.COUNT),
        Fact("lag", "Lag", Cell(lag), Unit.COUNT),
        Fact("read_per_s", "Read", Cell(read), Unit.PER_S),
        Fact("written_per_s", "Written", Cell(written), Unit.PER_S),
        Fact("catches_up_in_ms", "Caught up in", Cell(caught_up), Unit.DURATION_MS),
    ]
    if described.kind != CLASSIC:
        facts.append(Fact("epoch", "Epoch", Cell(described.epoch)))
        facts.append(Fact("assignment_epoch", "Assigned epoch", Cell(described.assignment_epoch)))
    return Facts("group", "Group", facts)


def _links(asked: Asked, described: GroupDescription) -> Sequence[tuple[str, str]]:
    name = described.group
    links = [("Why does it not read?", to("why", consumer=name))]
    if described.kind not in (SHARE, STREAMS):
        links.append(("Its rebalances", to("groups", name, history="1")))
    if asked.may_write:
        if described.kind != SHARE:
            links.append(("Reset its offsets", to("writes", "groups", name, "reset")))
        links.append(("Delete it", to("writes", "groups", name, "delete")))
    return links


def _lag_table(
    name: str,
    lags: Mapping[TopicPartition, PartitionLag],
    rates: Mapping[TopicPartition, Rates],
    first: int,
) -> Table:
    places = list(lags)
    following = to("groups", name, first=first + ROWS_MAX) if first + ROWS_MAX < len(places) else ""
    return Table(
        "partitions",
        "Partitions",
        _LAGS,
        [_lag_row(where, lags[where], rates) for where in places[first : first + ROWS_MAX]],
        empty="the group has committed nothing, and its members have no partition",
        total=len(places),
        next_path=following,
    )


def _lag_row(
    where: TopicPartition, each: PartitionLag, rates: Mapping[TopicPartition, Rates]
) -> list[Cell]:
    rate = rates.get(where)
    caught_up = None
    if rate is not None and each.lag is not None:
        caught_up = ms_to_catch_up(each.lag, rate.read_per_s, rate.written_per_s)
    member = each.member
    member_id = None if member is None else member.member_id
    if each.readers > 1:
        member_id = f"{each.readers} members"
    alone = member if each.readers == 1 else None
    return [
        Cell(where.topic, to("topics", where.topic)),
        Cell(where.partition),
        Cell(each.position),
        Cell(each.end),
        Cell(each.lag),
        Cell(None if rate is None else rate.read_per_s),
        Cell(None if rate is None else rate.written_per_s),
        Cell(caught_up),
        Cell(member_id),
        Cell(None if alone is None else alone.client_id),
        Cell(None if alone is None else alone.host),
        Cell(each.metadata or None),
    ]


def _member_table(described: GroupDescription) -> Table:
    members = sorted(described.members, key=lambda member: (member.client_id, member.member_id))
    return Table(
        "members",
        "Members",
        _MEMBERS,
        [_member_row(member) for member in members[:ROWS_MAX]],
        empty="the group has no members",
        total=len(members),
    )


def _member_row(member: GroupMember) -> list[Cell]:
    which = [f"{where.topic}/{where.partition}" for where in member.assigned] + [*member.tasks]
    return [
        Cell(member.member_id),
        Cell(member.instance_id),
        Cell(member.client_id),
        Cell(member.host),
        Cell(None if member.epoch < 0 else member.epoch),
        Cell(_listed(member.subscribed) or None),
        Cell(len(which)),
        Cell(_listed(which) or None),
    ]


def _listed(words: Sequence[str]) -> str:
    listed = ", ".join(words[:LISTED_PARTITIONS_MAX])
    more = len(words) - LISTED_PARTITIONS_MAX
    return f"{listed} and {more} more" if more > 0 else listed


def _departure_table(unwritten: Unwritten) -> Table:
    return Table(
        "departures",
        "Members that have gone",
        _DEPARTURES,
        [
            [Cell(each.time_ms), Cell(each.member_id), Cell(each.why)]
            for each in reversed(unwritten.departures)
        ],
        empty="none that the coordinator remembers",
    )


def _rebalances(asked: Asked, name: str) -> Iterator[Section]:
    from kbroker.observe.group_log import read_history

    try:
        history = read_history(
            asked.client, name, bytes_max=HISTORY_BYTES_MAX, last=True, pause=asked.pause
        )
    except KafkaError as error:
        text = f"the rebalances cannot be read: {error.message}"
        yield Notice(Tone.QUIET, text, f"kbroker group why {name} reads them, too")
        return
    read = f"the last {HISTORY_BYTES_MAX >> 20} MB of the log"
    if history is not None and not history.is_whole:
        yield Notice(Tone.QUIET, f"{read} were read", f"kbroker group why {name} reads all of it")
    rebalances = [] if history is None else history.rebalances[-REBALANCES_MAX:]
    yield Table(
        "rebalances",
        "Rebalances",
        _REBALANCES,
        [_rebalance_row(each) for each in reversed(rebalances)],
        empty=f"{read} have none",
    )


def _rebalance_row(each: Rebalance) -> list[Cell]:
    took_ms = None
    if each.stable_ms is not None and each.stable_ms > each.time_ms:
        took_ms = each.stable_ms - each.time_ms
    causes = [
        " ".join(filter(None, (cause.what, cause.text, cause.instance_id or cause.member_id)))
        for cause in each.causes
    ]
    return [
        Cell(each.time_ms),
        Cell(each.epoch),
        Cell(_listed(causes) or "not in the log any more"),
        Cell(each.members),
        Cell(each.moved),
        Cell(took_ms),
    ]
