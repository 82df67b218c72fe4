"""One history: a seed, its acts, and the rule that was violated."""

from __future__ import annotations

import gc
import itertools
import logging
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from kbroker.config import BrokerConfig, TopicConfig
from kbroker.replica import manager
from tests.simulation import living
from tests.simulation.act import Act
from tests.simulation.broker import EVENT_MAX_MS
from tests.simulation.cluster import BROKERS, Cluster
from tests.simulation.elections import Elections, is_calm
from tests.simulation.full_schedule import full_schedule_of
from tests.simulation.group_clients import Committer
from tests.simulation.hangs import schedule_with_hangs
from tests.simulation.safety import Violation
from tests.simulation.schedule import schedule_of
from tests.simulation.scheduler import scheduled
from tests.simulation.settled import unsettled
from tests.simulation.share_schedule import shares_of
from tests.simulation.standing import Standing
from tests.simulation.transaction_clients import TIMEOUTS_MS
from tests.simulation.transaction_schedule import transactions_of

HEALED_WITHIN_MS = 60_000
_SLICE_MS = 50
# The share of histories that end with another test: whether two of three brokers go on.
ONE_AWAY = 0.25
# Less than a topic may ask for: histories are short, and segments are to roll.
# Their indexes are never full, and a copy of a broker's files copies them whole.
SEGMENTS = {"segment_bytes": 600, "index_interval_bytes": 0, "segment_index_bytes": 4_096}
# A compacted log has records of groups, 110 bytes for each member, the dead ones included. A record
# that is larger than a segment is refused.
COMPACTED = {"segment_bytes": 1_000}


@dataclass
class Outcome:
    """`violation` is None where everything held."""

    seed: int
    violation: Violation | None
    schedule: list[Act]
    steps: int
    requests: int
    acknowledged: int
    consumed: int
    commits: int
    answered: int  # offsets that coordinators have returned
    virtual_ms: int
    # Transactions that ended in a partition, and records that readers left out as aborted.
    committed: int = 0
    aborted: int = 0
    left_out: int = 0
    # Records of share groups, by how often they were delivered, and how they ended.
    delivered: int = 0
    shared: int = 0
    archived: int = 0


_HISTORIES = itertools.count()
_WHOLE_COLLECTION_EVERY = 20


@contextmanager
def _without_collector() -> Iterator[None]:
    """The collector may close a coroutine, which takes a step of its own, at any time. So it runs
    after a history, and ignores all objects that are older than the history. Before every
    twentieth history it looks at all objects, for those that were still referred to then."""
    if not gc.isenabled():
        yield
        return
    if next(_HISTORIES) % _WHOLE_COLLECTION_EVERY == 0:
        gc.collect()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        gc.enable()


@contextmanager
def _quiet() -> Iterator[None]:
    """Do not log: histories have thousands of errors and failed disks."""
    logger = logging.getLogger("kbroker")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _settings_of_logs(own: dict[str, int]) -> Callable[[TopicConfig, int], dict[str, Any]]:
    """The broker's settings, but for these. Every image asks for them, so the results are kept."""
    log_settings = manager.log_settings
    known: dict[tuple[BrokerConfig, frozenset[tuple[str, str]], int], dict[str, Any]] = {}

    def settings_of(config: TopicConfig, replicas: int) -> dict[str, Any]:
        key = config.broker, frozenset(config.overrides.items()), replicas
        if key not in known:
            larger = COMPACTED if "compact" in config["cleanup.policy"] else {}
            known[key] = {**log_settings(config, replicas), **own, **larger}
        return known[key]

    return settings_of


def _patience_of_threads() -> AbstractContextManager[Any]:
    """Threads pause for some time, and wait at a disk until another controller is elected."""
    late_ms = EVENT_MAX_MS + 2_000
    return mock.patch.multiple(
        living,
        NOTIFIED_WITHIN_MS=living.NOTIFIED_WITHIN_MS + late_ms,
        GIVEN_UP_WITHIN_MS=living.GIVEN_UP_WITHIN_MS + late_ms,
    )


