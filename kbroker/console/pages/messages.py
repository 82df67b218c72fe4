"""The messages of a topic: newest first or oldest first, filtered, as far as a page's budget goes.

A page that ends before the log does gives the offsets that it has looked at, and a link that goes
on from there. Nothing waits for records: what is there is read, and gaps are stepped over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kbroker.console.message_query import (
    Isolation,
    MessageQuery,
    Order,
    Partitions,
    query_fields,
    read_query,
)
from kbroker.console.message_source import (
    Chosen,
    choose,
    columns_of,
    going_on,
    log_bounds,
    readers_of,
    row_of,
    topic_of,
)
from kbroker.console.page import (
    Cell,
    Fact,
    Facts,
    Form,
    Links,
    Notice,
    Page,
    Section,
    Table,
    Tone,
    Unit,
    to,
)
from kbroker.console.records import Budget, Found, Merged, Reading
from kbroker.console.search import Filters
from kbroker.limits import CONSOLE_PATH_CHARS_MAX

if TYPE_CHECKING:
    from kbroker.console.asked import Asked

# One page looks at so much, whichever comes first.
LOOKED_RECORDS_MAX: Final = 500_000
LOOKED_BYTES_MAX: Final = 256 * 1024 * 1024
LOOKING_MS_MAX: Final = 2_500
# Of all payloads of a page; each has an equal share of it.
PAGE_CHARS_MAX: Final = 400_000
PAYLOAD_CHARS_MIN: Final = 400
PAYLOAD_CHARS_MAX: Final = 100_000
ROWS_AT_ONCE: Final = 50  # drawn between two pauses
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
HELD_BYTES_MIN: Final = 1024 * 1024
# Of one fetch of a partition, which may be one larger batch.
FETCH_BYTES_MAX: Final = 1024 * 1024
FETCH_BYTES_MIN: Final = 128 * 1024
_UTF8_BYTES_MAX: Final = 4


def make(asked: Asked) -> Page:
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
    share = PAGE_CHARS_MAX // query.rows
    chars_max = min(max(share, PAYLOAD_CHARS_MIN), PAYLOAD_CHARS_MAX)
    reading = reading_of(asked, query, filters, budget, len(chosen.partitions))
    reading = reading._replace(payload_bytes_max=_UTF8_BYTES_MAX * (chars_max + 1))
    merged = merged_of(asked, query, chosen, reading)
    found: list[Found] = []
    while len(found) < query.rows and (record := merged.take()) is not None:
        found.append(record)
    following = ""
    if not merged.is_over:
        following = query._replace(positions=going_on(merged.readers)).path()
    rows: list[list[Cell]] = []
    for each in found:
        if len(rows) % ROWS_AT_ONCE == 0:
            asked.pause()
        rows.append(row_of(each, query.topic, query.form, chars_max, with_values=with_values))
    table = Table(
        "messages",
        "Messages",
        columns_of(asked),
        rows,
        empty="none in what was looked at" if following else "none",
        next_path=following,
    )
    sections: list[Section] = [
        *_notices(query, chosen, filters, following, with_values=with_values),
        Form(
            "query",
            "Search",
            to("topics", query.topic, "messages"),
            query_fields(query, with_values=with_values),
            "Search",
        ),
        _looked(budget, merged),
        table,
        _links(query, chosen),
    ]
    trail = [("Topics", to("topics")), (query.topic, to("topics", query.topic))]
    tail_path = query._replace(positions={}).path("tail") if query.newest else ""
    return Page("Messages", sections, trail, tail_path=tail_path)


def reading_of(
    asked: Asked, query: MessageQuery, filters: Filters, budget: Budget, partitions: int
) -> Reading:
    """Payloads are kept as they are."""
    share = max(partitions, 1)
    return Reading(
        client=asked.client,
        isolation=query.isolation.number,
        markers=query.isolation is Isolation.ALL,
        filters=filters,
        budget=budget,
        pause=asked.pause,
        want=query.rows,
        held_bytes_max=max(HELD_BYTES_MAX // share, HELD_BYTES_MIN),
        payload_bytes_max=None,
        fetch_bytes=max(FETCH_BYTES_MAX // share, FETCH_BYTES_MIN),
    )


def merged_of(asked: Asked, query: MessageQuery, chosen: Chosen, reading: Reading) -> Merged:
    logs = log_bounds(asked, chosen.partitions, query.isolation.number)
    readers = readers_of(asked, query, logs, reading)
    return Merged(readers, reading.budget, newest=query.newest)


def _looked(budget: Budget, merged: Merged) -> Facts:
    """How far the page has looked: an offset where there is one partition."""
    facts = [
        Fact("records_looked_at", "Records looked at", Cell(budget.records), Unit.COUNT),
        Fact("bytes_looked_at", "Bytes looked at", Cell(budget.data_bytes), Unit.BYTES),
    ]
    if len(merged.readers) == 1:
        position = merged.readers[0].position
        facts.append(Fact("until_offset", "Until offset", Cell(position)))
    else:
        over = sum(reader.is_over and not reader.found for reader in merged.readers)
        facts.append(
            Fact("partitions", "Partitions", Cell(len(merged.readers)), Unit.COUNT),
        )
        facts.append(
            Fact("partitions_done", "Partitions looked at to the end", Cell(over), Unit.COUNT)
        )
    return Facts("looked", "Looked at", facts)


def _notices(
    query: MessageQuery, chosen: Chosen, filters: Filters, following: str, *, with_values: bool
) -> list[Notice]:
    """`following`: the address that goes on, if the log has more."""
    notices: list[Notice] = []
    if not with_values:
        text = "values and headers are left out: admin.console.messages is keys"
        notices.append(Notice(Tone.QUIET, text))
    if chosen.leaderless:
        numbers = ", ".join(map(str, chosen.leaderless))
        text = f"partitions without a leader are left out: {numbers}"
        notices.append(Notice(Tone.WARN, text, "see why they have none on the topic's page"))
    if chosen.following is not None:
        text = f"{len(chosen.partitions)} partitions are on this page"
        notices.append(Notice(Tone.QUIET, text, "choose others by number, as 100-199"))
    if filters.cut:
        text = f"of {filters.cut} long texts the beginning alone was searched by the expression"
        notices.append(Notice(Tone.QUIET, text, "contains and equals search all of a text"))
    if len(following) > CONSOLE_PATH_CHARS_MAX:
        text = "the log has more, and the address that goes on is too long for a link"
        notices.append(Notice(Tone.WARN, text, "look at fewer partitions, or for a shorter text"))
    elif following and query.wanted != type(query.wanted)():
        text = "the search has not come to the end of the log"
        notices.append(Notice(Tone.QUIET, text, "go on by the link below the rows"))
    return notices


def _links(query: MessageQuery, chosen: Chosen) -> Links:
    plain = query._replace(positions={}, offset=None)
    items: list[tuple[str, str]] = [
        ("Newest", plain._replace(order=Order.NEWEST).path()),
        ("Oldest", plain._replace(order=Order.OLDEST).path()),
        ("Download as NDJSON", query.path("download")),
    ]
    if chosen.following is not None:
        following: Partitions = chosen.following
        items.append((f"Partitions {following}", plain._replace(partitions=following).path()))
    return Links("more", "More", _without_repeats(items))


def _without_repeats(items: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    return list(dict.fromkeys(items))
