"""The controller's requests and notices: one small value per event, made on any thread.

Place in the flow: `Controller`'s public methods wrap a request into one of these and post it; the
controller thread takes it out. A request carries `done`, which is called exactly once, either with
what the controller decided or through `fail` with one error for all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from kbroker.errors import KafkaError
from kbroker.metadata.controller.config_changes import ResourceChange, ResourcesCallback
from kbroker.metadata.controller.decisions import (
    ConfigChange,
    MorePartitions,
    NewTopic,
    TopicResult,
)
from kbroker.metadata.controller.image_updates import ImageAnswer, ImageUpdate, Sent
from kbroker.metadata.controller.partition_states import InSyncChange
from kbroker.metadata.controller.producer_ids import BlockCallback
from kbroker.metadata.image import ZERO_UUID, PartitionImage
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.metadata.controller.feature_changes import FeatureUpdate
    from kbroker.metadata.controller.user_changes import QuotaChange, UserChange, UsersCallback

TopicsCallback = Callable[[list[TopicResult]], None]
# One for each change that was asked for, in their order: the partition as it is now, or why not.
PartitionsCallback = Callable[[list[PartitionImage | KafkaError]], None]


# For each partition that was asked for, in their order, None or why it was not done.
Outcomes = list[tuple[TopicPartition, KafkaError | None]]
OutcomesCallback = Callable[[Outcomes], None]


# The partitions that the broker still leads and that others could lead.
ShutDownCallback = Callable[[list[TopicPartition] | KafkaError], None]


class Event(Protocol):
    """What all events have in common."""

    def fail(self, error: KafkaError) -> None:
        """Answer that nothing of the request was done, and why."""


class Notice:
    """An event without an answer."""

    def fail(self, error: KafkaError) -> None:
        pass  # a notice is repeated or overtaken by the next one; no caller waits


# Takes the tokens for so many partitions from a client; the error: it owes some, none was taken.
Charge = Callable[[int], KafkaError | None]


class CreateTopics(NamedTuple):
    specs: tuple[NewTopic, ...]
    validate_only: bool
    done: TopicsCallback
    charge: Charge | None = None

    def fail(self, error: KafkaError) -> None:
        self.done([TopicResult.failed(spec.name, error) for spec in self.specs])


class CreatePartitions(NamedTuple):
    wanted: tuple[MorePartitions, ...]
    validate_only: bool
    done: TopicsCallback
    charge: Charge | None = None

    def fail(self, error: KafkaError) -> None:
        self.done([TopicResult.failed(each.topic, error) for each in self.wanted])


class DeleteTopics(NamedTuple):
    topics: tuple[str | UUID, ...]
    done: TopicsCallback
    charge: Charge | None = None

    def fail(self, error: KafkaError) -> None:
        self.done([failed_deletion(topic, error) for topic in self.topics])


class AlterConfigs(NamedTuple):
    changes: tuple[ConfigChange, ...]
    validate_only: bool
    done: TopicsCallback

    def fail(self, error: KafkaError) -> None:
        self.done([TopicResult.failed(change.topic, error) for change in self.changes])


class AlterResources(NamedTuple):
    changes: tuple[ResourceChange, ...]
    validate_only: bool
    done: ResourcesCallback

    def fail(self, error: KafkaError) -> None:
        self.done([error for _ in self.changes])


class AllocateProducerIds(NamedTuple):
    ids: int
    done: BlockCallback

    def fail(self, error: KafkaError) -> None:
        self.done(error)


class AlterInSync(NamedTuple):
    """What a leader wants of the partitions it leads; the broker and the epoch of its start."""

    leader: int
    broker_epoch: int
    changes: tuple[InSyncChange, ...]
    done: PartitionsCallback

    def fail(self, error: KafkaError) -> None:
        self.done([error for _ in self.changes])


class ShutDown(NamedTuple):
    """A broker, of this registration, is about to stop: others are to lead."""

    node_id: int
    broker_epoch: int
    done: ShutDownCallback

    def fail(self, error: KafkaError) -> None:
        self.done(error)


class ElectLeaders(NamedTuple):
    unclean: bool
    partitions: tuple[TopicPartition, ...]
    done: OutcomesCallback

    def fail(self, error: KafkaError) -> None:
        self.done([(name, error) for name in self.partitions])


class Reassignment(NamedTuple):
    """Where a partition is to be; `target` None: where it was before it was to be elsewhere."""

    name: TopicPartition
    target: tuple[int, ...] | None


class Reassign(NamedTuple):
    """`factor_may_change`: a partition may get more or fewer replicas than it has."""

    wanted: tuple[Reassignment, ...]
    factor_may_change: bool
    done: OutcomesCallback

    def fail(self, error: KafkaError) -> None:
        self.done([(each.name, error) for each in self.wanted])


class UnregisterBroker(NamedTuple):
    """A broker is to be known no more; see unregistration.py."""

    node_id: int
    done: Callable[[KafkaError | None], None]

    def fail(self, error: KafkaError) -> None:
        self.done(error)


class AlterUsers(NamedTuple):
    """Users or others with quotas are to have other settings, each of them or not; see
    user_changes.py."""

    changes: tuple[UserChange | QuotaChange, ...]
    done: UsersCallback

    def fail(self, error: KafkaError) -> None:
        self.done([error for _ in self.changes])


class UpdateFeatures(NamedTuple):
    """Features are to have these levels; see feature_changes.py."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool
    done: Callable[[KafkaError | None], None]

    def fail(self, error: KafkaError) -> None:
        self.done(error)


