"""The messages of a query as NDJSON: a JSON object a line, up to a bound of bytes.

The fields are those of `kbroker consume --json`, and what a terminal would not print is escaped,
since it may go to one. What is no UTF-8 is in base64, in a field of its
own. A download that ends before the log does has a last line with the reason and with the path of
the messages page that goes on. Owner: the console's thread; a piece is some 64 KB, or what a part
of a second has brought, so that other visitors have the thread in between.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kbroker.clock import NS_PER_MS
from kbroker.console.message_query import read_query
from kbroker.console.message_source import choose, going_on, topic_of
from kbroker.console.pages.messages import merged_of, reading_of
from kbroker.console.records import BATCH_RECORDS_MAX, Budget
from kbroker.console.search import Filters

if TYPE_CHECKING:
    from kbroker.console.asked import Asked
    from kbroker.console.records import Found

DOWNLOAD_BYTES_MAX: Final = 10 * 1024 * 1024
LOOKED_RECORDS_MAX: Final = 2_000_000
LOOKED_BYTES_MAX: Final = 1024 * 1024 * 1024
LOOKING_MS_MAX: Final = 20_000
_PIECE_BYTES: Final = 64 * 1024
_STEP_MS: Final = 200
_HELD_BYTES_MAX: Final = 16 * 1024 * 1024
# JSON escapes the control characters of ASCII, except the last one.
_NO_ASCII: Final = re.compile(r"[^\x00-\x7e]+")


def download(asked: Asked) -> Iterator[bytes]:
    """Pieces, some of them empty. Refused and KafkaError are raised before the first one."""
    query = read_query(asked)
    with_values = asked.messages == "on"
    chosen = choose(topic_of(asked, query.topic), query.partitions)
    budget = Budget(
        asked.client.cluster.clock,
        records=LOOKED_RECORDS_MAX,
        data_bytes=LOOKED_BYTES_MAX,
        time_ms=LOOKING_MS_MAX,
    )
    filters = Filters(query.wanted, asked.pause)
    count = len(chosen.partitions)
    reading = reading_of(asked, query, filters, budget, count)
    # A batch is taken whole where it can be: what is not would be fetched once more.
    reading = reading._replace(
        want=BATCH_RECORDS_MAX, held_bytes_max=_HELD_BYTES_MAX // max(count, 1)
    )
    merged = merged_of(asked, query, chosen, reading)
    clock = asked.client.cluster.clock
    piece, written, why = bytearray(), 0, ""
    positions: dict[int, int] = {}
    since_ns = clock.monotonic_ns()
    while True:
        while merged.needs_more:
            merged.read_on()
            if clock.monotonic_ns() - since_ns >= _STEP_MS * NS_PER_MS:
                yield bytes(piece)
                piece.clear()
                since_ns = clock.monotonic_ns()
        found = merged.take_ready()
        if found is None:
            if not merged.is_over:
                positions = going_on(merged.readers)
                why = f"{budget.records} records were looked at, and the log has more"
            break
        left = DOWNLOAD_BYTES_MAX - written
        line = b""
        if _least_bytes(found, with_values=with_values) <= left:
            line = _line(query.topic, found, with_values=with_values)
        if not line or len(line) > left:
            why = f"the next message would make it more than {DOWNLOAD_BYTES_MAX} bytes"
            # It is taken: the page goes on with it.
            positions = going_on(merged.readers)
            positions[found.partition] = found.offset + (1 if query.newest else 0)
            break
        written += len(line)
        piece += line
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
            since_ns = clock.monotonic_ns()
    if why:
        following = query._replace(positions=positions).path()
        piece += json.dumps({"ended_early": why, "go_on": following}).encode() + b"\n"
    if piece:
        yield bytes(piece)


def _least_bytes(found: Found, *, with_values: bool) -> int:
    """Of its line, without making it: JSON has at least the bytes of the payloads."""
    record = found.record
    if record is None:
        return 0
    payloads = [record.key]
    if with_values:
        payloads += [record.value, *(value for _, value in record.headers)]
    return sum(len(each or b"") for each in payloads)


def _line(topic: str, found: Found, *, with_values: bool) -> bytes:
    document: dict[str, Any] = {
        "topic": topic,
        "partition": found.partition,
        "offset": found.offset,
        "timestamp_ms": found.timestamp_ms,
    }
    record = found.record
    if record is None:
        document["note"] = found.text
    else:
        if with_values:
            document["headers"] = [
                {"name": name} | _payload("value", value) for name, value in record.headers
            ]
        document |= _payload("key", record.key)
        if with_values:
            document |= _payload("value", record.value)
    text = _NO_ASCII.sub(_escaped, json.dumps(document, ensure_ascii=False))
    return text.encode(errors="replace") + b"\n"


def _escaped(some: re.Match[str]) -> str:
    """Without what moves the cursor of a terminal or turns the direction of text: the same JSON."""
    text = some[0]
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _payload(name: str, payload: bytes | None) -> dict[str, str | None]:
    if payload is None:
        return {name: None}
    try:
        return {name: payload.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(payload).decode()}
