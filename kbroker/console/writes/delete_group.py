"""Delete a group without members, and all that it has committed: its name is typed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.console.group_lag import lags_of
from kbroker.console.page import Cell, Fact, Facts, Notice, Page, Tone, Unit, to
from kbroker.console.pages.group import group_of
from kbroker.console.writes.steps import (
    Step,
    apply_form,
    check_typed,
    done_page,
    refusal,
    refused_page,
    step_of,
)
from kbroker.peer.groups import Groups
from kbroker.peer.messages import TopicResult

if TYPE_CHECKING:
    from kbroker.console.asked import Asked


def make(asked: Asked) -> Page:
    """The form is the dry run: there is nothing to choose."""
    step = step_of(asked)
    name = asked.path["group"]
    title = f"Delete {name}"
    groups = Groups(asked.client)
    described = group_of(groups, name)
    form = apply_form(to("writes", "groups", name, "delete"), {}, "Delete", typed=name)
    if step is Step.APPLY:
        check_typed(asked, name)
        notice = refusal(TopicResult(name, groups.delete(name), None))
        if notice is not None:
            return refused_page(title, notice, form)
        return done_page(title, "the group is deleted", [("All groups", to("groups"))])
    lags = lags_of(asked, groups, described)
    facts = Facts(
        "group",
        "What is lost",
        [
            Fact("type", "Type", Cell(described.kind)),
            Fact("state", "State", Cell(described.state)),
            Fact("member_count", "Members", Cell(len(described.members)), Unit.COUNT),
            Fact(
                "committed",
                "Partitions with an offset",
                Cell(sum(each.position is not None for each in lags.values())),
                Unit.COUNT,
            ),
        ],
    )
    trail = [("Groups", to("groups")), (name, to("groups", name))]
    if described.members:
        text = f"the group has {len(described.members)} members, and is not deleted while it has"
        stop = Notice(Tone.BAD, text, "stop them first")
        return Page(title, [stop, facts], trail=trail)
    warning = "its offsets are lost: consumers of this group begin as auto.offset.reset says"
    return Page(title, [Notice(Tone.WARN, warning), facts, form], trail=trail)
