"""A simulated cluster: brokers, the store, the network, clients, and their faults.

Each fault is one method here, called by the schedule (`schedule.py`), and ends by itself after a
time. `heal` ends all faults at once; `settled.py` then looks for the conditions that a healed
cluster does not meet yet.
"""

from __future__ import annotations

import random
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker.config import BrokerConfig
from kbroker.coordinator.group.offsets_topic import new_topic
from kbroker.errors import KafkaError, UserError
from kbroker.log.engine.checkpoints import RECOVERY_POINT_FILE, read_offsets
from kbroker.metadata.controller import NewTopic, TopicResult
from kbroker.metadata.controller.config_changes import MIN_IN_SYNC, ResourceChange
from kbroker.metadata.controller.events import Reassignment
from kbroker.metadata.controller.records import CONTROLLER
from kbroker.metadata.image import NO_LEADER, OFFSETS_TOPIC, ConfigKind, ConfigResource
from kbroker.testing.file_faults import FileFaults
from kbroker.types import TopicPartition
from tests.simulation.broker import LAG_MS, Broker, Running
from tests.simulation.clients import Consumer, Producer
from tests.simulation.deleters import Deleter
from tests.simulation.disks import DiskActs
from tests.simulation.group_clients import Committer
from tests.simulation.group_crowd import Crowd
from tests.simulation.group_members import Member
from tests.simulation.living import Living
from tests.simulation.loop import Process, StepLoop
from tests.simulation.lost_syncs import LostSyncs
from tests.simulation.network import CLIENTS, Network
from tests.simulation.pipelined_clients import PipelinedProducer
from tests.simulation.power import Synced, cut_power
from tests.simulation.producer_ids import ProducerIds
from tests.simulation.safety import Safety
from tests.simulation.share_acts import ShareActs
from tests.simulation.shares import SHARE_SETTINGS
from tests.simulation.store import SESSION_MS, Ensemble
from tests.simulation.topics import Topics
from tests.simulation.transaction_acts import TransactionActs
from tests.simulation.twins import Twins

if TYPE_CHECKING:
    from tests.simulation.scheduler import Scheduler

TOPIC = "t"
BROKERS = (1, 2, 3)
PARTITIONS = 2
HOMES = PARTITIONS  # in the place of a partition: those of `__consumer_offsets`
ALL_LOGS = HOMES + 1
STATES = ALL_LOGS + 1  # those of `__transaction_state`
SHARES = STATES + 1  # those of `__share_group_state`
EVERY_BROKER = 0  # in the place of a broker: a setting for all of them
# Of two partitions of `__consumer_offsets` each has its own; the second has a member.
GROUPS = ("g1", "g2")
RETRY_START_MS = 300
RETRY_MOVE_MS = 300
LATE_SENDS_MS = 400
LATE_MOVES_MS = 2_000  # one that was asked for may wait in the controller's queue as long
# By then the others mostly know the new leaders of the partitions that a stopping broker led.
HAND_OVER_MS = 5
# A broker's settings in simulated time: pauses and time-outs are shorter, as are the histories.
SETTINGS = {
    "replica.lag.time.max.ms": str(LAG_MS),
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.fetch.wait.max.ms": "500",
    "replica.fetch.backoff.ms": "300",
    "group.initial.rebalance.delay.ms": "30",
    "group.min.session.timeout.ms": "500",
    "offsets.commit.timeout.ms": "800",
    "offsets.load.buffer.size": "400",
    "request.timeout.ms": "1500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "250",
    "transaction.state.log.load.buffer.size": "400",
    **SHARE_SETTINGS,
}


@cache
def config_of(node_id: int, min_in_sync: int) -> BrokerConfig:
    settings = {**SETTINGS, "node.id": str(node_id), MIN_IN_SYNC: str(min_in_sync)}
    return BrokerConfig.load(overrides=[f"{key}={value}" for key, value in settings.items()])


def _spread(partitions: int, first: int) -> dict[int, tuple[int, ...]]:
    """All brokers have each, and lead one after the other."""
    return {
        index: (*BROKERS[at:], *BROKERS[:at])
        for index in range(partitions)
        for at in [(first + index) % len(BROKERS)]
    }


