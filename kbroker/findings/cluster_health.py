"""Whether a cluster answers and can be used: the checks of `kbroker health` and of the console.

Asked through one client, with its rights. A list is looked at in pieces, with `pause` after each.
Owner: the client's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.findings.certificates import of_brokers
from kbroker.findings.checks import FAILING, OK, WARNING, Check, disk
from kbroker.findings.last_stable import Held, Offsets, held, stable_offsets
from kbroker.findings.missing_replicas import (
    Moving,
    missing_replicas,
    moving_now,
    partitions_in,
)
from kbroker.findings.pieces import Pause, in_pieces, no_pause
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kbroker.peer.client import Client
    from kbroker.peer.config_messages import LogDirectory
    from kbroker.peer.messages import ClusterMetadata, PartitionMetadata

_NAMED_MAX: Final = 3
# Topics that lack replicas and are asked how many they need; each is a request.
TOPICS_ASKED_MAX: Final = 100
# Partitions with an open transaction whose holder is asked for.
HELD_ASKED_MAX: Final = 100
# Partitions whose offsets one request asks for.
OFFSETS_ASKED_MAX: Final = 2_000
MIN_IN_SYNC: Final = "min.insync.replicas"


class Partitions(NamedTuple):
    """The partitions of a cluster: how many, and of those in trouble the brokers that lack.

    `missing`: how many lack replicas, with a leader or without. `headless` have no leader.
    `lacking` have one, and too few replicas in sync; `below` are those of them that refuse
    acks=all.
    """

    total: int
    topics: int
    moving: int
    missing: int
    headless: Mapping[TopicPartition, set[int]]
    lacking: Mapping[TopicPartition, set[int]]
    below: Mapping[TopicPartition, set[int]]


def checks_of(client: Client) -> list[Check]:
    """Every check. UserError: no broker answers. KafkaError: one of them refuses."""
    cluster = client.metadata()
    return [
        *brokers(client, cluster),
        controller(cluster),
        *of_brokers(client),
        *partitions(partitions_of(client, cluster, moving_now(client)), cluster),
        *transactions(client, led_in(cluster)),
        *disks(client.log_directories(of_all=False)),
    ]


def brokers(client: Client, cluster: ClusterMetadata, pause: Pause = no_pause) -> Iterator[Check]:
    """A line for each that cannot be used, or one for all. `pause` is called before each."""
    are_silent = False
    for node_id, address in sorted(client.cluster.brokers.items()):
        pause()
        try:
            client.cluster.link(address)
        except UserError as error:
            are_silent = True
            yield Check(FAILING, "brokers", f"broker {node_id}: {error.cause}", error.fix)
        except KafkaError as error:
            are_silent = True
            fix = "start it, or set its advertised.listeners to an address that clients can reach"
            yield Check(FAILING, "brokers", f"broker {node_id}: {error.message}", fix)
    if not are_silent:
        count = len(cluster.brokers)
        yield Check(OK, "brokers", f"{count} of {count} answer, cluster {cluster.cluster_id}")


def controller(cluster: ClusterMetadata) -> Check:
    """Clients do not learn which broker it is: they get the id of any broker, as from Apache Kafka,
    or -1 if there is no controller."""
    if cluster.controller_id in cluster.brokers:
        return Check(OK, "controller", "unknown: brokers do not say which of them it is")
    return Check(FAILING, "controller", "there is none", "see the brokers' logs: who may be it?")


def partitions_of(
    client: Client, cluster: ClusterMetadata, moving: Moving, pause: Pause = no_pause
) -> Partitions:
    """Asks for the settings of topics that lack replicas."""
    every = dict(partitions_in(cluster, pause))
    headless = {name: {*each.replicas} for name, each in every.items() if each.leader < 0}
    missing = missing_replicas(cluster, moving, pause)
    lacking = {name: who for name, who in missing.items() if name not in headless}
    few = _below_minimum(client, every, lacking, pause)
    below = {name: who for name, who in lacking.items() if name in few}
    counts = len(every), len(cluster.topics), len(moving), len(missing)
    return Partitions(*counts, headless, lacking, below)


def partitions(found: Partitions, cluster: ClusterMetadata) -> Iterator[Check]:
    """Those without a leader, those that refuse acks=all, those that lack replicas; or one line."""
    if found.headless:
        seen = (
            f"{len(found.headless)} of {found.total} have no leader: {_by_broker(found.headless)}"
        )
        yield Check(FAILING, "partitions", seen, _start(found.headless, cluster))
    if found.below:
        seen = (
            f"{len(found.below)} of {found.total} refuse acks=all, too few in sync: "
            f"{_by_broker(found.below)}"
        )
        yield Check(FAILING, "partitions", seen, _start(found.below, cluster))
    if found.lacking:
        seen = (
            f"{len(found.lacking)} of {found.total} lack in-sync replicas: "
            f"{_by_broker(found.lacking)}"
        )
        yield Check(WARNING, "partitions", seen, _start(found.lacking, cluster))
    if not found.headless and not found.lacking:
        seen = f"{found.total} in {found.topics} topics, each with all its replicas"
        if found.moving:
            seen += f", {found.moving} on the way to other brokers"
        yield Check(OK, "partitions", seen)


def led_in(cluster: ClusterMetadata, pause: Pause = no_pause) -> list[TopicPartition]:
    return [name for name, each in partitions_in(cluster, pause) if each.leader >= 0]


class HeldBack(NamedTuple):
    """Partitions in which committed records wait, and why: of the first HELD_ASKED_MAX of them."""

    waiting: Mapping[TopicPartition, Offsets]
    held: Sequence[Held]

    @property
    def troubles(self) -> list[Held]:
        """Those that do not end by themselves."""
        return [each for each in self.held if each.is_trouble]


def held_back(client: Client, led: Sequence[TopicPartition], pause: Pause = no_pause) -> HeldBack:
    waiting: dict[TopicPartition, Offsets] = {}
    for start in range(0, len(led), OFFSETS_ASKED_MAX):
        found = stable_offsets(client, led[start : start + OFFSETS_ASKED_MAX])
        waiting |= {name: each for name, each in in_pieces(found.items(), pause) if each.waiting}
    some = dict(sorted(waiting.items())[:HELD_ASKED_MAX])
    return HeldBack(waiting, held(client, some, client.cluster.clock.wall_ms()))


def transactions(
    client: Client, led: Sequence[TopicPartition], pause: Pause = no_pause
) -> Iterator[Check]:
    """Transactions that hold back consumers of committed records and do not end by themselves."""
    try:
        found = held_back(client, led, pause)
    except KafkaError as error:
        yield Check(WARNING, "transactions", f"unknown: {error}", "see the brokers' logs")
    except UserError as error:
        yield Check(WARNING, "transactions", f"unknown: {error.cause}", error.fix)
    else:
        yield from transactions_held(found, len(led))


def transactions_held(found: HeldBack, led: int) -> Iterator[Check]:
    """The same of an answer; `led`: how many partitions were looked at."""
    for each in found.troubles[:_NAMED_MAX]:
        name = f"{each.partition.topic}/{each.partition.partition}"
        seen = f"{name} is held at {each.last_stable} of {each.high_watermark}: {each.verdict}"
        fix = f"kbroker explain {name} --isolation read_committed"
        yield Check(WARNING, "transactions", seen, fix)
    if len(found.troubles) > _NAMED_MAX:
        seen = f"{len(found.troubles) - _NAMED_MAX} more partitions are held"
        yield Check(WARNING, "transactions", seen, "kbroker txn list --state Ongoing")
    if found.waiting and not found.troubles:
        seen = f"open ones in {len(found.waiting)} of {led} partitions, none for too long"
        yield Check(OK, "transactions", seen)


def _below_minimum(
    client: Client,
    every: Mapping[TopicPartition, PartitionMetadata],
    lacking: Iterable[TopicPartition],
    pause: Pause,
) -> set[TopicPartition]:
    """Of these, the ones with fewer in sync than their topic asks for, as far as it is known."""
    topics = sorted({name.topic for name in lacking})[:TOPICS_ASKED_MAX]
    needed: dict[str, int] = {}
    for topic in topics:
        needed[topic] = min_in_sync(client, topic)
        pause()
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


def disks(directories: Mapping[int, Sequence[LogDirectory]]) -> list[Check]:
    """By broker."""
    checks: list[Check] = []
    for node_id, theirs in sorted(directories.items()):
        for directory in theirs:
            where = f"broker {node_id} {directory.path}"
            if directory.error is not ErrorCode.NONE:
                seen = f"{where}: {directory.error.name}"
                checks.append(Check(FAILING, "disk", seen, "mend the disk, restart the broker"))
            elif directory.total_bytes > 0:
                usable = max(directory.usable_bytes, 0)
                checks.append(disk("disk", where, usable, directory.total_bytes))
    return checks
