"""The share groups of this broker, and the door to them.

Place in the flow: the handlers of members and of offsets call one method each.
This file finds or makes the group in the dictionary that it shares with the groups of other kinds
(`group/coordinator.py`), and hands over to it. A group of another kind makes no room for a share
group, and the other way round.

Bound: SHARE_GROUPS_MAX, for they stay while they are empty; a new one is refused then.

Made with the first share group that this broker has, or is asked for. Any thread; no lock of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kbroker import limits
from kbroker.coordinator.consumer_group.images import JOINS_EPOCH
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer
from kbroker.coordinator.consumer_group.quick import QuickGroups
from kbroker.coordinator.consumer_group.record_steps import GroupAround
from kbroker.coordinator.group.refused import SHARE, words_of
from kbroker.coordinator.runtime.deadline import OnWorker
from kbroker.coordinator.share_group.group import ShareGroup
from kbroker.coordinator.share_group.messages import Altered, OffsetsDeleted
from kbroker.coordinator.share_group.replay import ShareReplay
from kbroker.coordinator.share_group.settings import ShareSettings
from kbroker.errors import ErrorCode
from kbroker.metadata.features import SHARE_VERSION

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.consumer_group.messages import AnswerHeartbeat
    from kbroker.coordinator.consumer_group.topics import Topics, TopicsSeen
    from kbroker.coordinator.group.coordinator import AnyGroup, GroupCoordinator
    from kbroker.coordinator.group.seams import HotView
    from kbroker.coordinator.group.store import OffsetsStore
    from kbroker.coordinator.share.seams import Persister
    from kbroker.coordinator.share_group.images import ByTopic
    from kbroker.coordinator.share_group.messages import AlterAsked, Description, HeartbeatAsked
    from kbroker.coordinator.share_group.state import ShareGroupState
    from kbroker.metadata.image import ClusterImage
    from kbroker.purgatory.timer import CallLater

_NOT_FOUND: Final = ErrorCode.GROUP_ID_NOT_FOUND


class ShareGroups:
    """See the module. `config` and `image` return what they are now."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        call_later: CallLater,
        store: OffsetsStore,
        view: HotView,
        groups: GroupCoordinator,
        image: Callable[[], ClusterImage],
        topics: Topics,
        beside: Callable[[Callable[[], object]], bool],
        persister: Callable[[], Persister],
        on_worker: OnWorker,
    ) -> None:
        """`beside` has a job done without a lock, `on_worker` by a thread that may wait for the log
        of a group."""
        self._groups = groups
        self._image = image
        self._topics = topics
        self._persister = persister
        self._on_worker = on_worker
        self._settings = ShareSettings(config, image)
        self._around = GroupAround(
            settings=self._settings.of,
            clock=clock,
            call_later=call_later,
            store=store,
            view=view,
            failures=groups.failures,
            topics=topics,
            quick=QuickGroups(),
            beside=beside,
            gone=groups.forget,
            on_worker=on_worker,
        )

    # --- members ---

    def heartbeat(self, asked: HeartbeatAsked, answer: AnswerHeartbeat) -> None:
        """A member joins, stays or leaves. `answer` is called once, on some thread."""
        code = self._groups.state_of(asked.group_id)
        if code:
            answer(HeartbeatAnswer(code))
            return
        group = self._groups.find(asked.group_id)
        if group is None and asked.epoch == JOINS_EPOCH:
            code, group = self._take(asked.group_id)
        if code:
            answer(HeartbeatAnswer(code, words_of(code)))
        elif not isinstance(group, ShareGroup):
            words = _words(asked.group_id, is_there=group is not None)
            answer(HeartbeatAnswer(_NOT_FOUND, words))
        elif asked.epoch < JOINS_EPOCH:
            group.part(asked, answer)
        else:
            group.beat(asked, answer)

    def _take(self, group_id: str) -> tuple[ErrorCode, AnyGroup | None]:
        """A new group, unless there are too many."""
        if self._groups.count_of(ShareGroup) >= limits.SHARE_GROUPS_MAX:
            return self._groups.refused.add(group_id, SHARE, limits.SHARE_GROUPS_MAX), None
        return self._groups.take(group_id, self._new)

    def _new(self, group_id: str) -> ShareGroup:
        return ShareGroup(
            group_id,
            self._around,
            self._groups.next_incarnation(),
            self._persister,
            self._settings.retry_ms,
            self._on_worker,
            self._has_states,
        )

    def _has_states(self) -> bool:
        """Whether share coordinators serve: without them there is nothing to ask."""
        return self._image().features.level(SHARE_VERSION) > 0

    # --- tools ---

    def describe(self, group_id: str) -> Description | ErrorCode:
        """GROUP_ID_NOT_FOUND if there is no such group, or it is of another kind."""
        code = self._groups.state_of(group_id)
        if code:
            return code
        group = self._groups.find(group_id)
        if isinstance(group, ShareGroup) and group.exists:
            return group.description()
        return _NOT_FOUND

    def topics(self) -> TopicsSeen:
        return self._topics.seen()

    # --- offsets ---

    def offsets_error(self, group_id: str) -> ErrorCode:
        """Whether this broker knows which states the group has."""
        return self._groups.state_of(group_id)

    def topics_with_state(self, group_id: str) -> Mapping[UUID, frozenset[int]]:
        """The partitions that have a state; of a group that is not there, none."""
        group = self._groups.find(group_id)
        return group.topics_with_state() if isinstance(group, ShareGroup) else {}

    def alter(self, asked: AlterAsked, answer: Callable[[Altered], object]) -> None:
        """Share-partitions of a group without members begin elsewhere. `answer` is called once, on
        some thread."""
        code = self._groups.state_of(asked.group_id)
        group = None if code else self._groups.find(asked.group_id)
        if group is None and not code and asked.starts:
            code, group = self._take(asked.group_id)
        if code or (group is None and not asked.starts):
            answer(Altered(code, words_of(code)))
        elif isinstance(group, ShareGroup):
            group.alter(asked, answer)
        else:
            answer(Altered(_NOT_FOUND, _words(asked.group_id, is_there=True)))

    def delete_offsets(
        self, group_id: str, topics: ByTopic, answer: Callable[[OffsetsDeleted], object]
    ) -> None:
        """A group without members has read nothing of topics. `answer` is called once, on some
        thread."""
        code = self._groups.state_of(group_id)
        group = None if code else self._groups.find(group_id)
        if code:
            answer(OffsetsDeleted(code))
        elif isinstance(group, ShareGroup):
            group.delete_offsets(topics, answer)
        else:
            answer(OffsetsDeleted(_NOT_FOUND, _words(group_id, is_there=group is not None)))

    # --- the log ---

    def replay(self) -> ShareReplay:
        return ShareReplay(self.load)

    def load(self, states: Mapping[str, ShareGroupState]) -> None:
        """Groups as the log has them, before their partition is said to be loaded."""
        for group_id, state in states.items():
            group = self._new(group_id)
            self._groups.put(group)
            group.load(state)


def _words(group_id: str, *, is_there: bool) -> str:
    return f"Group {group_id} is not a share group." if is_there else f"Group {group_id} not found."
