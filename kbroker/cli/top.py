"""`kbroker top`: rates, partitions, groups and their lag, live.

On a terminal it draws with rich (`pip install 'kbroker[ui]'`) until it is interrupted. With `-n`,
or into a pipe, it prints that many frames as plain tables; `-o json` prints one frame a line (a
single one unless `-n` says otherwise). The first frame has no rates.

A broker that goes away is said in the first line; the last figures stay until it is back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.numbers import NumberRange
from kbroker.cli.output import as_cell, output_option, print_table, say
from kbroker.errors import KafkaError, UserError
from kbroker.findings.checks import size
from kbroker.outside_text import escaped

if TYPE_CHECKING:
    from rich.console import Group

    from kbroker.cli.top_data import Sample
    from kbroker.peer.client import Client

ASK_TIMEOUT_MS: Final = 5_000
# As in `top_pages.PAGES`, which is imported for one of them alone.
PAGE_NAMES: Final = ("overview", "topics", "groups", "transactions", "brokers", "security")
TOPIC_TITLES: Final = ("TOPIC", "PARTITIONS", "MSG/S", "BYTES/S", "SIZE", "OFFSETS")
NODE_TITLES: Final = ("BROKER", "LEADS", "REPLICAS", "BEHIND", "LACKS", "COPIED/S", "CAUGHT UP IN")
GROUP_TITLES: Final = ("GROUP", "STATE", "PARTITIONS", "LAG", "WORST", "MSG/S")


class View(NamedTuple):
    """The parts of a frame that are printed."""

    interval_ms: int
    rows: int
    internal: bool


@click.command("top")
@click.option("-d", "--delay", type=NumberRange(0.1, 3600), default=2.0, show_default=True,
              metavar="SECONDS", help="Between two frames.")  # fmt: skip
@click.option("-n", "--count", type=click.IntRange(1), help="Print this many frames, plainly.")
@click.option("--rows", type=click.IntRange(1, 10_000), default=15, show_default=True,
              help="Topics and groups to show, the busiest first.")  # fmt: skip
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@click.option("--page", type=click.Choice(PAGE_NAMES), help="A page of the console instead.")
@bootstrap_option
@output_option
def command(
    delay: float,
    count: int | None,
    rows: int,
    internal: bool,
    page: str | None,
    bootstrap: str,
    output: str,
) -> None:
    """Show what a cluster does: rates, partitions, groups and lag."""
    view = View(round(delay * 1000), rows, internal)
    with connect(bootstrap, timeout_ms=ASK_TIMEOUT_MS) as client:
        if output == "text" and count is None and sys.stdout.isatty():
            from kbroker.cli.top_live import live

            live(client, view, page)
        elif page is not None:
            from kbroker.cli.top_pages import print_pages

            print_pages(client, view, page, count, output)
        elif output == "json":
            for frame in frames(client, view, count or 1):
                _print_json(frame)
        else:
            for number, frame in enumerate(frames(client, view, count)):
                if number:
                    click.echo()
                print_plain(frame, view.rows)
                sys.stdout.flush()


def frames(
    client: Client, view: View, count: int | None, wait: Callable[[], None] | None = None
) -> Iterator[dict[str, Any]]:
    """One frame after each interval, the first at once; for ever where `count` is None. `wait`: in
    place of the interval."""
    from kbroker.cli.top_data import frame, take

    before: Sample | None = None
    last: dict[str, Any] | None = None
    number = 0
    pause = wait or (lambda: client.cluster.sleep_ms(view.interval_ms))
    while count is None or number < count:
        if number:
            pause()
        number += 1
        try:
            now = take(client)
        except (KafkaError, UserError) as error:
            if last is None:
                raise
            yield {**last, "error": str(error)}
            continue
        last = frame(before, now, internal=view.internal)
        before = now
        yield last


def _print_json(frame: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps(frame, ensure_ascii=False))
    sys.stdout.flush()


# --- what a frame looks like ---


def headline(frame: dict[str, Any]) -> str:
    parts = [
        f"cluster {frame['cluster']}",
        f"{frame['brokers']} broker{'' if frame['brokers'] == 1 else 's'}",
        f"{frame['partitions']} partitions",
        f"{size(frame['size_bytes'])}",
    ]
    if frame["messages_per_s"] is not None:
        parts.append(f"{amount(frame['messages_per_s'])} msg/s in")
    if frame["bytes_per_s"] is not None:
        parts.append(f"{size(round(frame['bytes_per_s']))}/s to disk")
    if frame["leaderless"]:
        parts.append(f"{frame['leaderless']} without leader")
    if frame["under_replicated"]:
        parts.append(f"{frame['under_replicated']} under-replicated")
    if frame["reassigned"]:
        parts.append(f"{frame['reassigned']} on the way to other brokers")
    if "error" in frame:
        parts.append(f"no answer: {frame['error']}")
    return ", ".join(parts)


def node_rows(frame: dict[str, Any]) -> list[list[str]]:
    """Nothing for a broker without a cluster."""
    if len(frame["nodes"]) < 2:
        return []
    return [
        [
            f"{row['broker']}{_told(row)}",
            str(row["leaders"]),
            str(row["replicas"]),
            str(row["behind"]),
            "-" if row["behind_bytes"] is None else size(row["behind_bytes"]),
            "-" if row["copied_bytes_per_s"] is None else size(round(row["copied_bytes_per_s"])),
            "-" if row["caught_up_in_s"] is None else f"{row['caught_up_in_s']:,.0f} s",
        ]
        for row in frame["nodes"]
    ]


def _told(node: dict[str, Any]) -> str:
    if node["answers"] == "gone":
        return " gone"
    return " silent" if node["answers"] == "no" else ""


def tables(
    frame: dict[str, Any], rows: int
) -> Iterator[tuple[tuple[str, ...], list[list[str]], str]]:
    """Titles, lines, and what has no room."""
    yield NODE_TITLES, node_rows(frame)[:rows], hidden("brokers", frame["nodes"], rows)
    yield TOPIC_TITLES, topic_rows(frame, rows), hidden("topics", frame["topics"], rows)
    yield GROUP_TITLES, group_rows(frame, rows), hidden("groups", frame["groups"], rows)


def topic_rows(frame: dict[str, Any], rows: int) -> list[list[str]]:
    return [
        [
            row["topic"],
            str(row["partitions"]),
            amount(row["messages_per_s"]),
            "-" if row["bytes_per_s"] is None else size(round(row["bytes_per_s"])),
            size(row["size_bytes"]),
            str(row["end_offsets"]),
        ]
        for row in frame["topics"][:rows]
    ]


def group_rows(frame: dict[str, Any], rows: int) -> list[list[str]]:
    return [
        [
            row["group"],
            row["state"],
            as_cell(row["partitions"]),
            as_cell(row["lag"]),
            as_cell(row["lag_max"]),
            amount(row["consumed_per_s"]),
        ]
        for row in frame["groups"][:rows]
    ]


def amount(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:.1f}" if rate < 100 else f"{rate:,.0f}"


def hidden(what: str, every: Sequence[object], rows: int) -> str:
    """The line about what has no room, empty if all has."""
    return f"and {len(every) - rows} more {what}" if len(every) > rows else ""


def print_plain(frame: dict[str, Any], rows: int) -> None:
    say(headline(frame))
    for titles, lines, more in tables(frame, rows):
        if lines:
            click.echo()
            print_table(titles, lines)
        if more:
            say(more)


# --- on a terminal ---


def draw(frame: dict[str, Any], rows: int) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    trouble = "error" in frame or frame["leaderless"] or frame["under_replicated"]
    parts: list[Any] = [Text(escaped(headline(frame)), style="bold red" if trouble else "bold")]
    for titles, lines, more in tables(frame, rows):
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        for number, title in enumerate(titles):
            right = number > 0 and title != "STATE"
            table.add_column(title, justify="right" if right else "left", no_wrap=True)
        if not lines:
            continue
        for line in lines:
            # Names are text of others: no markup, and nothing to a terminal.
            table.add_row(*[Text(escaped(cell)) for cell in line])
        parts += [Text(), table]
        if more:
            parts.append(Text(more, style="dim"))
    return Group(*parts)
