"""The streams groups of this broker, and the door to them.

Place in the flow: the handlers of StreamsGroupHeartbeat and StreamsGroupDescribe call one method
each. This file finds or makes the group in the dictionary that it shares with the groups of other
kinds (`group/coordinator.py`), and hands over to it. An empty classic group makes room for a
streams group of its id, and the other way round; its offsets stay, so an application may change its
protocol while it is stopped.

Made with the first streams group that this broker has, or is asked for. Any thread; no lock of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kbroker.coordinator.consumer_group.images import JOINS_EPOCH
from kbroker.coordinator.consumer_group.quick import QuickGroups
from kbroker.coordinator.consumer_group.record_steps import GroupAround
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.messages import Refusal
from kbroker.coordinator.group.refused import words_of
from kbroker.coordinator.group.step import Once
from kbroker.coordinator.runtime.deadline import OnWorker, at_once
from kbroker.coordinator.streams_group.group import StreamsGroup
from kbroker.coordinator.streams_group.messages import StreamsAnswer
from kbroker.coordinator.streams_group.replay import StreamsReplay
from kbroker.coordinator.streams_group.settings import StreamsGroupSettings
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.consumer_group.topics import Topics
    from kbroker.coordinator.group.coordinator import GroupCoordinator
    from kbroker.coordinator.group.images import GroupImage as ClassicImage
    from kbroker.coordinator.group.seams import HotView
    from kbroker.coordinator.group.store import OffsetsStore
    from kbroker.coordinator.streams_group.messages import (
        AnswerStreams,
        Description,
        HeartbeatAsked,
    )
    from kbroker.coordinator.streams_group.state import StreamsGroupState
    from kbroker.metadata.image import ClusterImage
    from kbroker.purgatory.timer import CallLater

_NOT_FOUND: Final = ErrorCode.GROUP_ID_NOT_FOUND


class StreamsGroups:
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
        on_worker: OnWorker = at_once,
    ) -> None:
        """`beside` has a job done without a lock, `on_worker` by a thread that may wait for the log
        of a group."""
        self._groups = groups
        self._settings = StreamsGroupSettings(config, image)
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
            gone=self._gone,
            on_worker=on_worker,
        )

    # --- members ---

    def heartbeat(self, asked: HeartbeatAsked, answer: AnswerStreams) -> None:
        """A member joins, stays or leaves. `answer` is called once, on some thread."""
        code = self._groups.state_of(asked.group_id)
        if code:
            answer(StreamsAnswer(code))
            return
        group = self._groups.find(asked.group_id)
        if asked.epoch == JOINS_EPOCH:
            if isinstance(group, Group):
                self._take_over(group, asked, answer)
                return
            if group is None:
                code, group = self._groups.take(asked.group_id, self._new)
        if code:
            answer(StreamsAnswer(code, words_of(code)))
        elif not isinstance(group, StreamsGroup):
            answer(StreamsAnswer(_NOT_FOUND, _words(asked.group_id, group is not None)))
        elif asked.epoch < JOINS_EPOCH:
            group.part(asked, answer)
        else:
            group.beat(asked, answer)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Of a group that does not change."""
        return self._settings.own(group_id).heartbeat_interval_ms

    def _take_over(self, before: Group, asked: HeartbeatAsked, answer: AnswerStreams) -> None:
        """A streams group takes the place of a classic group that has no members."""
        refusal = Refusal(f"Group {asked.group_id} is not a streams group.")

        def convert(image: ClassicImage, is_empty: bool) -> ClassicImage | Refusal:
            return image if is_empty else refusal

        found = before.give_way(convert)
        if isinstance(found, Refusal):
            answer(StreamsAnswer(_NOT_FOUND, found.reason))
            return
        if found is None:  # it goes: there is room in a moment
            answer(StreamsAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        answer = Once(answer)
        try:
            group = self._made(asked.group_id, found)
            group.take_over(asked, answer, partial(self._groups.exchange, before, group))
        except Exception as error:
            self._around.failures.note("a streams group in the place of a classic one", error)
            self._take_back(before, found)
            answer(StreamsAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _take_back(self, before: Group, image: ClassicImage) -> None:
        """The classic group is there again; where that fails, the id is free at least."""
        if self._groups.find(before.group_id) is not before:
            return
        try:
            self._groups.make_classic(before, image)
        except Exception as error:
            self._around.failures.note("a classic group that takes its place again", error)
            self._groups.forget(before)

    def _new(self, group_id: str) -> StreamsGroup:
        return self._made(group_id, None)

    def _made(self, group_id: str, instead_of: ClassicImage | None) -> StreamsGroup:
        return StreamsGroup(
            group_id,
            self._around,
            self._groups.next_incarnation(),
            self._settings.own,
            instead_of,
        )

    def _gone(self, group: Any) -> None:
        """Nothing of it was written: a classic group whose place it took is there again."""
        if group.took_place_of is None:
            self._groups.forget(group)
        else:
            self._groups.make_classic(group, group.took_place_of)

    # --- tools ---

    def describe(self, group_id: str) -> Description | ErrorCode:
        """GROUP_ID_NOT_FOUND if there is no such group, or it is of another kind."""
        code = self._groups.state_of(group_id)
        if code:
            return code
        group = self._groups.find(group_id)
        if isinstance(group, StreamsGroup) and group.exists:
            return group.description()
        return _NOT_FOUND

    # --- the log ---

    def replay(self) -> StreamsReplay:
        return StreamsReplay(self.load)

    def load(self, states: Mapping[str, StreamsGroupState]) -> None:
        """Groups as the log has them, before their partition is said to be loaded."""
        for group_id, state in states.items():
            group = self._new(group_id)
            self._groups.put(group)
            group.load(state)


def _words(group_id: str, is_there: bool) -> str:
    return (
        f"Group {group_id} is not a streams group." if is_there else f"Group {group_id} not found."
    )