class FollowImage(NamedTuple):
    """The controller says what holds."""

    update: ImageUpdate
    done: Callable[[ImageAnswer], None]

    def fail(self, error: KafkaError) -> None:
        self.done(ImageAnswer(error.code))


class BrokerAnswered(NamedTuple):
    """A broker has the image that it was sent, or not; None: it is not known."""

    sent: Sent
    answer: ImageAnswer | None

    def fail(self, error: KafkaError) -> None:
        pass  # what it said is noted first, and no caller waits for more


class TellBrokerAgain(NamedTuple):
    sent: Sent

    def fail(self, error: KafkaError) -> None:
        pass  # as above


class InStep(NamedTuple):
    """Something of this broker's own that is done between two images; it must not raise."""

    call: Callable[[], None]

    def fail(self, error: KafkaError) -> None:
        pass  # the broker stops


class Start(NamedTuple):
    """`failed` is called, with anything, instead of `started` if the start did not work. `until_ms`
    is set while it waits for the end of another registration under this broker's id."""

    started: Callable[[], None]
    failed: Callable[[Exception], None]
    until_ms: int | None = None

    def fail(self, error: KafkaError) -> None:
        self.failed(error)


class ControllerChanged(Notice):
    """/controller was created, changed or deleted."""


class BrokersChanged(Notice):
    """A broker was registered, or is gone."""


class LogsFail(Notice):
    """Other logs of this broker fail than before; see Propagation.failing."""


class LogsReady(NamedTuple):
    """These logs of this broker were still being read when their partitions were applied."""

    names: tuple[TopicPartition, ...]

    def fail(self, error: KafkaError) -> None:
        pass  # as a notice


class LogDirEvent(Notice):
    """A broker reports failing logs of its own, or has taken the report back."""


class SessionLost(NamedTuple):
    """This session of ours with the store is over, or has never come to a registration."""

    session_id: int

    def fail(self, error: KafkaError) -> None:
        pass  # as a notice


class ConfigNotices(Notice):
    """Settings of users or others were changed in the store, perhaps by Apache Kafka's tools."""


class Reload(Notice):
    """The store may hold more than we know."""


class Stop(Notice):
    """Leave office; nothing comes after this."""


def failed_deletion(topic: str | UUID, error: KafkaError) -> TopicResult:
    """The answer under the name or the id by which the topic was asked for."""
    if isinstance(topic, UUID):
        return TopicResult.failed(None, error, topic)
    return TopicResult.failed(topic, error, ZERO_UUID)
