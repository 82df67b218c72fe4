"""What the cluster looks like at one moment, as values that never change.

Place in the flow: the controller builds a `ClusterImage`, hands it with the `ImageDelta` since the
previous one to the replica manager, and publishes it as one reference. Handlers on any thread read
that reference once per request and so see one consistent moment; nothing here locks or waits.

`version` counts publications of this process, it is not stored. A topic is identified by its id;
its name may be deleted and created again with another id. `partition_epoch` is the version of the
partition's node in the store, so it grows with every change of leader or in-sync replicas. A
broker's `epoch` is when its registration was created, so it grows with every start.

Mappings are read-only proxies, so that an image that was handed out cannot be altered by mistake.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.metadata.features import FinalizedFeatures, Supported
from kbroker.quota.entities import CLIENT_QUOTAS, EVERY, QuotaEntity, quotas_of
from kbroker.security.acl_set import NO_ACL_SET, AclSet
from kbroker.security.delegation_token import DelegationToken
from kbroker.types import TopicPartition, uuid_text

NO_LEADER: Final = -1
NO_CONTROLLER: Final = -1
NO_BROKER_EPOCH: Final = -1
NO_ENVELOPE: Final = -1  # of a broker of an earlier version, which knows no Envelope
ZERO_UUID: Final = UUID(int=0)
_ONE_UUID: Final = UUID(int=1)  # reserved by Kafka for its metadata topic

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})


NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})
NO_TOKENS: Final[Mapping[str, DelegationToken]] = MappingProxyType({})
EVERY_USER: Final = EVERY  # in place of a user's name: what holds for those without settings


class ConfigKind(IntEnum):
    """What beside topics has settings of its own, by the protocol's number for it."""

    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """One of them. A broker's name is its id; the empty one means every broker."""

    kind: ConfigKind
    name: str


def new_uuid() -> UUID:
    """A random id whose text does not begin with '-', which command lines take for an option."""
    while True:
        candidate = UUID(bytes=os.urandom(16), version=4)
        if candidate not in (ZERO_UUID, _ONE_UUID) and uuid_text(candidate)[0] != "-":
            return candidate


