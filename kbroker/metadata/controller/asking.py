"""The requests that the controller takes: each request becomes an event of its queue.

Place in the flow: handlers and other brokers' requests call these from any thread; `Controller`,
which is one of these, puts the event into its queue and answers on its own thread, by the callback,
exactly once. A full queue or a broker that is not the controller answers with its code at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kbroker.errors import ErrorCode, InvariantError, KafkaError
from kbroker.metadata.controller.acl_changes import (
    CreateAcls,
    CreateResults,
    DeleteAcls,
    DeleteResults,
)
from kbroker.metadata.controller.config_changes import ResourceChange, ResourcesCallback
from kbroker.metadata.controller.decisions import ConfigChange, MorePartitions, NewTopic
from kbroker.metadata.controller.election import Election
from kbroker.metadata.controller.event_loop import EventLoop
from kbroker.metadata.controller.events import (
    AllocateProducerIds,
    AlterConfigs,
    AlterInSync,
    AlterResources,
    AlterUsers,
    Charge,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    Event,
    FollowImage,
    InStep,
    LogsReady,
    OutcomesCallback,
    PartitionsCallback,
    Reassign,
    Reassignment,
    Reload,
    ShutDown,
    ShutDownCallback,
    TopicsCallback,
    UnregisterBroker,
    UpdateFeatures,
)
from kbroker.metadata.controller.image_updates import ImageAnswer, ImageUpdate
from kbroker.metadata.controller.partition_states import InSyncChange
from kbroker.metadata.controller.producer_ids import BlockCallback
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.metadata.controller.feature_changes import FeatureUpdate
    from kbroker.metadata.controller.token_changes import TokenEvent
    from kbroker.metadata.controller.user_changes import QuotaChange, UserChange, UsersCallback
    from kbroker.security.acl_filter import AclFilter
    from kbroker.security.acls import Acl

PRODUCER_IDS_AT_ONCE_MAX: Final = 1_000_000


class Asking(ABC):
    """See the head of this file."""

    _loop: EventLoop[Event]
    _election: Election
    offices_given_up = 0  # since an event took too long, or the store could not be read

    @property
    @abstractmethod
    def active(self) -> bool:
        """Whether this broker is the controller."""

    def event_in_office(self) -> tuple[str, int] | None:
        """In office: the event that is being handled, and since when in ns of the clock."""
        return self._loop.at_work if self.active else None

    def give_up_office(self) -> None:
        """Let another broker be elected; session and registration stay. StoreError."""
        if self._election.resign():
            self.offices_given_up += 1

    @abstractmethod
    def _post(self, event: Event) -> None:
        """Put it into the queue, or fail it."""

    @abstractmethod
    def _notify(self, event: Event) -> None:
        """Put it into the queue, which has room for the broker's own; not if the thread ended."""

    def in_step(self, call: Callable[[], None]) -> None:
        """Have this done on the controller's thread, between two images; not if that has ended."""
        self._notify(InStep(call))

    def reload(self) -> None:
        """Read the store again, and try again to open what is offline."""
        self._notify(Reload())

    def logs_ready(self, names: Sequence[TopicPartition]) -> None:
        """Logs here that were still being read are worth another try."""
        self._notify(LogsReady(tuple(names)))

    def create_topics(
        self,
        specs: Sequence[NewTopic],
        validate_only: bool,
        done: TopicsCallback,
        charge: Charge | None = None,
    ) -> None:
        """`done` gets one result per spec, in their order. `charge` is asked for the partitions of
        each topic that can be made, and may refuse it."""
        self._post(CreateTopics(tuple(specs), validate_only, done, charge))

    def delete_topics(
        self, topics: Sequence[str | UUID], done: TopicsCallback, charge: Charge | None = None
    ) -> None:
        """Topics by name or id; `done` gets one result each, in their order. `charge`: the same."""
        self._post(DeleteTopics(tuple(topics), done, charge))

    def create_partitions(
        self,
        wanted: Sequence[MorePartitions],
        validate_only: bool,
        done: TopicsCallback,
        charge: Charge | None = None,
    ) -> None:
        """`done` gets one result per topic, in their order. `charge`: for the new partitions."""
        self._post(CreatePartitions(tuple(wanted), validate_only, done, charge))

    def alter_topic_configs(
        self, changes: Sequence[ConfigChange], validate_only: bool, done: TopicsCallback
    ) -> None:
        """`done` gets one result per change, in their order; `configs` as they are then."""
        self._post(AlterConfigs(tuple(changes), validate_only, done))

    def alter_resource_configs(
        self, changes: Sequence[ResourceChange], validate_only: bool, done: ResourcesCallback
    ) -> None:
        """Settings of brokers, groups, subscriptions; `done` gets None or an error per change."""
        self._post(AlterResources(tuple(changes), validate_only, done))

    def alter_users(self, changes: Sequence[UserChange], done: UsersCallback) -> None:
        """Settings of users, each named once; `done` gets None or an error for each."""
        self._post(AlterUsers(tuple(changes), done))

    def alter_quotas(self, changes: Sequence[QuotaChange], done: UsersCallback) -> None:
        """Quotas of entities, each named once; `done` gets None or an error for each."""
        self._post(AlterUsers(tuple(changes), done))

    def elect_leaders(
        self, unclean: bool, partitions: Sequence[TopicPartition], done: OutcomesCallback
    ) -> None:
        """Have the preferred replicas lead, or any live ones where there is no leader."""
        self._post(ElectLeaders(unclean, tuple(partitions), done))

    def reassign(
        self, wanted: Sequence[Reassignment], factor_may_change: bool, done: OutcomesCallback
    ) -> None:
        """Have partitions move to other brokers, or not move any more; `done` gets one outcome for
        each, in their order, as soon as it is on its way."""
        self._post(Reassign(tuple(wanted), factor_may_change, done))

    def alter_in_sync(
        self,
        leader: int,
        broker_epoch: int,
        changes: Sequence[InSyncChange],
        done: PartitionsCallback,
    ) -> None:
        """What a leader that was registered under this epoch wants of its in-sync sets."""
        self._post(AlterInSync(leader, broker_epoch, tuple(changes), done))

    def shut_down(self, node_id: int, broker_epoch: int, done: ShutDownCallback) -> None:
        """A broker that was registered under this epoch stops; what it leads still, if others can
        come to lead it."""
        self._post(ShutDown(node_id, broker_epoch, done))

    def unregister_broker(self, node_id: int, done: Callable[[KafkaError | None], None]) -> None:
        """Have everything removed that the store has of a broker; `done` gets None or why not."""
        self._post(UnregisterBroker(node_id, done))

    def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        validate_only: bool,
        done: Callable[[KafkaError | None], None],
    ) -> None:
        """Have features be at other levels, all of them or none; `done` gets None or why not."""
        self._post(UpdateFeatures(tuple(updates), validate_only, done))

    def create_acls(self, acls: Sequence[Acl], done: Callable[[CreateResults], None]) -> None:
        """`done` gets None or the reason for each, in their order."""
        self._post(CreateAcls(tuple(acls), done))

    def delete_acls(
        self, filters: Sequence[AclFilter], done: Callable[[DeleteResults], None]
    ) -> None:
        """`done` gets the ACLs that are gone, or the reason, for each filter, in their order."""
        self._post(DeleteAcls(tuple(filters), done))

    def change_tokens(self, event: TokenEvent) -> None:
        """Create, renew, expire or sweep delegation tokens; `done` gets the token, or why not."""
        self._post(event)

    def follow(self, update: ImageUpdate, done: Callable[[ImageAnswer], None]) -> None:
        """What another broker, which is the controller, says."""
        self._post(FollowImage(update, done))

    def allocate_producer_ids(self, count: int, done: BlockCallback) -> None:
        """`done` gets a block of ids that is given to no other caller, or a KafkaError."""
        if not 0 < count <= PRODUCER_IDS_AT_ONCE_MAX:
            raise InvariantError(f"{count} producer ids asked for at once")
        self._post(AllocateProducerIds(count, done))


def no_caller() -> None:
    """The answer to a notice."""


def not_controller(message: str) -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, message)


def abandoned(event: Event) -> None:
    """The controller's thread is lost: the caller's request fails."""
    message = "The controller has failed; the broker must be restarted."
    event.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message))
