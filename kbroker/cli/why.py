"""`kbroker why consumer|produce|partition|slow`: the causes that a broker sees, and what to do.

The broker at --admin answers on its admin port, from its memory (`observe/why`); what other brokers
lead or coordinate is named as not seen. Exits with 0 if nothing is wrong, with 1 if there is a
cause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from kbroker.cli.output import output_option, say, write_json
from kbroker.errors import UserError
from kbroker.outside_text import printable

Command = TypeVar("Command", bound=Callable[..., Any])

ADMIN_DEFAULT: Final = "http://127.0.0.1:9644"
TIMEOUT_MS: Final = 10_000
_OK: Final = 200


def _asked(function: Command) -> Command:
    """The options of every question."""
    admin = click.option(
        "--admin", metavar="URL", default=ADMIN_DEFAULT, envvar="KBROKER_ADMIN", show_default=True,
        help="The admin port of the broker: http://HOST:PORT or https://HOST:PORT.",
    )  # fmt: skip
    return admin(output_option(function))


def _of_a_client(function: Command) -> Command:
    """Options that narrow a question down to a client."""
    for option in (
        click.option("--client-id", help="Quotas of this client only."),
        click.option("--host", metavar="ADDRESS", help="The principal's address."),
        click.option("--principal", metavar="TYPE:NAME", help="The rights of this principal."),
    ):
        function = option(function)
    return function


@click.group("why")
def command() -> None:
    """Name what is in the way of a group, a topic or a partition, what blocks first, first."""


@command.command("consumer")
@click.argument("group", metavar="GROUP")
@_of_a_client
@_asked
def consumer(group: str, admin: str, output: str, **client: str | None) -> int:
    """Why a group reads nothing, or slowly."""
    return _answer(admin, output, consumer=group, **client)


@command.command("produce")
@click.argument("topic", metavar="TOPIC")
@click.option("--batch-bytes", type=click.IntRange(0, 10**9 - 1), help="The size of a batch.")
@_of_a_client
@_asked
def produce(
    topic: str, batch_bytes: int | None, admin: str, output: str, **client: str | None
) -> int:
    """Why a topic takes no records, or slowly."""
    size = None if batch_bytes is None else str(batch_bytes)
    return _answer(admin, output, produce=topic, batch_bytes=size, **client)


@command.command("partition")
@click.argument("partition", metavar="TOPIC/PARTITION")
@_of_a_client
@_asked
def partition(partition: str, admin: str, output: str, **client: str | None) -> int:
    """Why a partition cannot be written or read to the end."""
    return _answer(admin, output, partition=partition, **client)


@command.command("slow")
@_asked
def slow(admin: str, output: str) -> int:
    """Why the broker is slow."""
    return _answer(admin, output, slow="")


def _answer(admin: str, output: str, **asked: str | None) -> int:
    import json
    from urllib.parse import urlencode

    from kbroker.cli.admin_checks import ask, check_url

    check_url(admin)
    query = {name.replace("_", "-"): value for name, value in asked.items() if value is not None}
    status, page = ask(admin, f"/why?{urlencode(query)}", TIMEOUT_MS)
    if status != _OK:
        raise UserError(
            f"{admin} answers {status}: {printable(page.strip())}", "see kbroker why --help"
        )
    from kbroker.observe.why.answer import lines

    try:
        answer = json.loads(page)
        text = list(lines(answer))
    except (ValueError, TypeError, LookupError):
        raise UserError(f"{admin} answers no JSON", "name the admin port of a kbroker") from None
    if output == "json":
        write_json(answer)
    else:
        for line in text:
            say(line)
    return 1 if answer["causes"] else 0