class BrokerEndpoint(NamedTuple):
    """A listener of a broker: its name, and the address that is returned there."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker. `host` and `port` are for brokers, `endpoints` for clients, by listener.

    `port` is -1 while it does not accept connections. `lossy`: its logs may lack records that it
    acknowledged before this start, and it has not left every set for that yet. `settings` are those
    in which brokers should agree: a broker registers with its own, and no image has them.
    `envelope_version` is the highest version of Envelope that it takes (`handlers/envelope.py`).
    `features` are the levels that it supports; none of a broker of an earlier kbroker.
    """

    node_id: int
    host: str = ""
    port: int = -1
    rack: str | None = None
    epoch: int = NO_BROKER_EPOCH
    lossy: bool = False
    endpoints: tuple[BrokerEndpoint, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    envelope_version: int = NO_ENVELOPE
    features: tuple[Supported, ...] = ()

    def address_on(self, listener: str) -> tuple[str, int] | None:
        """Where clients of a listener of this name reach it; None: it has none."""
        if not self.endpoints:
            return (self.host, self.port) if self.port >= 0 else None
        return next(
            ((each.host, each.port) for each in self.endpoints if each.name == listener), None
        )


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """A partition's replicas and who leads; partition_states.py says what each set means.

    While it is reassigned `replicas` are those that it is to have, then those it had and is to
    lose, `removing`; `adding` are those it is to have and had not (reassignments.py).
    `min_in_sync` is the min.insync.replicas that the controller decided with, of this partition: a
    leader goes by no smaller number. 0: the controller that wrote this did not say it.
    `last_leader` is the leader before there was none; NO_LEADER while there is one.
    """

    topic: str
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    eligible: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    min_in_sync: int = 0
    last_leader: int = NO_LEADER

    @property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """Where it is and is to be, which no election changes."""
        return self.replicas, self.adding, self.removing

    @property
    def is_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def replication_factor(self) -> int:
        """Without those that are being added: they count when they are there."""
        return len(self.replicas) - len(self.adding)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic; `partitions[i].index == i`; `configs` holds the topic's own overrides only."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]
    internal: bool

    @property
    def replication_factor(self) -> int:
        """Of its first partition, which new ones get as well."""
        return self.partitions[0].replication_factor if self.partitions else 0

    def with_configs(self, configs: Mapping[str, str]) -> TopicImage:
        return replace(self, configs=MappingProxyType(dict(configs)))


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """What the receiver must do to get from the previous image to this one, in this order.

    Applying a delta again, or one whose work was half done by a process that died, does nothing
    more than the rest: open what is not open, remove what is not removed.
    """

    deleted: tuple[TopicImage, ...] = ()  # close and remove, by topic id; may be long gone
    created: tuple[TopicImage, ...] = ()  # open or create their logs
    changed: tuple[TopicImage, ...] = ()  # leader, epoch, in-sync replicas or partitions changed
    reconfigured: tuple[TopicImage, ...] = ()  # their configs changed
    # What was read in the store, not made just now: logs should be there, or stay offline.
    from_store: bool = False
    # Of the partitions that are offline these alone are tried again; None: all.
    only: frozenset[TopicPartition] | None = None
    # Made just now all the same: their logs cannot be here yet, and begin where there is room.
    new: frozenset[TopicPartition] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.deleted or self.created or self.changed or self.reconfigured)


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """All that handlers may know about the cluster."""

    version: int = 0
    cluster_id: str = ""
    controller_id: int = NO_CONTROLLER
    brokers: Mapping[int, BrokerImage] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicImage] = field(default_factory=lambda: MappingProxyType({}))
    topic_ids: Mapping[UUID, str] = field(default_factory=lambda: MappingProxyType({}))
    # Settings of resources that are not topics; a resource without any is not in it.
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    features: FinalizedFeatures = field(default_factory=FinalizedFeatures)
    # Settings of users, by name: SCRAM credentials in their stored form by mechanism, and whatever
    # else is stored of one. A user without any is not in it.
    users: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    acls: AclSet = field(default_factory=lambda: NO_ACL_SET)
    # Settings of clients, clients of a user, and addresses. Those of a user alone are in `users`.
    quotas: Mapping[QuotaEntity, Mapping[str, str]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    # Delegation tokens, by id.
    tokens: Mapping[str, DelegationToken] = field(default_factory=lambda: NO_TOKENS)
    # Of all settings, the topics' too. Kept with every change: 100,000 topics are not counted anew.
    settings_bytes: int = field(default=0, compare=False)

    def configs_of(self, kind: ConfigKind, name: str) -> Mapping[str, str]:
        """The settings that a broker, group or subscription has of its own."""
        return self.configs.get(ConfigResource(kind, name), NO_CONFIGS)

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        name = self.topic_ids.get(topic_id)
        return None if name is None else self.topics.get(name)

    def partition(self, name: str, index: int) -> PartitionImage | None:
        topic = self.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def partitions(self) -> Iterator[PartitionImage]:
        for topic in self.topics.values():
            yield from topic.partitions

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    @property
    def offline_partition_count(self) -> int:
        return sum(partition.leader == NO_LEADER for partition in self.partitions())

    def with_topics(self, topics: Iterable[TopicImage]) -> ClusterImage:
        """This image with topics added, or replaced where the name exists; same version."""
        changed = {topic.name: topic for topic in topics}
        before = [self.topics[name] for name in changed if name in self.topics]
        grows = _bytes_of_topics(changed.values()) - _bytes_of_topics(before)
        ids = _without_ids(self.topic_ids, before)
        ids |= {topic.topic_id: name for name, topic in changed.items()}
        return self._with_topics({**self.topics, **changed}, ids, self.settings_bytes + grows)

    def with_partitions(self, partitions: Iterable[PartitionImage]) -> ClusterImage:
        """This image with these states of partitions that it has; same version."""
        by_topic: dict[str, dict[int, PartitionImage]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, {})[partition.index] = partition
        if not by_topic:
            return self
        return self.with_topics(
            replace(
                self.topics[name],
                partitions=tuple(new.get(old.index, old) for old in self.topics[name].partitions),
            )
            for name, new in by_topic.items()
        )

    def without_topics(self, names: Iterable[str]) -> ClusterImage:
        """This image without these topics; same version."""
        left = dict(self.topics)
        gone = [left.pop(name) for name in self.topics.keys() & {*names}]
        ids = _without_ids(self.topic_ids, gone)
        return self._with_topics(left, ids, self.settings_bytes - _bytes_of_topics(gone))

    def with_brokers(self, brokers: Iterable[BrokerImage]) -> ClusterImage:
        """This image with exactly these brokers; same version."""
        return replace(
            self, brokers=MappingProxyType({broker.node_id: broker for broker in brokers})
        )

    def with_configs(self, changed: Mapping[ConfigResource, Mapping[str, str]]) -> ClusterImage:
        """This image with the settings of these resources replaced; same version."""
        configs = {**self.configs, **changed}
        kept = {each: MappingProxyType(dict(own)) for each, own in configs.items() if own}
        before = (self.configs.get(each, NO_CONFIGS) for each in changed)
        grows = sum(map(bytes_of_settings, changed.values())) - sum(map(bytes_of_settings, before))
        size = self.settings_bytes + grows
        return replace(self, configs=MappingProxyType(kept), settings_bytes=size)

    def with_users(self, changed: Mapping[str, Mapping[str, str]]) -> ClusterImage:
        """This image with the settings of these users replaced; same version."""
        if not changed:
            return self
        kept = dict(self.users)  # what does not change stays the same object
        for name, own in changed.items():
            if own:
                kept[name] = MappingProxyType(dict(own))
            else:
                kept.pop(name, None)
        before = (self.users.get(name, NO_CONFIGS) for name in changed)
        grows = sum(map(bytes_of_settings, changed.values())) - sum(map(bytes_of_settings, before))
        size = self.settings_bytes + grows
        return replace(self, users=MappingProxyType(kept), settings_bytes=size)

    def with_all_users(self, users: Mapping[str, Mapping[str, str]]) -> ClusterImage:
        """This image with exactly these users; same version."""
        return self.with_users({**dict.fromkeys(self.users, NO_CONFIGS), **users})

    def with_quotas(self, changed: Mapping[QuotaEntity, Mapping[str, str]]) -> ClusterImage:
        """This image with the settings of these entities replaced; same version."""
        users = {each.user: own for each, own in changed.items() if each.user and each.is_user}
        if (every := changed.get(QuotaEntity(user=EVERY))) is not None:
            users[EVERY] = every
        others = {each: own for each, own in changed.items() if not each.is_user}
        image = self.with_users(users)
        if not others:
            return image
        kept = {
            each: MappingProxyType(dict(own))
            for each, own in {**self.quotas, **others}.items()
            if own
        }
        before = (self.quotas.get(each, NO_CONFIGS) for each in others)
        grows = sum(map(bytes_of_settings, others.values())) - sum(map(bytes_of_settings, before))
        size = image.settings_bytes + grows
        return replace(image, quotas=MappingProxyType(kept), settings_bytes=size)

    def with_all_quotas(self, quotas: Mapping[QuotaEntity, Mapping[str, str]]) -> ClusterImage:
        """This image with exactly these, and its users; same version."""
        return self.with_quotas({**dict.fromkeys(self.quotas, NO_CONFIGS), **quotas})

    def quota_settings(self, entity: QuotaEntity) -> Mapping[str, str]:
        if entity.is_user and entity.user is not None:
            return self.users.get(entity.user, NO_CONFIGS)
        return self.quotas.get(entity, NO_CONFIGS)

    def all_quotas(self) -> Iterator[tuple[QuotaEntity, dict[str, float]]]:
        """Each entity that has a quota, and its quotas by key."""
        for name, own in self.users.items():
            if own.keys().isdisjoint(CLIENT_QUOTAS):  # most have a password only
                continue
            if found := quotas_of(entity := QuotaEntity(user=name), own):
                yield entity, found
        for entity, own in self.quotas.items():
            if found := quotas_of(entity, own):
                yield entity, found

    def with_features(self, features: FinalizedFeatures) -> ClusterImage:
        """This image with these levels, or its own if those are of a later epoch; same version."""
        if features.epoch <= self.features.epoch:
            return self
        return replace(self, features=features)

    def with_acls(self, acls: AclSet) -> ClusterImage:
        """This image with exactly these ACLs; same version."""
        return replace(self, acls=acls)

    def with_tokens(self, changed: Mapping[str, DelegationToken | None]) -> ClusterImage:
        """This image with these tokens, and without those that are None; same version."""
        if not changed:
            return self
        kept = dict(self.tokens)
        for token_id, token in changed.items():
            if token is not None:
                kept[token_id] = token
            else:
                kept.pop(token_id, None)
        return replace(self, tokens=MappingProxyType(kept))

    def with_all_tokens(self, tokens: Mapping[str, DelegationToken]) -> ClusterImage:
        """This image with exactly these tokens; same version."""
        return replace(self, tokens=MappingProxyType(dict(tokens)))

    def at_version(self, version: int) -> ClusterImage:
        return replace(self, version=version)

    def _with_topics(
        self, topics: dict[str, TopicImage], ids: dict[UUID, str], settings_bytes: int
    ) -> ClusterImage:
        return replace(
            self,
            topics=MappingProxyType(topics),
            topic_ids=MappingProxyType(ids),
            settings_bytes=settings_bytes,
        )


def bytes_of_settings(configs: Mapping[str, str]) -> int:
    """Of one resource."""
    return sum(len(name) + len(value.encode()) for name, value in configs.items())


def _without_ids(ids: Mapping[UUID, str], topics: Iterable[TopicImage]) -> dict[UUID, str]:
    """A copy without those of these topics: nothing is done for each topic that stays."""
    left = dict(ids)
    for topic in topics:
        left.pop(topic.topic_id, None)
    return left


def _bytes_of_topics(topics: Iterable[TopicImage]) -> int:
    return sum(bytes_of_settings(topic.configs) for topic in topics if topic.configs)


def delta_between(old: ClusterImage, new: ClusterImage) -> ImageDelta:
    """The work between two images; a name whose id changed is deleted and created."""
    deleted: list[TopicImage] = []
    created: list[TopicImage] = []
    changed: list[TopicImage] = []
    reconfigured: list[TopicImage] = []
    for name, before in old.topics.items():
        after = new.topics.get(name)
        if after is None or after.topic_id != before.topic_id:
            deleted.append(before)
    for name, after in new.topics.items():
        known = old.topics.get(name)
        if known is after:
            continue
        if known is None or known.topic_id != after.topic_id:
            created.append(after)
            continue
        if known.partitions != after.partitions:
            changed.append(after)
        if known.configs != after.configs:
            reconfigured.append(after)
    return ImageDelta(tuple(deleted), tuple(created), tuple(changed), tuple(reconfigured))
