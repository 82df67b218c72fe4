"""The consumer groups of this broker, and the door to them.

Place in the flow: the handlers of ConsumerGroupHeartbeat and ConsumerGroupDescribe call one method
each. This file checks what needs no group, finds or makes the group in the dictionary that it
shares with classic groups (`group/coordinator.py`), and hands over to it. A classic group makes
room for a consumer group of its id, with its members if the policy allows that (`migration.py`);
its offsets stay. The other way a consumer group calls `_turned`.

Made with the first consumer group that this broker has, or is asked for. Any thread; no lock of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.consumer_group.beside import Beside
from kbroker.coordinator.consumer_group.group import ConsumerGroup
from kbroker.coordinator.consumer_group.images import JOINS_EPOCH
from kbroker.coordinator.consumer_group.messages import Description, HeartbeatAnswer
from kbroker.coordinator.consumer_group.migration import Upgrade, upgraded
from kbroker.coordinator.consumer_group.quick import QuickGroups
from kbroker.coordinator.consumer_group.replay import ConsumerReplay
from kbroker.coordinator.consumer_group.settings import ConsumerSettings
from kbroker.coordinator.consumer_group.steps import Around, Steps
from kbroker.coordinator.consumer_group.topics import Topics
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.messages import Refusal
from kbroker.coordinator.group.refused import words_of
from kbroker.coordinator.group.step import Once
from kbroker.coordinator.runtime.deadline import OnWorker, at_once
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.consumer_group.beats import BeatsInC
    from kbroker.coordinator.consumer_group.messages import AnswerHeartbeat, HeartbeatAsked
    from kbroker.coordinator.consumer_group.state import GroupState
    from kbroker.coordinator.consumer_group.topics import TopicsSeen
    from kbroker.coordinator.group.coordinator import AnyGroup, GroupCoordinator
    from kbroker.coordinator.group.images import GroupImage as ClassicImage
    from kbroker.coordinator.group.seams import HotView
    from kbroker.coordinator.group.store import OffsetsStore
    from kbroker.metadata.image import ClusterImage
    from kbroker.own_thread import OwnThread
    from kbroker.purgatory.timer import CallLater

FULL: Final = Refusal("The consumer group has reached its maximum capacity of members.")


class ConsumerGroups:
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
        beats: BeatsInC,
        beside: Callable[[Callable[[], object]], bool] | None = None,
        on_worker: OnWorker = at_once,
    ) -> None:
        """`on_worker` has something done by a thread that may wait for the log of a group.
        `beats`: the heartbeats that C answers. `beside` has a job done without a lock; None: by
        a thread of ours."""
        self._config = config
        self._groups = groups
        self.seen_topics: Final = Topics(image)
        self._beside = Beside()
        self.beside: Final = self._beside.submit if beside is None else beside
        self._around = Around(
            settings=ConsumerSettings(config, image).of,
            clock=clock,
            call_later=call_later,
            store=store,
            view=view,
            beats=beats,
            failures=groups.failures,
            departures=groups.departures,
            topics=self.seen_topics,
            quick=QuickGroups(),
            beside=self.beside,
            gone=self._gone,
            turned=self._turned,
            on_worker=on_worker,
        )

    @property
    def thread(self) -> OwnThread:
        return self._beside.thread

    def stop(self) -> None:
        self._beside.stop()

    # --- members ---

    def heartbeat(self, asked: HeartbeatAsked, answer: AnswerHeartbeat) -> None:
        """A member joins, stays or leaves. `answer` is called once, on some thread."""
        code = self._groups.state_of(asked.group_id)
        if code:
            answer(HeartbeatAnswer(code))
            return
        group = self._groups.find(asked.group_id)
        if not isinstance(group, ConsumerGroup):
            if asked.epoch != JOINS_EPOCH:
                answer(_not_found(asked.group_id, group is not None))
                return
            if isinstance(group, Group):
                self._take_over(group, asked, answer)
                return
            if group is None:
                code, group = self._groups.take(asked.group_id, self._new)
            if not isinstance(group, ConsumerGroup):
                answer(_not_to_be_made(asked.group_id, group, code))
                return
        if asked.epoch < JOINS_EPOCH:
            group.part(asked, answer)
        else:
            group.beat(asked, answer)

    def _take_over(self, before: Group, asked: HeartbeatAsked, answer: AnswerHeartbeat) -> None:
        """A classic group becomes a consumer group, if it may."""
        settings = self._around.settings(asked.group_id)
        topics = self.seen_topics.seen()

        def convert(image: ClassicImage, is_empty: bool) -> Upgrade | Refusal:
            policy, size_max = settings.policy, settings.size_max
            found = upgraded(image, topics, policy, size_max, is_empty=is_empty)
            if isinstance(found, Upgrade) and not _has_room(found, asked, settings.size_max):
                return FULL
            return found

        found = before.give_way(convert)
        if not isinstance(found, Upgrade):
            answer(_not_to_be_joined(asked.group_id, found))
            return
        answer = Once(answer)
        try:
            group = self._new_in_its_place(found.before)
            enter = partial(self._groups.exchange, before, group)
            group.take_over(found, asked, answer, enter)
        except Exception as error:
            self._around.failures.note("the upgrade of a classic group", error)
            self._take_back(before, found.before)
            answer(HeartbeatAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _take_back(self, before: Group, image: ClassicImage) -> None:
        """The classic group, which is dead by now and still has its id, is there again; its record
        was not touched. Where that fails too, the id is free at least."""
        if self._groups.find(before.group_id) is not before:
            return
        try:
            self._groups.make_classic(before, image)
        except Exception as error:
            self._around.failures.note("a classic group that takes its place again", error)
            self._groups.forget(before)

    def _new(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._around, self._groups.next_incarnation())

    def _new_in_its_place(self, image: ClassicImage) -> ConsumerGroup:
        return ConsumerGroup(image.group_id, self._around, self._groups.next_incarnation(), image)

    def _gone(self, group: Steps) -> None:
        """Nothing of it was written. A classic group whose place it took is there again: an empty
        one as it was, whose offsets expire from when it became empty on; a stable one with its
        generation. The members of another one join again."""
        if isinstance(group, ConsumerGroup):
            if group.took_place_of is None:
                self._groups.forget(group)
            else:
                self._groups.make_classic(group, group.took_place_of)

    def _turned(self, group: Steps, becomes: ClassicImage) -> None:
        """A consumer group is a classic one, by its records."""
        if isinstance(group, ConsumerGroup):
            self._groups.make_classic(group, becomes)

    # --- tools ---

    def describe(self, group_id: str) -> Description | ErrorCode:
        """GROUP_ID_NOT_FOUND if there is no such group, or it is of another kind."""
        code = self._groups.state_of(group_id)
        if code:
            return code
        group = self._groups.find(group_id)
        if isinstance(group, ConsumerGroup) and group.exists:
            return group.description()
        return ErrorCode.GROUP_ID_NOT_FOUND

    def topics(self) -> TopicsSeen:
        return self.seen_topics.seen()

    # --- the log ---

    def replay(self) -> ConsumerReplay:
        return ConsumerReplay(self.load)

    def load(self, states: Mapping[str, GroupState]) -> None:
        """Groups as the log has them, before their partition is said to be loaded."""
        for group_id, state in states.items():
            group = self._new(group_id)
            self._groups.put(group)
            group.load(state)


def _not_found(group_id: str, is_there: bool) -> HeartbeatAnswer:
    words = (
        f"Group {group_id} is not a consumer group." if is_there else f"Group {group_id} not found."
    )
    return HeartbeatAnswer(ErrorCode.GROUP_ID_NOT_FOUND, words)


def _not_to_be_made(group_id: str, there: AnyGroup | None, code: ErrorCode) -> HeartbeatAnswer:
    if there is not None and not isinstance(there, Group):  # of a third kind
        return _not_found(group_id, is_there=True)
    # Where there is no code a classic group has come meanwhile.
    return HeartbeatAnswer(code or ErrorCode.COORDINATOR_NOT_AVAILABLE, words_of(code))


def _has_room(found: Upgrade, asked: HeartbeatAsked, size_max: int) -> bool:
    """Whether the group takes the member that joins beside its own ones."""
    members = found.before.members
    if len(members) < size_max:
        return True
    known = ((each.member_id, each.instance_id) for each in members)
    return any(
        member_id == asked.member_id or (instance_id and instance_id == asked.instance_id)
        for member_id, instance_id in known
    )


def _not_to_be_joined(group_id: str, found: Refusal | None) -> HeartbeatAnswer:
    if found is None:  # it goes: there is room in a moment
        return HeartbeatAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if found is FULL:
        return HeartbeatAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, found.reason)
    return HeartbeatAnswer(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group_id} to consumer group because {found.reason}.",
    )
