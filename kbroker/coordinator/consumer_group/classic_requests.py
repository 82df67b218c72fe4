"""Requests of the classic protocol that reach a consumer group, and its way back to that protocol.

Members that have not changed yet join, sync and send heartbeats as before; `classic_members.py`
decides. LeaveGroup comes from them, and from operators, who remove members of either protocol. When
only members of the classic protocol are left the group becomes a classic one (`migration.py`).

An empty group makes room for one of the other kind (`retire`) without any of this.

Any thread; the group's lock is taken here, as in `group.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from kbroker.coordinator.consumer_group import classic_members, decisions
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer, Refused
from kbroker.coordinator.consumer_group.migration import downgraded
from kbroker.coordinator.consumer_group.steps import Steps
from kbroker.coordinator.group.departures import Why
from kbroker.coordinator.group.messages import JoinAnswer, LeaveAnswer, SyncAnswer
from kbroker.coordinator.group.subscriptions import CONSUMER
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.settings import Settings
    from kbroker.coordinator.consumer_group.state import Draft
    from kbroker.coordinator.consumer_group.topics import TopicsSeen
    from kbroker.coordinator.group.messages import (
        AnswerJoin,
        AnswerLeave,
        AnswerSync,
        JoinAsked,
        Leaver,
        SyncAsked,
    )

NONE: Final = ErrorCode.NONE
_AGAIN: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE


class ClassicRequests(Steps):
    """See the module. `ConsumerGroup` adds the requests of its own protocol."""

    __slots__ = ()

    def _assign(self, topics: TopicsSeen, settings: Settings, draft: Draft) -> None:
        """Put a target of the group's epoch into the draft, or have it computed beside."""
        raise NotImplementedError

    def _note_change(self, *, joined: bool = False) -> None:
        """Something of the group has changed just now; `joined`: a member has come."""
        raise NotImplementedError

    # --- JoinGroup ---

    def join(self, asked: JoinAsked, answer: AnswerJoin) -> None:
        """`answer` is called once, when what the join has changed is in the log."""
        name = asked.client_id if asked.instance_id is None else asked.instance_id
        member_id = asked.member_id or f"{name}-{uuid4()}"

        def answered(found: HeartbeatAnswer) -> None:
            if found.code is ErrorCode.MEMBER_ID_REQUIRED:
                answer(JoinAnswer(found.code, member_id))
            elif found.code:
                answer(JoinAnswer(found.code))
            else:
                protocol = asked.protocols[0][0]
                answer(JoinAnswer(NONE, member_id, found.epoch, CONSUMER, protocol))

        decide = partial(self._joined, asked, member_id)
        self._run(decide, answered, "a join of the classic protocol")

    def _joined(self, asked: JoinAsked, member_id: str, draft: Draft) -> HeartbeatAnswer:
        around, state = self._around, self._state
        if not state.members:
            raise Refused(_AGAIN)  # it is empty since a moment ago, and makes room
        settings = around.settings(self.group_id)
        classic_members.check_protocols(state, asked, settings.size_max)
        if asked.needs_id and not asked.member_id and asked.instance_id is None:
            raise Refused(ErrorCode.MEMBER_ID_REQUIRED)
        before = state.members.get(state.static.get(asked.instance_id or "", member_id))
        topics = around.topics.seen()
        is_new = member_id not in state.members
        current = classic_members.joined(
            draft,
            asked,
            member_id,
            topics,
            partial(self._assign, topics, settings),
            now_ms=around.clock.wall_ms(),
            topics_changed=not topics.is_same(self._seen),
        )
        self._seen = topics
        if draft.changes:
            self._note_change(joined=is_new)
        self._timers.renew(member_id, asked.session_timeout_ms)
        self._timers.is_to_sync(member_id, asked.rebalance_timeout_ms)
        if before is not None and before.classic is None:
            self._may_turn(draft, (), topics, settings)
            if self._becomes is not None and self._becomes.protocol != asked.protocols[0][0]:
                # Its answer has its own first protocol, with which it could not sync there.
                return HeartbeatAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatAnswer(member_id=member_id, epoch=current.epoch)

    # --- SyncGroup ---

    def sync(self, asked: SyncAsked, answer: AnswerSync) -> None:
        """`answer` is called once, when the followers have what it says."""
        given = "", b""

        def decide(draft: Draft) -> None:
            nonlocal given
            state, topics = self._state, self._around.topics.seen()
            given = classic_members.synced(state, asked, topics)
            self._timers.has_synced(asked.member_id)
            classic = state.members[asked.member_id].classic
            if classic is not None:
                self._timers.renew(asked.member_id, classic.session_timeout_ms)

        def answered(found: HeartbeatAnswer) -> None:
            answer(SyncAnswer(found.code) if found.code else SyncAnswer(NONE, CONSUMER, *given))

        self._run(decide, answered, "a sync of the classic protocol")

    # --- Heartbeat ---

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether the member lives, and is to join again."""
        code = _AGAIN

        def decide(draft: Draft) -> None:
            nonlocal code
            try:
                code = self._heard(member_id, instance_id, generation, draft)
            except Refused as refused:
                code = refused.code

        with self.lock:
            if self.lost:
                return ErrorCode.NOT_COORDINATOR
            self._step(decide, None, "a heartbeat of the classic protocol")
        self._outbox.run()
        return code

    def _heard(
        self, member_id: str, instance_id: str | None, generation: int, draft: Draft
    ) -> ErrorCode:
        around, state = self._around, self._state
        member = classic_members.check_member(state, member_id, instance_id, generation)
        topics = around.topics.seen()
        settings = around.settings(self.group_id)
        classic_members.look(
            draft,
            topics,
            partial(self._assign, topics, settings),
            now_ms=around.clock.wall_ms(),
            topics_changed=not topics.is_same(self._seen),
        )
        self._seen = topics
        if draft.changes:
            self._note_change()
        if member.classic is not None:
            self._timers.renew(member_id, member.classic.session_timeout_ms)
        if not classic_members.is_to_join(state, member_id, topics):
            return NONE
        self._timers.is_to_join(member_id, member.rebalance_timeout_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS

    # --- members that go ---

    def leave(self, leavers: Sequence[Leaver], answer: AnswerLeave) -> None:
        """LeaveGroup: members leave, or an operator removes them, by id or by instance id."""
        codes: list[ErrorCode] = []

        def decide(draft: Draft) -> None:
            found, going = decisions.named(self._state, leavers)
            codes.extend(found)
            if going:
                members = self._state.members
                self._go(draft, {
                    each: Why.REMOVED if members[each].classic is None else Why.LEFT
                    for each in going
                })  # fmt: skip

        def answered(found: HeartbeatAnswer) -> None:
            answer(LeaveAnswer(found.code, () if found.code else tuple(codes)))

        self._run(decide, answered, "the removal of members")

    def _go(self, draft: Draft, going: Mapping[str, Why]) -> None:
        """These members go, for good, in one epoch; the others may be a classic group then."""
        topics = self._around.topics.seen()
        settings = self._around.settings(self.group_id)
        self._note_change()
        if not self._may_turn(draft, going, topics, settings):
            decisions.removed(draft, going, topics)
        for member_id, why in going.items():
            self._around.departures.note(self.group_id, member_id, why)

    def _may_turn(
        self, draft: Draft, gone: Collection[str], topics: TopicsSeen, settings: Settings
    ) -> bool:
        """Whether the group without these is a classic one from this step on."""
        if self._cannot_turn:
            return False
        becomes = downgraded(
            self.group_id,
            self._state,
            gone,
            topics,
            settings.policy,
            settings.classic_size_max,
            self._around.clock.wall_ms(),
        )
        if becomes is None:
            return False
        for change in list(self._state.tombstones()):
            draft.put(*change)
        self._becomes = becomes
        return True
