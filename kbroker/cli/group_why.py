"""`kbroker group why GROUP`: its rebalances, each with its causes, and who still has to do what.

The rebalances are read from `__consumer_offsets` (`group_history.py`), which is read with ordinary
fetches: it has all that the coordinator has decided, as far back as compaction has left it. Why a
member has gone, and for which ones the rebalance of a classic group waits, is asked of the
coordinator, which remembers the last ones. Groups of both protocols.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from kbroker.cli.connect import bootstrap_option, connect, refuse
from kbroker.cli.output import as_cell, output_option, print_table, say, write_json
from kbroker.errors import ErrorCode
from kbroker.findings.moments import shown_moment, shown_span

if TYPE_CHECKING:
    from kbroker.cli.group_history import Batch, Cause, History, Rebalance, Waiting
    from kbroker.peer.client import Client
    from kbroker.types import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
LAST_DEFAULT: Final = 10
# Of the group's partition of `__consumer_offsets`.
SEARCHED_BYTES_MAX: Final = 1 << 30
PARTITIONS_SHOWN_MAX: Final = 8


@click.command("why")
@click.argument("group", metavar="GROUP")
@click.option(
    "--last", type=click.IntRange(1, 10_000), default=LAST_DEFAULT, show_default=True,
    help="So many rebalances, the newest ones.",
)  # fmt: skip
@bootstrap_option
@output_option
def why(group: str, last: int, bootstrap: str, output: str) -> int:
    """Tell why a group was rebalanced, and what its members wait for."""
    with connect(bootstrap) as client:
        history = _read(client, group)
    if history is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
        say(f"error: {error.name} ({error}): no log has group '{group}'", err=True)
        return 1
    del history.rebalances[:-last]
    if output == "json":
        write_json(history.document())
    else:
        _print(history)
    return 0


def _read(client: Client, group: str) -> History | None:
    """None: there is no record of the group."""
    from kbroker.cli.group_history import history_of, with_unwritten
    from kbroker.peer.groups import Groups

    place = _partition(client, group)
    if place is None:
        return None
    names = {
        topic.topic_id: name
        for name, topic in client.metadata().topics.items()
        if topic.topic_id is not None
    }
    history = history_of(group, _batches(client, place, group), names)
    if not history.kind:
        return None
    with_unwritten(history, Groups(client).unwritten(group))
    return history


def _partition(client: Client, group: str) -> TopicPartition | None:
    from kbroker.coordinator.runtime._shard_table import partition_for
    from kbroker.types import TopicPartition

    topic = client.metadata([OFFSETS_TOPIC]).topics.get(OFFSETS_TOPIC)
    if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if topic.error is not ErrorCode.NONE:
        raise refuse(topic.error, f"topic '{OFFSETS_TOPIC}'", None)
    return TopicPartition(OFFSETS_TOPIC, partition_for(group, len(topic.partitions)))


def _batches(client: Client, place: TopicPartition, group: str) -> Iterator[Batch]:
    """Those that may have a record of the group; what others say is not unpacked."""
    from kbroker.cli.group_history import Batch
    from kbroker.cli.log_reading import headers, offset_at, pieces
    from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
    from kbroker.protocol.record_batch import CODEC_MASK, CONTROL, decode_batches

    named = group.encode()
    start, end = (offset_at(client, place, when) for when in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP))
    for piece in pieces(client, place, start, end, SEARCHED_BYTES_MAX):
        for header in headers(piece):
            if header.attributes & CONTROL:
                continue
            data = piece[header.begin : header.end]
            if header.attributes & CODEC_MASK or named in data:
                for batch in decode_batches(data):
                    yield Batch(header.time_ms, list(batch.records))


# --- what is printed ------------------------------------------------------------------------------


def _print(history: History) -> None:
    assigned = history.assignment_epoch
    epoch = "generation" if assigned is None else "epoch"
    at = f", assigned {assigned}" if assigned not in (None, history.epoch) else ""
    say(f"{history.group}  {history.kind}, {history.state}, {epoch} {history.epoch}{at}")
    print_table(
        ("TIME", epoch.upper(), "WHY", "MEMBER", "CLIENT", "HOST", "MEMBERS", "MOVED", "TOOK"),
        [row for each in history.rebalances for row in _rows(each)],
    )
    if history.waiting:
        click.echo()
        print_table(
            ("SINCE", "MEMBER", "CLIENT", "HOST", "WHAT", "PARTITIONS", "HELD BY"),
            [_waiting_row(each) for each in history.waiting],
        )


def _rows(rebalance: Rebalance) -> Iterator[list[str]]:
    """A line for each cause; what is of the whole rebalance is in the first one."""
    took = "-"
    if rebalance.stable_ms is not None and rebalance.stable_ms > rebalance.time_ms:
        took = shown_span(rebalance.stable_ms - rebalance.time_ms)
    head = [shown_moment(rebalance.time_ms), str(rebalance.epoch)]
    tail = [str(rebalance.members), str(rebalance.moved), took]
    causes: list[Cause | None] = [*rebalance.causes] or [None]
    for cause in causes:
        yield [*head, *_cause_cells(cause), *tail]
        head, tail = ["", ""], ["", "", ""]


def _cause_cells(cause: Cause | None) -> list[str]:
    if cause is None:
        return ["not in the log any more", "-", "-", "-"]
    what = f"{cause.what}: {cause.text}" if cause.text else cause.what
    member = cause.instance_id or cause.member_id
    return [what, *map(as_cell, (member, cause.client_id, cause.host))]


def _waiting_row(waiting: Waiting) -> list[Any]:
    since = "-" if waiting.since_ms is None else shown_moment(waiting.since_ms)
    listed = [f"{name}/{index}" for name, index in waiting.partitions[:PARTITIONS_SHOWN_MAX]]
    if len(waiting.partitions) > PARTITIONS_SHOWN_MAX:
        listed.append(f"and {len(waiting.partitions) - PARTITIONS_SHOWN_MAX} more")
    holder = waiting.holder if waiting.holder != waiting.member_id else None
    return [
        since, waiting.member_id, waiting.client_id, waiting.host, waiting.what,
        as_cell(" ".join(listed)), as_cell(holder),
    ]  # fmt: skip
