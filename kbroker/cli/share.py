"""`kbroker share explain GROUP TOPIC/PARTITION/OFFSET`: one record, as a share group has it.

The leader of the partition knows which member has the record and for how long; it is asked by
fields of our own in DescribeProducers. What became of the record before is read from
`__share_group_state` (`share_life.py`), with ordinary fetches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kbroker.cli.connect import bootstrap_option, connect, refuse
from kbroker.cli.output import as_cell, output_option, print_table, say, write_json
from kbroker.errors import ErrorCode
from kbroker.findings.moments import shown_moment, shown_span

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.cli.share_life import Life
    from kbroker.coordinator.share.images import SharePartition
    from kbroker.peer.client import Client
    from kbroker.protocol.messages.describe_producers import ShareRecord
    from kbroker.types import TopicPartition

STATE_TOPIC: Final = "__share_group_state"
# Of the share-partition's partition of it.
SEARCHED_BYTES_MAX: Final = 1 << 30
_STATES: Final = {
    -4: "delayed", -3: "done", -2: "not delivered yet", 0: "available", 1: "acquired",
    2: "acknowledged", 3: "archiving", 4: "archived",
}  # fmt: skip
_ARCHIVING: Final = 3
_DELAYED, _BEFORE, _AFTER, _AVAILABLE, _ACQUIRED = -4, -3, -2, 0, 1
UNKNOWN_MEMBER: Final = "a session that has ended"


@click.group("share")
def command() -> None:
    """Explain what share groups did with a record."""


@command.command("explain")
@click.argument("group", metavar="GROUP")
@click.argument("record", metavar="TOPIC/PARTITION/OFFSET")
@bootstrap_option
@output_option
def explain(group: str, record: str, bootstrap: str, output: str) -> int:
    """Tell which member has a record, how often it was delivered, and what became of it."""
    from kbroker.cli.explain import parse_record
    from kbroker.peer.partitions import Chosen, existing

    topic, partition, offset = parse_record(record)
    with connect(bootstrap) as client:
        (where,) = existing(client, [Chosen(topic, (partition,))])
        life = _life(client, group, where, offset)
        if life is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
            words = f"no log has share group '{group}' with {topic}/{partition}"
            say(f"error: {error.name} ({error}): {words}", err=True)
            return 1
        facts = _facts(client, group, where, offset, life)
    if output == "json":
        write_json(facts)
    else:
        _print(facts, life)
    return 0


# --- what is asked --------------------------------------------------------------------------------


def _life(client: Client, group: str, where: TopicPartition, offset: int) -> Life | None:
    from kbroker.cli.share_life import batches_of, life_of
    from kbroker.coordinator.share.images import SharePartition
    from kbroker.peer.log_reading import offset_at, pieces
    from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    key = SharePartition(group, _topic_id(client, where), where.partition)
    place = _state_partition(client, key)
    if place is None:
        return None
    start, end = (offset_at(client, place, when) for when in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP))
    found = pieces(client, place, start, end, SEARCHED_BYTES_MAX)
    return life_of(batches_of(found, key), key, offset)


def _topic_id(client: Client, where: TopicPartition) -> UUID:
    topic = client.metadata([where.topic]).topics.get(where.topic)
    if topic is None or topic.topic_id is None:
        raise refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(where), None)
    return topic.topic_id


def _state_partition(client: Client, key: SharePartition) -> TopicPartition | None:
    from kbroker.coordinator.runtime._shard_table import partition_for
    from kbroker.types import TopicPartition

    topic = client.metadata([STATE_TOPIC]).topics.get(STATE_TOPIC)
    if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if topic.error is not ErrorCode.NONE:
        raise refuse(topic.error, f"topic '{STATE_TOPIC}'", None)
    return TopicPartition(STATE_TOPIC, partition_for(key.coordinator_key, len(topic.partitions)))


def _facts(
    client: Client, group: str, where: TopicPartition, offset: int, life: Life
) -> dict[str, Any]:
    from kbroker.peer.log_reading import offset_at
    from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
    from kbroker.peer.share_records import record_at

    log_start, log_end = (
        offset_at(client, where, when) for when in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    )
    found = record_at(client, group, where, offset).record
    facts: dict[str, Any] = {
        "group": group,
        "record": f"{where.topic}/{where.partition}/{offset}",
        "log": {"start": log_start, "high_watermark": log_end},
        **(_of_leader(found) if found is not None and found.is_serving else _of_log(life)),
    }
    facts["verdict"] = _verdict(facts, life, offset)
    facts["history"] = [each.document() for each in life.steps]
    return facts


def _of_leader(found: ShareRecord) -> dict[str, Any]:
    is_held = found.state == _ACQUIRED
    in_flight = found.end_offset - found.start_offset + 1 - found.uncounted
    return {
        "known_by": "its leader",
        "state": _STATES.get(found.state, str(found.state)),
        "being_written": None if found.next_state < 0 else _STATES[found.next_state],
        "delivery_count": found.delivery_count,
        "deliveries_max": found.deliveries_max,
        "member": (found.member_id or UNKNOWN_MEMBER) if is_held else None,
        "connection": found.connection or None,
        "lock_left_ms": found.lock_left_ms if is_held else None,
        "delay_left_ms": found.lock_left_ms if found.state == _DELAYED else None,
        "given_up": found.given_up or None,
        "same_state": {"first": found.first_offset, "last": found.last_offset},
        "window": {
            "start": found.start_offset,
            "end": found.end_offset,
            "in_flight": in_flight,
            "max": found.window_max,
            "delayed": found.delayed,
        },
    }


def _of_log(life: Life) -> dict[str, Any]:
    """Where no member has fetched from this leader yet."""
    return {
        "known_by": "the log of its state",
        "state": None if life.state is None else _STATES[life.state],
        "being_written": None,
        "delivery_count": life.delivery_count,
        "deliveries_max": None,
        "member": None,
        "connection": None,
        "lock_left_ms": None,
        "delay_left_ms": None,
        "given_up": None,
        "same_state": None,
        "window": None if life.start < 0 else {"start": life.start},
    }


def _verdict(facts: dict[str, Any], life: Life, offset: int) -> str:
    log, window = facts["log"], facts["window"]
    if offset >= log["high_watermark"]:
        return f"not there yet: consumers can read up to {log['high_watermark']}"
    if window is None:
        return "not delivered: the group has no start in this partition; a member has to fetch"
    if offset < window["start"]:
        return _why_done(log, life, offset)
    if facts["member"] is not None:
        left = shown_span(facts["lock_left_ms"])
        return f"with {facts['member']}, which has to acknowledge it within {left}"
    if facts["delay_left_ms"] is not None:
        left = shown_span(facts["delay_left_ms"])
        why = "kb.share.release.delay.ms" if facts["delivery_count"] else "its header kb-deliver-at"
        return f"it waits, by {why}: a member may have it in {left}"
    if facts["state"] == _STATES[_AFTER]:
        return _why_not_yet(window)
    if facts["state"] == _STATES[_ARCHIVING]:
        return facts["given_up"] or "given up; a copy is written when a member has fetched"
    if facts["state"] in (_STATES[2], _STATES[4]):
        return f"{facts['state']}: an earlier record keeps the start at {window['start']}"
    if facts["known_by"] != "its leader":
        return "available: no member has fetched since its leader leads"
    count, limit = facts["delivery_count"], facts["deliveries_max"]
    again = f"delivered {count} of {limit} times" if count else "not delivered yet"
    return f"available: {again}; the next fetch of a member gets it"


def _why_done(log: dict[str, Any], life: Life, offset: int) -> str:
    from kbroker.cli.share_life import STARTS

    if life.state is not None:
        # The start has passed a record that was given up, so its copy is written, or never will be.
        state = "archived" if life.state == _ARCHIVING else _STATES[life.state]
        return f"done: {state}, delivered {life.delivery_count} times"
    if offset < log["start"]:
        return "done: the log has it no more"
    begun = next((each.start for each in life.steps if each.event == STARTS), offset)
    if offset < begun:
        return f"never delivered: the group began at {begun}"
    return "done, or before the group's start: the state does not tell it any more"


def _why_not_yet(window: dict[str, Any]) -> str:
    if window["in_flight"] >= window["max"]:
        return (
            f"not delivered: {window['in_flight']} records are in flight, as many as may be;"
            f" {window['start']} has to be done with first"
        )
    return "not delivered yet: the next fetch after those before it gets it"


# --- what is printed ------------------------------------------------------------------------------


def _print(facts: dict[str, Any], life: Life) -> None:
    say(f"{facts['group']}  {facts['record']}")
    state = as_cell(facts["state"])
    if facts["being_written"] is not None:
        state += f", {facts['being_written']} is being written"
    limit = "" if facts["deliveries_max"] is None else f" of {facts['deliveries_max']}"
    say(f"  state       {state}, says {facts['known_by']}")
    say(f"  deliveries  {facts['delivery_count']}{limit}")
    if facts["member"] is not None:
        connection = as_cell(facts["connection"])
        left = shown_span(facts["lock_left_ms"])
        say(f"  held by     {facts['member']}, connection {connection}, for {left}")
    window = facts["window"]
    if window is not None and "end" in window:
        in_flight = f"{window['in_flight']} of {window['max']} in flight"
        delayed = f", {window['delayed']} delayed" if window["delayed"] else ""
        say(f"  window      {window['start']} to {window['end']}, {in_flight}{delayed}")
    say(f"  verdict     {facts['verdict']}")
    click.echo()
    print_table(
        ("TIME", "EVENT", "DELIVERIES", "START"),
        [
            [
                shown_moment(each.time_ms), each.event, as_cell(each.delivery_count),
                "-" if each.start < 0 else str(each.start),
            ]
            for each in life.steps
        ],
    )  # fmt: skip
