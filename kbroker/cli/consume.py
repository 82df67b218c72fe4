"""`kbroker consume TOPIC`: records to standard output, in kcat's format letters.

Reads partitions directly; with `-G GROUP` as a member of a consumer group, which shares the
partitions out, remembers what was printed, and goes on from there next time. Each answer of a
broker is printed at once. With several partitions, records of one partition are in order, and
partitions take turns as answers come.

Ends after `-c` records, with `-e` at the end that each partition had when it was reached, at a
closed output, or when interrupted; a member then commits what was printed and leaves.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import click

from kbroker.cli.connect import bootstrap_option, connect, refuse
from kbroker.cli.numbers import LONG_MAX, unsigned_of
from kbroker.cli.output import say
from kbroker.errors import ErrorCode, KafkaError, UsageError
from kbroker.peer.isolation import READ_UNCOMMITTED
from kbroker.peer.partitions import log_ends, log_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kbroker.peer.client import Client
    from kbroker.peer.group_consumer import GroupConsumer
    from kbroker.peer.messages import Consumed, FetchResult
    from kbroker.protocol.record_batch import Record
    from kbroker.types import TopicPartition

BEGINNING: Final = "beginning"
END: Final = "end"
FETCH_WAIT_MS: Final = 500


class Start(NamedTuple):
    """Where reading begins: `kind` is beginning, end, offset, tail (N before the end) or time."""

    kind: str
    number: int = 0


@click.command("consume")
@click.argument("topic")
@click.option("-f", "--format", "form", default="%s\\n", help="kcat's letters: %s %k %t %p %o ...")
@click.option(
    "-o",
    "--offset",
    metavar="WHERE",
    help="beginning, end, N, -N (from the end) or s@TIMESTAMP_MS. Default: end; beginning with -e.",
)
@click.option("--from-beginning", is_flag=True, help="The same as -o beginning.")
@click.option("-e", "--exit", "exit_at_end", is_flag=True, help="Stop at the end.")
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after this many records.")
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True)
@click.option(
    "-G",
    "--group",
    metavar="GROUP",
    help="Share partitions with the group's members; -o is for partitions without a commit.",
)
@click.option("--instance-id", metavar="ID", help="Keep this member's place while it is away.")
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object a line.")
@bootstrap_option
def command(
    topic: str,
    form: str,
    offset: str | None,
    from_beginning: bool,
    exit_at_end: bool,
    count: int | None,
    partitions: tuple[int, ...],
    group: str | None,
    instance_id: str | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Read records from TOPIC."""
    if offset is not None and from_beginning:
        raise UsageError("-o and --from-beginning exclude each other", "give one of them")
    if group is not None and partitions:
        raise UsageError("-G and -p exclude each other", "a group shares all partitions out")
    if group is None and instance_id is not None:
        raise UsageError("--instance-id without a group", "give -G GROUP")
    where = BEGINNING if from_beginning or exit_at_end else END
    start = parse_start(where if offset is None else offset)
    from kbroker.cli.record_format import compile_format

    show = as_json_line if as_json else compile_format(form)
    with connect(bootstrap) as client:

        def end_of(partition: TopicPartition) -> int:
            return log_ends(client, [partition])[partition]

        if group is None:
            source = Partitions(client, positions_of(client, topic, partitions, start))
            _consume(source, show, end_of, exit_at_end=exit_at_end, count=count)
            return
        with member_of(client, group, instance_id, topic, start) as member:
            _consume(member, show, end_of, exit_at_end=exit_at_end, count=count)


def parse_start(text: str) -> Start:
    if text in (BEGINNING, END):
        return Start(text)
    kind, digits = "offset", text
    if text.startswith("s@"):
        kind, digits = "time", text[2:]
    elif text.startswith("-"):
        kind, digits = "tail", text[1:]
    number = unsigned_of(digits, LONG_MAX)
    if number is None:
        raise UsageError(f"offset '{text}'", "write beginning, end, N, -N or s@TIMESTAMP_MS")
    return Start(kind, number)


class Source(Protocol):
    """Where records come from; `poll` fetches once, `positions` are the caller's to move on.

    What is in `paused` is not fetched. `wait_ms` is how long a fetch waits for records. With the
    `isolation` of committed records a fetch ends before open transactions, and names aborted ones.
    """

    positions: dict[TopicPartition, int]
    paused: set[TopicPartition]
    wait_ms: int
    isolation: int

    def poll(self) -> Consumed: ...
    def restart(self, where: TopicPartition) -> int | None: ...


class Partitions:
    """Partitions that were named, read without a group."""

    isolation = READ_UNCOMMITTED

    def __init__(self, client: Client, positions: dict[TopicPartition, int]) -> None:
        self.positions = positions
        self.paused: set[TopicPartition] = set()
        self.wait_ms = FETCH_WAIT_MS
        self._client = client

    def poll(self) -> Consumed:
        from kbroker.peer.messages import Consumed

        wanted = {tp: offset for tp, offset in self.positions.items() if tp not in self.paused}
        fetched = self._client.fetch(wanted, max_wait_ms=self.wait_ms, isolation=self.isolation)
        return Consumed(fetched, None)

    def restart(self, where: TopicPartition) -> int | None:
        return None


