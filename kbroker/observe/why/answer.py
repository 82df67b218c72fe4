"""The answer to a question: the causes that were found, what was looked at, and what was not seen.

`document` is its JSON, `lines` its text; both have the same words. Names in it are others' text,
bounded and escaped by `causes.py`; `lines` reads the document, so that a command can print what a
broker has sent. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kbroker.observe.why.causes import causes_in, counted
from kbroker.observe.why.facts import NO_BROKER, About, Facts, Question
from kbroker.outside_text import printable

NOTHING: Final = "nothing is wrong"
_NAMED_MAX: Final = 3


def document(question: Question, facts: Facts) -> dict[str, Any]:
    """What the admin port answers."""
    return {
        "question": {
            name: value.value if isinstance(value, About) else value
            for name, value in question._asdict().items()
            if value not in (None, "", -1)
        },
        "broker": facts.node_id,
        "at_ms": facts.now_ms,
        "causes": [each._asdict() for each in causes_in(facts)],
        "seen": list(_seen(facts)),
        "not_seen": list(_not_seen(facts)),
    }


def lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Text for people, from a `document`."""
    for number, cause in enumerate(answer["causes"], start=1):
        yield f"{number}. {cause['what']}"
        if cause["since_ms"] is not None:
            yield f"   since {_moment(cause['since_ms'])}"
        yield from (f"   {line}" for line in cause["evidence"])
        yield f"   -> {cause['next_step']}"
    if not answer["causes"]:
        yield NOTHING
    yield from (f"seen: {line}" for line in answer["seen"])
    yield from (f"not seen from broker {answer['broker']}: {line}" for line in answer["not_seen"])


def _moment(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _seen(facts: Facts) -> Iterator[str]:
    group = facts.group
    if group is not None and group.state:
        lags = [
            max(0, each.log.high_watermark - each.committed)
            for each in facts.partitions
            if each.log is not None and each.committed is not None
        ]
        lag = f", lag {sum(lags)} in {counted(len(lags), 'partition')}" if lags else ""
        members = counted(group.members, "member")
        yield f"group {printable(group.name)}: {group.state}, {members}{lag}"
    if facts.partitions:
        topics = {each.name.topic for each in facts.partitions}
        yield f"{counted(len(facts.partitions), 'partition')} of {counted(len(topics), 'topic')}"
    if facts.about is About.SLOW:
        load = facts.load
        yield (
            f"handlers idle {100 * load.handlers_idle:.0f} %, network threads "
            f"{100 * load.network_idle:.0f} %; "
            f"log directories: {', '.join(printable(each.path) for each in facts.directories)}"
        )


def _not_seen(facts: Facts) -> Iterator[str]:
    """What only another broker, or nothing, can say."""
    group = facts.group
    if group is not None and group.coordinator not in (NO_BROKER, facts.node_id):
        yield f"members of the group, which broker {group.coordinator} coordinates: ask that broker"
    elsewhere = sorted({each.leader for each in facts.partitions} - {NO_BROKER, facts.node_id})
    if elsewhere:
        some = ", ".join(map(str, elsewhere[:_NAMED_MAX]))
        more = ", ..." if len(elsewhere) > _NAMED_MAX else ""
        yield f"logs of the partitions that broker {some}{more} leads: ask these brokers"
    if facts.left_out:
        yield counted(facts.left_out, "more partition")
