"""What the controller does to topics: decide, write, propagate; the same three steps every time.

Place in the flow: `controller.py` hands an event of its queue over, with the nodes it may write as
long as it is in office, and answers with the list that comes back: one result for everything that
was asked, in its order. On the controller's thread only; no lock.

A change that is in the store but cannot be applied is taken back, in the store as well: a topic
whose log does not open is deleted, partitions are removed, a configuration is written back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol
from uuid import UUID

from kbroker.errors import KafkaError
from kbroker.log_lines import first_few
from kbroker.metadata.controller.decisions import (
    ConfigValidator,
    Defaults,
    ListEditor,
    TopicResult,
    plan_config_change,
    plan_deletion,
    plan_partitions,
    plan_topics,
)
from kbroker.metadata.controller.events import (
    AlterConfigs,
    Charge,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    failed_deletion,
)
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.controller.partition_changes import PartitionChanges
from kbroker.metadata.controller.settings_room import SettingsRoom
from kbroker.metadata.image import NO_CONFIGS, TopicImage
from kbroker.metadata.store.base import StoreError

log = logging.getLogger("kbroker.controller")

# A topic's next state, or why it has none.
Plan = TopicImage | KafkaError
NO_TOPICS: Final[Mapping[str, TopicImage]] = MappingProxyType({})


class Settings(Protocol):
    """The broker's configuration, of which num.partitions and default.replication.factor."""

    def __getitem__(self, name: str, /) -> Any: ...


class TopicChanges:
    """See the head of this file."""

    def __init__(
        self,
        partitions: PartitionChanges,
        config: Settings,
        validate_configs: ConfigValidator,
        edit_list: ListEditor,
        new_id: Callable[[], UUID],
    ) -> None:
        self._propagation = partitions.propagation
        self._config = config
        self._validate_configs = validate_configs
        self._edit_list = edit_list
        self._new_id = new_id
        self._partitions = partitions
        self._placement_start = 0

    def create_topics(self, nodes: MetadataNodes, event: CreateTopics) -> list[TopicResult]:
        image = self._propagation.image
        room = SettingsRoom(image)
        start, stopping = self._placement_start, self._partitions.stopping
        planned = plan_topics(image, event.specs, self._defaults(), self._new_id, start, stopping)
        plans = [_if_room(plan, NO_CONFIGS, room, is_new=True) for plan in planned]
        plans = [_if_paid(plan, event.charge) for plan in plans]
        topics = _planned(plans)
        failures: dict[str, KafkaError] = {}
        if topics and not event.validate_only:
            self._placement_start += sum(len(topic.partitions) for topic in topics)
            leftovers = self._propagation.unremoved(topic.name for topic in topics)
            if leftovers:
                forget_deletions(nodes, self._propagation.delete(leftovers))
            nodes.create_topics(topics)
            failures = self._propagation.create(topics)
            if failures:
                undone = [each for each in topics if each.name in failures]
                nodes.delete_topics(undone)
                forget_deletions(nodes, self._propagation.delete(undone))
            made = [topic for topic in topics if topic.name not in failures]
            self._give_up(nodes, made)
            log.info("created %d topics: %s", len(made), _names(made))
        return [
            _result(spec.name, plan, failures)
            for spec, plan in zip(event.specs, plans, strict=True)
        ]

    def create_partitions(self, nodes: MetadataNodes, event: CreatePartitions) -> list[TopicResult]:
        before = self._propagation.image.topics
        start, stopping = self._placement_start, self._partitions.stopping
        planned = plan_partitions(self._propagation.image, event.wanted, start, stopping)
        plans = [self._if_readable(plan) for plan in planned]
        plans = [_if_paid(plan, event.charge, before) for plan in plans]
        topics = _planned(plans)
        failures: dict[str, KafkaError] = {}
        if topics and not event.validate_only:
            self._placement_start += sum(
                len(topic.partitions) - len(before[topic.name].partitions) for topic in topics
            )
            nodes.add_partitions([(before[topic.name], topic) for topic in topics])
            failures = self._propagation.change(topics)
            if failures:
                nodes.remove_partitions(
                    [(topic, before[topic.name]) for topic in topics if topic.name in failures]
                )
            grown = [topic for topic in topics if topic.name not in failures]
            self._give_up(nodes, grown)
            log.info("added partitions to %d topics: %s", len(grown), _names(grown))
        return [
            _result(wanted.topic, plan, failures)
            for wanted, plan in zip(event.wanted, plans, strict=True)
        ]

    def delete_topics(self, nodes: MetadataNodes, event: DeleteTopics) -> list[TopicResult]:
        plans = [
            _if_paid(plan_deletion(self._propagation.image, topic), event.charge)
            for topic in event.topics
        ]
        topics = {topic.topic_id: topic for topic in _planned(plans)}
        if topics:
            nodes.delete_topics(topics.values())
            forget_deletions(nodes, self._propagation.delete(list(topics.values())))
            log.info("deleted %d topics: %s", len(topics), _names(list(topics.values())))
        return [
            failed_deletion(asked, plan)
            if isinstance(plan, KafkaError)
            else TopicResult(plan.name, topic_id=plan.topic_id)
            for asked, plan in zip(event.topics, plans, strict=True)
        ]

    def alter_configs(self, nodes: MetadataNodes, event: AlterConfigs) -> list[TopicResult]:
        before = self._propagation.image.topics
        planned: dict[str, TopicImage] = {}
        plans: list[Plan] = []
        room = SettingsRoom(self._propagation.image)
        for change in event.changes:
            # A later change of the same topic builds on the one before it.
            topic = planned.get(change.topic) or before.get(change.topic)
            plan = plan_config_change(topic, change, self._validate_configs, self._edit_list)
            plan = _if_room(plan, NO_CONFIGS if topic is None else topic.configs, room)
            plans.append(plan)
            if isinstance(plan, TopicImage):
                planned[plan.name] = plan
        topics = [topic for name, topic in planned.items() if topic is not before[name]]
        failures: dict[str, KafkaError] = {}
        if topics and not event.validate_only:
            nodes.set_configs(topics)
            failures = self._propagation.reconfigure(topics)
            if failures:
                nodes.set_configs([before[name] for name in failures])
                self._propagation.reconfigure([before[name] for name in failures])
        return [
            _result(change.topic, plan, failures)
            for change, plan in zip(event.changes, plans, strict=True)
        ]

    def _give_up(self, nodes: MetadataNodes, topics: Iterable[TopicImage]) -> None:
        """Of these, just made, others lead what did not open here, and nothing waits for it. Where
        there are no others nothing is decided: it is led again when it opens."""
        names = {topic.name: topic for topic in topics}
        offline = [
            each
            for each in self._propagation.offline
            if each.topic in names
            and len(names[each.topic].partitions[each.partition].replicas) > 1
        ]
        if offline:
            stored = self._propagation.as_stored(offline)
            self._partitions.note_opened(nodes, offline, stored)

    def _if_readable(self, plan: Plan) -> Plan:
        """Its partitions are not added to where what is known of them may be old."""
        if isinstance(plan, TopicImage):
            try:
                self._propagation.check_readable(plan.name)
            except KafkaError as error:
                return error
        return plan

    def _defaults(self) -> Defaults:
        return Defaults(
            int(self._config["num.partitions"]),
            int(self._config["default.replication.factor"]),
            self._validate_configs,
        )


