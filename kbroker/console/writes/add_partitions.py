"""Add partitions to a topic. They cannot be taken away, and keys may go to other partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.console.message_source import topic_of
from kbroker.console.page import Field, Notice, Page, Tone, to
from kbroker.console.writes.create_topic import PARTITIONS_MAX
from kbroker.console.writes.steps import (
    Step,
    apply_form,
    done_page,
    plan_form,
    refusal,
    refused_page,
    sent_text,
    step_of,
)

if TYPE_CHECKING:
    from kbroker.console.asked import Asked


def make(asked: Asked) -> Page:
    step = step_of(asked)
    name = asked.path["topic"]
    title = f"Partitions of {name}"
    path = to("writes", "topics", name, "grow")
    trail = [("Topics", to("topics")), (name, to("topics", name))]
    present = len(topic_of(asked, name).partitions)
    form = plan_form(
        path,
        [Field("count", f"Partitions in all, now {present}", sent_text(asked, "count"), "number")],
    )
    if step is Step.FORM:
        return Page(title, [form], trail=trail)
    count = asked.number("count", 0, 1, PARTITIONS_MAX)
    (result,) = asked.client.create_partitions({name: count}, validate_only=step is Step.PLAN)
    notice = refusal(result)
    if notice is not None:
        return refused_page(title, notice, form)
    if step is Step.APPLY:
        return done_page(
            title, f"the topic has {count} partitions", [("The topic", to("topics", name))]
        )
    text = f"the topic would have {count} partitions instead of {present}; nothing is changed yet"
    warning = "keys may go to other partitions than before, and partitions cannot be taken away"
    return Page(
        title,
        [
            Notice(Tone.PLAIN, text),
            Notice(Tone.WARN, warning),
            apply_form(path, {"count": str(count)}, "Add"),
        ],
        trail=trail,
    )