@_without_collector()
def run(
    seed: int,
    schedule: Sequence[Act] | None = None,
    directory: Path | None = None,
    *,
    pipelined: bool = False,
    threads: bool = False,
    transactions: bool | None = None,
    shares: bool = False,
) -> Outcome:
    """The history of this seed, or one with another schedule; with `pipelined` clients, and of
    brokers with `threads`, it is another one. `transactions`: whether it has some; None: as the
    seed says. `shares`: whether it has share groups."""
    special: dict[str, int] = {}
    if threads:
        own, end_ms, calm, special = schedule_with_hangs(seed)
    else:
        full = None if transactions or shares else full_schedule_of(seed)
        own, end_ms = full or schedule_of(random.Random(f"schedule {seed}"))
        if transactions or (transactions is None and full is None):
            own = sorted([*own, *transactions_of(seed, end_ms, always=transactions is True)])
        if shares:
            own = sorted([*own, *shares_of(seed, end_ms)])
    acts = own if schedule is None else list(schedule)
    place = directory or Path(tempfile.mkdtemp(prefix="kbroker-simulation-", dir="/dev/shm"))
    with (
        mock.patch.object(manager, "log_settings", _settings_of_logs({**SEGMENTS, **special})),
        _quiet(),
        _patience_of_threads() if threads else nullcontext(),
        scheduled(random.Random(f"threads {seed}")) if threads else nullcontext() as scheduler,
    ):
        cluster = Cluster(
            place, random.Random(f"cluster {seed}"), pipelined=pipelined, scheduler=scheduler,
            shares=shares,
        )  # fmt: skip
        violation = None
        if scheduler is not None:
            Standing(cluster, scheduler, calm=calm).begin()
        elif is_calm(acts):
            Elections(cluster).begin()
        try:
            _live(cluster, acts, end_ms)
        except Violation as error:
            violation = error
        finally:
            cluster.close()
            if directory is None:
                shutil.rmtree(place, ignore_errors=True)
    return Outcome(
        seed,
        violation,
        acts,
        cluster.loop.steps,
        cluster.network.requests,
        sum(each.acknowledged.total() for each in cluster.producers),
        cluster.consumer.records,
        sum(each.acknowledged for each in cluster.committers),
        sum(each.answered for each in cluster.committers),
        cluster.loop.now_ms,
        cluster.ledger.committed_count,
        cluster.ledger.aborted_count,
        cluster.committed_reader.left_out,
        cluster.share_ledger.delivered,
        cluster.share_ledger.acknowledged,
        cluster.share_ledger.archived,
    )


def _live(cluster: Cluster, acts: Sequence[Act], end_ms: int) -> None:
    cluster.begin()
    begun_ms = cluster.loop.now_ms
    for act in acts:
        cluster.loop.later(act.at_ms, getattr(cluster, act.what), *act.how)
    # A fault that follows another may come after `end_ms`. The healing comes after all of them,
    # because nothing ends a fault that is later.
    cluster.loop.run_until(begun_ms + max([end_ms, *(act.at_ms + 1 for act in acts)]))
    cluster.heal()
    _settle(cluster)
    _write_everywhere(cluster)
    if cluster.dice.random() < ONE_AWAY:
        cluster.take_away(cluster.dice.choice(BROKERS))
        _write_everywhere(cluster)
        cluster.heal()
    _settle(cluster)
    _all_there(cluster)
    _all_committed(cluster)
    _all_shared(cluster)


def _write_everywhere(cluster: Cluster) -> None:
    """Producers and groups are served within the time, also with one broker away."""
    for index in range(len(cluster.names)):
        # A partition that was allowed to lose records may have lost the producer's sequence, too:
        # the producer gives up, and takes another id.
        if not _write(cluster, index):
            if not _has_lost(cluster, index):
                raise Violation("service goes on", "a producer gave up")
            if not _write(cluster, index):
                raise Violation("service goes on", "a new producer gave up")
    for committer in cluster.committers:
        _commit(cluster, committer)
    if cluster.states:
        _transact(cluster)


def _write(cluster: Cluster, index: int) -> bool:
    # An answer of another partition, where a batch may still be under way, proves nothing here.
    producer, name = cluster.producers[0], cluster.names[index]
    wanted = producer.acknowledged[name] + 1
    cluster.produce(0, index)
    while producer.acknowledged[name] < wanted:
        if name not in producer.sending:
            return False
        cluster.loop.run_until(cluster.loop.now_ms + _SLICE_MS)
    return True


