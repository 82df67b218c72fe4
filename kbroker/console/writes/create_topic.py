"""Create a topic: its name, its numbers and its settings, checked by the broker first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.console.asked import Refused
from kbroker.console.page import Cell, Fact, Facts, Field, Notice, Page, Tone, Unit, to
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
from kbroker.peer.messages import NewTopic

if TYPE_CHECKING:
    from kbroker.console.asked import Asked

PARTITIONS_MAX: Final = 100_000
REPLICAS_MAX: Final = 1_000
_TITLE: Final = "Create a topic"
_FIELDS: Final = ("name", "partitions", "replication_factor", "configs")


def make(asked: Asked) -> Page:
    step = step_of(asked)
    path = to("writes", "topics", "create")
    values = {name: sent_text(asked, name) for name in _FIELDS}
    form = plan_form(path, _fields(values))
    if step is Step.FORM:
        return Page(_TITLE, [form], trail=[("Topics", to("topics"))])
    topic = _topic(asked)
    (result,) = asked.client.create_topics([topic], validate_only=step is Step.PLAN)
    notice = refusal(result)
    if notice is not None:
        return refused_page(_TITLE, notice, form)
    if step is Step.PLAN:
        return Page(
            _TITLE,
            [
                Notice(Tone.PLAIN, "the broker would create this topic; nothing is changed yet"),
                _facts(topic),
                apply_form(path, values, "Create"),
            ],
            trail=[("Topics", to("topics"))],
        )
    links = [("The topic", to("topics", topic.name)), ("All topics", to("topics"))]
    return done_page(_TITLE, "the topic is created", links)


def _fields(values: Mapping[str, str]) -> Sequence[Field]:
    return (
        Field("name", "Name", values["name"]),
        Field("partitions", "Partitions", values["partitions"], "number", help="empty: as usual"),
        Field(
            "replication_factor",
            "Replicas",
            values["replication_factor"],
            "number",
            help="empty: as usual",
        ),
        Field("configs", "Settings", values["configs"], help="key=value, with blanks between them"),
    )


def _topic(asked: Asked) -> NewTopic:
    return NewTopic(
        sent_text(asked, "name", required=True),
        asked.number("partitions", -1, 1, PARTITIONS_MAX),
        asked.number("replication_factor", -1, 1, REPLICAS_MAX),
        settings_of(sent_text(asked, "configs")),
    )


def settings_of(text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise Refused("a setting is no key=value", "write retention.ms=1000, blanks between")
        settings[key] = value
    return settings


def _facts(topic: NewTopic) -> Facts:
    def number(value: int) -> Cell:
        return Cell(value if value > 0 else "as usual")

    return Facts(
        "topic",
        "The topic",
        [
            Fact("name", "Name", Cell(topic.name)),
            Fact("partition_count", "Partitions", number(topic.partitions), Unit.COUNT),
            Fact("replication_factor", "Replicas", number(topic.replication_factor), Unit.COUNT),
            *[Fact(key, key, Cell(value)) for key, value in topic.configs.items()],
        ],
    )
