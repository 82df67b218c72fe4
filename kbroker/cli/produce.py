"""`kbroker produce TOPIC`: records from standard input, one a line, kcat's letters for the options.

What has arrived on standard input is sent without waiting for more, so that a person who types sees
each line go out, and a pipe is sent in large batches. A line's bytes are not looked at: they need
not be text. The command ends at the end of input, when everything is acknowledged, or at the first
error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Final

import click

from kbroker.cli.connect import bootstrap_option, connect
from kbroker.errors import UsageError

READ_BYTES: Final = 1024 * 1024
# A line longer than this is no record for any broker's default limits.
LINE_BYTES_MAX: Final = 64 * 1024 * 1024


@click.command("produce")
@click.argument("topic")
@click.option("-k", "--key", help="The key of every record.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Key and value are KEY<TEXT>VALUE.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Default: by key.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="The codec of the batches.",
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "-1", "all"]),
    default="all",
    show_default=True,
    help="Who has it before it counts as written.",
)
@click.option("-H", "--header", "headers", metavar="NAME=VALUE", multiple=True, help="Header.")
@click.option("-Z", "--null", "empty_is_null", is_flag=True, help="Empty keys and values are null.")
@bootstrap_option
def command(
    topic: str,
    key: str | None,
    key_delimiter: str | None,
    partition: int | None,
    compression: str,
    acks: str,
    headers: tuple[str, ...],
    empty_is_null: bool,
    bootstrap: str,
) -> None:
    """Write records to TOPIC, one for each line of standard input."""
    if key is not None and key_delimiter:
        raise UsageError("-k and -K exclude each other", "give one of them")
    pairs = tuple(_split_header(text) for text in headers)
    fixed_key = key.encode() if key is not None else None
    delimiter = _unescape(key_delimiter) if key_delimiter else None

    from kbroker.compression import Codec
    from kbroker.peer.producer import Producer
    from kbroker.protocol.record_batch import Record

    def record(line: bytes) -> Record:
        record_key, value = fixed_key, line
        if delimiter is not None:
            before, found, after = line.partition(delimiter)
            if found:
                record_key, value = before, after
        if empty_is_null:
            return Record(record_key or None, value or None, pairs)
        return Record(record_key, value, pairs)

    with connect(bootstrap) as client:
        producer = Producer(
            client,
            topic,
            acks=-1 if acks == "all" else int(acks),
            codec=Codec[compression.upper()],
            partition=partition,
        )
        for lines in read_lines(sys.stdin.fileno()):
            producer.send(record(line) for line in lines)


def read_lines(descriptor: int) -> Iterator[list[bytes]]:
    """Whole lines, without their ends, as they become available; a last one may lack its end."""
    parts: list[bytes] = []
    held = 0
    while True:
        data = os.read(descriptor, READ_BYTES)
        if not data:
            if parts:
                yield [b"".join(parts)]
            return
        head, newline, rest = data.rpartition(b"\n")
        if not newline:
            parts.append(data)
            held += len(data)
            if held > LINE_BYTES_MAX:
                raise UsageError(
                    f"a line of more than {LINE_BYTES_MAX} bytes", "one line is one record"
                )
            continue
        yield b"".join([*parts, head]).split(b"\n")
        parts = [rest] if rest else []
        held = len(rest)


def _split_header(text: str) -> tuple[str, bytes | None]:
    """`name=value`; a name alone has a null value, as in kcat."""
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"header '{text}' has no name", "write -H name=value")
    return name, value.encode() if equals else None


def _unescape(text: str) -> bytes:
    """A delimiter as it is typed: the two characters \\t mean a tab."""
    return text.replace("\\t", "\t").replace("\\n", "\n").encode()
