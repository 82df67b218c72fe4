"""One classic group: the requests and timers that reach it, and what the table makes of them.

Place in the flow: the coordinator finds the group; a public method here begins a `Step` under the
group's lock, checks who is asking, raises an event, and ends it; then `Outbox` answers and writes.
`states.TABLE` says which event does what in which state; `rebalance.py` has the effects.

Lock: one per group, a leaf but for the timer's (to set and cancel timers) and the compiled view's
(to publish changes). Nothing is answered, written or called back under it. Any thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from kbroker import limits
from kbroker.coordinator.group.departures import Why
from kbroker.coordinator.group.expiration import GroupAge
from kbroker.coordinator.group.messages import (
    NO_MEMBER_ID,
    GroupDescription,
    GroupListing,
    JoinAnswer,
    LeaveAnswer,
    Leaver,
    Refusal,
    SyncAnswer,
)
from kbroker.coordinator.group.rebalance import Joining, Rebalance, Syncing
from kbroker.coordinator.group.states import Event, GroupState
from kbroker.coordinator.group.step import Once, Step
from kbroker.coordinator.group.subscriptions import CONSUMER, subscribed_topics
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbroker.coordinator.group.images import GroupImage
    from kbroker.coordinator.group.member import Member
    from kbroker.coordinator.group.messages import (
        AnswerJoin,
        AnswerLeave,
        AnswerSync,
        JoinAsked,
        SyncAsked,
    )
    from kbroker.coordinator.group.seams import GroupStore

Converted = TypeVar("Converted")

NONE: Final = ErrorCode.NONE
# The answer to a request whose step raised: the client tries again, and the group has started over.
FAILED: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
# Of these the answer does not repeat the member's id: it is to come as a new one.
WITHOUT_ID: Final = (ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.UNKNOWN_SERVER_ERROR)


def answer_not_found(store: GroupStore, group_id: str, done: Callable[[ErrorCode], object]) -> None:
    """GROUP_ID_NOT_FOUND, when the followers have the tombstones of the deletion; as long as they
    do not, another leader may have the group still."""
    store.when_settled(group_id, lambda code: done(code or ErrorCode.GROUP_ID_NOT_FOUND))


class Group(Rebalance):
    """See the module."""

    __slots__ = ()

    # --- JoinGroup ---

    def join(self, asked: JoinAsked, answer: AnswerJoin) -> None:
        """`answer` is called once: now, or when the generation is formed."""
        answer = Once(answer)
        with Step(self, partial(answer, JoinAnswer(FAILED, asked.member_id))):
            code, member_id = self._join(asked, answer), asked.member_id
            if code in WITHOUT_ID:
                member_id = NO_MEMBER_ID
            if code:
                self.outbox.add(partial(answer, JoinAnswer(code, member_id)))

    def _join(self, asked: JoinAsked, answer: AnswerJoin) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return self.fire(Event.JOIN)
        if not self._has_room(asked.member_id):
            if asked.member_id in self.roster.members:
                # It was a member while the bound was higher.
                self.remove(asked.member_id, Why.NO_ROOM)
                self.fire(Event.GONE)
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._supports(asked):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not asked.member_id:
            return self._join_new(asked, answer)
        if asked.member_id in self.roster.pending:
            if asked.instance_id is not None:
                return ErrorCode.UNKNOWN_SERVER_ERROR
            self.roster.pending.pop(asked.member_id)()
            return self._add(asked.member_id, asked, answer)
        code = self.roster.check(asked.member_id, asked.instance_id)
        if code:
            return code
        member = self.roster.members[asked.member_id]
        if member.protocols != asked.protocols:
            event = Event.JOIN
        elif self.roster.leader == member.member_id:
            event = Event.REJOIN_LEADER
        else:
            event = Event.REJOIN_SAME
        return self.fire(event, Joining(member, asked, answer))

    def _has_room(self, member_id: str) -> bool:
        """While a generation forms, the first that join have the places, also before older
        members."""
        size_max = self.around.settings().size_max
        member = self.roster.members.get(member_id)
        if self.state is GroupState.EMPTY:
            return True
        if self.state is GroupState.PREPARING_REBALANCE:
            waits = member is not None and member.awaiting_join is not None
            return waits or self.roster.awaiting_join < size_max
        return member is not None or len(self.roster) < size_max

    def _supports(self, asked: JoinAsked) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(asked.protocol_type and asked.protocols)
        same = asked.protocol_type == self.protocol_type
        return same and self.roster.supports(asked.protocols)

    def _join_new(self, asked: JoinAsked, answer: AnswerJoin) -> ErrorCode:
        name = asked.client_id if asked.instance_id is None else asked.instance_id
        new_id = f"{name}-{uuid4()}"
        if asked.instance_id is None:
            if not asked.needs_id:
                return self._add(new_id, asked, answer)
            if len(self.roster.pending) >= limits.GROUP_PENDING_MEMBERS_MAX:
                return ErrorCode.GROUP_MAX_SIZE_REACHED
            return self.fire(Event.ASK_ID, Joining(self.make_member(new_id, asked), asked, answer))
        old_id = self.roster.static.get(asked.instance_id)
        if old_id is None:
            return self._add(new_id, asked, answer)
        return self._return(old_id, new_id, asked, answer)

    def _add(self, member_id: str, asked: JoinAsked, answer: AnswerJoin) -> ErrorCode:
        member = self.make_member(member_id, asked)
        if not self.roster.members:
            self.protocol_type = asked.protocol_type
        self.roster.add(member)
        self.sessions.renew(member, limits.GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self.fire(Event.JOIN, Joining(member, asked, answer, is_new=True))

    def _return(self, old_id: str, new_id: str, asked: JoinAsked, answer: AnswerJoin) -> ErrorCode:
        """A static member came back without its id: the client with the old one is fenced."""
        old = self.roster.members[old_id]
        leader = self.roster.leader or ""
        self.refuse_waiting(old, ErrorCode.FENCED_INSTANCE_ID, old_id)
        self.sessions.end(old)
        member = self.roster.replace(old_id, new_id)
        self.roster.update(member, asked)
        self.sessions.renew(member)
        self._changed = True
        joining = Joining(member, asked, answer, leader=leader)
        keeps = self.state is GroupState.STABLE and self.roster.choose() == self.protocol
        return self.fire(Event.RETURN if keeps else Event.JOIN, joining)

    # --- SyncGroup ---

    def sync(self, asked: SyncAsked, answer: AnswerSync) -> None:
        """`answer` is called once: now, or when the leader's assignment is in the log."""
        answer = Once(answer)
        with Step(self, partial(answer, SyncAnswer(FAILED))):
            code = self._sync(asked, answer)
            if code:
                self.outbox.add(partial(answer, SyncAnswer(code)))

    def _sync(self, asked: SyncAsked, answer: AnswerSync) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return self.fire(Event.SYNC)
        code = self._check_member(asked.member_id, asked.instance_id, asked.generation)
        if code:
            return code
        if asked.protocol_type is not None and asked.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if asked.protocol is not None and asked.protocol != self.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        member = self.roster.members[asked.member_id]
        leads = self.roster.leader == member.member_id
        event = Event.SYNC_LEADER if leads else Event.SYNC
        return self.fire(event, Syncing(member, asked.assignments, answer))

    def _check_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        code = self.roster.check(member_id, instance_id)
        if not code and generation != self.generation:
            code = ErrorCode.ILLEGAL_GENERATION
        return code

    # --- Heartbeat, OffsetCommit ---

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """What the compiled path could not decide itself."""
        with Step(self):
            if self.state is GroupState.DEAD:
                return self.fire(Event.HEARTBEAT)
            code = self._check_member(member_id, instance_id, generation)
            return code or self.fire(Event.HEARTBEAT, self.roster.members[member_id])
        return FAILED

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether offsets may be committed by this member, or by a client that is no member."""
        with Step(self):
            if self.state is GroupState.DEAD:
                return self.fire(Event.COMMIT)
            if generation < 0 and self.state is GroupState.EMPTY:
                return self.fire(Event.COMMIT)
            if generation < 0 and not member_id and instance_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            code = self._check_member(member_id, instance_id, generation)
            return code or self.fire(Event.COMMIT, self.roster.members[member_id])
        return FAILED

    def check_transaction_commit(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """The same of offsets that are part of a transaction. A rebalance that is not complete is
        no reason against it, nor are other members where the request names none."""
        with Step(self):
            if self.state is GroupState.DEAD:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            if generation < 0 and self.state is GroupState.EMPTY:
                return NONE
            if generation < 0 and not member_id and instance_id is None:
                return NONE
            return self._check_member(member_id, instance_id, generation)
        return FAILED

    # --- LeaveGroup ---

    def leave(self, leavers: Sequence[Leaver], answer: AnswerLeave) -> None:
        """`answer` is called once: now, or when the empty group is in the log."""
        answer = Once(answer)
        with Step(self, partial(answer, LeaveAnswer(FAILED))):
            if self.state is GroupState.DEAD:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                self.outbox.add(partial(answer, LeaveAnswer(code)))
                return
            gone: list[Member] = []
            pending = len(self.roster.pending)
            codes = tuple([self._leave(leaver, gone) for leaver in leavers])
            self.leaving = lambda code: answer(LeaveAnswer(code, () if code else codes))
            if gone:
                self.fire(Event.GONE)
            elif len(self.roster.pending) < pending:
                self.fire(Event.ID_GONE)
            left, self.leaving = self.leaving, None
            if left is not None:  # there was nothing to be written
                self.outbox.add(partial(left, NONE))

    def _leave(self, leaver: Leaver, gone: list[Member]) -> ErrorCode:
        member_id = leaver.member_id
        if not member_id:
            if leaver.instance_id is None or leaver.instance_id not in self.roster.static:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = self.roster.static[leaver.instance_id]
        elif member_id in self.roster.pending:
            self.roster.pending.pop(member_id)()
            return NONE
        else:
            code = self.roster.check(member_id, leaver.instance_id)
            if code:
                return code
        gone.append(self.remove(member_id, Why.LEFT))
        return NONE

    # --- the operator, the log, leadership ---

    def load(self, image: GroupImage) -> None:
        """Become what the log says; members have a whole session from now. Where they have no
        leader they are to join again: the group was one of another kind."""
        with Step(self):
            self.restore(image)
            if image.leader is None and self.state is GroupState.STABLE:
                self.fire(Event.GONE)

    def delete(
        self,
        done: Callable[[ErrorCode], object],
        *,
        unless: Callable[[], bool],
        gone: Callable[[], object],
    ) -> None:
        """An empty group goes, with its offsets, or stays as it was; `done` is called once.

        From here on it is DEAD, and refuses commits; after its last outstanding write `unless` is
        asked, and if that says yes the group stays (NON_EMPTY_GROUP). `gone` is called when the
        tombstones are in the log, or nothing of it is ours any more, before `done`: it does not
        come back, whether or not the followers have them. A group that is lost meanwhile stays
        dead: its id may be another group's by now.
        """
        end = Once(partial(self._end, done, gone))
        with Step(self, partial(end, FAILED)):
            code = self.fire(Event.DELETE)
            if code is ErrorCode.GROUP_ID_NOT_FOUND:
                self.outbox.add(partial(self._deleted_already, done))
            elif code:
                self.outbox.add(partial(done, code))
            else:
                self.outbox.add(partial(self._remove, unless, gone, end))

    def _deleted_already(self, done: Callable[[ErrorCode], object]) -> None:
        """From the outbox, after the write of the deletion, which may have failed."""
        if self.state is GroupState.DEAD:
            answer_not_found(self.around.store, self.group_id, done)
        else:
            done(FAILED)

    def _remove(
        self,
        unless: Callable[[], bool],
        gone: Callable[[], object],
        end: Callable[[ErrorCode], None],
    ) -> None:
        try:
            if self.lost:
                end(ErrorCode.NOT_COORDINATOR)
            elif unless():
                end(ErrorCode.NON_EMPTY_GROUP)
            else:
                self.around.store.delete_group(self.group_id, partial(self._in_log, gone), end)
        except Exception as error:
            self.around.failures.note("the deletion of a group", error)
            end(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _in_log(self, gone: Callable[[], object]) -> None:
        self.lost = True
        gone()

    def _end(
        self, done: Callable[[ErrorCode], object], gone: Callable[[], object], code: ErrorCode
    ) -> None:
        # A log whose disk refuses the write has that error, too, and its groups stay.
        is_led = self.around.store.state_of(self.group_id) is NONE
        if code is NONE or (code is ErrorCode.NOT_COORDINATOR and not is_led):
            gone()
        else:
            with Step(self):
                if self.state is GroupState.DEAD and not self.lost:
                    self.fire(Event.KEPT)
        done(code)

    def give_way(
        self, convert: Callable[[GroupImage, bool], Converted | Refusal]
    ) -> Converted | Refusal | None:
        """The group makes room for one of another kind, which is to remove its record. `convert` is
        given what it is, and whether it is empty, and says what it becomes, or why it stays; it is
        called under the lock. None: it goes already.

        Then it is dead, and nothing of it is written any more. Requests that wait are answered
        REBALANCE_IN_PROGRESS, so members that have their id join the other group. Those that have
        not been in a generation yet are not in the image: they come to it as new ones.
        """
        with Step(self):
            if self.state is GroupState.DEAD or self.lost:
                return None
            try:
                found = convert(self._whole_image(), self.state is GroupState.EMPTY)
            except Exception as error:  # it stays what it is, with its members
                self.around.failures.note("the upgrade of a group", error)
                return None
            if not isinstance(found, Refusal):
                self.lost = True
                self.fire(Event.CONVERT, ErrorCode.REBALANCE_IN_PROGRESS)
            return found
        return None

    def _whole_image(self) -> GroupImage:
        members = tuple(
            member.image(self.protocol)._replace(protocols=member.protocols)
            for member in self.members
            if not member.is_new
        )
        image = self._image()._replace(members=members)
        if self.state is not GroupState.STABLE:
            image = image._replace(leader=None)  # if it is loaded, its members join again
        return image if members else image._replace(state_timestamp_ms=self.since_ms)

    def unload(self) -> None:
        """Waiting requests get an error that sends their clients to look for the coordinator."""
        with Step(self) as step:
            self.lost = True
            self.fire(Event.UNLOAD)
        if step.failed:  # it has started over instead, and nothing can raise now
            with Step(self):
                self.fire(Event.UNLOAD)

    # --- descriptions ---

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def member_count(self) -> int:
        return len(self.roster)

    def described(self) -> GroupDescription:
        with self.lock:
            protocol = self.protocol if self.state is GroupState.STABLE else None
            return GroupDescription(
                self.group_id,
                self.state,
                self.protocol_type or "",
                protocol or "",
                tuple(member.described(protocol) for member in self.roster.members.values()),
            )

    def awaited(self) -> tuple[str, ...]:
        """The ids of the members without which the rebalance does not go on."""
        with self.lock:
            if self.state is GroupState.PREPARING_REBALANCE:
                return tuple(member.member_id for member in self.roster.absent())
            if self.state is GroupState.COMPLETING_REBALANCE:
                return tuple(self.roster.unsynced)
            return ()

    def listed(self) -> GroupListing:
        with self.lock:
            return GroupListing(self.group_id, self.state, self.protocol_type or "")

    def aged(self) -> GroupAge:
        with self.lock:
            topics: frozenset[str] | None = None
            if self.state is GroupState.STABLE:
                members = self.roster.members.values()
                topics = subscribed_topics(
                    self.protocol_type, [each.subscription(self.protocol) for each in members]
                )
            return GroupAge(self.state, self.protocol_type or "", self.since_ms, topics)

    def readers(self) -> tuple[ErrorCode, frozenset[str] | None]:
        """Which topics are read now, None for any of them: their offsets are not to be deleted.

        NON_EMPTY_GROUP where the members are not consumers: their topics are not known.
        """
        with self.lock:
            if self.state is GroupState.DEAD:
                return ErrorCode.GROUP_ID_NOT_FOUND, None
            if self.state is GroupState.EMPTY:
                return ErrorCode.NONE, frozenset()
            if self.protocol_type != CONSUMER:
                return ErrorCode.NON_EMPTY_GROUP, None
            if self.protocol is None:
                return ErrorCode.NONE, None
            members = self.roster.members.values()
            return ErrorCode.NONE, subscribed_topics(
                self.protocol_type, [each.subscription(self.protocol) for each in members]
            )

    # --- timers ---

    def member_timer(self, member_id: str, token: int) -> None:
        with Step(self):
            member = self.roster.members.get(member_id)
            if member is None or not self.sessions.is_over(member, token):
                return
            self.remove(member_id, Why.SESSION_OVER)
            self.fire(Event.GONE)

    def pending_timer(self, member_id: str) -> None:
        with Step(self):
            if self.roster.pending.pop(member_id, None) is None:
                return
            self.fire(Event.ID_GONE)

    def join_timer(self, token: int) -> None:
        with Step(self):
            if not self.join_deadline.is_due(token):
                return
            if self.around.store.state_of(self.group_id):
                return  # no longer ours: `unload` answers the waiting requests
            self.fire(Event.JOIN_TIMEOUT)

    def sync_timer(self, token: int) -> None:
        with Step(self):
            if not self.sync_deadline.is_due(token):
                return
            self.fire(Event.SYNC_TIMEOUT)
