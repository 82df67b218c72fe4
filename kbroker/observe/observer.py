"""The Observer: what the whole broker is doing, as figures by the keys of the metric catalogue.

`figures` reads every part once and is called by the admin thread for a scrape, and by
the task that feeds `__kbroker_metrics`. It goes in steps, after each of which another thread may
have the GIL, so that a scrape of thousands of partitions delays no request; its C counters are read
without the GIL, 128 partitions a call. `tick` runs every 5 s on the scheduler and keeps the rates.

Nothing here is called by a request. One lock, held by `tick` and `figures` while the window of the
request times is read or moved on; both are Python, and nothing is waited for under it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

from kbroker import __version__
from kbroker.clock import let_go_of_gil
from kbroker.core._live_objects import used_memory
from kbroker.core._require import broken_invariants
from kbroker.metrics.catalogue import BY_KEY, QUANTILES
from kbroker.metrics.model import Figures, LabelValues, Sample, Summary
from kbroker.metrics.rates import Rates, keep_over
from kbroker.net._request_figures import PARTS, RequestFigures
from kbroker.observe import (
    coordinator_figures,
    group_figures,
    quota_figures,
    replication_figures,
    resources,
    share_figures,
    traffic_figures,
    transaction_figures,
)
from kbroker.observe.garbage import GENERATIONS, GarbageWatch
from kbroker.observe.live_objects import live_objects
from kbroker.observe.traffic_figures import Samples, TopicTotals, Totals
from kbroker.replica import _partition_figures
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker._net import SocketServer
    from kbroker.clock import Clock
    from kbroker.cluster.open_transactions import Figures as OpenFigures
    from kbroker.cluster.open_transactions import Holder
    from kbroker.cluster.replication import Replication
    from kbroker.cluster.transactions import Transactions
    from kbroker.coordinator.groups import Groups
    from kbroker.engine._hot import HotPath
    from kbroker.handlers.services import Services
    from kbroker.metadata.controller import Controller
    from kbroker.observe.health import Health
    from kbroker.observe.metrics_sampler import RequestTimes
    from kbroker.observe.readiness import Readiness
    from kbroker.observe.seen_transactions import SeenTransactions
    from kbroker.purgatory.purgatory import Purgatory
    from kbroker.replica._partition_figures import PartitionFigures
    from kbroker.replica._replica import Replica
    from kbroker.replica.log_tasks import LogTasks
    from kbroker.scheduler import Scheduler

TICK_MS: Final = 5_000
KAFKA_RELEASE: Final = "4.3"

# Kafka's numbers of a broker's states, by the phases of ours.
_BROKER_STATES: Final = {"starting": 1, "running": 3, "stopping": 6}


class OfTransactions(Protocol):
    """`TransactionsOnDemand`."""

    @property
    def made(self) -> Transactions | None: ...

    def figures(self) -> OpenFigures | None: ...

    def holders(self) -> list[Holder]: ...


@dataclass(slots=True)
class Parts:
    """What is observed."""

    server: SocketServer
    hot: HotPath
    replicas: Callable[[], Mapping[TopicPartition, Replica]]
    log_tasks: LogTasks
    scheduler: Scheduler
    readiness: Readiness
    log_dirs: tuple[str, ...]
    node_id: int
    groups: Groups
    health: Health
    purgatories: Sequence[Purgatory]  # of requests; those of C are with `hot`
    # There once the broker has it; until then its figures are left out.
    controller: Callable[[], Controller | None]
    replication: Replication | None = None  # in a cluster
    transactions: OfTransactions | None = None
    share: share_figures.OfShareGroups | None = None
    certificates: Callable[[], Mapping[str, int]] = dict
    services: Callable[[], Services | None] = lambda: None  # once there are handlers


class Observer:
    """Made before the network starts; `start` and `stop` with the broker."""

    def __init__(self, parts: Parts, clock: Clock, *, every_partition: bool = False) -> None:
        """`every_partition`: sizes and counts of each partition are given, too."""
        self._parts = parts
        self._clock = clock
        self._every_partition = every_partition
        self._lock = threading.Lock()
        self._times = RequestFigures(parts.server, QUANTILES)
        self._rates = Rates()
        self._ticked_ns = clock.monotonic_ns()
        self._has_ticked = False
        self.garbage = GarbageWatch()

    def start(self) -> None:
        self.garbage.start()
        self._parts.scheduler.schedule("metrics-rates", self.tick, TICK_MS, delay_ms=0)

    def stop(self) -> None:
        self.garbage.stop()

    # --- rates ------------------------------------------------------------------------------------

    def tick(self) -> Iterator[None]:
        """A period is over: every count's rate moves on. On the scheduler's thread, in steps.

        The first one notes where those counts stand that began before this process. All others
        began at 0 with it, and what has been counted meanwhile is of the first period: an unclean
        election at the start is one that an alert must see.
        """
        totals: Totals = {}
        for found in self._totals() if self._has_ticked else self._older_totals():
            totals.update(found)
            yield
        self._has_ticked = True
        now_ns = self._clock.monotonic_ns()
        counts = (((key, labels), total) for key, rows in totals.items() for labels, total in rows)
        yield from self._rates.tick(now_ns, counts)
        keep = keep_over((now_ns - self._ticked_ns) / 1e9)
        self._ticked_ns = now_ns
        with self._lock:
            self._times.tick(keep)
            self._parts.log_tasks.flush_times.tick(keep)

    def _older_totals(self) -> Iterator[Totals]:
        yield self._idle_ns()
        yield self._disk_totals()

    def _totals(self) -> Iterator[Totals]:
        """Every count that has a rate, in pieces."""
        topics = TopicTotals()
        for rows in self._partitions():
            for name, figures in rows:
                topics.add(name.topic, figures)
            yield {}
        yield topics.totals(self._all_topics())
        yield traffic_figures.network(self._parts.server)[1]
        yield self._idle_ns()
        with self._lock:
            apis = self._times.read()
        yield traffic_figures.requests(apis, PARTS)[1]
        evictions = self._parts.hot.statistics()["fetch_session_evictions"]
        yield {
            "errors": traffic_figures.errors(self._parts.hot),
            "fetch_session_evictions": [((), evictions)],
            **self._replication_totals(),
        }
        yield self._disk_totals()

    def _replication_totals(self) -> Totals:
        parts = self._parts
        sent = parts.hot.statistics()["replicated_bytes"]
        return replication_figures.totals(parts.replication, parts.controller(), sent)

    def _all_topics(self) -> dict[str, int]:
        figures = self._parts.hot.statistics()
        totals = cast("Mapping[str, int]", figures)
        return {name: totals[name] for _, name in traffic_figures.TOPIC_TOTALS.values()}

    def _idle_ns(self) -> Totals:
        threads = traffic_figures.network(self._parts.server)[2]
        handlers = self._parts.hot.statistics()["handlers"]
        return {
            "processor_idle": [((number,), idle_ns) for number, idle_ns in threads],
            "handler_idle": [((), sum(handler["idle_ns"] for handler in handlers))],
        }

    def _disk_totals(self) -> Totals:
        disks = resources.disks_of(self._parts.log_dirs)
        found: Totals = {
            "disk_read": [((name,), disk.read) for name, disk in disks.items()],
            "disk_written": [((name,), disk.written) for name, disk in disks.items()],
        }
        own = resources.process_disk_bytes()
        if own is not None:
            found["process_read"] = [((), own.read)]
            found["process_written"] = [((), own.written)]
        return found

    def _partitions(self) -> Iterator[list[tuple[TopicPartition, PartitionFigures]]]:
        """Names and figures of all partitions here, as many at once as one call reads."""
        held = list(self._parts.replicas().items())
        for start in range(0, len(held), _partition_figures.BATCH):
            some = held[start : start + _partition_figures.BATCH]
            found = _partition_figures.read([replica for _, replica in some])
            yield [(name, figures) for (name, _), figures in zip(some, found, strict=True)]

    # --- figures ----------------------------------------------------------------------------------

    def figures(self, *, every_partition: bool | None = None) -> Figures:
        """What was measured just now; from any thread that may take some milliseconds."""
        if every_partition is None:
            every_partition = self._every_partition
        samples: Samples = {}
        for found in self._pieces(every_partition):
            samples.update(found)
            let_go_of_gil()
        return Figures(self._clock.wall_ms(), samples)

    def load(self) -> Figures:
        """The figures of threads, requests and disks alone, whose cost does not grow with the
        partitions."""
        samples: Samples = {}
        for found in (self._network(), *self._requests(), self._hot_path(), self._log_dirs(())):
            samples.update(found)
        return Figures(self._clock.wall_ms(), samples)

    def request_times(self) -> Iterator[RequestTimes]:
        """Durations by kind and part of request since the start, of those that there were."""
        from kbroker.observe.metrics_sampler import RequestTimes  # for the metrics topic alone

        with self._lock:
            keys = [api.api_key for api in self._times.read()]
        for key in keys:
            if key == ApiKey.FETCH:
                continue  # consumers' and followers' are given, each once
            name = traffic_figures.api_name(key)
            for at, part in enumerate(PARTS):
                with self._lock:
                    buckets = self._times.histogram(key, at)
                yield RequestTimes(name, BY_KEY[part].canonical.rpartition("_")[2], buckets)

    def flush_times(self) -> Sequence[tuple[float, int]]:
        """Durations of logs' flushes since the start, by their bounds in ms, not cumulative."""
        return self._parts.log_tasks.flush_times.histogram()

    def partitions(self) -> Iterable[Replica]:
        """The replicas of all partitions here."""
        return self._parts.replicas().values()

    def transactions(self) -> SeenTransactions:
        """Those that were aborted, are open for long, or hold consumers."""
        from kbroker.observe.seen_transactions import NONE_SEEN, seen  # for the metrics topic alone

        transactions = self._parts.transactions
        if transactions is None:
            return NONE_SEEN
        coordinator = None if transactions.made is None else transactions.made.coordinator
        return seen(
            coordinator,
            transactions.holders(),
            self._parts.replicas().get,
            self._clock.wall_ms(),
        )

    def _pieces(self, every_partition: bool) -> Iterator[Mapping[str, list[Sample]]]:
        topics = TopicTotals()
        rows: list[tuple[TopicPartition, PartitionFigures]] = []
        for some in self._partitions():
            rows += some
            for name, figures in some:
                topics.add(name.topic, figures)
            yield {}
        yield self._with_rates(topics.totals(self._all_topics()))
        yield traffic_figures.partitions(rows, every_figure=every_partition)
        transactions = self._parts.transactions
        is_open = None if transactions is None else transactions.figures()
        yield transaction_figures.samples(rows, is_open, every_figure=every_partition)
        yield from coordinator_figures.samples(None if transactions is None else transactions.made)
        yield share_figures.samples(self._parts.share)
        yield share_figures.led(self._parts.share)
        yield self._with_rates(share_figures.counted(self._parts.share))
        yield self._replicas(rows)
        yield self._log_dirs(rows)
        yield self._parts.log_tasks.samples()
        yield self._network()
        yield quota_figures.samples(self._parts.services())
        yield from self._requests()
        yield self._hot_path()
        yield self._controller()
        rate = self._rates.rate(("replica_fetcher_bytes", ()))
        yield from replication_figures.followed(self._parts.replication, rate)
        yield from group_figures.samples(self._parts.groups, self._parts.replicas())
        yield self._disks()
        yield self._process()
        yield self._runtime()

    def _with_rates(self, totals: Totals) -> Samples:
        return {
            key: [(labels, self._rates.meter((key, labels), total)) for labels, total in rows]
            for key, rows in totals.items()
        }

    def _share(self, key: str, labels: LabelValues, unknown: float, threads: int = 1) -> float:
        """A count of nanoseconds as a share of the time that so many threads had."""
        rate = self._rates.rate((key, labels))
        if rate is None:
            return unknown
        return min(1.0, max(0.0, rate / 1e9 / max(1, threads)))

    def _network(self) -> Samples:
        samples, blocked, threads = traffic_figures.network(self._parts.server)
        idle = [((number,), self._share("processor_idle", (number,), 1.0)) for number, _ in threads]
        samples["processor_idle"] = list(idle)
        samples["network_idle"] = [((), sum(share for _, share in idle) / max(1, len(idle)))]
        samples["acceptor_blocked"] = [
            (labels, self._share("acceptor_blocked", labels, 0.0))
            for labels, _ in blocked["acceptor_blocked"]
        ]
        services = self._parts.services()
        counts = {} if services is None else services.authentications()
        for key, name in (
            ("authentications", "successful"),
            ("authentications_failed", "failed"),
            ("reauthentications", "successful_again"),
            ("reauthentications_failed", "failed_again"),
        ):
            samples[key] = [((listener,), getattr(each, name)) for listener, each in counts.items()]
        over = self._parts.server.closes()["a session that was over"] if counts else 0
        samples["sessions_expired"] = [((), over)]
        return samples

    def _requests(self) -> Iterator[Samples]:
        with self._lock:
            apis = self._times.read()
        times, counted = traffic_figures.requests(apis, PARTS)
        yield times
        yield self._with_rates(counted)

    def _hot_path(self) -> Samples:
        figures = self._parts.hot.statistics()
        waiting = {each.name: each.statistics() for each in self._parts.purgatories}
        handlers = figures["handlers"]
        flushes, flush_ms, quantiles = self._parts.log_tasks.flush_times.read(QUANTILES)
        flushed = Summary(tuple(zip(QUANTILES, quantiles, strict=True)), flushes, flush_ms)
        return {
            **self._with_rates({
                "errors": traffic_figures.errors(self._parts.hot),
                "fetch_session_evictions": [((), figures["fetch_session_evictions"])],
                **self._replication_totals(),
            }),
            "handler_idle": [
                ((), self._share("handler_idle", (), 1.0, sum(h["serving"] for h in handlers)))
            ],
            "gil_wait": [((), traffic_figures.gil_waits(handlers))],
            "log_flush_time": [((), flushed)],
            "purgatory_size": [
                (("Fetch",), figures["parked_now"] - figures["parked_produces_now"]),
                (("Produce",), figures["parked_produces_now"]),
                *(((name,), each["delayed"]) for name, each in waiting.items()),
            ],
            "purgatory_expired": [
                (("Fetch",), figures["parked_expired"] - figures["parked_produces_expired"]),
                (("Produce",), figures["parked_produces_expired"]),
                *(((name,), each["expired_total"]) for name, each in waiting.items()),
            ],
            "fetch_sessions": [((), figures["fetch_sessions"])],
            "fetch_session_partitions": [((), figures["fetch_session_partitions"])],
        }  # fmt: skip

    def _replicas(self, rows: Iterable[tuple[TopicPartition, PartitionFigures]]) -> Samples:
        held = leaders = offline = under = at = 0
        for _, figures in rows:
            held += 1
            offline += not figures.online
            if figures.is_leader:
                leaders += 1
                under += figures.in_sync_count < figures.min_in_sync
                at += figures.in_sync_count == figures.min_in_sync
        return {
            "partition_count": [((), held)],
            "leader_count": [((), leaders)],
            "offline_replicas": [((), offline)],
            "under_min_isr": [((), under)],
            "at_min_isr": [((), at)],
        }

    def _log_dirs(self, rows: Iterable[tuple[TopicPartition, PartitionFigures]]) -> Samples:
        used = dict.fromkeys(self._parts.log_dirs, 0)
        replicas = self._parts.replicas()
        for name, figures in rows:
            replica = replicas.get(name)
            place = None if replica is None else replica.log.directory.rpartition("/")[0]
            if place in used:
                used[place] += figures.size_bytes
        spaces = {path: resources.space_of(path) for path in used}
        known = {path: space for path, space in spaces.items() if space is not None}
        failed = [check for check in self._parts.readiness.checks() if not check.ok]
        return {
            "log_dir_used": [((path,), size) for path, size in used.items()],
            "log_dir_free": [((path,), space.free) for path, space in known.items()],
            "log_dir_total": [((path,), space.total) for path, space in known.items()],
            "offline_log_dirs": [
                ((), sum(check.name.startswith("log-dir") for check in failed))
            ],
        }  # fmt: skip

    def _controller(self) -> Samples:
        phase = self._parts.readiness.phase
        samples: Samples = {"broker_state": [((), _BROKER_STATES.get(phase, 0))]}
        controller = self._parts.controller()
        if controller is None:
            return samples
        image = controller.image
        under = sum(
            partition.leader == self._parts.node_id
            and len(partition.isr) < partition.replication_factor
            for partition in image.partitions()
        )
        samples |= replication_figures.cluster(controller)
        return samples | {
            "under_replicated": [((), under)],
            "brokers": [((), len(image.brokers))],
            "topic_partitions": [
                ((topic.name,), len(topic.partitions)) for topic in image.topics.values()
            ],
        }

    def _disks(self) -> Samples:
        totals = self._disk_totals()
        samples: Samples = {key: list(rows) for key, rows in totals.items()}
        for key, of in (
            ("disk_read_rate", "disk_read"),
            ("disk_write_rate", "disk_written"),
            ("process_read_rate", "process_read"),
            ("process_write_rate", "process_written"),
        ):
            if of in totals:
                samples[key] = [
                    (labels, self._rates.rate((of, labels)) or 0.0) for labels, _ in totals[of]
                ]
        return samples

    def _process(self) -> Samples:
        now_s = self._clock.wall_ms() / 1000
        found = resources.process(now_s)
        limit = resources.memory_limit()
        return {
            "resident_memory": [((), found.resident_bytes)],
            "used_memory": [((), used_memory())],
            "python_blocks": [((), sys.getallocatedblocks())],
            "memory_limit": [((), limit)],
            "memory_share": [((), found.resident_bytes / limit)],
            "cpu_seconds": [((), found.cpu_s)],
            "open_fds": [((), found.open_fds)],
            "max_fds": [((), found.max_fds)],
            "certificate_expiries": [
                ((listener,), expires) for listener, expires in self._parts.certificates().items()
            ],
            "threads": [((), found.threads)],
            "start_time": [((), found.start_wall_s)],
            "uptime": [((), max(0.0, now_s - found.start_wall_s))],
        }

    def _runtime(self) -> Samples:
        generations = range(GENERATIONS)
        tasks = self._parts.scheduler.statistics()
        python = ".".join(map(str, sys.version_info[:3]))
        info = (__version__, python, KAFKA_RELEASE)
        return {
            "gc_collections": [((str(g),), self.garbage.collections(g)) for g in generations],
            "gc_collected": [((str(g),), self.garbage.collected(g)) for g in generations],
            "gc_pause": [((str(g),), self.garbage.pauses(g)) for g in generations],
            "scheduler_runs": [((name,), task["runs"]) for name, task in tasks.items()],
            "scheduler_failures": [((name,), task["failures"]) for name, task in tasks.items()],
            "scheduler_slow_steps": [
                ((name,), task["slow_steps"]) for name, task in tasks.items()
            ],
            "scheduler_longest_step": [
                ((name,), task["longest_step_us"] / 1e6) for name, task in tasks.items()
            ],
            "step_failures": [
                ((part,), count) for part, count in self._parts.health.failures().items()
            ],
            "threads_dead": [((), len(self._parts.health.dead()))],
            "tasks_failing": [((), len(self._parts.readiness.failing()))],
            "live_objects": [
                ((kind,), count) for kind, count in live_objects(self._parts.server).items()
            ],
            "broken_invariants": [
                ((ended,), count) for ended, count in broken_invariants().items()
            ],
            "build_info": [(info, 1)],
        }  # fmt: skip
