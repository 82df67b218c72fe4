"""`kbroker health`: whether the cluster answers and can be used, for people and for scripts.

Status 0 if all is well, 1 with a warning (replicas missing, a disk nearly full), 2 if something
fails (no broker answers, a partition without a leader, a lost disk). With `--wait` it asks again
until nothing fails or the time is over, so a script can start a broker and go on when it may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kbroker.cli.certificate_checks import of_brokers
from kbroker.cli.checks import FAILING, OK, WARNING, Check, disk, report, status_of
from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.output import output_option
from kbroker.cli.replica_health import Moving, missing_replicas, moving_now
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kbroker.peer.client import Client
    from kbroker.peer.messages import ClusterMetadata, PartitionMetadata

ASK_TIMEOUT_MS: Final = 5_000
POLL_INTERVAL_MS: Final = 200
_FAILING_STATUS: Final = 2
_NAMED_MAX: Final = 3
# Topics that lack replicas and are asked how many they need; each is a request.
TOPICS_ASKED_MAX: Final = 100
# Partitions with an open transaction whose holder is asked for.
HELD_ASKED_MAX: Final = 100
MIN_IN_SYNC: Final = "min.insync.replicas"


@click.command("health")
@click.option("-w", "--wait", is_flag=True, help="Ask again until nothing fails.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1, 86_400), default=30.0, show_default=True,
    metavar="SECONDS", help="How long --wait waits.",
)  # fmt: skip
@click.option(
    "--admin", multiple=True, metavar="URL",
    help="Ask the admin port of a broker, too: https://HOST:PORT. May be repeated.",
)  # fmt: skip
@bootstrap_option
@output_option
def command(
    wait: bool, timeout_s: float, admin: tuple[str, ...], bootstrap: str, output: str
) -> int:
    """Say whether the cluster can be used: status 0 ok, 1 warning, 2 failing."""
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
    try:
        with connect(bootstrap, timeout_ms=timeout_ms) as client:
            cluster = client.metadata()
            return [
                *_brokers(client, cluster),
                _controller(cluster),
                *of_brokers(client),
                *_partitions(client, cluster, moving_now(client)),
                *_transactions(client, cluster),
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
            fix = "start it, or set its advertised.listeners to an address that clients can reach"
            silent.append(Check(FAILING, "brokers", f"broker {node_id}: {error.message}", fix))
    if silent:
        return silent
    count = len(cluster.brokers)
    return [Check(OK, "brokers", f"{count} of {count} answer, cluster {cluster.cluster_id}")]


def _controller(cluster: ClusterMetadata) -> Check:
    if cluster.controller_id in cluster.brokers:
        return Check(OK, "controller", f"broker {cluster.controller_id}")
    return Check(FAILING, "controller", "there is none", "see the brokers' logs: who may be it?")


def _partitions(client: Client, cluster: ClusterMetadata, moving: Moving) -> Iterator[Check]:
    """Those without a leader, those that refuse acks=all, those that lack replicas; or one line."""
    every = {
        TopicPartition(topic.name, partition.index): partition
        for topic in cluster.topics.values()
        for partition in topic.partitions
    }
    missing = missing_replicas(cluster, moving)
    headless = {name: {*each.replicas} for name, each in every.items() if each.leader < 0}
    if headless:
        seen = f"{len(headless)} of {len(every)} have no leader: {_by_broker(headless)}"
        yield Check(FAILING, "partitions", seen, _start(headless, cluster))
    lacking = {name: who for name, who in missing.items() if name not in headless}
    few = _below_minimum(client, every, lacking)
    below = {name: who for name, who in lacking.items() if name in few}
    if below:
        seen = f"{len(below)} of {len(every)} refuse acks=all, too few in sync: {_by_broker(below)}"
        yield Check(FAILING, "partitions", seen, _start(below, cluster))
    if lacking:
        seen = f"{len(lacking)} of {len(every)} lack in-sync replicas: {_by_broker(lacking)}"
        yield Check(WARNING, "partitions", seen, _start(lacking, cluster))
    if not headless and not lacking:
        seen = f"{len(every)} in {len(cluster.topics)} topics, each with all its replicas"
        if moving:
            seen += f", {len(moving)} on the way to other brokers"
        yield Check(OK, "partitions", seen)


def _transactions(client: Client, cluster: ClusterMetadata) -> Iterator[Check]:
    """Transactions that hold back consumers of committed records and do not end by themselves."""
    from kbroker.cli.last_stable import held, stable_offsets

    led = [
        TopicPartition(topic.name, partition.index)
        for topic in cluster.topics.values()
        for partition in topic.partitions
        if partition.leader >= 0
    ]
    try:
        offsets = stable_offsets(client, led)
        waiting = {name: each for name, each in offsets.items() if each.waiting}
        some = dict(sorted(waiting.items())[:HELD_ASKED_MAX])
        trouble = [
            each for each in held(client, some, client.cluster.clock.wall_ms()) if each.is_trouble
        ]
    except KafkaError as error:
        yield Check(WARNING, "transactions", f"unknown: {error}", "see the brokers' logs")
        return
    for each in trouble[:_NAMED_MAX]:
        name = f"{each.partition.topic}/{each.partition.partition}"
        seen = f"{name} is held at {each.last_stable} of {each.high_watermark}: {each.verdict}"
        fix = f"kbroker explain {name} --isolation read_committed"
        yield Check(WARNING, "transactions", seen, fix)
    if len(trouble) > _NAMED_MAX:
        seen = f"{len(trouble) - _NAMED_MAX} more partitions are held"
        yield Check(WARNING, "transactions", seen, "kbroker txn list --state Ongoing")
    if waiting and not trouble:
        seen = f"open ones in {len(waiting)} of {len(led)} partitions, none for too long"
        yield Check(OK, "transactions", seen)


def _below_minimum(
    client: Client,
    every: Mapping[TopicPartition, PartitionMetadata],
    lacking: Iterable[TopicPartition],
) -> set[TopicPartition]:
    """Of these, the ones with fewer in sync than their topic asks for, as far as it is known."""
    topics = sorted({name.topic for name in lacking})[:TOPICS_ASKED_MAX]
    needed = {topic: min_in_sync(client, topic) for topic in topics}
    return {name for name in lacking if len(every[name].isr) < needed.get(name.topic, 0)}


def min_in_sync(client: Client, topic: str) -> int:
    """min.insync.replicas of a topic; 0 if it is unknown."""
    from kbroker.peer.config_messages import TOPIC_RESOURCE, Resource

    try:
        entries = client.configs(Resource(TOPIC_RESOURCE, topic), [MIN_IN_SYNC])
    except KafkaError:
        return 0
    values = [each.value for each in entries if each.name == MIN_IN_SYNC]
    return int(values[0]) if values and values[0] and values[0].isdecimal() else 0


def _by_broker(missing: Mapping[TopicPartition, set[int]]) -> str:
    """Which brokers have their replicas, with some of their names."""
    brokers: dict[int, list[str]] = {}
    for name, who in missing.items():
        for node_id in who:
            brokers.setdefault(node_id, []).append(str(name))
    return "; ".join(f"{_some(names)} on broker {each}" for each, names in sorted(brokers.items()))


def _start(missing: Mapping[TopicPartition, set[int]], cluster: ClusterMetadata) -> str:
    """What to do about it: who is not there is to be started, who is there looked at."""
    who = {each for brokers in missing.values() for each in brokers}
    gone = sorted(who - cluster.brokers.keys())
    if gone:
        return f"start broker {', '.join(map(str, gone))}"
    return f"wait, or see the log of broker {', '.join(map(str, sorted(who)))}"


def _some(names: list[str]) -> str:
    named = ", ".join(sorted(names)[:_NAMED_MAX])
    return named + (", ..." if len(names) > _NAMED_MAX else "")


def _disks(client: Client) -> list[Check]:
    checks: list[Check] = []
    for node_id, directories in sorted(client.log_directories(of_all=False).items()):
        for directory in directories:
            where = f"broker {node_id} {directory.path}"
            if directory.error is not ErrorCode.NONE:
                seen = f"{where}: {directory.error.name}"
                checks.append(Check(FAILING, "disk", seen, "mend the disk, restart the broker"))
            elif directory.total_bytes > 0:
                usable = max(directory.usable_bytes, 0)
                checks.append(disk("disk", where, usable, directory.total_bytes))
    return checks