def forget_deletions(nodes: MetadataNodes, removed: list[TopicImage]) -> None:
    """The deletion is a fact already; a tombstone too many is finished at the next start."""
    try:
        nodes.forget_deletions(removed)
    except StoreError as error:
        log.warning("tombstones of deleted topics remain: %s", error)


def _if_room(
    plan: Plan, before: Mapping[str, str], room: SettingsRoom, *, is_new: bool = False
) -> Plan:
    """The plan, or why the cluster cannot hold so many settings. The broker's own topics can be
    made in any case: they are few, and groups and transactions need them."""
    if isinstance(plan, KafkaError):
        return plan
    return room.take(before, plan.configs, must=is_new and plan.internal) or plan


def _if_paid(
    plan: Plan, charge: Charge | None, before: Mapping[str, TopicImage] = NO_TOPICS
) -> Plan:
    """The plan, or why its client may not change so many partitions now."""
    if charge is None or isinstance(plan, KafkaError):
        return plan
    known = before.get(plan.name)
    partitions = len(plan.partitions) - (0 if known is None else len(known.partitions))
    return charge(partitions) or plan


def _planned(plans: Iterable[Plan]) -> list[TopicImage]:
    return [plan for plan in plans if isinstance(plan, TopicImage)]


def _names(topics: Sequence[TopicImage]) -> str:
    return first_few([topic.name for topic in topics])


def _result(name: str, plan: Plan, failures: dict[str, KafkaError]) -> TopicResult:
    if isinstance(plan, KafkaError):
        return TopicResult.failed(name, plan)
    failure = failures.get(name)
    return TopicResult.of(plan) if failure is None else TopicResult.failed(name, failure)
