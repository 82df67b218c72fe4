"""What a group does in each cell of its table: waits, forms generations, hands assignments out.

`fire` is the only way to move a group: it looks the cell up and runs the cell's effect, and an
effect moves to the cell's state and nowhere else. Effects run in a `Step`, under the group's lock,
which shows C the outcome; answers and writes go into the outbox.

A generation: PREPARING waits until all members have joined or the longest rebalance timeout among
them is over; `FORM` picks leader and protocol and answers the joins; the leader's sync is written
to the log; `SETTLE` answers the syncs. The first generation of an empty group waits
`group.initial.rebalance.delay.ms` instead, anew for each newcomer, up to the rebalance timeout.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.coordinator.group.departures import Why
from kbroker.coordinator.group.images import GroupImage
from kbroker.coordinator.group.member import Member
from kbroker.coordinator.group.messages import (
    AnswerJoin,
    AnswerSync,
    JoinAnswer,
    JoinAsked,
    SyncAnswer,
)
from kbroker.coordinator.group.roster import Roster
from kbroker.coordinator.group.sessions import Sessions
from kbroker.coordinator.group.states import TABLE, Cell, Do, Event, GroupState
from kbroker.coordinator.group.step import Once, Step
from kbroker.coordinator.runtime.deadline import Deadline
from kbroker.coordinator.runtime.outbox import Outbox
from kbroker.errors import ErrorCode, InvariantError
from kbroker.limits import LOG_GROUP_LINES_MAX
from kbroker.log_lines import LogLines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kbroker.coordinator.group.messages import JoinedMember
    from kbroker.coordinator.group.sessions import Around

# Every join and leave can be one of these, and the group's name is the client's.
lines: Final = LogLines(logging.getLogger("kbroker.groups"), lines_max=LOG_GROUP_LINES_MAX)


_GENERATION_MAX: Final = 2**31 - 1
_FIRST_GENERATION: Final = 1


def following(generation: int) -> int:
    """The generation after this one.

    The last that a message can say is followed by the first. Apache Kafka goes on at -2^31; but to
    clients a generation below zero says that they are in none.
    """
    return _FIRST_GENERATION if generation == _GENERATION_MAX else generation + 1


class Joining(NamedTuple):
    """A join on its way through the table."""

    member: Member
    asked: JoinAsked
    answer: AnswerJoin
    is_new: bool = False
    leader: str = ""  # of a static member that came back: who led before


class Syncing(NamedTuple):
    """A sync on its way through the table."""

    member: Member
    assignments: tuple[tuple[str, bytes], ...]
    answer: AnswerSync


class Rebalance:
    """The group's state and the effects of its table; `Group` adds who may raise which event."""

    __slots__ = (
        "_changed", "_has_newcomer", "_initial", "_initial_delay_ms", "_initial_left_ms",
        "_storing", "around", "generation", "group_id", "incarnation", "join_deadline", "leaving",
        "lock", "lost", "outbox", "protocol", "protocol_type", "roster", "sessions", "since_ms",
        "state", "sync_deadline",
    )  # fmt: skip

    def __init__(self, group_id: str, around: Around, incarnation: int = 0) -> None:
        """`incarnation`: higher than that of every group before that had this id."""
        self.group_id: Final = group_id
        self.around: Final = around
        self.incarnation: Final = incarnation
        self.lock: Final = threading.Lock()
        self.outbox: Final = Outbox(self.lock, around.failures)
        # The member that leaves in this step; answered when the group's end is in the log.
        self.leaving: Callable[[ErrorCode], object] | None = None
        # Its partition is, or was, or it was deleted; another group may have the id by now.
        self.lost = False
        self.state = GroupState.EMPTY
        self.since_ms = around.clock.wall_ms()
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster()
        self.sessions = Sessions(group_id, around, self.member_timer)
        call_later = around.later(group_id)
        self.join_deadline = Deadline(call_later, self.join_timer)
        self.sync_deadline = Deadline(call_later, self.sync_timer)
        self._changed = True  # since it was published to C
        self._initial = False  # the first generation of a group that was empty
        self._has_newcomer = False
        self._initial_delay_ms = self._initial_left_ms = 0
        self._storing: int | None = None  # the generation whose assignment is being written

    # The timers' ends, which take the lock.
    def member_timer(self, member_id: str, token: int) -> None:
        raise NotImplementedError

    def pending_timer(self, member_id: str) -> None:
        raise NotImplementedError

    def join_timer(self, token: int) -> None:
        raise NotImplementedError

    def sync_timer(self, token: int) -> None:
        raise NotImplementedError

    # --- the table ---

    def fire(self, event: Event, what: Any = None) -> ErrorCode:
        """Do what the cell says; the code that the caller is to answer, if it is to answer."""
        cell = TABLE[self.state, event]
        if cell.do is Do.REFUSE:
            return cell.code
        if cell.do is Do.NEVER:
            raise InvariantError(f"group {self.group_id}: {event.name} in {self.state.label}")
        if cell.do is not Do.NOTHING:
            _EFFECTS[cell.do](self, cell, what)
        return cell.code

    def _move(self, cell: Cell) -> None:
        if self.state is not cell.to:
            self.state = cell.to
            self.since_ms = self.around.clock.wall_ms()
            self._changed = True

    # --- publication to C ---

    def publish_if_changed(self) -> None:
        """Repeat the group where the compiled path looks; where that fails, it is to ask here."""
        if not self._changed:
            return
        self._changed = False
        try:
            if self.state is not GroupState.DEAD:
                self.around.view.publish_members(
                    self.group_id,
                    state=self.state,
                    generation=self.generation,
                    members=self.generation_members(),
                )
                return
        except Exception as error:
            self._changed = True  # the next step shows it
            self.around.failures.note("showing a group", error)
        try:
            self.around.view.remove_members(self.group_id)
        except Exception as error:
            self.around.failures.note("hiding a group", error)

    def generation_members(self) -> list[tuple[str, str | None]]:
        """Who was in a generation: (member id, instance id)."""
        return [(each.member_id, each.instance_id) for each in self.members if not each.is_new]

    def start_over(self, error: BaseException) -> None:
        """A step raised half way: its state cannot be trusted, so nothing of it is kept.

        Waiting requests get an error: their clients look for the coordinator again, where their
        members are unknown.
        """
        self.around.failures.note("a step of a group", error)
        before, self.roster = self.roster, Roster()
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for member in before.members.values():
            join, member.awaiting_join = member.awaiting_join, None
            sync, member.awaiting_sync = member.awaiting_sync, None
            if join is not None:
                self.outbox.add(partial(join, JoinAnswer(code, member.member_id)))
            if sync is not None:
                self.outbox.add(partial(sync, SyncAnswer(code)))
        # Timers that fire in spite of this find no member.
        timers: list[Callable[[], object]] = [*before.pending.values()]
        timers += [partial(self.sessions.end, member) for member in before.members.values()]
        for cancel in (*timers, self.join_deadline.clear, self.sync_deadline.clear):
            try:
                cancel()
            except Exception as second:
                self.around.failures.note("a timer of a group", second)
        self._initial = False
        self.leaving = None
        self.protocol = None
        if self.state is not GroupState.DEAD:
            self.state = GroupState.EMPTY
            self.generation = following(self.generation)
            self._write(self._image(), partial(self._empty_stored, None))
            self._changed = True

    @property
    def members(self) -> list[Member]:
        return list(self.roster.members.values())

    # --- members ---

    def make_member(self, member_id: str, asked: JoinAsked) -> Member:
        return Member(member_id, asked)

    def remove(self, member_id: str, why: Why) -> Member:
        """Take a member out and answer what it has waiting; it may join again."""
        member = self.roster.remove(member_id)
        self.around.departures.note(self.group_id, member_id, why)
        self._changed = True
        self.refuse_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID, "")
        self.sessions.end(member)
        return member

    def refuse_waiting(self, member: Member, code: ErrorCode, member_id: str) -> None:
        """Answer what the member has waiting. It is out of the roster, or about to be."""
        if member.member_id in self.roster.members:
            join = self.roster.unpark(member)
        else:
            join, member.awaiting_join = member.awaiting_join, None
        sync, member.awaiting_sync = member.awaiting_sync, None
        if join is not None:
            self.outbox.add(partial(join, JoinAnswer(code, member_id)))
        if sync is not None:
            self.outbox.add(partial(sync, SyncAnswer(code)))

    # --- effects: joining ---

    def _give_id(self, cell: Cell, joining: Joining) -> None:
        member_id = joining.member.member_id
        self.roster.pending[member_id] = self.around.later(self.group_id)(
            joining.asked.session_timeout_ms, partial(self.pending_timer, member_id)
        )
        code = ErrorCode.MEMBER_ID_REQUIRED
        self.outbox.add(partial(joining.answer, JoinAnswer(code, member_id)))

    def _wait_with_others(self, joining: Joining) -> None:
        member = joining.member
        if not joining.is_new:
            self.roster.update(member, joining.asked)
        before = self.roster.park(member, joining.answer)
        if before is not None:
            # The member asked again and does not read this one; but its connection has an order.
            again = JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            self.outbox.add(partial(before, again))

    def _begin(self, cell: Cell, joining: Joining) -> None:
        self._wait_with_others(joining)
        delay_ms = self.around.settings().initial_delay_ms
        self._initial, self._has_newcomer = True, False
        self._initial_delay_ms = delay_ms
        self._initial_left_ms = max(self.roster.rebalance_timeout_ms - delay_ms, 0)
        self._move(cell)
        if delay_ms > 0:
            self.join_deadline.set(delay_ms)
        else:
            self.fire(Event.JOIN_TIMEOUT)

    def _restart(self, cell: Cell, what: Joining | ErrorCode | None) -> None:
        self.sync_deadline.clear()
        code = what if isinstance(what, ErrorCode) else ErrorCode.REBALANCE_IN_PROGRESS
        forming = self.state is GroupState.COMPLETING_REBALANCE
        for member in self.members if forming else ():
            member.assignment = b""
            sync, member.awaiting_sync = member.awaiting_sync, None
            if sync is not None:
                self.sessions.renew(member)
                self.outbox.add(partial(sync, SyncAnswer(code)))
        if isinstance(what, Joining):
            self._wait_with_others(what)
        self._initial = False
        self._move(cell)
        if not self._see_whether_all_joined():
            self.join_deadline.set(self.roster.rebalance_timeout_ms)

    def _park(self, cell: Cell, joining: Joining) -> None:
        if joining.is_new and self._initial:
            self._has_newcomer = True
        self._wait_with_others(joining)
        self._see_whether_all_joined()

    def _check(self, cell: Cell, _: object) -> None:
        self._see_whether_all_joined()

    def _see_whether_all_joined(self) -> bool:
        if self._initial or not self.roster.all_joined:
            return False
        self.join_deadline.clear()
        self.fire(Event.ALL_JOINED if self.roster.members else Event.NOBODY_LEFT)
        return True

    def _close(self, cell: Cell, _: object) -> None:
        if self._initial and self._has_newcomer and self._initial_left_ms > 0:
            delay_ms = min(self._initial_delay_ms, self._initial_left_ms)
            self._has_newcomer = False
            self._initial_left_ms -= delay_ms
            self.join_deadline.set(delay_ms)
            return
        self._initial = False
        for member in self.roster.absent():
            if not member.is_static:
                self.remove(member.member_id, Why.NOT_JOINED)
        if not self.roster.members:
            self.fire(Event.NOBODY_LEFT)
        elif self.roster.elect():
            self.fire(Event.ALL_JOINED)
        else:
            # Static members only, and none has come: until one does, or their sessions are over.
            self.join_deadline.set(self.roster.rebalance_timeout_ms)

    def _form(self, cell: Cell, _: object) -> None:
        self.join_deadline.clear()
        self.roster.elect()
        self.generation = following(self.generation)
        self.protocol = self.roster.choose()
        self._move(cell)
        self._changed = True
        joined = self._joined_members()
        self.roster.unsynced = set(self.roster.members)
        for member in self.members:
            member.is_new = False
            answer = self.roster.unpark(member)
            self.sessions.renew(member)
            if answer is not None:
                leads = member.member_id == self.roster.leader
                present = self._present(member, joined if leads else ())
                self.outbox.add(partial(answer, present))
        self.sync_deadline.set(self.roster.rebalance_timeout_ms)
        lines.write(
            logging.INFO, "generation", "group %s: generation %d with %d members, protocol %s",
            self.group_id, self.generation, len(self.roster), self.protocol,
        )  # fmt: skip

    def _joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(member.joined(self.protocol) for member in self.members)

    def _present(
        self, member: Member, members: tuple[JoinedMember, ...], leader: str | None = None
    ) -> JoinAnswer:
        """The present generation, as this member is answered."""
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            leader or self.roster.leader or "",
            members=members,
        )

    def _repeat(self, cell: Cell, joining: Joining) -> None:
        member = joining.member
        leads = member.member_id == self.roster.leader
        present = self._present(member, self._joined_members() if leads else ())
        self.outbox.add(partial(joining.answer, present))

    def _replace(self, cell: Cell, joining: Joining) -> None:
        member, answer = joining.member, joining.answer
        if not joining.asked.may_skip:
            # A leader of these versions would assign if it knew that it leads.
            present = self._present(member, (), joining.leader)
        elif member.member_id == self.roster.leader:
            present = self._present(member, self._joined_members())._replace(skip_assignment=True)
        else:
            present = self._present(member, ())

        def stored(code: ErrorCode) -> None:
            answer(JoinAnswer(code, joining.asked.member_id) if code else present)

        self._write(self._image(), stored)

    # --- effects: syncing ---

    def _wait(self, cell: Cell, syncing: Syncing) -> None:
        member = syncing.member
        before, member.awaiting_sync = member.awaiting_sync, syncing.answer
        if before is not None:
            self.outbox.add(partial(before, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)))
        self._has_synced(member)

    def _has_synced(self, member: Member) -> None:
        self.roster.unsynced.discard(member.member_id)
        if not self.roster.unsynced:
            self.sync_deadline.clear()

    def _store(self, cell: Cell, syncing: Syncing) -> None:
        self._wait(cell, syncing)
        generation = self.generation
        if self._storing == generation:
            # The leader has joined and synced again. Members get the plan that is on its way; with
            # another one after it in the log, they would get that one from the next coordinator.
            return
        self._storing = generation
        given = dict(syncing.assignments)

        def stored(code: ErrorCode) -> None:
            with Step(self):
                if self.generation != generation:
                    return
                self._storing = None
                if code:
                    self.fire(Event.NOT_STORED, code)
                else:
                    self.fire(Event.STORED, given)

        self._write(self._image(given), stored)

    def _settle(self, cell: Cell, given: Mapping[str, bytes]) -> None:
        self._move(cell)
        for member in self.members:
            member.assignment = given.get(member.member_id, b"")
            sync, member.awaiting_sync = member.awaiting_sync, None
            if sync is not None:
                self.sessions.renew(member)
                self.outbox.add(partial(sync, self._assigned(member)))

    def _give(self, cell: Cell, syncing: Syncing) -> None:
        self._has_synced(syncing.member)
        self.sessions.renew(syncing.member)
        self.outbox.add(partial(syncing.answer, self._assigned(syncing.member)))

    def _assigned(self, member: Member) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def _expel(self, cell: Cell, _: object) -> None:
        for member_id in list(self.roster.unsynced):
            self.remove(member_id, Why.NOT_SYNCED)
        self.fire(Event.GONE)

    # --- effects: the rest ---

    def _answer(self, cell: Cell, member: Member | None) -> None:
        if member is not None:
            member.heard_ms = self.around.clock.monotonic_ms()

    def _emptied(self, cell: Cell, _: object) -> None:
        self.join_deadline.clear()
        self.generation = following(self.generation)
        self.protocol = None
        self._move(cell)
        self._changed = True
        left, self.leaving = self.leaving, None
        self._write(self._image(), partial(self._empty_stored, left))

    def _empty_stored(self, left: Callable[[ErrorCode], object] | None, code: ErrorCode) -> None:
        if code:
            message = "group %s: its end is not in the log: %s"
            lines.write(logging.WARNING, "end not stored", message, self.group_id, code.name)
        if left is not None:
            left(code)

    def _bury(self, cell: Cell, code: ErrorCode | None) -> None:
        code = code or ErrorCode.NOT_COORDINATOR
        for cancel in self.roster.pending.values():
            cancel()
        for member in self.members:
            self.refuse_waiting(member, code, member.member_id)
            self.sessions.end(member)
        self.join_deadline.clear()
        self.sync_deadline.clear()
        self.roster = Roster()
        # Not `_move`: a group that cannot be deleted has been empty for as long as before.
        self.state = cell.to
        self._changed = True

    def _keep(self, cell: Cell, _: object) -> None:
        self.state = cell.to
        self._changed = True

    # --- the log ---

    def _image(self, given: Mapping[str, bytes] | None = None) -> GroupImage:
        members = tuple(member.image(self.protocol) for member in self.members)
        if given is not None:
            members = tuple(
                each._replace(assignment=given.get(each.member_id, b"")) for each in members
            )
        return GroupImage(
            self.group_id,
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.roster.leader,
            self.around.clock.wall_ms(),
            members,
        )

    def _write(self, image: GroupImage, done: Callable[[ErrorCode], None]) -> None:
        self.outbox.add(partial(self._write_now, image, Once(done)))

    def _write_now(self, image: GroupImage, done: Once) -> None:
        """From the outbox. Whether it succeeds or not, `done` is called."""
        if self.lost:
            done(ErrorCode.NOT_COORDINATOR)
            return
        try:
            self.around.store.write_group(image, self.incarnation, done)
        except Exception as error:
            self.around.failures.note("a write of a group", error)
            done(ErrorCode.UNKNOWN_SERVER_ERROR)

    def restore(self, image: GroupImage) -> None:
        """Become the image; only the loader knows this group yet."""
        self.generation = image.generation
        self.protocol_type, self.protocol = image.protocol_type, image.protocol
        self.since_ms = image.state_timestamp_ms
        for one in image.members:
            asked = JoinAsked(
                self.group_id, one.member_id, one.instance_id, one.client_id, one.client_host,
                image.protocol_type, one.protocols or ((image.protocol or "", one.subscription),),
                one.session_timeout_ms, one.rebalance_timeout_ms,
            )  # fmt: skip
            member = self.make_member(one.member_id, asked)
            member.assignment, member.is_new = one.assignment, False
            self.roster.add(member)
            self.sessions.renew(member)
        if image.leader in self.roster.members:
            self.roster.leader = image.leader
        self.state = GroupState.STABLE if image.members else GroupState.EMPTY
        self._changed = True
        if len(self.roster) > self.around.settings().size_max:
            self.fire(Event.GONE)


_EFFECTS: Final[Mapping[Do, Callable[[Rebalance, Cell, Any], None]]] = {
    Do.GIVE_ID: Rebalance._give_id,
    Do.BEGIN: Rebalance._begin,
    Do.RESTART: Rebalance._restart,
    Do.PARK: Rebalance._park,
    Do.REPEAT: Rebalance._repeat,
    Do.REPLACE: Rebalance._replace,
    Do.WAIT: Rebalance._wait,
    Do.STORE: Rebalance._store,
    Do.GIVE: Rebalance._give,
    Do.ANSWER: Rebalance._answer,
    Do.CHECK: Rebalance._check,
    Do.FORM: Rebalance._form,
    Do.CLOSE: Rebalance._close,
    Do.EXPEL: Rebalance._expel,
    Do.EMPTIED: Rebalance._emptied,
    Do.SETTLE: Rebalance._settle,
    Do.BURY: Rebalance._bury,
    Do.KEEP: Rebalance._keep,
}
