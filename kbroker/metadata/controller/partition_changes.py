"""What the controller does to leaders and in-sync sets: decide, write, propagate.

Place in the flow: as `topic_changes.py`, for the decisions of `partition_states.py`. Everything
that one cause changes in a partition is one write of its node, so no reader ever sees a leader that
was elected beside an in-sync set with the dead still in it. On the controller's thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log_lines import first_few
from kbroker.metadata.controller.config_changes import (
    MIN_IN_SYNC,
    UNCLEAN,
    ResourceChange,
    touches,
)
from kbroker.metadata.controller.decisions import CHANGED_PARTITIONS_MAX, ConfigChange
from kbroker.metadata.controller.events import (
    AlterInSync,
    ElectLeaders,
    Outcomes,
    Reassign,
    Reassignment,
    ShutDown,
)
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.controller.partition_states import (
    RulesOf,
    after_brokers_changed,
    alter_in_sync,
    before_stop,
    check_registered,
    decided,
    election,
    others_may_lead,
    without_eligible,
)
from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.controller.reassignment import (
    cancelled,
    check_target,
    finished,
    reassigned,
)
from kbroker.metadata.controller.refusing_logs import RefusingLogs
from kbroker.metadata.image import (
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    ImageDelta,
    PartitionImage,
    TopicImage,
    delta_between,
)
from kbroker.types import TopicPartition

log = logging.getLogger("kbroker.controller")

SettingsChange = ConfigChange | ResourceChange


@dataclass(slots=True)
class Elections:
    """Leaders that this broker has elected as the controller, over all terms of office."""

    leaders: int = 0  # of partitions that had another leader, or none
    unclean: int = 0  # who may lack acknowledged records


class PartitionChanges:
    """See the head of this file."""

    def __init__(self, propagation: Propagation, rules_of: RulesOf, node_id: int) -> None:
        """`node_id` is the broker's whose logs follow here."""
        self._propagation = self.propagation = propagation
        self._node_id = node_id
        self._rules_of = rules_of
        self._closed_at: dict[int, tuple[TopicPartition, ...]] = {}
        self._refusing = RefusingLogs(propagation, node_id)
        self._shutting_down: dict[int, int] = {}  # of brokers, the epochs in which they are
        # Lossy starts that are not noted, since of topics that cannot be read nothing is written:
        # brokers with their epochs and these topics.
        self._owed: dict[int, tuple[int, frozenset[str]]] = {}
        self.elections = Elections()

    def elect(
        self,
        nodes: MetadataNodes,
        image: ClusterImage,
        known: Mapping[int, BrokerImage],
        *,
        new_epochs: bool = False,
        unreadable: frozenset[str] = frozenset(),
    ) -> ClusterImage:
        """The image, just read, with a leader for each partition that its brokers can lead;
        written. `known` are the brokers as they were known before. What they cannot open, all are
        asked again, and we try again: none of it is counted, but for the logs that are open here
        and fail. For the `unreadable` ones nothing is written from here on."""
        self._propagation.unreadable = unreadable
        self._closed_at.clear()
        self._refusing.forget_others()
        lossy = self._lossy(image)
        failing = frozenset((name, self._node_id) for name in self._propagation.failing)
        changed = self._changed(image, known, failing, lossy, new_epochs=new_epochs)
        return self._write(nodes, image, changed, lossy)

    def catch_up(
        self, nodes: MetadataNodes, image: ClusterImage, delta: ImageDelta
    ) -> list[TopicImage]:
        """Follow the image, just read; of `delta.deleted`, the topics that are removed for good.
        A partition that we cannot use then is in sync without us: it gets another leader, or none
        in a new epoch, since ours goes on where one is published without a leader."""
        removed = self._propagation.catch_up(self._propagation.announce(image), delta)
        ours = frozenset(
            (name, self._node_id)
            for name in self._propagation.unusable
            if (each := image.partition(*name)) and self._node_id in each.isr and _others(each)
        )
        if ours:
            changed = after_brokers_changed(image, image.brokers, self._rules_of, closed=ours)
            self._follow(self._write(nodes, image, changed))
        return removed

    def brokers_changed(self, nodes: MetadataNodes, brokers: Sequence[BrokerImage]) -> None:
        """These are the brokers now."""
        before = self._propagation.image
        if tuple(before.brokers.values()) == tuple(brokers):
            return
        image = before.with_brokers(brokers)
        stayed = _stayed(image, before.brokers)
        for node_id in [each for each in self._closed_at if each not in stayed]:
            del self._closed_at[node_id]  # a broker that starts again reports it again
        self._refusing.forget_others(stayed)
        lossy = self._lossy(image)
        changed = self._changed(image, before.brokers, self._closed(), lossy)
        image = self._write(nodes, image, changed, lossy)
        log.info(
            "brokers are now %s; %d partitions changed, %d have no leader",
            first_few([str(each.node_id) for each in brokers]),
            len(changed),
            image.offline_partition_count,
        )
        self._follow(image)

    def _changed(
        self,
        image: ClusterImage,
        known: Mapping[int, BrokerImage],
        closed: frozenset[tuple[TopicPartition, int]],
        lossy: Collection[int] = (),
        *,
        new_epochs: bool = False,
    ) -> list[PartitionImage]:
        """What becomes of the partitions of this image. A broker that has started again since it
        was known was gone in between. The leaders and the waiting replicas beside it are notified,
        even if its absence was not seen; one that was not known may have been gone, too."""
        now = image
        stayed = _stayed(image, known)
        if len(stayed) < len(image.brokers):
            now = now.with_partitions(
                after_brokers_changed(now, stayed, self._rules_of, closed=closed)
            )
        now = now.with_partitions(
            after_brokers_changed(
                now,
                image.brokers,
                self._rules_of,
                closed=closed,
                lossy=lossy,
                new_epochs=new_epochs,
            )
        )
        if stopping := self._stopping(now):
            now = now.with_partitions(before_stop(now, stopping, self._rules_of))
        moving = [each for each in now.partitions() if each.is_reassigned]
        if moving:
            now = now.with_partitions(self._finished(now, moving))
        now = now.with_partitions(self._led_elsewhere(now, closed))
        pairs = zip(image.partitions(), now.partitions(), strict=True)
        return [after for before, after in pairs if after is not before and after != before]

    def _give_way(self, nodes: MetadataNodes) -> None:
        """Leaders that refuse producers, where another can lead now."""
        image = self._propagation.image
        if changed := self._led_elsewhere(image, self._closed()):
            self._follow(self._write(nodes, image, changed))

    def _led_elsewhere(
        self, image: ClusterImage, closed: Collection[tuple[TopicPartition, int]]
    ) -> list[PartitionImage]:
        able = image.brokers.keys() - self._stopping(image)
        return self._refusing.led_elsewhere(image.partitions(), able, closed)

    def note_closed(
        self,
        nodes: MetadataNodes,
        node_id: int,
        closed: Sequence[TopicPartition],
        refusing: Sequence[TopicPartition] = (),
    ) -> None:
        """A broker cannot use the logs of these partitions, and of no others; it refuses producers
        at those, and at no others."""
        if self._refusing.note(node_id, refusing):
            log.warning("broker %d refuses producers at %d of its logs", node_id, len(refusing))
            self._give_way(nodes)
        if self._closed_at.get(node_id, ()) == tuple(closed):
            return
        image = self._propagation.image
        now = self._closed({node_id: closed})
        changed = after_brokers_changed(image, image.brokers, self._rules_of, closed=now)
        log.warning(
            "broker %d %s; %d partitions changed",
            node_id,
            f"cannot use {len(closed)} of its logs" if closed else "can use all of its logs again",
            len(changed),
        )
        written = self._write(nodes, image, changed)
        self._closed_at[node_id] = tuple(closed)
        if changed:
            self._follow(written)
            self._give_way(nodes)

    def note_opened(
        self,
        nodes: MetadataNodes,
        names: Iterable[TopicPartition],
        stored: Iterable[PartitionImage] = (),
    ) -> None:
        """Logs here are open that were not, or are not that are new: who may lead these partitions
        now does. `stored` is what the store says where something else is published."""
        names = frozenset(names)
        image = self._propagation.image.with_partitions(stored)
        topics = {name: image.topics[name] for name in {each.topic for each in names}}
        some = replace(image, topics=MappingProxyType(topics))
        found = after_brokers_changed(some, image.brokers, self._rules_of, closed=self._closed())
        if changed := [each for each in found if _name(each) in names]:
            self._follow(self._write(nodes, image, changed))
            self._give_way(nodes)

    def alter_in_sync(
        self, nodes: MetadataNodes, event: AlterInSync
    ) -> list[PartitionImage | KafkaError]:
        """One for each change that was asked for: the partition as it is now, or why not."""
        image = self._propagation.image
        check_registered(image, event.leader, event.broker_epoch)
        stopping, closed = self._stopping(image), self._closed()
        plans: list[PartitionImage | KafkaError] = []
        changed: list[PartitionImage] = []
        for change in event.changes:
            try:
                plan = alter_in_sync(image, event.leader, change, self._rules_of, stopping, closed)
                self._propagation.check_readable(plan.topic)
            except KafkaError as error:
                plans.append(error)
                continue
            plans.append(plan)
            if plan is not image.partition(plan.topic, plan.index):
                changed.append(plan)
                # So that a second change of the same partition is one on an older state.
                written = replace(plan, partition_epoch=plan.partition_epoch + 1)
                image = image.with_partitions([written])
        if changed:
            self._follow(self._write(nodes, self._propagation.image, changed))
            self._give_way(nodes)
        now = self._propagation.image
        return [
            plan if isinstance(plan, KafkaError) else now.topics[plan.topic].partitions[plan.index]
            for plan in plans
        ]

    def shut_down(self, nodes: MetadataNodes, event: ShutDown) -> list[TopicPartition]:
        """A broker is about to stop: others lead, where others are in sync. What it leads still
        and others may come to lead."""
        image = self._propagation.image
        check_registered(image, event.node_id, event.broker_epoch)
        self._shutting_down[event.node_id] = event.broker_epoch
        changed = self._changed(image, image.brokers, self._closed())
        if changed:
            self._follow(self._write(nodes, image, changed))
            log.info("broker %d stops; %d partitions changed", event.node_id, len(changed))
        now = self._propagation.image
        return others_may_lead(now, event.node_id, self._stopping(now), self._closed())

    def forget_broker(self, nodes: MetadataNodes, node_id: int) -> bool:
        """It may be elected no more, where others may; False if it was in no set. Alone in one it
        stays there: no other replica has the committed records."""
        image = self._propagation.image
        changed = self._changed(image, image.brokers, self._closed(), (node_id,))
        if changed:
            self._follow(self._write(nodes, image, changed))
        return bool(changed)

    @property
    def stopping(self) -> frozenset[int]:
        """Brokers that are about to stop."""
        return self._stopping(self._propagation.image)

    def _stopping(self, image: ClusterImage) -> frozenset[int]:
        """Who has said so since it started last."""
        return frozenset(
            node_id
            for node_id, epoch in self._shutting_down.items()
            if node_id in image.brokers and image.brokers[node_id].epoch == epoch
        )

    def elect_leaders(self, nodes: MetadataNodes, event: ElectLeaders) -> Outcomes:
        """Who was asked for leads, where that is possible; each partition's own outcome."""
        image, closed = self._propagation.image, self._closed()
        able = image.brokers.keys() - self._stopping(image)
        results: Outcomes = []
        changed: dict[TopicPartition, PartitionImage] = {}
        if not event.unclean:  # a broker that refuses producers leads only where no other can
            closed |= self._refusing.all()
        for name in event.partitions:
            alive = [node for node in able if (name, node) not in closed]
            plan = self._elected(image, name, event.unclean, alive)
            if isinstance(plan, KafkaError):
                results.append((name, plan))
            else:
                changed[name] = plan
                results.append((name, None))
        if changed:
            self._follow(self._write(nodes, image, list(changed.values())))
            log.info(
                "elected leaders of %d partitions: %s",
                len(changed),
                first_few([str(name) for name in changed]),
            )
        return results

    def _elected(
        self, image: ClusterImage, name: TopicPartition, unclean: bool, alive: Collection[int]
    ) -> PartitionImage | KafkaError:
        try:
            self._propagation.check_readable(name.topic)
        except KafkaError as error:
            return error
        return election(image, name, unclean, alive)

    def reassign(self, nodes: MetadataNodes, event: Reassign) -> Outcomes:
        """Partitions are on their way to where they are to be; each one's own outcome."""
        if len(event.wanted) > CHANGED_PARTITIONS_MAX:
            message = f"Excessively large request: more than {CHANGED_PARTITIONS_MAX} partitions."
            raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
        image, closed = self._propagation.image, self._closed()
        outcomes: Outcomes = []
        changed: dict[TopicPartition, PartitionImage] = {}
        repeats: dict[TopicPartition, tuple[Reassignment, KafkaError | None]] = {}
        for each in event.wanted:
            asked, refused = repeats.get(each.name, (None, None))
            # A cancellation that was made is none the second time.
            if asked != each or (each.target is None and refused is None):
                partition = changed.get(each.name) or image.partition(*each.name)
                try:
                    plan = self._reassigned(image, partition, each, event.factor_may_change, closed)
                    changed[each.name], refused = plan, None
                except KafkaError as error:
                    refused = error
                repeats[each.name] = each, refused
            outcomes.append((each.name, refused))
        changed = {name: plan for name, plan in changed.items() if plan != image.partition(*name)}
        if changed:
            self._follow(self._write(nodes, image, list(changed.values())))
            log.info(
                "%d partitions are reassigned: %s",
                len(changed),
                first_few([str(name) for name in changed]),
            )
        return outcomes

    def _reassigned(
        self,
        image: ClusterImage,
        partition: PartitionImage | None,
        wanted: Reassignment,
        factor_may_change: bool,
        closed: frozenset[tuple[TopicPartition, int]],
    ) -> PartitionImage:
        if partition is None:
            known = wanted.name.topic in image.topics
            what = f"partition {wanted.name}" if known else f"topic '{wanted.name.topic}'"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {what}")
        self._propagation.check_readable(partition.topic)
        if wanted.name in self._propagation.offline and partition.leader == NO_LEADER:
            # What is published of it here is not what the store says, and gets into no write.
            message = f"the log of {wanted.name} is offline at the controller: mend it first"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        rules = self._rules_of(image.topics[partition.topic])
        alive = _able(image, partition, closed)
        if wanted.target is None:
            return cancelled(partition, alive, rules)
        check_target(image, partition, wanted.target, factor_may_change)
        return reassigned(partition, wanted.target, alive, rules)

    def settings_change(self, nodes: MetadataNodes, changes: Sequence[SettingsChange]) -> None:
        """They are about to. Of states that an earlier kbroker wrote no replica may be elected by
        another min.insync.replicas than theirs, if this is cut half way."""
        touched = [each for each in changes if touches(each, MIN_IN_SYNC)]
        if touched:
            topics = [each.topic for each in touched if isinstance(each, ConfigChange)]
            self._forget_eligible(nodes, topics or None)  # a broker's: all

    def settings_changed(self, nodes: MetadataNodes, changes: Sequence[SettingsChange]) -> None:
        """What is otherwise by settings of elections that are others now: who leads, where unclean
        elections are allowed; reassignments that are at their end; how many must be in sync."""
        if not any(touches(each, key) for each in changes for key in (MIN_IN_SYNC, UNCLEAN)):
            return
        image = self._propagation.image
        if changed := self._changed(image, image.brokers, self._closed()):
            self._follow(self._write(nodes, image, changed))

    def _finished(
        self, image: ClusterImage, states: Iterable[PartitionImage]
    ) -> list[PartitionImage]:
        """Those of these states that are at the end of a reassignment, as they are there."""
        closed = self._closed()
        found = []
        for each in states:
            rules = self._rules_of(image.topics[each.topic])
            state = finished(each, _able(image, each, closed), rules)
            if not state.is_reassigned:
                found.append(state)
        return found

    def _forget_eligible(self, nodes: MetadataNodes, topics: Iterable[str] | None) -> None:
        """Of these topics, or of all."""
        image = self._propagation.image
        names = image.topics if topics is None else topics
        known = [image.topics[name] for name in {*names} if name in image.topics]
        changed = without_eligible(known)
        if changed:
            self._follow(self._write(nodes, image, changed))

    def _closed(
        self, more: Mapping[int, Sequence[TopicPartition]] = MappingProxyType({})
    ) -> frozenset[tuple[TopicPartition, int]]:
        closed = {**self._closed_at, self._node_id: self._propagation.unusable, **more}
        return frozenset((name, node_id) for node_id, names in closed.items() for name in names)

    def _write(
        self,
        nodes: MetadataNodes,
        image: ClusterImage,
        changed: Sequence[PartitionImage],
        lossy: Collection[int] = (),
    ) -> ClusterImage:
        """The image with these states, written over those that it has."""
        unreadable = self._propagation.unreadable
        changed = [each for each in changed if each.topic not in unreadable]
        now = image.with_partitions(self._write_states(nodes, image, changed)) if changed else image
        self.elections.leaders += sum(_is_elected(image, each) for each in changed)
        for lost in _unclean(image, changed):
            self.elections.unclean += 1
            log.warning(
                "%s: an unclean election; records that only other replicas had are lost", lost
            )
        for node_id in lossy:
            self._log_losses(image, changed, node_id)
        return self._note_losses(nodes, now, lossy)

    def _lossy(self, image: ClusterImage) -> frozenset[int]:
        """Brokers that may have lost something since a controller last took account of that."""
        unreadable = self._propagation.unreadable
        owed = {
            node_id
            for node_id, (epoch, topics) in self._owed.items()
            if topics <= unreadable and node_id in image.brokers
            if image.brokers[node_id].epoch == epoch
        }
        return frozenset(
            each.node_id
            for each in image.brokers.values()
            if each.lossy and each.node_id not in owed
        )

    def _note_losses(
        self, nodes: MetadataNodes, image: ClusterImage, lossy: Collection[int]
    ) -> ClusterImage:
        """They have left all sets that can be written. Where another topic has replicas of theirs,
        the start is as lossy as before, once that topic can be read: it leaves all sets again."""
        noted: dict[int, int] = {}
        for node_id in lossy:
            epoch = image.brokers[node_id].epoch
            owed = frozenset(
                name
                for name in self._propagation.unreadable
                if any(node_id in each.replicas for each in image.topics[name].partitions)
            )
            if owed:
                self._owed[node_id] = epoch, owed
            else:
                noted[node_id] = epoch
        if not noted:
            return image
        nodes.note_losses(noted)
        return image.with_brokers(
            [
                replace(each, lossy=False) if each.node_id in noted else each
                for each in image.brokers.values()
            ]
        )

    def _write_states(
        self, nodes: MetadataNodes, image: ClusterImage, changed: Sequence[PartitionImage]
    ) -> list[PartitionImage]:
        """The states that were written. Whatever a state comes from, it may be the one in which a
        reassignment is at its end."""
        states: list[PartitionImage] = []
        moved: list[PartitionImage] = []
        moving = [each for each in changed if each.is_reassigned]
        ended = {_name(each): each for each in self._finished(image, moving)} if moving else {}
        for each in changed:
            state = ended.get(_name(each), each)
            state = decided(state, self._rules_of(image.topics[each.topic]))
            was = image.topics[each.topic].partitions[each.index]
            if was.is_reassigned and not state.is_reassigned:
                log.info("%s is on brokers %s now", _name(state), list(state.replicas))
            (states if was.places == state.places else moved).append(state)
        written = nodes.set_partitions(states) if states else []
        return [*written, *(nodes.reassign(moved, image.topics) if moved else ())]

    def _log_losses(
        self, image: ClusterImage, changed: Sequence[PartitionImage], node_id: int
    ) -> None:
        """Of a lossy start, with the partitions that it leads because no other broker can."""
        left = [each for each in changed if node_id in _members(image, each)]
        alone = [str(_name(each)) for each in left if each.leader == node_id and _others(each)]
        if any(node_id not in each.isr for each in left):
            log.warning(
                "broker %d may have lost records since its last start (the machine stopped, or a "
                "data directory is another one) and follows until it has caught up",
                node_id,
            )
        if alone:
            self.elections.unclean += len(alone)
            log.warning(
                "broker %d may have lost records, and leads %d partitions all the same, since no "
                "replica that has them is there: %s",
                node_id,
                len(alone),
                first_few(alone),
            )

    def _follow(self, image: ClusterImage) -> None:
        """The other brokers first: what they do does not wait for a disk of this one."""
        delta = delta_between(self._propagation.image, image)
        image = self._propagation.announce(image)
        self._propagation.catch_up(image, ImageDelta(changed=delta.changed, from_store=True))


