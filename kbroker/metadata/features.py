"""Feature levels (KIP-584): which levels this kbroker knows, and which the cluster has finalized.

Place in the flow: a level decides what is written and how clients behave, for all brokers at once.
The finalized levels are in the node `/kbroker/features` (`controller/own_nodes.py`), written by the
controller (`controller/feature_changes.py`), and part of the published image, which any thread may
read: `FeatureLevels`. ApiVersions shows both, the supported and the finalized.

A feature that is not finalized is at level 0. The epoch counts the changes of the node, so it only
grows, over restarts and controllers; clients keep the levels of the highest epoch that they saw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage

GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
TRANSACTION_VERSION: Final = "transaction.version"


class Feature(NamedTuple):
    """A feature of Apache Kafka 4.3. Of a range that ends at 0, nothing is here yet. `levels` says
    what each level above 0 changes. `in_work`: a level that is not finished, which brokers with
    `unstable.feature.versions.enable` have."""

    name: str
    highest: int
    levels: tuple[str, ...] = ()
    in_work: int = 0

    @property
    def lowest(self) -> int:
        return 0

    def highest_of(self, *, unstable: bool) -> int:
        """Of a broker with `unstable.feature.versions.enable`, or without it."""
        return max(self.highest, self.in_work) if unstable else self.highest


FEATURES: Final = (
    Feature("eligible.leader.replicas.version", 0),
    Feature(GROUP_VERSION, 1, ("groups of the consumer protocol are served (KIP-848)",)),
    Feature(SHARE_VERSION, 1, ("share groups are served (KIP-932)",)),
    Feature(STREAMS_VERSION, 0, in_work=1),
    Feature(
        TRANSACTION_VERSION,
        2,
        (
            "values in __transaction_state have tagged fields",
            "the producer epoch grows with every transaction, and Produce and TxnOffsetCommit add"
            " partitions to it (KIP-890)",
        ),
    ),
)
FEATURE_OF: Final[Mapping[str, Feature]] = MappingProxyType({each.name: each for each in FEATURES})


class Supported(NamedTuple):
    """The levels of a feature that a broker can serve."""

    name: str
    lowest: int
    highest: int


UNSTABLE_KEY: Final = "unstable.feature.versions.enable"


def supported(*, unstable: bool = False) -> tuple[Supported, ...]:
    """Of this kbroker, as it registers."""
    return tuple(
        Supported(each.name, each.lowest, highest)
        for each in FEATURES
        if (highest := each.highest_of(unstable=unstable))
    )


_NO_LEVELS: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The levels of the cluster, none at 0, and how often they have changed."""

    epoch: int = 0
    levels: Mapping[str, int] = field(default_factory=lambda: _NO_LEVELS)

    def level(self, name: str) -> int:
        return self.levels.get(name, 0)

    def changed(self, levels: Mapping[str, int]) -> FinalizedFeatures:
        """With these levels, in the next epoch."""
        merged = {name: level for name, level in {**self.levels, **levels}.items() if level}
        return FinalizedFeatures(self.epoch + 1, MappingProxyType(dict(sorted(merged.items()))))


def first_features() -> FinalizedFeatures:
    """Of a new cluster: the newest level of each feature that is here."""
    return FinalizedFeatures().changed({each.name: each.highest for each in FEATURES})


def brokers_without(image: ClusterImage, name: str) -> list[int]:
    """Those that support no level of the feature, as those of an earlier kbroker."""
    return [
        broker.node_id
        for broker in image.brokers.values()
        if all(each.name != name for each in broker.features)
    ]


class FeatureLevels:
    """The finalized levels of the image that is published; any thread."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image: Final = image

    def level(self, name: str) -> int:
        return self._image().features.level(name)
