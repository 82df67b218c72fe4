"""`kbroker health`: whether the cluster answers and can be used, for people and for scripts.

Status 0 if all is well, 1 with a warning (replicas missing, a disk nearly full), 2 if something
fails (nobody answers, a partition without a leader, a lost disk). With `--wait` it asks again until
nothing fails or the time is over, so a script can start a broker and go on when it may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kbroker.cli.checks import FAILING, OK, WARNING, Check, disk, report, status_of
from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.output import output_option
from kbroker.cli.replica_health import Moving, moving_now, under_replicated
from kbroker.errors import ErrorCode, KafkaError, UserError

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.messages import ClusterMetadata

ASK_TIMEOUT_MS: Final = 5_000
POLL_INTERVAL_MS: Final = 200
_FAILING_STATUS: Final = 2
_NAMED_MAX: Final = 3


@click.command("health")
@click.option("-w", "--wait", is_flag=True, help="Ask again until nothing fails.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1, 86_400), default=30.0, show_default=True,
    metavar="SECONDS", help="How long --wait waits.",
)  # fmt: skip
@bootstrap_option
@output_option
def command(wait: bool, timeout_s: float, bootstrap: str, output: str) -> int:
    """Say whether the cluster can be used: status 0 ok, 1 warning, 2 failing."""
    from threading import Condition

    from kbroker.clock import NS_PER_MS, SystemClock
    from kbroker.peer.address import parse_addresses

    parse_addresses(bootstrap)  # what is no address will not become one by waiting
    clock, asleep = SystemClock(), Condition()
    deadline_ns = clock.monotonic_ns() + round(timeout_s * 1000) * NS_PER_MS
    while True:
        left_ms = max(1, (deadline_ns - clock.monotonic_ns()) // NS_PER_MS)
        checks = look(bootstrap, min(ASK_TIMEOUT_MS, left_ms) if wait else ASK_TIMEOUT_MS)
        now_ns = clock.monotonic_ns()
        if not wait or status_of(checks) < _FAILING_STATUS or now_ns >= deadline_ns:
            return report(checks, output)
        with asleep:
            clock.wait_until(asleep, min(deadline_ns, now_ns + POLL_INTERVAL_MS * NS_PER_MS))


def look(bootstrap: str, timeout_ms: int) -> list[Check]:
    """Every check; if nobody answers that is the only one."""
    try:
        with connect(bootstrap, timeout_ms=timeout_ms) as client:
            cluster = client.metadata()
            return [
                *_brokers(client, cluster),
                _controller(cluster),
                _partitions(cluster, moving_now(client)),
                *_disks(client),
            ]
    except UserError as error:
        return [Check(FAILING, "brokers", error.cause, error.fix)]
    except KafkaError as error:
        return [Check(FAILING, "brokers", str(error), "see the brokers' logs")]


def _brokers(client: Client, cluster: ClusterMetadata) -> list[Check]:
    silent: list[Check] = []
    for node_id, address in sorted(client.cluster.brokers.items()):
        try:
            client.cluster.link(address)
        except KafkaError as error:
            fix = "start it, or set its advertised.listeners to what clients can reach"
            silent.append(Check(FAILING, "brokers", f"broker {node_id}: {error.message}", fix))
    if silent:
        return silent
    count = len(cluster.brokers)
    return [Check(OK, "brokers", f"{count} of {count} answer, cluster {cluster.cluster_id}")]


def _controller(cluster: ClusterMetadata) -> Check:
    if cluster.controller_id in cluster.brokers:
        return Check(OK, "controller", f"broker {cluster.controller_id}")
    return Check(FAILING, "controller", "there is none", "see the brokers' logs: who may be it?")


def _partitions(cluster: ClusterMetadata, moving: Moving) -> Check:
    every = [
        (f"{topic.name}-{partition.index}", partition)
        for topic in cluster.topics.values()
        for partition in topic.partitions
    ]
    headless = [name for name, partition in every if partition.leader < 0]
    if headless:
        seen = f"{len(headless)} of {len(every)} have no leader: {_some(headless)}"
        return Check(FAILING, "partitions", seen, "start the brokers that have their replicas")
    behind = [str(name) for name in under_replicated(cluster, moving)]
    if behind:
        seen = f"{len(behind)} of {len(every)} lack in-sync replicas: {_some(behind)}"
        return Check(WARNING, "partitions", seen, "wait, or start the brokers that are missing")
    seen = f"{len(every)} in {len(cluster.topics)} topics, each with all its replicas"
    if moving:
        seen += f", {len(moving)} on the way to other brokers"
    return Check(OK, "partitions", seen)


def _some(names: list[str]) -> str:
    named = ", ".join(sorted(names)[:_NAMED_MAX])
    return named + (", ..." if len(names) > _NAMED_MAX else "")


def _disks(client: Client) -> list[Check]:
    checks: list[Check] = []
    for node_id, directories in sorted(client.log_directories().items()):
        for directory in directories:
            where = f"broker {node_id} {directory.path}"
            if directory.error is not ErrorCode.NONE:
                seen = f"{where}: {directory.error.name}"
                checks.append(Check(FAILING, "disk", seen, "mend the disk, restart the broker"))
            elif directory.total_bytes > 0:
                usable = max(directory.usable_bytes, 0)
                checks.append(disk("disk", where, usable, directory.total_bytes))
    return checks
