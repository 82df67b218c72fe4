"""`kbroker kafka-console-producer`: a record for each line, as kafka-console-producer.sh."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kbroker.cli.command_config import settings_of_file
from kbroker.cli.kafka_tool import (
    KafkaTool,
    connected,
    fail,
    field_of,
    option,
    properties_of,
    refuse,
)
from kbroker.cli.output import say_to_programs

if TYPE_CHECKING:
    from kbroker.protocol.record_batch import Record

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_OLDER_NAMES: Final = {
    "producer.config": "command-config",
    "producer-property": "command-property",
    "property": "reader-property",
}
_ACKS: Final = {"0": 0, "1": 1, "-1": -1, "all": -1}
# Of a producer with buffers and retries of its own; this one sends what has been read.
_WITHOUT_EFFECT: Final = (
    "batch-size", "max-block-ms", "max-memory-bytes", "max-partition-memory-bytes",
    "message-send-max-retries", "metadata-expiry-ms", "request-timeout-ms", "retry-backoff-ms",
    "socket-buffer-size", "timeout",
)  # fmt: skip


class Reader(NamedTuple):
    """How a line becomes a record: the properties of the original's reader of lines."""

    parse_key: bool = False
    key_separator: str = "\t"
    parse_headers: bool = False
    headers_delimiter: str = "\t"
    headers_separator: str = ","
    headers_key_separator: str = ":"
    ignore_error: bool = False
    null_marker: str | None = None

    def record(self, line: bytes, number: int) -> Record:
        from kbroker.protocol.record_batch import Record

        # As the original decodes and encodes it: what is no UTF-8 becomes a replacement character.
        text = line.removesuffix(b"\r").decode(errors="replace")
        headers, rest = None, text
        if self.parse_headers:
            headers, rest = self._split(text, rest, self.headers_delimiter, "headers", number)
        key = None
        if self.parse_key:
            key, rest = self._split(text, rest, self.key_separator, "key", number)
        pairs = () if headers in (None, self.null_marker) else self._headers(headers or "", number)
        return Record(self._bytes(key), self._bytes(rest), tuple(pairs))

    def _split(
        self, line: str, rest: str, separator: str, of: str, number: int
    ) -> tuple[str | None, str]:
        before, found, after = rest.partition(separator)
        if found:
            return before, after
        if not self.ignore_error:
            kind = "delimiter" if of == "headers" else "separator"
            fail(f"No {of} {kind} found on line number {number}: '{line}'")
        return None, rest

    def _headers(self, text: str, number: int) -> Iterable[tuple[str, bytes | None]]:
        for pair in re.split(self.headers_separator, text):
            name, found, value = pair.partition(self.headers_key_separator)
            if not found and not self.ignore_error:
                fail(f"No header key separator found in pair '{pair}' on line number {number}")
            yield name, self._bytes(value) if found else None

    def _bytes(self, text: str | None) -> bytes | None:
        return None if text is None or text == self.null_marker else text.encode()


def _reader(properties: Mapping[str, str]) -> Reader:
    defaults = Reader()._asdict()
    fields: dict[str, Any] = {}
    for name, value in properties.items():
        field = name.replace(".", "_")
        if field in defaults:
            is_switch = isinstance(defaults[field], bool)
            fields[field] = value.strip().lower() == "true" if is_switch else value
    return Reader(**fields)


def _take_older_names(options: dict[str, Any]) -> None:
    for old, new in _OLDER_NAMES.items():
        given, field = options[field_of(old)], field_of(new)
        if not given:
            continue
        if options[field]:
            refuse(f"Options --{new} and --{old} cannot be specified together.")
        say_to_programs(
            f"Warning: --{old} is deprecated and will be removed in a future version."
            f" Use --{new} instead."
        )
        options[field] = given


def _run(**options: Any) -> None:
    if options["bootstrap_server"] is None or options["topic"] is None:
        missing = "topic" if options["topic"] is None else "bootstrap-server"
        refuse(f'Missing required argument "[{missing}]"')
    _take_older_names(options)
    file = options["command_config"]
    settings = settings_of_file(file) if file else {}
    settings |= properties_of(options["command_property"])
    asked = options["request_required_acks"] or settings.get("acks", "-1")
    acks = _ACKS.get(asked)
    if acks is None:
        refuse(f"acks {asked}: 0, 1 or all")
    kind = options["compression_codec"] or settings.get("compression.type", "none")
    if kind not in _CODECS:
        refuse(f"compression.type {kind}: {', '.join(_CODECS)}")
    reading = settings_of_file(options["reader_config"]) if options["reader_config"] else {}
    reader = _reader(reading | properties_of(options["reader_property"]))
    from kbroker.cli.produce import read_lines
    from kbroker.compression import Codec
    from kbroker.peer.producer import Producer

    codec = Codec[kind.upper()]
    asks = sys.stdin.isatty() and sys.stdout.isatty()
    with connected(options["bootstrap_server"], file, settings) as client:
        producer = Producer(client, options["topic"], acks=acks, codec=codec)
        number = 0
        _prompt(asks)
        for lines in read_lines(sys.stdin.fileno()):
            producer.send(reader.record(line, number + at) for at, line in enumerate(lines, 1))
            number += len(lines)
            _prompt(asks)


def _prompt(asks: bool) -> None:
    if asks:
        sys.stdout.write(">")
        sys.stdout.flush()


command: Final = KafkaTool(
    "kafka-console-producer",
    callback=_run,
    help="Write a record for each line, with the options of kafka-console-producer.sh.",
    params=[
        option("bootstrap-server", "HOST:PORT,...", "Brokers to ask first."),
        option("topic", "TOPIC", "Where the records go."),
        option("command-config", "FILE", "How to authenticate; acks and compression.type."),
        option("command-property", "NAME=VALUE", "As in such a file.", multiple=True),
        option("reader-config", "FILE", "Properties of the reader."),
        option("reader-property", "NAME=VALUE", "parse.key=true and the like.", multiple=True),
        *(
            option(old, "...", f"The older name of --{new}.", multiple="property" in old)
            for old, new in _OLDER_NAMES.items()
        ),
        click.Option(
            ["--compression-codec"],
            type=click.Choice(_CODECS),
            is_flag=False,
            flag_value="gzip",
            help="The codec of the batches; gzip without a value.",
        ),
        option("request-required-acks", "ACKS", "0, 1 or all."),
        click.Option(["--sync"], is_flag=True, help="Without effect: each read is acknowledged."),
        *(option(each, "NUMBER", "Without effect.", type=int) for each in _WITHOUT_EFFECT),
    ],
)
