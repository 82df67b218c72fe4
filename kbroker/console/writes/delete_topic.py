"""Delete a topic with all of its records: its size first, and its name typed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.console.message_source import log_bounds, topic_of
from kbroker.console.page import Cell, Fact, Facts, Notice, Page, Tone, Unit, to
from kbroker.console.pages.topics import leader_sizes, size_of
from kbroker.console.writes.steps import (
    Step,
    apply_form,
    check_typed,
    done_page,
    refusal,
    refused_page,
    step_of,
)
from kbroker.peer.isolation import READ_UNCOMMITTED
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.console.asked import Asked
    from kbroker.peer.messages import TopicMetadata


def make(asked: Asked) -> Page:
    """The form is the dry run: there is nothing to choose."""
    step = step_of(asked)
    name = asked.path["topic"]
    title = f"Delete {name}"
    topic = topic_of(asked, name)
    form = apply_form(to("writes", "topics", name, "delete"), {}, "Delete", typed=name)
    if step is Step.APPLY:
        check_typed(asked, name)
        (result,) = asked.client.delete_topics([name])
        notice = refusal(result)
        if notice is not None:
            return refused_page(title, notice, form)
        return done_page(title, "the topic is deleted", [("All topics", to("topics"))])
    warning = "its records are lost; groups that read it keep offsets that mean nothing"
    return Page(
        title,
        [Notice(Tone.WARN, warning), _facts(asked, topic), form],
        trail=[("Topics", to("topics")), (name, to("topics", name))],
    )


def _facts(asked: Asked, topic: TopicMetadata) -> Facts:
    led = [TopicPartition(topic.name, each.index) for each in topic.partitions if each.leader >= 0]
    logs = log_bounds(asked, led, READ_UNCOMMITTED)
    sizes, _ = leader_sizes(asked, [topic])
    records = sum(log.end - log.start for log in logs.values())
    return Facts(
        "topic",
        "What is lost",
        [
            Fact("partition_count", "Partitions", Cell(len(topic.partitions)), Unit.COUNT),
            Fact("records_max", "Records, at most", Cell(records), Unit.COUNT),
            Fact("size_bytes", "Size at the leaders", Cell(size_of(topic, sizes)), Unit.BYTES),
        ],
    )