def _unclean(image: ClusterImage, changed: Iterable[PartitionImage]) -> Iterable[TopicPartition]:
    for now in changed:
        if now.leader != NO_LEADER and now.leader not in _members(image, now):
            yield _name(now)


def _is_elected(image: ClusterImage, now: PartitionImage) -> bool:
    """Whether this is another leader than there was."""
    was = image.topics[now.topic].partitions[now.index]
    return now.leader not in (NO_LEADER, was.leader)


def _members(image: ClusterImage, partition: PartitionImage) -> tuple[int, ...]:
    """Who was in sync or eligible, in an image from before."""
    was = image.topics[partition.topic].partitions[partition.index]
    return (*was.isr, *was.eligible)


def _others(partition: PartitionImage) -> bool:
    """Whether there are replicas beside the leader, which might have had more."""
    return len(partition.replicas) > 1


def _able(
    image: ClusterImage,
    partition: PartitionImage,
    closed: Collection[tuple[TopicPartition, int]],
) -> list[int]:
    """The brokers that could lead it."""
    name = _name(partition)
    return [node for node in image.brokers if (name, node) not in closed]


def _name(partition: PartitionImage) -> TopicPartition:
    return TopicPartition(partition.topic, partition.index)


def _stayed(image: ClusterImage, known: Mapping[int, BrokerImage]) -> list[int]:
    """The brokers of the image that have not started again since they were known."""
    return [
        node_id
        for node_id, broker in image.brokers.items()
        if node_id in known and known[node_id].epoch == broker.epoch
    ]
