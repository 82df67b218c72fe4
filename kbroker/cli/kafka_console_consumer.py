"""`kbroker kafka-console-consumer`: records as lines, as kafka-console-consumer.sh prints them.

Without a group the partitions are read directly; the original makes up the name of a group for
that. With one, this is a member as `kbroker consume -G` is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kbroker.cli.command_config import settings_of_file
from kbroker.cli.consume import (
    BEGINNING,
    END,
    Partitions,
    Source,
    Start,
    is_misplaced,
    member_of,
    offsets_of,
    positions_of,
    rotate,
)
from kbroker.cli.kafka_tool import (
    KafkaTool,
    connected,
    field_of,
    flag,
    option,
    properties_of,
    refuse,
)
from kbroker.cli.numbers import LONG_MAX, unsigned_of
from kbroker.cli.output import say, say_to_programs
from kbroker.clock import NS_PER_MS
from kbroker.peer.isolation import READ_COMMITTED, READ_UNCOMMITTED, Aborted

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.messages import FetchResult
    from kbroker.protocol.record_batch import Record, RecordBatch
    from kbroker.types import TopicPartition

_OLDER_NAMES: Final = {
    "consumer.config": "command-config",
    "consumer-property": "command-property",
    "property": "formatter-property",
}
_ISOLATION: Final = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}
_RESET: Final = {"earliest": BEGINNING, "latest": END}


class Formatter(NamedTuple):
    """The properties of the original's formatter; the names of fields have `_` for a dot."""

    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_delivery: bool = False
    print_epoch: bool = False
    print_headers: bool = False
    print_key: bool = False
    print_value: bool = True
    key_separator: str = "\t"
    line_separator: str = "\n"
    headers_separator: str = ","
    null_literal: str = "null"

    def line(self, partition: int, batch: RecordBatch, record: Record) -> bytes:
        columns = list(self._columns(partition, batch, record))
        if not columns:
            return b""
        return self.key_separator.encode().join(columns) + self.line_separator.encode()

    def _columns(self, partition: int, batch: RecordBatch, record: Record) -> Iterator[bytes]:
        if self.print_timestamp:
            kind = "LogAppendTime" if batch.log_append_time else "CreateTime"
            is_there = record.timestamp_ms >= 0
            yield f"{kind}:{record.timestamp_ms}".encode() if is_there else b"NO_TIMESTAMP"
        if self.print_partition:
            yield f"Partition:{partition}".encode()
        if self.print_offset:
            yield f"Offset:{record.offset}".encode()
        if self.print_delivery:
            yield b"Delivery:NOT_PRESENT"
        if self.print_epoch:
            yield b"Epoch:NOT_PRESENT"
        if self.print_headers:
            pairs = [name.encode() + b":" + self._bytes(value) for name, value in record.headers]
            yield self.headers_separator.encode().join(pairs) if pairs else b"NO_HEADERS"
        if self.print_key:
            yield self._bytes(record.key)
        if self.print_value:
            yield self._bytes(record.value)

    def _bytes(self, data: bytes | None) -> bytes:
        return self.null_literal.encode() if data is None else data


def _formatter(properties: Mapping[str, str]) -> Formatter:
    defaults = Formatter()._asdict()
    fields: dict[str, Any] = {}
    for name, value in properties.items():
        field = name.replace(".", "_")
        if field in defaults:
            is_switch = isinstance(defaults[field], bool)
            fields[field] = value.strip().lower() == "true" if is_switch else value
    return Formatter(**fields)


class _Restarting(Partitions):
    """Goes on at an end of the log where a position is not in it, as the original does."""

    def __init__(self, client: Client, positions: dict[TopicPartition, int], reset: Start) -> None:
        super().__init__(client, positions)
        self._reset = reset

    def restart(self, where: TopicPartition) -> int | None:
        return offsets_of(self._client, [where], self._reset).get(where)


class _Asked(NamedTuple):
    topic: str
    partition: int | None
    group: str | None
    start: Start
    reset: Start
    isolation: int
    records_max: int | None
    timeout_ms: int | None
    formatter: Formatter


def _asked(options: Mapping[str, Any], settings: Mapping[str, str]) -> _Asked:
    if options["topic"] is None:
        refuse("Exactly one of the following arguments is required: [topic], [include]")
    partition, offset = options["partition"], options["offset"]
    group = options["group"] or settings.get("group.id")
    if partition is not None and options["group"]:
        refuse("Options group and partition cannot be specified together.")
    if offset is not None and partition is None:
        refuse("The partition is required when offset is specified.")
    if offset is not None and options["from_beginning"]:
        refuse("Options from-beginning and offset cannot be specified together.")
    kind = settings.get("auto.offset.reset", "latest")
    if kind not in _RESET:
        refuse(f"auto.offset.reset {kind}: {', '.join(_RESET)}")
    reset = Start(BEGINNING if options["from_beginning"] else _RESET[kind])
    level = options["isolation_level"] or settings.get("isolation.level", "read_uncommitted")
    if level not in _ISOLATION:
        refuse(f"isolation.level {level}: {', '.join(_ISOLATION)}")
    format_file = options["formatter_config"]
    properties = settings_of_file(format_file) if format_file else {}
    return _Asked(
        options["topic"],
        partition,
        None if partition is not None else group,
        reset if offset is None else _start(offset),
        reset,
        _ISOLATION[level],
        options["max_messages"],
        options["timeout_ms"],
        _formatter(properties | properties_of(options["formatter_property"])),
    )


