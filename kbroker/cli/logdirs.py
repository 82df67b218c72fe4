"""`kbroker logdirs [TOPIC...]`: what the partitions take on every broker's disks.

One line for each data directory; with topics, one for each of their partitions. Every broker is
asked for its own; one that cannot be asked is an error of the whole command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.output import output_option, print_table, say, write_json
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.peer.config_messages import LogDirectory


@click.command("logdirs")
@click.argument("topics", metavar="[TOPIC...]", nargs=-1)
@bootstrap_option
@output_option
def command(topics: tuple[str, ...], bootstrap: str, output: str) -> int:
    """Show data directories and the bytes in them, in all or of some topics."""
    with connect(bootstrap) as client:
        found = client.log_directories()
    directories = [
        _description(node_id, directory, topics)
        for node_id, here in sorted(found.items())
        for directory in here
    ]
    if output == "json":
        write_json(directories)
    elif topics:
        _print_partitions(directories)
    else:
        _print_directories(directories)
    return 1 if any(directory["error"] != "NONE" for directory in directories) else 0


def _description(node_id: int, directory: LogDirectory, topics: tuple[str, ...]) -> dict[str, Any]:
    logs = [log for log in directory.logs if not topics or log.partition.topic in topics]
    return {
        "broker": node_id,
        "directory": directory.path,
        "error": directory.error.name,
        "size_bytes": sum(log.size_bytes for log in logs),
        "total_bytes": _known(directory.total_bytes),
        "usable_bytes": _known(directory.usable_bytes),
        "partitions": [
            {
                "topic": log.partition.topic,
                "partition": log.partition.partition,
                "size_bytes": log.size_bytes,
                "offset_lag": log.offset_lag,
                "future": log.future,
            }
            for log in sorted(logs)
        ],
    }


def _known(size_bytes: int) -> int | None:
    return size_bytes if size_bytes >= 0 else None


def _print_directories(directories: list[dict[str, Any]]) -> None:
    rows = [
        [
            each["broker"],
            len(each["partitions"]),
            each["size_bytes"],
            _shown(each["usable_bytes"]),
            _shown(each["total_bytes"]),
            each["directory"] if each["error"] == ErrorCode.NONE.name else _failed(each),
        ]
        for each in directories
    ]
    print_table(("BROKER", "PARTITIONS", "BYTES", "FREE", "VOLUME", "DIRECTORY"), rows)


def _print_partitions(directories: list[dict[str, Any]]) -> None:
    rows = [
        [
            partition["topic"],
            partition["partition"],
            each["broker"],
            partition["size_bytes"],
            partition["offset_lag"],
            each["directory"],
        ]
        for each in directories
        for partition in each["partitions"]
    ]
    rows.sort(key=lambda row: (row[0], row[1], row[2]))
    print_table(("TOPIC", "PARTITION", "BROKER", "BYTES", "LAG", "DIRECTORY"), rows)
    for each in directories:
        if each["error"] != ErrorCode.NONE.name:
            say(f"error: broker {each['broker']}: {_failed(each)}", err=True)


def _failed(directory: dict[str, Any]) -> str:
    return f"{directory['directory']} ({directory['error']})"


def _shown(size_bytes: int | None) -> str:
    return "?" if size_bytes is None else str(size_bytes)
