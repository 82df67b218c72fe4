"""What the controller and another broker say to each other about the image, and the way it goes.

Place in the flow: `BrokerChannels` makes an update and reads the answer, a transport carries both
(`cluster/broker_links.py`, as bytes by `broker_messages.py`), `ImageFollower` at the other end
applies them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.errors import ErrorCode
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker.metadata.cluster_delta import ClusterDelta
    from kbroker.metadata.image import BrokerImage

# The request that carries one: a key that clients never send and Apache Kafka 4 has given up
# (KIP-896), under a version of ours that it never had.
UPDATE_KEY: Final = ApiKey.UPDATE_METADATA
UPDATE_VERSION: Final = 1002
# The same in parts (update_parts.py).
UPDATE_PART_VERSION: Final = 1003

# AlterPartition (KIP-497) with the epochs of KIP-903.
IN_SYNC_KEY: Final = ApiKey.ALTER_PARTITION
IN_SYNC_VERSION: Final = 3

SHUTDOWN_KEY: Final = ApiKey.CONTROLLED_SHUTDOWN
SHUTDOWN_VERSION: Final = 3

NOTHING: Final = -1


class ImageUpdate(NamedTuple):
    """From the controller of this epoch to a broker registered under that one: `version` of its
    image, as a difference from `base`, which it has acknowledged; NOTHING: from an empty one."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    base: int
    version: int
    delta: ClusterDelta


class Sent(NamedTuple):
    """Which request: in which term of ours, to which start of which broker, which image."""

    controller_epoch: int
    node_id: int
    broker_epoch: int
    version: int


class ImageAnswer(NamedTuple):
    """NONE: the broker is at that version, but for the `offline` partitions, whose logs it cannot
    use. The `refusing` are where it refuses producers: others are to lead them, if they can."""

    error: ErrorCode
    offline: tuple[TopicPartition, ...] = ()
    refusing: tuple[TopicPartition, ...] = ()


class Transport(Protocol):
    """Requests to other brokers, and a clock for the pauses between them."""

    def update(
        self,
        broker: BrokerImage,
        update: ImageUpdate,
        done: Callable[[ImageAnswer | None], None],
    ) -> None:
        """Send; `done` is called once, from any thread. None: it is not known what became of it."""

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call, from any thread, when so much time has passed."""