def _start(text: str) -> Start:
    if text.lower() in _RESET:
        return Start(_RESET[text.lower()])
    if (offset := unsigned_of(text, LONG_MAX)) is not None:
        return Start("offset", offset)
    refuse(
        f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest',"
        " or a non-negative long."
    )


def _take_older_names(options: dict[str, Any]) -> None:
    for old, new in _OLDER_NAMES.items():
        given, field = options[field_of(old)], field_of(new)
        if not given:
            continue
        if options[field]:
            refuse(f"Options --{old} and --{new} cannot be specified together.")
        say_to_programs(
            f"Option --{old} is deprecated and will be removed in a future version."
            f" Use --{new} instead."
        )
        options[field] = given


def _run(**options: Any) -> None:
    if options["bootstrap_server"] is None:
        refuse('Missing required argument "[bootstrap-server]"')
    _take_older_names(options)
    file = options["command_config"]
    settings = settings_of_file(file) if file else {}
    settings |= properties_of(options["command_property"])
    asked = _asked(options, settings)
    printed = 0
    with connected(options["bootstrap_server"], file, settings) as client:
        try:
            with _source(client, asked) as source:
                for line in _lines(client, source, asked):
                    sys.stdout.buffer.write(line)
                    printed += 1
        finally:
            sys.stdout.buffer.flush()
            say(f"Processed a total of {printed} messages", err=True)


@contextmanager
def _source(client: Client, asked: _Asked) -> Iterator[Source]:
    source: Source
    if asked.group is not None:
        with member_of(client, asked.group, None, asked.topic, asked.start) as source:
            source.isolation = asked.isolation
            yield source
        return
    partitions = () if asked.partition is None else (asked.partition,)
    positions = positions_of(client, asked.topic, partitions, asked.start)
    source = _Restarting(client, positions, asked.reset)
    source.isolation = asked.isolation
    yield source


def _lines(client: Client, source: Source, asked: _Asked) -> Iterator[bytes]:
    """Until there are enough, or none has come for so long; what was read so far is flushed."""
    clock = client.cluster.clock
    left = asked.records_max
    if asked.timeout_ms is not None:
        source.wait_ms = max(1, min(source.wait_ms, asked.timeout_ms))
    last_ns: int | None = None
    while left is None or left > 0:
        fetched, _ = source.poll()
        now_ns = clock.monotonic_ns()
        last_ns = now_ns if last_ns is None else last_ns  # the first poll joins the group
        for where, result in fetched.items():
            if is_misplaced(source, where, result):
                continue
            for batch, record in _records(source, where, result):
                last_ns = now_ns
                yield asked.formatter.line(where.partition, batch, record)
                source.positions[where] = record.offset + 1
                if left is not None:
                    left -= 1
                    if not left:
                        return
        rotate(source.positions, fetched)
        sys.stdout.buffer.flush()
        if asked.timeout_ms is not None and now_ns - last_ns >= asked.timeout_ms * NS_PER_MS:
            return


def _records(
    source: Source, where: TopicPartition, result: FetchResult
) -> Iterator[tuple[RecordBatch, Record]]:
    from kbroker.protocol.record_batch import decode_batches

    aborted = Aborted(result.aborted)
    begin = source.positions[where]
    for batch in decode_batches(result.records):
        is_hidden = source.isolation == READ_COMMITTED and aborted.holds(batch)
        if not batch.control and not is_hidden:
            for record in batch.records:
                if record.offset >= begin:
                    yield batch, record
        source.positions[where] = max(batch.last_offset + 1, begin)


command: Final = KafkaTool(
    "kafka-console-consumer",
    callback=_run,
    help="Print records as lines, with the options of kafka-console-consumer.sh.",
    params=[
        option("bootstrap-server", "HOST:PORT,...", "Brokers to ask first."),
        option("topic", "TOPIC", "Whose records."),
        option("partition", "N", "Of this one; no group then.", type=click.IntRange(0)),
        option("offset", "WHERE", "earliest, latest or a number; with --partition."),
        flag("from-beginning", "Where nothing else says it, from the first record."),
        option("max-messages", "N", "End after so many.", type=click.IntRange(1)),
        option("timeout-ms", "MS", "End when no record comes for so long.", type=click.IntRange(0)),
        option("group", "GROUP", "Share the partitions with the group's members."),
        option("isolation-level", "LEVEL", "read_uncommitted or read_committed."),
        option("formatter-property", "NAME=VALUE", "print.key=true and others.", multiple=True),
        option("formatter-config", "FILE", "Properties of the formatter."),
        option("command-config", "FILE", "How to authenticate; properties of the consumer."),
        option("command-property", "NAME=VALUE", "As in such a file.", multiple=True),
        *(
            option(old, "...", f"The older name of --{new}.", multiple="property" in old)
            for old, new in _OLDER_NAMES.items()
        ),
        flag("skip-message-on-error", "Without effect."),
    ],
)
