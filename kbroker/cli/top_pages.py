"""Pages of the console for `kbroker top --page`, made from answers to the client of the command.

There is no broker beside the pages, so its own figures are left out, and named. Reading only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from kbroker.console.asked import Asked, Refused
from kbroker.console.page import Notice, Page, Tone
from kbroker.console.sections import NO_BROKER, any_refusal
from kbroker.errors import InvariantError, KafkaError, UserError
from kbroker.findings.pieces import no_pause
from kbroker.metrics.model import Figures

if TYPE_CHECKING:
    from kbroker.cli.top import View
    from kbroker.config import BrokerConfig
    from kbroker.observe.why.facts import Question
    from kbroker.peer.client import Client

# By name: the key, which is that of the console after g.
PAGES: Final = {
    "overview": "o",
    "topics": "t",
    "groups": "g",
    "transactions": "x",
    "brokers": "b",
    "security": "s",
}
BY_KEY: Final = {key: name for name, key in PAGES.items()}


class NoBroker:
    """In place of a broker: it has no figures."""

    node_id = NO_BROKER

    @property
    def config(self) -> BrokerConfig:
        raise InvariantError("no page of a terminal reads a broker's configuration")

    def figures(self) -> Figures:
        return Figures(0, {})

    def connections_by_principal(self, most: int) -> tuple[list[tuple[str, str, int]], int]:
        return [], 0

    def why(self, question: Question) -> dict[str, Any]:
        raise InvariantError("kbroker why asks a broker's admin port")


def page_of(client: Client, name: str) -> Page:
    """What goes wrong is a notice of the page: the next one may be whole again."""
    make: Callable[[Asked], Page] = import_module(f"kbroker.console.pages.{name}").make
    asked = Asked(
        path={},
        query={},
        client=client,
        here=NoBroker(),
        now_ms=client.cluster.clock.wall_ms(),
        may_write=False,
        messages="off",
        pause=no_pause,
    )
    try:
        return make(asked)
    except (KafkaError, UserError) as error:
        return Page(name.capitalize(), [any_refusal(name, error)], status=503)
    except Refused as error:
        notice = Notice(Tone.WARN, error.what, error.next_step)
        return Page(name.capitalize(), [notice], status=error.status)


def print_pages(client: Client, view: View, name: str, count: int | None, output: str) -> None:
    """So many, one after each interval: as text, or as one line of JSON. `count` None: for ever,
    but of JSON one."""
    from kbroker.cli.page_text import print_page
    from kbroker.console.document import as_json

    as_text = output == "text"
    left = count if count is not None or as_text else 1
    while True:
        page = page_of(client, name)
        if as_text:
            print_page(page, view.rows)
        else:
            click.echo(as_json(page, no_pause).decode().rstrip("\n"))
        sys.stdout.flush()
        left = None if left is None else left - 1
        if left == 0:
            return
        client.cluster.sleep_ms(view.interval_ms)
        if as_text:
            click.echo()
