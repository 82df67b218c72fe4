"""`kbroker txn list|describe|explain`: transactions, as their coordinators know them.

`explain` reads one id's life from the logs: see `txn_life.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.output import output_option, print_table, say, write_json, write_rows
from kbroker.errors import ErrorCode, UsageError
from kbroker.findings.moments import parse_span, shown_moment, shown_span

if TYPE_CHECKING:
    from kbroker.peer.transactions import Described

STATES: Final = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
)  # fmt: skip
_BY_LOWER: Final = {state.lower(): state for state in STATES}
LAST_DEFAULT: Final = 3
UNKNOWN_CLIENT: Final = "unknown: no coordinator remembers it"


@click.group("txn")
def command() -> None:
    """List, describe and explain transactions."""


@command.command("list")
@click.option("--state", "states", metavar="STATE", multiple=True, help="Ongoing, Empty, ...")
@click.option("--producer-id", "producer_ids", type=int, multiple=True, help="Of a producer id.")
@click.option(
    "--open-for", metavar="SPAN", help="Only transactions that began longer ago: 90m, PT1H."
)
@click.option("--pattern", metavar="REGEX", help="A pattern that the whole id matches.")
@bootstrap_option
@output_option
def list_transactions(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    open_for: str | None,
    pattern: str | None,
    bootstrap: str,
    output: str,
) -> None:
    """List transactional ids."""
    from kbroker.peer.transaction_messages import ANY_DURATION_MS, Filter
    from kbroker.peer.transactions import Transactions

    open_for_ms = ANY_DURATION_MS if open_for is None else parse_span(open_for)
    wanted = Filter([_state(each) for each in states], producer_ids, open_for_ms, pattern)
    with connect(bootstrap) as client:
        found = Transactions(client).list_transactions(wanted)
    rows = [
        {
            "transactional_id": listed.transaction.transactional_id,
            "state": listed.transaction.state,
            "producer_id": listed.transaction.producer_id,
            "coordinator": listed.coordinator,
        }
        for listed in found
    ]
    write_rows(rows, ("TRANSACTIONAL ID", "STATE", "PRODUCER ID", "COORDINATOR"), output)


def _state(text: str) -> str:
    state = _BY_LOWER.get(text.lower())
    if state is None:
        raise UsageError(f"'{text}' is no state of a transaction", f"use {', '.join(STATES)}")
    return state


@command.command("describe")
@click.argument("ids", metavar="TRANSACTIONAL_ID...", nargs=-1, required=True)
@bootstrap_option
@output_option
def describe(ids: tuple[str, ...], bootstrap: str, output: str) -> int:
    """Show producer, state, times and partitions."""
    from kbroker.clock import SystemClock
    from kbroker.findings.transactions import document
    from kbroker.peer.transactions import Transactions

    names = list(dict.fromkeys(ids))
    with connect(bootstrap) as client:
        described = Transactions(client).describe(names)
    now_ms = SystemClock().wall_ms()
    known = [described[name] for name in names if not described[name].transaction.error]
    documents = [document(each, now_ms) for each in known]
    if output == "json":
        write_json(documents)
    else:
        for number, each in enumerate(documents):
            if number:
                click.echo()
            _print(each)
    return _report_others([described[name] for name in names])


def _report_others(described: list[Described]) -> int:
    failed = [each.transaction for each in described if each.transaction.error]
    for each in failed:
        error = each.error
        say(f"error: {error.name} ({error}): id '{each.transactional_id}'", err=True)
    return 1 if failed else 0


def _print(facts: dict[str, Any]) -> None:
    say(f"{facts['transactional_id']}  {facts['state']}, coordinator {facts['coordinator']}")
    say(f"  producer    id {facts['producer_id']}, epoch {facts['producer_epoch']}")
    client = facts["client"]
    known = UNKNOWN_CLIENT if client is None else f"id {client['id']}, address {client['address']}"
    say(f"  client      {known}")
    say(f"  timeout     {shown_span(facts['timeout_ms'])}")
    if facts["start_ms"] is not None:
        left_ms = facts["time_left_ms"]
        rest = "" if left_ms is None else f", {until_timeout(left_ms)}"
        say(f"  began       {shown_moment(facts['start_ms'])}{rest}")
    for each in facts["partitions"]:
        say(f"  partition   {each['topic']}/{each['partition']}")


def until_timeout(left_ms: int) -> str:
    if left_ms < 0:
        return f"{shown_span(-left_ms)} over its timeout"
    return f"{shown_span(left_ms)} until its timeout"


@command.command("explain")
@click.argument("transactional_id", metavar="TRANSACTIONAL_ID")
@click.option(
    "--last", type=click.IntRange(1, 1000), default=LAST_DEFAULT, show_default=True,
    help="So many transactions, the newest ones.",
)  # fmt: skip
@bootstrap_option
@output_option
def explain(transactional_id: str, last: int, bootstrap: str, output: str) -> int:
    """Tell an id's life from the logs: partitions, first batches, outcome and markers."""
    from kbroker.cli.txn_life import life_of

    with connect(bootstrap) as client:
        life = life_of(client, transactional_id, last)
    if life is None:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        say(f"error: {error.name} ({error}): no log has '{transactional_id}'", err=True)
        return 1
    if output == "json":
        write_json(life.document())
        return 0
    place = life.state_partition
    say(f"{transactional_id}  {life.state}, in {place.topic}/{place.partition}")
    print_table(
        ("TIME", "EVENT", "PRODUCER", "WHERE"),
        [
            [
                "-" if each.time_ms is None else shown_moment(each.time_ms),
                each.name,
                f"{each.producer_id}:{each.epoch}" if each.producer_id >= 0 else "-",
                each.where,
            ]
            for each in life.events
        ],
    )
    return 0
