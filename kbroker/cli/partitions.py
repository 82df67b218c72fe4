"""What commands about partitions share: naming them, and saying what became of them.

`-t TOPIC` is a whole topic, `-t TOPIC:0,2` some partitions of it, as in Kafka's tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbroker.cli.connect import refuse
from kbroker.cli.output import say, write_json
from kbroker.errors import ErrorCode, UsageError
from kbroker.peer.partitions import Chosen

if TYPE_CHECKING:
    from kbroker.peer.placement_messages import PartitionResult


def parse_chosen(text: str) -> Chosen:
    topic, colon, rest = text.partition(":")
    numbers = rest.split(",") if colon else []
    if not topic or not all(n.isascii() and n.isdecimal() and len(n) < 10 for n in numbers):
        raise UsageError(f"'{text}' names no partitions", "write TOPIC or TOPIC:0,1,2")
    return Chosen(topic, tuple(int(number) for number in numbers))


def report(results: Sequence[PartitionResult], done: str, output: str) -> int:
    """What became of each; the status of the command."""
    failed = [each for each in results if each.error is not ErrorCode.NONE]
    if output == "json":
        write_json(
            [
                {"topic": each.partition.topic, "partition": each.partition.partition,
                 "error": each.error.name, "message": each.message}
                for each in results
            ]
        )  # fmt: skip
    else:
        for each in results:
            if each.error is ErrorCode.NONE:
                say(f"{each.partition}: {done}")
    for each in failed:
        say(f"error: {refuse(each.error, str(each.partition), each.message)}", err=True)
    return 1 if failed else 0