@contextmanager
def member_of(
    client: Client, group: str, instance_id: str | None, topic: str, start: Start
) -> Iterator[GroupConsumer]:
    """A member of the group, which leaves it in order, also on a signal to end."""
    import signal

    from kbroker.peer.group_consumer import GroupConsumer

    client.partitions(topic)
    member = GroupConsumer(
        client,
        group,
        topic,
        lambda partitions: offsets_of(client, partitions, start),
        instance_id=instance_id,
    )
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield member
    finally:
        member.close()
        signal.signal(signal.SIGTERM, before)


def positions_of(
    client: Client, topic: str, wanted: tuple[int, ...], start: Start
) -> dict[TopicPartition, int]:
    """The first offset to read of every partition."""
    from kbroker.types import TopicPartition

    present = client.partitions(topic)
    for number in wanted:
        if number not in present:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic '{topic}' has partitions 0-{present[-1]}, not {number}",
            )
    chosen = [TopicPartition(topic, number) for number in sorted(set(wanted)) or present]
    return offsets_of(client, chosen, start)


def offsets_of(
    client: Client, chosen: list[TopicPartition], start: Start
) -> dict[TopicPartition, int]:
    from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    if start.kind == "offset":
        return {where: start.number for where in chosen}
    if start.kind == BEGINNING:
        return log_offsets(client, chosen, EARLIEST_TIMESTAMP)
    ends = log_offsets(client, chosen, LATEST_TIMESTAMP)
    if start.kind == END:
        return ends
    if start.kind == "time":
        # No record is that young: reading begins with the next one written.
        found = log_offsets(client, chosen, start.number)
        return {where: found[where] if found[where] >= 0 else ends[where] for where in chosen}
    begins = log_offsets(client, chosen, EARLIEST_TIMESTAMP)
    return {where: max(begins[where], ends[where] - start.number) for where in chosen}


def _consume(
    source: Source,
    show: Callable[[str, int, Record], bytes],
    end_of: Callable[[TopicPartition], int],
    *,
    exit_at_end: bool,
    count: int | None,
) -> None:
    left = count
    out = sys.stdout.buffer
    if exit_at_end:
        source.wait_ms = 0  # the end is known without waiting for later records
    while True:
        fetched, assigned = source.poll()
        positions = source.positions
        for where, result in fetched.items():
            if is_misplaced(source, where, result):
                continue
            records, after = _read(result.records, positions[where])
            if left is not None and len(records) >= left:
                records = records[:left]
                after = records[-1].offset + 1
            out.write(b"".join([show(where.topic, where.partition, record) for record in records]))
            positions[where] = after
            if left is not None:
                left -= len(records)
                if left == 0:
                    out.flush()
                    return
            # A new leader's high watermark may lie below what the one before acknowledged; it
            # answers ListOffsets only when it does not.
            if exit_at_end and after >= result.high_watermark and after >= end_of(where):
                source.paused.add(where)
        # Partitions that answered go to the end of the next request: none starves another.
        rotate(positions, fetched)
        out.flush()
        if exit_at_end and source.paused.issuperset(positions) and (fetched or assigned == []):
            return


def is_misplaced(source: Source, where: TopicPartition, result: FetchResult) -> bool:
    """Whether the position is outside of the log and was put right; any other error is raised."""
    if result.error is ErrorCode.NONE:
        return False
    position = source.positions[where]
    if result.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        anew = source.restart(where)
        if anew is not None and anew != position:
            source.positions[where] = anew
            say(f"warning: {where} has no offset {position}, on from {anew}", err=True)
            return True
        raise refuse(result.error, str(where), f"there is no offset {position}")
    raise refuse(result.error, str(where), None)


def rotate(positions: dict[TopicPartition, int], fetched: Mapping[TopicPartition, Any]) -> None:
    for where, result in fetched.items():
        if where in positions and result.records:
            positions[where] = positions.pop(where)


def _read(data: bytes, position: int) -> tuple[list[Record], int]:
    """The records from `position` on, and the offset after the last batch."""
    from kbroker.protocol.record_batch import decode_batches

    records: list[Record] = []
    for batch in decode_batches(data):
        if batch.last_offset < position:
            continue
        if not batch.control:
            records += [record for record in batch.records if record.offset >= position]
        position = batch.last_offset + 1
    return records, position


def as_json_line(topic: str, partition: int, record: Record) -> bytes:
    import json

    def text(value: bytes | None) -> str | None:
        return None if value is None else value.decode(errors="replace")

    document = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "headers": [{"name": name, "value": text(value)} for name, value in record.headers],
        "key": text(record.key),
        "value": text(record.value),
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"
