"""`kbroker health`: whether the cluster answers and can be used, for people and for scripts.

Status 0 if all is well, 1 with a warning (replicas missing, a disk nearly full), 2 if something
fails (no broker answers, a partition without a leader, a lost disk). With `--wait` it asks again
until nothing fails or the time is over, so a script can start a broker and go on when it may. With
`--here` it asks one broker and counts no warning, since a container whose check fails is restarted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kbroker.cli.checks import report
from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.numbers import NumberRange
from kbroker.cli.output import output_option
from kbroker.errors import KafkaError, UserError
from kbroker.findings.checks import FAILING, Check, status_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ASK_TIMEOUT_MS: Final = 5_000
POLL_INTERVAL_MS: Final = 200
_FAILING_STATUS: Final = 2


@click.command("health")
@click.option("-w", "--wait", is_flag=True, help="Ask again until nothing fails.")
@click.option(
    "--timeout", "timeout_s", type=NumberRange(0.1, 86_400), default=30.0, show_default=True,
    metavar="SECONDS", help="How long --wait waits.",
)  # fmt: skip
@click.option(
    "--admin", multiple=True, metavar="URL",
    help="Ask the admin port of a broker, too: https://HOST:PORT. May be repeated.",
)  # fmt: skip
@click.option(
    "--here", is_flag=True,
    help="Only whether the broker of this container is ready: status 0 or 1, as engines ask.",
)  # fmt: skip
@bootstrap_option
@output_option
def command(
    wait: bool, timeout_s: float, admin: tuple[str, ...], here: bool, bootstrap: str, output: str
) -> int:
    """Say whether the cluster can be used: status 0 ok, 1 warning, 2 failing."""
    if here:
        from kbroker.cli.own_broker import check_here

        checks = check_here(ASK_TIMEOUT_MS)
        return int(report(checks, output) == _FAILING_STATUS)
    from threading import Condition

    from kbroker.clock import NS_PER_MS, SystemClock
    from kbroker.peer.address import parse_addresses

    parse_addresses(bootstrap)  # what is no address will not become one by waiting
    if admin:
        from kbroker.cli.admin_checks import check_url

        for url in admin:
            check_url(url)
    clock, asleep = SystemClock(), Condition()
    deadline_ns = clock.monotonic_ns() + round(timeout_s * 1000) * NS_PER_MS
    while True:
        left_ms = max(1, (deadline_ns - clock.monotonic_ns()) // NS_PER_MS)
        checks = look(bootstrap, min(ASK_TIMEOUT_MS, left_ms) if wait else ASK_TIMEOUT_MS, admin)
        now_ns = clock.monotonic_ns()
        if not wait or status_of(checks) < _FAILING_STATUS or now_ns >= deadline_ns:
            return report(checks, output)
        with asleep:
            clock.wait_until(asleep, min(deadline_ns, now_ns + POLL_INTERVAL_MS * NS_PER_MS))


def look(bootstrap: str, timeout_ms: int, admin: Iterable[str] = ()) -> list[Check]:
    """Every check; if no broker answers that is the only one but those of admin ports."""
    return [*_look(bootstrap, timeout_ms), *_admin_ports(admin, timeout_ms)]


def _admin_ports(urls: Iterable[str], timeout_ms: int) -> Iterator[Check]:
    for url in urls:
        from kbroker.cli.admin_checks import readiness

        yield from readiness(url, timeout_ms)


def _look(bootstrap: str, timeout_ms: int) -> list[Check]:
    from kbroker.findings.cluster_health import checks_of

    try:
        with connect(bootstrap, timeout_ms=timeout_ms) as client:
            return checks_of(client)
    except UserError as error:
        return [Check(FAILING, "brokers", error.cause, error.fix)]
    except KafkaError as error:
        return [Check(FAILING, "brokers", str(error), "see the brokers' logs")]
