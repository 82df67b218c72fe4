"""`kbroker group why GROUP`: its rebalances, each with its causes, and who still has to do what.

The rebalances are read from `__consumer_offsets` (`observe/group_log.py`) with ordinary fetches: it
has all that the coordinator has decided, as far back as compaction has left it. Why a member has
gone, and for which ones the rebalance of a classic group waits, is asked of the coordinator, which
remembers the last ones. Groups of both protocols.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.output import as_cell, output_option, print_table, say, write_json
from kbroker.errors import ErrorCode
from kbroker.findings.moments import shown_moment, shown_span

if TYPE_CHECKING:
    from kbroker.observe.group_history import Cause, History, Rebalance, Waiting

LAST_DEFAULT: Final = 10
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
    from kbroker.observe.group_log import read_history

    with connect(bootstrap) as client:
        history = read_history(client, group)
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
