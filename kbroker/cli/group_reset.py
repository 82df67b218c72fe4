"""`kbroker group reset GROUP`: move what a group has committed, in every way of Kafka's own tool.

The group must have no members: their next commit would undo it. Without `--execute` the new offsets
are printed and nothing changes; `--export` prints them as `topic,partition,offset` lines, which
`--from-file` reads. An offset outside of its log becomes the nearest one inside, which is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from kbroker.cli.connect import bootstrap_option, connect, refuse
from kbroker.cli.offset_lines import FILE_BYTES_MAX, HINT, offset_line, parse_lines
from kbroker.cli.output import (
    as_cell,
    output_option,
    print_table,
    say,
    say_to_programs,
    write_json,
)
from kbroker.cli.partitions import parse_chosen
from kbroker.errors import ErrorCode, KafkaError, UsageError, UserError
from kbroker.findings.moments import parse_moment, parse_span
from kbroker.peer.partitions import Chosen, by_partition, existing

if TYPE_CHECKING:
    from kbroker.peer.offset_reset import Reset
    from kbroker.types import TopicPartition

_OFFSET_MAX: Final = 2**63 - 1
MODES: Final = (
    "to_earliest", "to_latest", "to_current", "to_offset", "to_datetime", "by_duration",
    "shift_by", "from_file",
)  # fmt: skip


@click.command("reset")
@click.argument("group", metavar="GROUP")
@click.option("-t", "--topic", "topics", metavar="TOPIC[:0,1]", multiple=True, help="Repeatable.")
@click.option("--all-topics", is_flag=True, help="Every topic that the group has offsets of.")
@click.option("--to-earliest", is_flag=True, help="To the first record there is.")
@click.option("--to-latest", is_flag=True, help="To the end: only what comes from now on.")
@click.option("--to-current", is_flag=True, help="To the committed offsets, else to the end.")
@click.option("--to-offset", type=click.IntRange(0, _OFFSET_MAX), metavar="N", help="To this one.")
@click.option("--to-datetime", metavar="MOMENT", help="To the first record since then.")
@click.option("--by-duration", metavar="SPAN", help="To the first record of the last P1DT2H, 90m.")
@click.option("--shift-by", type=int, metavar="N", help="From the commits, may be negative.")
@click.option("--from-file", metavar="FILE", help="Lines topic,partition,offset; - is stdin.")
@click.option("--export", is_flag=True, help="Print lines for --from-file.")
@click.option("--execute", is_flag=True, help="Do it; without this, only say what would be done.")
@bootstrap_option
@output_option
def reset(
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    export: bool,
    execute: bool,
    bootstrap: str,
    output: str,
    **modes: Any,
) -> int:
    """Set the committed offsets of GROUP anew; a dry run unless --execute is given."""
    mode = _one_mode(modes)
    chosen = [parse_chosen(text) for text in topics]
    given = _read_file(modes["from_file"], group) if mode == "from_file" else {}
    _check_scope(mode, chosen, all_topics=all_topics)
    wanted = _reset(mode, modes[mode], given)
    from kbroker.peer.groups import Groups
    from kbroker.peer.offset_reset import (
        check_idle,
        committed_offsets,
        partitions_of_group,
        planned,
    )

    with connect(bootstrap) as client:
        groups = Groups(client)
        check_idle(groups, group)
        committed = committed_offsets(groups, group)
        if mode == "from_file":
            partitions = existing(client, [Chosen(w.topic, (w.partition,)) for w in given])
        elif all_topics:
            partitions = partitions_of_group(client, group, committed)
        else:
            partitions = existing(client, chosen)
        plan = planned(client, committed, partitions, wanted)
        for warning in plan.warnings:
            say(f"warning: {warning}", err=True)
        errors = groups.commit(group, plan.after) if execute and plan.after else {}
    return _report(plan.after, committed, errors, export=export, execute=execute, output=output)


def say_dry_run() -> None:
    say("dry run: nothing was changed -> add --execute", err=True)


def _one_mode(modes: Mapping[str, Any]) -> str:
    given = [mode for mode in MODES if modes[mode] is not None and modes[mode] is not False]
    if len(given) != 1:
        names = ", ".join("--" + mode.replace("_", "-") for mode in MODES)
        what = "no new position" if not given else f"{len(given)} new positions"
        raise UsageError(what, f"give one of {names}")
    return given[0]


def _check_scope(mode: str, chosen: list[Chosen], *, all_topics: bool) -> None:
    scopes = bool(chosen) + all_topics + (mode == "from_file")
    if scopes != 1:
        raise UsageError(
            "no topics" if not scopes else "topics are named in two ways",
            "give -t TOPIC, or --all-topics, or --from-file alone",
        )


def _reset(mode: str, value: Any, given: Mapping[TopicPartition, int]) -> Reset:
    from kbroker.peer.offset_reset import Mode, Reset

    if mode == "to_datetime":
        return Reset(Mode.TO_MOMENT, parse_moment(value))
    if mode == "by_duration":
        from kbroker.clock import SystemClock

        return Reset(Mode.TO_MOMENT, SystemClock().wall_ms() - parse_span(value))
    if mode == "from_file":
        return Reset(Mode.TO_GIVEN, given=given)
    return Reset(Mode(mode), int(value))


def _read_file(name: str, group: str) -> dict[TopicPartition, int]:
    """Lines topic,partition,offset, or group,topic,partition,offset of which ours are taken."""
    try:
        with click.open_file(name, "rb") as file:
            offsets = parse_lines(file.read(FILE_BYTES_MAX + 1), group)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"cannot read {name}: {why}", f"{HINT} lines") from None
    if not offsets:
        raise UsageError("there is no offset in the file", f"{HINT} lines")
    return offsets


def _report(
    new: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    errors: Mapping[TopicPartition, ErrorCode],
    *,
    export: bool,
    execute: bool,
    output: str,
) -> int:
    ordered = by_partition(new)
    refused = [where for where in ordered if errors.get(where, ErrorCode.NONE)]
    if output == "json":
        write_json(
            [
                {
                    "topic": where.topic,
                    "partition": where.partition,
                    "before": committed.get(where),
                    "after": new[where],
                    "executed": execute,
                    "error": errors.get(where, ErrorCode.NONE).name,
                }
                for where in ordered
            ]
        )
        return 1 if refused else 0
    if export:
        for where in ordered:
            say_to_programs(offset_line(where.topic, where.partition, new[where]))
    else:
        print_table(
            ("TOPIC", "PARTITION", "BEFORE", "AFTER"),
            [
                [where.topic, where.partition, as_cell(committed.get(where)), new[where]]
                for where in ordered
                if where not in refused
            ],
        )
    if refused:
        for where in refused[:-1]:
            say(f"error: {refuse(errors[where], str(where), None)}", err=True)
        raise KafkaError(errors[refused[-1]], str(refused[-1]))
    if not execute and not export:
        say_dry_run()
    return 0
