"""UpdateFeatures (KIP-584): the levels of features that the cluster goes by are raised or lowered.

Place in the flow: the controller's thread. All updates of a request are made, or none. A level must
be one that every registered broker supports, and this kbroker; it is lowered only where the request
says so, and not where records that were written under it forbid it (`_forbids`). What is decided is
written to `/kbroker/features` in the next epoch, then published with the image, by which it reaches
the other brokers. Where a broker that registers meanwhile does not support it, it is taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.nodes import load_brokers
from kbroker.metadata.features import FEATURE_OF, TRANSACTION_VERSION
from kbroker.metadata.image import TRANSACTIONS_TOPIC, BrokerImage, ClusterImage

if TYPE_CHECKING:
    from kbroker.metadata.controller.nodes import MetadataNodes
    from kbroker.metadata.controller.propagation import Propagation

log = logging.getLogger("kbroker.controller")

# From this level on the records in __transaction_state have a format that level 0 does not have.
_FLEXIBLE_RECORDS: Final = 1


class UpgradeType(IntEnum):
    """What a request allows; by the protocol's number."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The level that a feature is to have; `kind` is an UpgradeType, or a number that is none."""

    name: str
    level: int
    kind: int


def update_features(
    nodes: MetadataNodes,
    propagation: Propagation,
    updates: Sequence[FeatureUpdate],
    validate_only: bool,
) -> None:
    """Raises KafkaError for the first update that cannot be made; nothing is changed then."""
    image = propagation.image
    wanted = {each.name: each for each in updates}
    plan = plan_features(_as_registered(image, nodes), wanted.values())
    if not plan or validate_only:
        return
    features = image.features.changed(plan)
    nodes.write_features(features)
    try:
        # After the write: a broker that registers reads the levels after its registration, so of
        # two that come at once one at least sees the other.
        plan_features(_as_registered(image, nodes), wanted.values())
    except KafkaError:
        features = features.changed({name: image.features.level(name) for name in plan})
        nodes.write_features(features)
        propagation.publish(image.with_features(features))
        raise
    for name, level in plan.items():
        log.info("%s is at level %d, and was at %d", name, level, image.features.level(name))
    propagation.publish(image.with_features(features))


def _as_registered(image: ClusterImage, nodes: MetadataNodes) -> ClusterImage:
    """With the brokers that are registered now, whether their events have come or not."""
    return image.with_brokers(load_brokers(nodes.store))


def plan_features(image: ClusterImage, updates: Iterable[FeatureUpdate]) -> dict[str, int]:
    """The levels that change; KafkaError: the reason why one of them cannot."""
    plan: dict[str, int] = {}
    for each in updates:
        reason = _reason_not_to(image, each)
        if reason:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {each.level} for feature {each.name}. {reason}",
            )
        if image.features.level(each.name) != each.level:
            plan[each.name] = each.level
    return plan


def _reason_not_to(image: ClusterImage, update: FeatureUpdate) -> str:
    """Empty: it may be made."""
    now = image.features.level(update.name)
    if update.kind not in frozenset(UpgradeType):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if reason := _unsupported(image.brokers, update):
        return reason
    if update.level < now:
        if update.kind == UpgradeType.UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to"
                " either safe or unsafe downgrade."
            )
        return _forbids(image, update)
    if update.level > now and update.kind != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return ""


def _unsupported(brokers: Mapping[int, BrokerImage], update: FeatureUpdate) -> str:
    known = FEATURE_OF.get(update.name)
    # What is in work is here where a broker offers it; the others, which do not, are found below.
    offered = any(each.name == update.name for of in brokers.values() for each in of.features)
    highest = 0 if known is None else known.highest_of(unstable=offered)
    if known is None or not highest:
        return "Local controller does not support this feature."
    if update.level > highest:
        return f"Local controller only supports versions {known.lowest}-{highest}"
    for node_id, broker in sorted(brokers.items()):
        found = next((each for each in broker.features if each.name == update.name), None)
        if found is None:
            return f"Broker {node_id} does not support this feature."
        if not found.lowest <= update.level <= found.highest:
            return f"Broker {node_id} only supports versions {found.lowest}-{found.highest}"
    return ""


def _forbids(image: ClusterImage, update: FeatureUpdate) -> str:
    """Whether records are there that the lower level does not have."""
    if (
        update.name == TRANSACTION_VERSION
        and update.level < _FLEXIBLE_RECORDS
        and TRANSACTIONS_TOPIC in image.topics
    ):
        return (
            f"The records in {TRANSACTIONS_TOPIC} have the format of level"
            f" {image.features.level(update.name)}."
        )
    return ""
