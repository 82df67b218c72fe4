"""`kbroker consume TOPIC`: records to standard output, in kcat's format letters.

Reads partitions directly, without a consumer group, so nothing is committed. Each answer of a
broker is printed at once. With several partitions, records of one partition are in order, and
partitions take turns as answers come.

Ends after `-c` records, with `-e` at the end that each partition had when it was reached, at a
closed output, or when interrupted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kbroker.cli.connect import bootstrap_option, connect, refuse
from kbroker.errors import ErrorCode, KafkaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kbroker.peer.client import Client
    from kbroker.peer.messages import FetchResult
    from kbroker.protocol.record_batch import Record
    from kbroker.types import TopicPartition

BEGINNING: Final = "beginning"
END: Final = "end"


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
    as_json: bool,
    bootstrap: str,
) -> None:
    """Read records from TOPIC."""
    if offset is not None and from_beginning:
        raise UsageError("-o and --from-beginning exclude each other", "give one of them")
    where = BEGINNING if from_beginning or exit_at_end else END
    start = parse_start(where if offset is None else offset)
    from kbroker.cli.record_format import compile_format

    show = as_json_line if as_json else compile_format(form)
    with connect(bootstrap) as client:
        positions = _positions(client, topic, partitions, start)
        _consume(client, positions, show, exit_at_end=exit_at_end, count=count)


def parse_start(text: str) -> Start:
    if text in (BEGINNING, END):
        return Start(text)
    kind, digits = "offset", text
    if text.startswith("s@"):
        kind, digits = "time", text[2:]
    elif text.startswith("-"):
        kind, digits = "tail", text[1:]
    if not (digits.isascii() and digits.isdigit()) or int(digits) >= 2**63:
        raise UsageError(f"offset '{text}'", "write beginning, end, N, -N or s@TIMESTAMP_MS")
    return Start(kind, int(digits))


def _positions(
    client: Client, topic: str, wanted: tuple[int, ...], start: Start
) -> dict[TopicPartition, int]:
    """The first offset to read of every partition."""
    from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
    from kbroker.types import TopicPartition

    present = client.partitions(topic)
    for number in wanted:
        if number not in present:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic '{topic}' has partitions 0-{present[-1]}, not {number}",
            )
    chosen = [TopicPartition(topic, number) for number in sorted(set(wanted)) or present]

    def offsets(timestamp_ms: int) -> dict[TopicPartition, int]:
        answer = client.list_offsets({where: timestamp_ms for where in chosen})
        for where, result in answer.items():
            if result.error is not ErrorCode.NONE:
                raise refuse(result.error, str(where), None)
        return {where: answer[where].offset for where in chosen}

    if start.kind == "offset":
        return {where: start.number for where in chosen}
    if start.kind == BEGINNING:
        return offsets(EARLIEST_TIMESTAMP)
    ends = offsets(LATEST_TIMESTAMP)
    if start.kind == END:
        return ends
    if start.kind == "time":
        # No record is that young: reading begins with the next one written.
        found = offsets(start.number)
        return {where: found[where] if found[where] >= 0 else ends[where] for where in chosen}
    begins = offsets(EARLIEST_TIMESTAMP)
    return {where: max(begins[where], ends[where] - start.number) for where in chosen}


def _consume(
    client: Client,
    positions: dict[TopicPartition, int],
    show: Callable[[str, int, Record], bytes],
    *,
    exit_at_end: bool,
    count: int | None,
) -> None:
    left = count
    out = sys.stdout.buffer
    while positions:
        fetched = client.fetch(positions)
        for where, result in fetched.items():
            _check(where, result, positions[where])
            records, after = _read(result.records, positions[where])
            if left is not None:
                records = records[:left]
                left -= len(records)
            out.write(b"".join([show(where.topic, where.partition, record) for record in records]))
            positions[where] = after
            if exit_at_end and after >= result.high_watermark:
                del positions[where]
            if left == 0:
                positions.clear()
                break
        # Partitions that answered go to the end of the next request: none starves behind another.
        _rotate(positions, fetched)
        out.flush()


def _rotate(positions: dict[TopicPartition, int], fetched: Mapping[TopicPartition, Any]) -> None:
    for where, result in fetched.items():
        if where in positions and result.records:
            positions[where] = positions.pop(where)


def _check(where: TopicPartition, result: FetchResult, position: int) -> None:
    if result.error is ErrorCode.NONE:
        return
    detail = None
    if result.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        detail = f"there is no offset {position}"
    raise refuse(result.error, str(where), detail)


def _read(data: bytes, position: int) -> tuple[list[Record], int]:
    """The records from `position` on, and the offset behind the last batch."""
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
