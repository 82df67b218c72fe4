"""Reset the offsets of a group: each partition's offset before and after, then those are committed.

The second form has the offsets that the first one listed, so what is committed is what a visitor
has seen, and not what the logs would give a moment later. The group must have no members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kbroker.console.asked import Refused
from kbroker.console.message_query import chosen
from kbroker.console.page import Cell, Column, Field, Notice, Page, Section, Table, Tone, Unit, to
from kbroker.console.pages.group import group_of
from kbroker.console.writes.steps import (
    Step,
    apply_form,
    done_page,
    plan_form,
    sent_text,
    step_of,
)
from kbroker.errors import ErrorCode, UsageError
from kbroker.findings.moments import MOMENT_HINT, parse_moment
from kbroker.peer.group_descriptions import SHARE
from kbroker.peer.groups import Groups
from kbroker.peer.offset_reset import (
    Mode,
    Plan,
    Reset,
    committed_offsets,
    partitions_of_group,
    planned,
)
from kbroker.peer.partitions import Chosen, existing
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.console.asked import Asked

# Of one reset, whose offsets have to fit into a form.
PARTITIONS_MAX: Final = 500
_OFFSETS_CHARS_MAX: Final = 40_000
_OFFSET_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 19
_OFFSETS: Final = "offsets"
_CONFLICT: Final = 409


class Where(StrEnum):
    """Choices of the form; each is a mode of `offset_reset`."""

    EARLIEST = "to_earliest"
    LATEST = "to_latest"
    OFFSET = "to_offset"
    MOMENT = "to_moment"
    SHIFT = "shift_by"


_LABELS: Final = {
    Where.EARLIEST: "to the first record",
    Where.LATEST: "to the end",
    Where.OFFSET: "to an offset",
    Where.MOMENT: "to a moment",
    Where.SHIFT: "by a number of records",
}


def make(asked: Asked) -> Page:
    step = step_of(asked)
    name = asked.path["group"]
    title = f"Reset the offsets of {name}"
    groups = Groups(asked.client)
    described = group_of(groups, name)
    if described.kind == SHARE:
        raise Refused(
            "a share group has no offsets to commit", "use kbroker share, or Kafka's tool"
        )
    if described.members:
        raise Refused(
            f"the group has {len(described.members)} members, which would commit over it",
            "stop them first",
            status=_CONFLICT,
        )
    if step is Step.APPLY:
        return _applied(asked, groups, name, title)
    form = plan_form(to("writes", "groups", name, "reset"), _fields(asked))
    trail = [("Groups", to("groups")), (name, to("groups", name))]
    if step is Step.FORM:
        return Page(title, [form], trail=trail)
    plan = _plan(asked, groups, name)
    sections: list[Section] = [
        Notice(Tone.PLAIN, "these offsets would be committed; nothing is changed yet"),
        *[Notice(Tone.WARN, warning) for warning in plan.warnings[:PARTITIONS_MAX]],
        _table(plan, {}),
    ]
    if plan.after:
        values = {_OFFSETS: _written(plan.after)}
        path = to("writes", "groups", name, "reset")
        sections.append(apply_form(path, values, "Reset"))
    return Page(title, [*sections, form], trail=trail)


def _fields(asked: Asked) -> Sequence[Field]:
    where = chosen(asked, "where", Where.EARLIEST)
    return (
        Field("topic", "Topic", sent_text(asked, "topic"), help="empty: all that it has read"),
        Field("partition", "Partition", sent_text(asked, "partition"), "number", help="empty: all"),
        Field(
            "where",
            "Where",
            where,
            options=[(each.value, label) for each, label in _LABELS.items()],
        ),
        Field("value", "Offset, moment, number", sent_text(asked, "value")),
    )


def _plan(asked: Asked, groups: Groups, name: str) -> Plan:
    client = asked.client
    topic = sent_text(asked, "topic")
    partition = asked.number("partition", -1, 0, 2**31 - 1)
    committed = committed_offsets(groups, name)
    if topic:
        some = () if partition < 0 else (partition,)
        partitions = existing(client, [Chosen(topic, some)])
    elif partition >= 0:
        raise Refused("a partition without its topic", "name the topic as well")
    else:
        partitions = partitions_of_group(client, name, committed)
    if len(partitions) > PARTITIONS_MAX:
        raise Refused(
            f"{len(partitions)} partitions, and {PARTITIONS_MAX} are reset at a time",
            "name a topic, or use kbroker group reset",
        )
    return planned(client, committed, partitions, _reset(asked))


def _reset(asked: Asked) -> Reset:
    where = chosen(asked, "where", Where.EARLIEST)
    value = sent_text(asked, "value", required=where not in (Where.EARLIEST, Where.LATEST))
    mode = Mode(where)
    if where is Where.MOMENT:
        try:
            return Reset(mode, parse_moment(value))
        except (UsageError, OverflowError):
            raise Refused("the value is no moment", MOMENT_HINT) from None
    if where is Where.OFFSET:
        return Reset(mode, asked.number("value", 0, 0, _OFFSET_MAX))
    if where is Where.SHIFT:
        return Reset(mode, asked.number("value", 0, -_OFFSET_MAX, _OFFSET_MAX))
    return Reset(mode)


def _applied(asked: Asked, groups: Groups, name: str, title: str) -> Page:
    client = asked.client
    offsets = read_offsets(asked.query.get(_OFFSETS, ""))
    numbers: dict[str, list[int]] = {}
    for where in offsets:
        numbers.setdefault(where.topic, []).append(where.partition)
    partitions = existing(client, [Chosen(topic, tuple(some)) for topic, some in numbers.items()])
    committed = committed_offsets(groups, name)
    plan = planned(client, committed, partitions, Reset(Mode.TO_GIVEN, given=offsets))
    errors = groups.commit(name, plan.after)
    failed = {where: error for where, error in errors.items() if error is not ErrorCode.NONE}
    links = [("The group", to("groups", name))]
    page = done_page(title, f"{len(plan.after) - len(failed)} offsets are committed", links)
    sections: list[Section] = [*page.sections, _table(plan, failed)]
    if failed:
        text = f"{len(failed)} offsets are refused"
        sections[0] = Notice(Tone.BAD, text, "see the last column")
    return page._replace(sections=sections, status=_CONFLICT if failed else 200)


def _table(plan: Plan, failed: Mapping[TopicPartition, ErrorCode]) -> Table:
    rows: list[Sequence[Cell]] = []
    for where in sorted(plan.after):
        before, after = plan.before.get(where), plan.after[where]
        error = failed.get(where)
        rows.append(
            [
                Cell(where.topic),
                Cell(where.partition),
                Cell(plan.starts[where]),
                Cell(plan.ends[where]),
                Cell(before),
                Cell(after, tone=Tone.PLAIN if after == before else Tone.WARN),
                Cell(plan.ends[where] - after),
                Cell(None if error is None else error.name, tone=Tone.BAD),
            ]
        )
    return Table(
        "partitions",
        "Offsets",
        (
            Column("topic", "Topic"),
            Column("partition", "Partition"),
            Column("start", "Start"),
            Column("end", "End"),
            Column("before", "Before"),
            Column("after", "After"),
            Column("lag", "Lag then", Unit.COUNT),
            Column("error", "Error"),
        ),
        rows,
        empty="no partition would get another offset",
    )


def _written(offsets: Mapping[TopicPartition, int]) -> str:
    """`topic:partition:offset`, with blanks between: a topic's name has neither."""
    text = " ".join(f"{where.topic}:{where.partition}:{at}" for where, at in offsets.items())
    if len(text) > _OFFSETS_CHARS_MAX:
        raise Refused("too many offsets for one form", "name a topic, or use kbroker group reset")
    return text


def read_offsets(text: str) -> dict[TopicPartition, int]:
    """What `_written` made; Refused: another text."""
    words = text.split() if len(text) <= _OFFSETS_CHARS_MAX else []
    offsets: dict[TopicPartition, int] = {}
    for word in words[: PARTITIONS_MAX + 1]:
        parts = word.split(":")
        numbers = [part for part in parts[1:] if part.isascii() and part.isdecimal()]
        if len(parts) != 3 or len(numbers) != 2 or not all(len(n) <= _DIGITS_MAX for n in numbers):
            raise Refused("these are no offsets", "begin again with the dry run")
        partition, offset = int(numbers[0]), int(numbers[1])
        if partition >= 2**31 or offset > _OFFSET_MAX:
            raise Refused("these are no offsets", "begin again with the dry run")
        offsets[TopicPartition(parts[0], partition)] = offset
    if not offsets or len(offsets) > PARTITIONS_MAX:
        raise Refused("there are no offsets to commit", "begin again with the dry run")
    return offsets