class Cluster(DiskActs, TransactionActs, ShareActs):
    """See the head of this file. `directory` takes the brokers' files; with `pipelined` producers
    do not wait for one answer before they send on."""

    def __init__(
        self,
        directory: Path,
        dice: random.Random,
        *,
        pipelined: bool = False,
        scheduler: Scheduler | None = None,
        shares: bool = False,
    ) -> None:
        """With a `scheduler` brokers have threads, with `shares` they may serve share groups."""
        self.dice, self.has_shares = dice, shares
        self.pipelined = pipelined
        self.scheduler = scheduler
        self.cluster_id = "simulated-cluster-0001"
        self.min_in_sync = 2  # the least value that any broker's settings have had so far
        self.safety = Safety(self)
        # Not all of a loop: as much as is asked for.
        if scheduler is None:
            self.loop = StepLoop(self.safety.after_step)  # type: ignore[abstract]
        else:
            self.loop = scheduler.begin(self.safety)
            scheduler.lost = LostSyncs(self)
        self.network = Network(
            self.loop,
            random.Random(dice.random()),
            dice.choice((0, 0, 3, 10)),
            dice.choice((0, 0, 0, 2)),
            # Nothing is drawn for it: recorded schedules give the same histories as before.
            random.Random(dice.getstate()[1][0]).choice((0, 0, 2)),
        )
        self.ensemble = Ensemble(
            self.loop,
            random.Random(dice.random()),
            self.safety.written,
            lambda node_id: not self.brokers[node_id].isolated,
        )
        self.clients = Process(self.loop)
        self._admin = self.ensemble.begin_session(self.clients, CLIENTS)
        self.names = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        homes = dice.choice((1, 1, 1, 2))
        self.homes = [TopicPartition(OFFSETS_TOPIC, index) for index in range(homes)]
        self.brokers = {
            each: Broker(each, directory / f"broker-{each}", config_of(each, self.min_in_sync))
            for each in BROKERS
        }
        self.producer_ids = ProducerIds(self, random.Random(dice.random()))
        kinds = ((True, -1), (True, -1), (False, -1), (False, 1))
        made = PipelinedProducer if pipelined else Producer
        self.producers = [
            made(self, number, random.Random(dice.random()), idempotent=idempotent, acks=acks)
            for number, (idempotent, acks) in enumerate(kinds, start=1)
        ]
        self.consumer = Consumer(self)
        self.deleter = Deleter(self)
        self.committers = [
            kind(self, group, random.Random(dice.random()))
            for kind, group in zip((Committer, Member), GROUPS, strict=True)
        ]
        # Nothing is drawn for it: recorded schedules give the same histories as before.
        self.crowd = Crowd(self, random.Random(dice.getstate()[1][0]))
        self.topics = Topics(self, BROKERS)
        self._prepare_transactions(random.Random(f"transactions {dice.getstate()[1][0]}"))
        self._prepare_shares(random.Random(f"shares {dice.getstate()[1][0]}"))
        self._full: list[tuple[int, int]] = []  # and with which error
        self._disk_faults: FileFaults | None = None
        self.boots = dict.fromkeys(BROKERS, 1)
        self._to_start_again: set[Running] = set()  # as soon as they have started
        self._moved = False  # replicas may be elsewhere than everywhere
        self._twins, self._living = Twins(self), Living(self)

    def begin(self) -> None:
        """All run, and there are the topics."""
        for node_id, broker in self.brokers.items():
            broker.config = config_of(node_id, self.min_in_sync)
            self.start(node_id)
        if self.scheduler is not None:
            self.loop.run_until(self.loop.now_ms)
        self._living.begin()
        configs = new_topic(self.brokers[BROKERS[0]].config).configs
        topics = [
            NewTopic(TOPIC, assignments=_spread(PARTITIONS, 0)),
            NewTopic(OFFSETS_TOPIC, assignments=_spread(len(self.homes), 1), configs=configs),
        ]
        results: list[TopicResult] = []
        controller = self.running(BROKERS[0]).controller
        while len(controller.image.brokers) < len(BROKERS):
            self.loop.run_until(self.loop.now_ms + 1)
        controller.create_topics(topics, False, results.extend)
        while not results:
            self.loop.run_until(self.loop.now_ms + 1)
        assert not any(each.error for each in results), results

    def running(self, node_id: int) -> Running:
        running = self.brokers[node_id].running
        assert running is not None
        return running

    def all_running(self) -> list[Running]:
        return [each.running for each in self.brokers.values() if each.running is not None]

    def leader_of(self, name: TopicPartition) -> tuple[int, int]:
        """And the epoch, as some broker knows them; NO_LEADER."""
        known = [each for each in self.all_running() if not each.process.paused]
        if not known:
            return NO_LEADER, -1
        partition = self.dice.choice(known).controller.image.partition(*name)
        return (NO_LEADER, -1) if partition is None else (partition.leader, partition.leader_epoch)

    # --- brokers ----------------------------------------------------------------------------------

    def start(self, node_id: int) -> None:
        broker = self.brokers[node_id]
        if broker.running is not None or broker.starting is not None:
            return
        running = broker.starting = Running(self, broker)
        running.disk_failed = self.is_full(node_id)
        if broker.isolated:
            self._cut_off(running)
        started: Any = partial(self._started, broker, running)
        if self.scheduler is not None:
            started = partial(self.loop.later, 0, started)  # not on the thread that has started it
        try:
            running.start(started)
        except (UserError, KafkaError, OSError) as error:
            self._started(broker, running, error)

    def _started(self, broker: Broker, running: Running, error: Exception | None) -> None:
        broker.starting = None
        if error is None:
            broker.running = self.network.brokers[broker.node_id] = running
            if running in self._to_start_again:
                self._to_start_again.remove(running)
                self._end(broker.node_id, 0, clean=False)
            return
        # The store is out of reach, the disk full, the id in use: the broker is started again.
        if not isinstance(error, UserError | KafkaError | OSError):
            self.safety.fail("no step raises", f"at the start of {broker.node_id}: {error!r}")
        running.end(clean=False)
        self.loop.later(RETRY_START_MS, self.start, broker.node_id)

    def kill(self, node_id: int, down_ms: int) -> None:
        self._end(node_id, down_ms, clean=False)

    def cut_power(self, node_id: int, down_ms: int) -> None:
        running = self.brokers[node_id].running
        if running is None:
            return
        running.end_threads()
        directory = self.brokers[node_id].directory
        points = read_offsets(directory / RECOVERY_POINT_FILE)
        # Of logs that this start has not opened yet as well, which only a kill has left.
        synced = {}
        for name in self.logs:
            view = self.safety.partition(name).views.get(node_id)
            if view is not None and (path := directory / str(name)).exists():
                # On a full disk, after a truncation or an earlier power cut, less is there than the
                # file says.
                point = min(points.get(name, 0), len(view.contents.records))
                if view.synced_to is not None:
                    point = min(point, view.synced_to)
                synced[name] = Synced(path, point, epochs_settled=False)
        open_here = running.replicas.replicas()
        for name, each in open_here.items():
            synced[name] = Synced.of(each, points.get(name, 0))
        self._end(node_id, down_ms, clean=False)
        self.boots[node_id] += 1
        for name, left in synced.items():
            view = self.safety.partition(name).views[node_id]
            cut_power(left, view.contents.place_of, self.dice)
            self.safety.power_cut(node_id, name, left.recovery_point)

    def take_away(self, node_id: int) -> None:
        """Until `heal`."""
        self._end(node_id, -1, clean=False)

    def stop(self, node_id: int, down_ms: int) -> None:
        def end() -> None:
            if self.brokers[node_id].running is running:
                self._end(node_id, down_ms, clean=True)

        running = self.brokers[node_id].running
        if running is not None and not running.process.paused:
            running.hand_over(lambda: running.process.later(HAND_OVER_MS, end))

    def _end(self, node_id: int, down_ms: int, *, clean: bool) -> None:
        broker = self.brokers[node_id]
        running = broker.running
        if running is None:
            return
        running.end(clean=clean)
        self._count_failures(running)
        broker.running = None
        self.network.died(running)
        if down_ms >= 0:
            self.loop.later(down_ms, self.start, node_id)

    def _count_failures(self, running: Running) -> None:
        if running.failures_count and not running.disk_failed:
            self.safety.fail("no step raises", f"{running.failures_count} at {running.node_id}")

    def pause(self, node_id: int, for_ms: int) -> None:
        running = self.brokers[node_id].running
        if running is None or running.process.paused:
            return
        running.process.paused = True
        for session in self.ensemble.sessions_of(running.process):
            session.cut_off()
        self.loop.later(for_ms, self._go_on, running)

    def _go_on(self, running: Running) -> None:
        if running.process.alive and running.process.paused:
            if not self.brokers[running.node_id].isolated:
                self._back(running)
            running.process.go_on()

    def twin(self, node_id: int, for_ms: int) -> None:
        """A copy of its data directory is started."""
        self._twins.copy(node_id, for_ms)

    def usurp(self, node_id: int, for_ms: int) -> None:
        """Another process takes its registration."""
        self._twins.usurp(node_id, for_ms)

    # --- the store --------------------------------------------------------------------------------

    def isolate(self, node_id: int, for_ms: int) -> None:
        """From the store."""
        broker = self.brokers[node_id]
        broker.isolated += 1
        if broker.running is not None:
            self._cut_off(broker.running)
        self.loop.later(for_ms, self._reach, broker)

    def _reach(self, broker: Broker) -> None:
        broker.isolated = max(0, broker.isolated - 1)
        running = broker.running
        if not broker.isolated and running is not None and not running.process.paused:
            self._back(running)

    def _cut_off(self, running: Running) -> None:
        for session in self.ensemble.sessions_of(running.process):
            session.cut_off()
            session.lose_connection()

    def _back(self, running: Running) -> None:
        for session in self.ensemble.sessions_of(running.process):
            session.back()

    def lose_answer(self, node_id: int) -> None:
        """Of the next write to the store."""
        running = self.brokers[node_id].running
        if running is not None:
            for session in self.ensemble.sessions_of(running.process):
                session.lose_answer = True

    def depose(self) -> None:
        """An operator deletes /controller."""
        if self.ensemble.tree.find(CONTROLLER) is not None:
            self._admin.delete(CONTROLLER)

    def hang(self, for_ms: int) -> None:
        """The controller's thread is busy."""
        for running in self.controllers():
            running.events.hang(for_ms)

    def deafen(self, node_id: int, for_ms: int) -> None:
        """A broker receives neither images nor answers from the controller."""
        for running in self.controllers():
            self.cut(running.node_id, node_id, for_ms)

    def mute(self, node_id: int, for_ms: int) -> None:
        """The controller and a broker receive nothing from each other; then the connections end."""
        for running in self.controllers():
            self.part(running.node_id, node_id, for_ms)
            self.loop.later(for_ms, self.drop, running.node_id, node_id)

    def hang_fetchers(self, node_id: int, for_ms: int) -> None:
        """The broker runs, and fetches nothing."""
        running = self.brokers[node_id].running
        if running is not None:
            running.fetchers_hang_until_ms = self.loop.now_ms + for_ms

    def slow_fetchers(self, node_id: int, for_ms: int) -> None:
        """It fetches one batch at a time, over a slow link."""
        self.brokers[node_id].slow_until_ms = self.loop.now_ms + for_ms

    def slow_loads(self, node_id: int, for_ms: int) -> None:
        """It reads the logs of groups from a slow disk."""
        running = self.brokers[node_id].running
        if running is not None:
            running.load_slowly(for_ms)

    def reachable(self) -> list[Running]:
        """Those that run, and reach the store."""
        return [
            each
            for each in self.all_running()
            if not each.process.paused and not self.brokers[each.node_id].isolated
        ]

    def controllers(self) -> list[Running]:
        return [
            each
            for each in self.all_running()
            if each.controller.active and not each.process.paused
        ]

    # --- the network ------------------------------------------------------------------------------

    def cut(self, source: int, target: int, for_ms: int) -> None:
        """One way."""
        self.network.cut(source, target)
        self.loop.later(for_ms, self.network.mend, source, target)

    def late(self, source: int, target: int, for_ms: int) -> None:
        """A request that is sent along that way now arrives after its sender has given up."""
        self.network.delay(source, target, for_ms)
        self.loop.later(LATE_SENDS_MS, self.network.delay, source, target, 0)

    def part(self, one: int, other: int, for_ms: int) -> None:
        self.cut(one, other, for_ms)
        self.cut(other, one, for_ms)

    def alone(self, node_id: int, for_ms: int) -> None:
        """Out of reach of all processes and of the store."""
        for other in (*self.brokers, CLIENTS):
            if other != node_id:
                self.part(node_id, other, for_ms)
        self.isolate(node_id, for_ms)

    def drop(self, one: int, other: int) -> None:
        self.network.drop(one, other)

    def reset(self, source: int, target: int, for_ms: int) -> None:
        """Requests along that way do not arrive, and the sender's connection ends at once."""
        self.network.reset(source, target, for_ms)

    # --- acts of operators and clients ------------------------------------------------------------

    def renew(self, node_id: int, min_in_sync: int, down_ms: int) -> None:
        """Its file says another number, with which it starts again."""
        self._may_be(min_in_sync)
        self.brokers[node_id].config = config_of(node_id, min_in_sync)
        self.stop(node_id, down_ms)

    def override(self, node_id: int, min_in_sync: int) -> None:
        """Set at run time for one broker, for all of them (EVERY_BROKER), or for none any more."""
        self._may_be(min_in_sync or self.min_in_sync)
        name = "" if node_id == EVERY_BROKER else str(node_id)
        change = ResourceChange(
            ConfigResource(ConfigKind.BROKER, name),
            {MIN_IN_SYNC: str(min_in_sync)} if min_in_sync else {},
            frozenset() if min_in_sync else frozenset({MIN_IN_SYNC}),
        )
        for running in self.controllers():
            running.controller.alter_resource_configs([change], False, lambda results: None)

    def _may_be(self, min_in_sync: int) -> None:
        self.min_in_sync = min(self.min_in_sync, min_in_sync)

    def checkpoint(self, node_id: int) -> None:
        running = self.brokers[node_id].running
        if running is not None and not running.process.paused:
            running.checkpoint()

    def prefer(self, index: int) -> None:
        """Have the first replica lead."""
        names = self._at(index)
        for running in self.controllers():
            running.controller.elect_leaders(False, names, lambda outcome: None)

    def reassign(self, index: int, *target: int) -> None:
        """To these brokers; to none: back to where it was."""
        self._moved = True
        for name in self._at(index):
            self._move(name, target or None)

    def _at(self, index: int) -> list[TopicPartition]:
        others = {HOMES: self.homes, STATES: self.states, SHARES: self.share_states}
        return others.get(index) or self.names[index : index + 1]

    def _move(self, name: TopicPartition, target: tuple[int, ...] | None) -> None:
        for running in self.controllers():
            running.controller.reassign([Reassignment(name, target)], True, lambda outcomes: None)

    def _spread_again(self, looked_until_ms: int) -> None:
        """Every broker has every partition, as in the beginning."""
        wanted = [name for name in self.logs if not self._is_everywhere(name)]
        for name in wanted:
            partition = self.safety.partition(name)
            if not partition.adding and not partition.removing:  # it ends by itself
                self._move(name, BROKERS)
        if wanted or self.loop.now_ms < looked_until_ms:
            self.loop.later(RETRY_MOVE_MS, self._spread_again, looked_until_ms)

    def _is_everywhere(self, name: TopicPartition) -> bool:
        partitions = [each.controller.image.partition(*name) for each in self.controllers()]
        return bool(partitions) and all(
            each is not None and not each.is_reassigned and {*each.replicas} == {*BROKERS}
            for each in partitions
        )

    def produce(self, producer: int, index: int) -> None:
        self.producers[producer].produce(self.names[index])

    def make_topic(self) -> None:
        self.topics.make()

    def delete_topic(self) -> None:
        self.topics.delete()

    def consume(self, index: int) -> None:
        self.consumer.consume(self.names[index])

    def delete_records(self, index: int, percent: int) -> None:
        self.deleter.delete(self.names[index], percent)

    def retain(self, index: int, size_bytes: int) -> None:
        """Retention runs, and then the checkpoints."""
        for running in self.all_running():
            if not running.process.paused:
                running.retain(self.names[index], size_bytes)

    def ask_end(self, index: int) -> None:
        self.consumer.ask_end(self.names[index])

    def commit(self, group: int) -> None:
        self.committers[group].commit()

    def delete_group(self, whole: int) -> None:
        """That without members, or its offset."""
        self.committers[0].delete(group=bool(whole))

    def come(self, member: int) -> None:
        """Into the group of several."""
        self.crowd.members[member].come()

    def go(self, member: int) -> None:
        self.crowd.members[member].go()

    def disband(self) -> None:
        self.crowd.disband()

    def delete_crowd(self) -> None:
        self.crowd.delete()

    def fall_silent(self, member: int, for_ms: int) -> None:
        self.crowd.members[member].fall_silent(for_ms)

    def ask_committed(self, group: int, stable: int) -> None:
        self.committers[group].ask(stable=bool(stable))

    # --- the end ----------------------------------------------------------------------------------

    def heal(self) -> None:
        """Nothing is wrong any more."""
        self.network.mend_all()
        self.crowd.end()
        self._end_transactions()
        self._end_shares()
        self._twins.end()
        self._full.clear()
        if self.scheduler is not None:
            self.scheduler.mend()
        self._limit_disks()
        for broker in self.brokers.values():
            broker.isolated, broker.slow_until_ms = 0, 0.0
            self._refuse(broker.node_id, False)
            running, starting = broker.running, broker.starting
            # A log that went offline meanwhile comes back with a start.
            if starting is not None and starting.disk_failed:
                self._to_start_again.add(starting)
            if running is not None and running.disk_failed:
                self._end(broker.node_id, 0, clean=False)
            elif running is not None:
                running.fetchers_hang_until_ms = 0
                self._back(running)
                if running.process.paused:
                    self._go_on(running)
            self.start(broker.node_id)
        if self._moved:
            self._spread_again(self.loop.now_ms + LATE_MOVES_MS)

    def close(self) -> None:
        self.clients.die()
        self.safety.watching = False
        self._twins.end()
        self._full.clear()
        self._limit_disks()
        for running in self.all_running():
            running.end(clean=False)
        self.loop.run_until(self.loop.now_ms + 10)
