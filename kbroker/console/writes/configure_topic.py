"""Change one setting of a topic, or let go of it: the value before and after, checked first.

The second form has a digest of the value before: a setting that was changed meanwhile is left as it
is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from kbroker.console.asked import Refused
from kbroker.console.message_query import chosen
from kbroker.console.page import Cell, Column, Field, Notice, Page, Table, Tone, to
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
from kbroker.peer.config_messages import TOPIC_RESOURCE, Resource, source_name

if TYPE_CHECKING:
    from kbroker.console.asked import Asked
    from kbroker.peer.config_messages import ConfigValue


_BEFORE: Final = "before"
_CONFLICT: Final = 409


class Action(StrEnum):
    SET = "set"
    UNSET = "unset"


def make(asked: Asked) -> Page:
    step = step_of(asked)
    name = asked.path["topic"]
    title = f"Settings of {name}"
    path = to("writes", "topics", name, "configure")
    trail = [("Topics", to("topics")), (name, to("topics", name))]
    entries = {entry.name: entry for entry in asked.client.topic_configs(name)}
    key, value = sent_text(asked, "key"), sent_text(asked, "value")
    action = chosen(asked, "action", Action.SET)
    form = plan_form(path, _fields(entries.values(), key, value, action))
    if step is Step.FORM:
        return Page(title, [form], trail=trail)
    before = entries.get(key)
    if before is None:
        raise Refused("the topic has no such setting", "choose one of the list")
    if step is Step.APPLY and sent_text(asked, _BEFORE) != _digest(before):
        raise Refused(
            "the setting has changed since the dry run",
            "begin again with the dry run",
            status=_CONFLICT,
        )
    change = {key: value} if action is Action.SET else {}
    (result,) = asked.client.alter_configs(
        [Resource(TOPIC_RESOURCE, name)],
        change,
        [] if change else [key],
        validate_only=step is Step.PLAN,
    )
    notice = refusal(result)
    if notice is not None:
        return refused_page(title, notice, form)
    if step is Step.APPLY:
        links = [("The topic", to("topics", name)), ("Another setting", path)]
        return done_page(title, "the setting is changed", links)
    values = {"key": key, "value": value, "action": str(action), _BEFORE: _digest(before)}
    return Page(
        title,
        [
            Notice(Tone.PLAIN, "the broker would change this; nothing is changed yet"),
            _comparison(before, value if action is Action.SET else None),
            apply_form(path, values, "Change"),
        ],
        trail=trail,
    )


def _digest(entry: ConfigValue) -> str:
    """Of the value and of where it comes from, in a few characters, as a value may be long."""
    return sha256(f"{entry.source} {entry.value}".encode(errors="replace")).hexdigest()[:32]


def _fields(
    entries: Iterable[ConfigValue], key: str, value: str, action: Action
) -> Sequence[Field]:
    return (
        Field(
            "key",
            "Setting",
            key,
            options=[
                (entry.name, f"{entry.name}  ({entry.value})")
                for entry in sorted(entries)
                if not entry.read_only and not entry.sensitive
            ],
        ),
        Field("action", "Action", action, options=[(each.value, each.value) for each in Action]),
        Field("value", "Value", value, help="of a setting that is set"),
    )


def _comparison(before: ConfigValue, after: str | None) -> Table:
    """None: the value of the broker, or the default."""
    return Table(
        "setting",
        "The setting",
        (
            Column("key", "Setting"),
            Column("before", "Before"),
            Column("source", "From"),
            Column("after", "After"),
        ),
        [
            [
                Cell(before.name),
                Cell(None if before.sensitive else before.value),
                Cell(source_name(before.source)),
                Cell("not the topic's own any more" if after is None else after, tone=Tone.WARN),
            ]
        ],
    )