def _has_lost(cluster: Cluster, index: int) -> bool:
    return cluster.safety.partition(cluster.names[index]).lost


def _commit(cluster: Cluster, committer: Committer) -> None:
    """Commit, and fetch the committed offset."""
    end_ms = cluster.loop.now_ms + HEALED_WITHIN_MS
    wanted = committer.acknowledged + 1
    committer.commit()
    while committer.acknowledged < wanted:
        if not committer.committing:
            raise Violation("service goes on", "a commit was given up")
        cluster.loop.run_until(cluster.loop.now_ms + _SLICE_MS)
    answered = committer.answered
    while committer.answered == answered:
        if cluster.loop.now_ms >= end_ms:
            raise Violation("service returns", "the committed offset is not returned")
        committer.ask(stable=True)
        cluster.loop.run_until(cluster.loop.now_ms + _SLICE_MS)


def _transact(cluster: Cluster) -> None:
    """A transaction in every partition, with offsets, is committed; a producer that was replaced
    begins once more."""
    producer, end_ms = cluster.transactional[0], cluster.loop.now_ms + HEALED_WITHIN_MS
    longer_at_ms = end_ms - HEALED_WITHIN_MS // 2
    wanted = producer.committed + 1
    while producer.committed < wanted:
        if cluster.loop.now_ms >= end_ms:
            raise Violation("service goes on", "no transaction is committed")
        is_short = producer.timeout_ms < max(TIMEOUTS_MS)
        if is_short and cluster.network.is_slow and cluster.loop.now_ms >= longer_at_ms:
            # Some 40 messages follow one another in such a transaction, and a slow one takes up to
            # 400 ms. With a timeout as short as that each transaction may be aborted.
            producer.crash()
            producer.timeout_ms = max(TIMEOUTS_MS)
        producer.transact(all_of_it=True)
        cluster.loop.run_until(cluster.loop.now_ms + _SLICE_MS)


def _all_committed(cluster: Cluster) -> None:
    """Each committed transaction is whole and can be read, without records of aborted ones."""
    if not cluster.states:
        return
    cluster.ledger.look_at_all()
    for name in cluster.names:
        partition = cluster.safety.partition(name)
        if partition.lost or cluster.ledger.is_excused():
            continue  # markers may be lost, which no coordinator writes again
        assert partition.state is not None
        leader = cluster.running(partition.state.leader)
        position, end = 0, partition.views[leader.node_id].end_offset
        while position < end:
            before = position
            position = cluster.committed_reader.look(leader, name, position)
            if position <= before:
                raise Violation("everything can be read", f"{name} from {position} to {end}")
    cluster.committed_reader.ask_offsets(last=True)
    cluster.loop.run_until(cluster.loop.now_ms + _SLICE_MS)
    if cluster.safety.violation is not None:
        raise cluster.safety.violation


def _all_shared(cluster: Cluster) -> None:
    """Members of share groups have had all records."""
    if cluster.share_states:
        cluster.share_ledger.look_at_all()
    if cluster.safety.violation is not None:
        raise cluster.safety.violation


def _settle(cluster: Cluster) -> None:
    """Service returns by itself, and all brokers agree."""
    end_ms = cluster.loop.now_ms + HEALED_WITHIN_MS
    while reason := unsettled(cluster):
        if cluster.loop.now_ms >= end_ms:
            raise Violation("service returns", reason)
        cluster.loop.run_until(cluster.loop.now_ms + _SLICE_MS)


def _all_there(cluster: Cluster) -> None:
    """Acknowledged records are at their offsets in all replicas."""
    for partition in cluster.safety.partitions.values():
        if partition.lost:
            continue
        acknowledged = cluster.safety.acknowledged.get(partition.name, {})
        for value, offset in acknowledged.items():
            for view in partition.views.values():
                there = view.contents.records[offset : offset + 1]
                if [each.value for each in there] != [value]:
                    raise Violation("acknowledged is there", f"{partition.name}: {value!r}")
