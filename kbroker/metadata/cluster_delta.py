"""What changed between two images, as the controller tells it to the other brokers.

Place in the flow: the controller takes the difference of the image that a broker has and the one
that holds now, sends it (`cluster_delta_codec.py`), and that broker makes its image of it. Without
an image to begin from (a broker that starts, or missed one) the difference is from an empty one:
everything. Pure functions on values.

What one cause changes is small: one partition's state in a topic of thousands, so states travel by
themselves; a topic travels whole when it is new, has other settings or more partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final
from uuid import UUID

from kbroker.metadata.features import FinalizedFeatures
from kbroker.metadata.image import (
    NO_CONFIGS,
    BrokerImage,
    ClusterImage,
    ConfigResource,
    PartitionImage,
    TopicImage,
)
from kbroker.quota.entities import QuotaEntity
from kbroker.security.acls import Pattern, ResourceAcls
from kbroker.security.delegation_token import DelegationToken

NO_CHANGED_TOKENS: Final[Mapping[str, DelegationToken | None]] = MappingProxyType({})
NO_CHANGED_ACLS: Final[Mapping[Pattern, ResourceAcls]] = MappingProxyType({})


class DeltaMismatchError(Exception):
    """The difference is not from this image: its receiver asks for the whole image."""


@dataclass(frozen=True, slots=True)
class ClusterDelta:
    """Brokers, controller and features are those of the new image, the rest is what changed."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerImage, ...]
    topics: tuple[
        TopicImage, ...
    ]  # new ones, and known ones with other settings or more partitions
    partitions: tuple[PartitionImage, ...]  # of topics that are known and otherwise as they were
    deleted: tuple[UUID, ...]
    configs: Mapping[ConfigResource, Mapping[str, str]]  # empty settings: it has none any more
    features: FinalizedFeatures = field(default_factory=FinalizedFeatures)
    # As configs, by the users' names.
    users: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    # None of a pattern: it has none now.
    acls: Mapping[Pattern, ResourceAcls] = field(default_factory=lambda: NO_CHANGED_ACLS)
    # Of clients and addresses, as configs; users have theirs in `users`.
    quotas: Mapping[QuotaEntity, Mapping[str, str]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    # By id; None: it is gone.
    tokens: Mapping[str, DelegationToken | None] = field(default_factory=lambda: NO_CHANGED_TOKENS)

    @classmethod
    def between(cls, old: ClusterImage, new: ClusterImage) -> ClusterDelta:
        topics: list[TopicImage] = []
        partitions: list[PartitionImage] = []
        for name, topic in new.topics.items():
            known = old.topics.get(name)
            if topic is known:
                continue
            if known is None or not _same_but_states(known, topic):
                topics.append(topic)
                continue
            pairs = zip(known.partitions, topic.partitions, strict=True)
            partitions += [now for was, now in pairs if now != was]
        return cls(
            new.cluster_id,
            new.controller_id,
            tuple(new.brokers.values()),
            tuple(topics),
            tuple(partitions),
            tuple(topic_id for topic_id in old.topic_ids if topic_id not in new.topic_ids),
            {
                each: new.configs.get(each, {})
                for each in {**old.configs, **new.configs}
                if old.configs.get(each) != new.configs.get(each)
            },
            new.features,
            _changed_users(old.users, new.users),
            new.acls.changed_since(old.acls),
            {
                entity: new.quotas.get(entity, {})
                for entity in {**old.quotas, **new.quotas}
                if old.quotas.get(entity) != new.quotas.get(entity)
            }
            if old.quotas is not new.quotas
            else {},
            _changed_tokens(old.tokens, new.tokens),
        )

    def applied_to(self, old: ClusterImage) -> ClusterImage:
        """The new image, with the version of the old one. Raises DeltaMismatchError."""
        for topic_id in self.deleted:
            if topic_id not in old.topic_ids:
                raise DeltaMismatchError(f"the deleted topic {topic_id} is not known")
        names = [old.topic_ids[topic_id] for topic_id in self.deleted]
        image = old.without_topics(names).with_topics(self.topics)
        for state in self.partitions:
            known = image.partition(state.topic, state.index)
            if known is None or known.places != state.places:
                raise DeltaMismatchError(f"{state.topic}-{state.index} is not known so")
            if (state.leader_epoch, state.partition_epoch) < (
                known.leader_epoch,
                known.partition_epoch,
            ):
                raise DeltaMismatchError(f"{state.topic}-{state.index} is known in a later epoch")
        return replace(
            image.with_partitions(self.partitions)
            .with_brokers(self.brokers)
            .with_configs(self.configs)
            .with_users(self.users)
            .with_quotas(self.quotas)
            .with_tokens(self.tokens)
            .with_features(self.features)
            .with_acls(old.acls.with_changed(self.acls)),
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
        )


def _changed_users(
    old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]
) -> dict[str, Mapping[str, str]]:
    """One that has not changed is the same object, most often: there may be 100,000."""
    if old is new:
        return {}
    changed: dict[str, Mapping[str, str]] = {}
    for name, settings in new.items():
        known = old.get(name)
        if known is not settings and known != settings:
            changed[name] = settings
    return {**changed, **dict.fromkeys(old.keys() - new.keys(), NO_CONFIGS)}


def _changed_tokens(
    old: Mapping[str, DelegationToken], new: Mapping[str, DelegationToken]
) -> Mapping[str, DelegationToken | None]:
    """As for users."""
    if old is new:
        return NO_CHANGED_TOKENS
    changed: dict[str, DelegationToken | None] = {}
    for token_id, token in new.items():
        known = old.get(token_id)
        if known is not token and known != token:
            changed[token_id] = token
    return {**changed, **dict.fromkeys(old.keys() - new.keys())}


def _same_but_states(known: TopicImage, topic: TopicImage) -> bool:
    return (
        known.topic_id == topic.topic_id
        and known.configs == topic.configs
        and len(known.partitions) == len(topic.partitions)
        and all(
            was.places == now.places
            for was, now in zip(known.partitions, topic.partitions, strict=True)
        )
    )
