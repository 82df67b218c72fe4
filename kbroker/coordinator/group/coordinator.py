"""The group coordinator: every group that this broker owns, and the door to them.

Place in the flow: handlers call one method per API and get an answer, at once or through a
callback. This file checks what needs no group (the id, who owns it, timeouts in bounds), finds or
makes the group, and hands over to it. The offsets themselves are the compiled table's.

Lock: one, a leaf, around the dictionary of groups; each group has its own. Any thread.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker import limits
from kbroker.coordinator.group.departures import Departures
from kbroker.coordinator.group.group import WITHOUT_ID, Group, answer_not_found
from kbroker.coordinator.group.messages import (
    NO_MEMBER_ID,
    Admission,
    JoinAnswer,
    LeaveAnswer,
    SyncAnswer,
)
from kbroker.coordinator.group.refused import ALL, RefusedGroups
from kbroker.coordinator.group.sessions import Around, Settings
from kbroker.coordinator.group.states import GroupState
from kbroker.coordinator.runtime.deadline import OnWorker, at_once
from kbroker.errors import ErrorCode
from kbroker.failures import Failures
from kbroker.outside_text import can_be_told

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.group.expiration import GroupAge
    from kbroker.coordinator.group.images import GroupImage
    from kbroker.coordinator.group.messages import (
        AnswerJoin,
        AnswerLeave,
        AnswerSync,
        CommitAsked,
        GroupDescription,
        GroupListing,
        JoinAsked,
        Labelled,
        Leaver,
        SyncAsked,
    )
    from kbroker.coordinator.group.offsets_topic import Settings as Keys
    from kbroker.coordinator.group.seams import GroupStore, HotView, OtherGroup
    from kbroker.purgatory.timer import CallLater

    AnyGroup = Group | OtherGroup

NONE: Final = ErrorCode.NONE
_COMMIT_KNOWS_NO_GROUP: Final = 9
NO_MEMBER: Final = ErrorCode.UNKNOWN_MEMBER_ID
UNTELLABLE: Final = ErrorCode.UNKNOWN_SERVER_ERROR
# The suffix by which `Group` makes a client's or an instance's name a member's id.
_ID_BYTES: Final = len("-00000000-0000-0000-0000-000000000000")


def _never() -> bool:
    return False


class GroupCoordinator:
    """See the module. `config` returns the broker's settings as they are now."""

    def __init__(
        self,
        config: Callable[[], Keys],
        clock: Clock,
        call_later: CallLater,
        store: GroupStore,
        view: HotView,
        *,
        on_worker: OnWorker = at_once,
        checked: bool = False,
    ) -> None:
        """`on_worker` has something done by a thread that may wait for the log of a group.
        `checked`: both views of a group are compared after each of its steps."""
        self._config = config
        self.failures: Final = Failures("groups")
        self.departures: Final = Departures(clock)
        self.refused: Final = RefusedGroups(clock.monotonic_ns)
        self._around = Around(
            self._settings, clock, call_later, store, view, self.failures, self.departures,
            on_worker, checked,
        )  # fmt: skip
        self._store = store
        self._incarnations = itertools.count(1)
        self._lock = threading.Lock()
        self._groups: dict[str, AnyGroup] = {}
        self._by_kind: Counter[type] = Counter()  # how many of these there are
        self._closed = False

    def _settings(self) -> Settings:
        config = self._config()
        return Settings(
            initial_delay_ms=config["group.initial.rebalance.delay.ms"],
            size_max=config["group.max.size"],
            session_timeout_ms_min=config["group.min.session.timeout.ms"],
            session_timeout_ms_max=config["group.max.session.timeout.ms"],
        )

    # --- members ---

    def join(self, asked: JoinAsked, answer: AnswerJoin) -> None:
        """JoinGroup. `answer` is called once, on some thread, now or when all have joined."""
        code, group = self._joinable(asked)
        if group is None:
            answer(JoinAnswer(code, NO_MEMBER_ID if code in WITHOUT_ID else asked.member_id))
        elif isinstance(group, Group) or not group.is_empty:
            group.join(asked, answer)
        elif asked.member_id:  # of a classic group that was here before
            answer(JoinAnswer(NO_MEMBER, asked.member_id))
        else:
            group.retire(partial(self._join_in_its_place, group, asked, answer))

    def _join_in_its_place(
        self, retired: OtherGroup, asked: JoinAsked, answer: AnswerJoin, code: ErrorCode
    ) -> None:
        """An empty group of another kind has made room, or has not."""
        if code is ErrorCode.NON_EMPTY_GROUP:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # a member has joined it meanwhile
        if code:
            answer(JoinAnswer(code, asked.member_id))
            return
        self.take(retired.group_id, self._new, instead=retired)
        self.join(asked, answer)

    def _joinable(self, asked: JoinAsked) -> tuple[ErrorCode, AnyGroup | None]:
        if not asked.group_id:
            return ErrorCode.INVALID_GROUP_ID, None
        settings = self._settings()
        low, high = settings.session_timeout_ms_min, settings.session_timeout_ms_max
        if not low <= asked.session_timeout_ms <= high:
            return ErrorCode.INVALID_SESSION_TIMEOUT, None
        if not _can_be_told(asked):
            return UNTELLABLE, None
        code = self.state_of(asked.group_id)
        if code:
            return code, None
        group = self.find(asked.group_id)
        if group is None and not asked.member_id:
            return self._make_owned(asked.group_id)
        return NO_MEMBER, group

    def sync(self, asked: SyncAsked, answer: AnswerSync) -> None:
        """SyncGroup. `answer` is called once, now or when the leader's assignment is stored."""
        code, group = self._owned(asked.group_id)
        if group is None:
            answer(SyncAnswer(code or NO_MEMBER))
        else:
            group.sync(asked, answer)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """What C cannot decide. While the group is being loaded every heartbeat is a good one."""
        code, group = self._owned(group_id)
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return NONE
        if group is None:
            return code or NO_MEMBER
        return group.heartbeat(member_id, instance_id, generation)

    def leave(self, group_id: str, leavers: Sequence[Leaver], answer: AnswerLeave) -> None:
        """LeaveGroup. `answer` is called once, now or when the empty group is stored."""
        code, group = self._owned(group_id)
        if code:
            answer(LeaveAnswer(code))
        elif group is None:
            answer(LeaveAnswer(NONE, (NO_MEMBER,) * len(leavers)))
        else:
            group.leave(leavers, answer)

    def _owned(self, group_id: str) -> tuple[ErrorCode, AnyGroup | None]:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, None
        code = self.state_of(group_id)
        return (code, None) if code else (NONE, self.find(group_id))

    # --- committed offsets ---

    def admit_commit(self, asked: CommitAsked) -> Admission:
        """Whether these may commit offsets, as OffsetCommit of this version says it, or
        TxnOffsetCommit where it is in a transaction."""
        group = self.find(asked.group_id)
        if group is not None and not isinstance(group, Group):
            code = self.state_of(asked.group_id)
            return Admission(code) if code else group.admit_commit(asked)
        who = asked.group_id, asked.member_id, asked.instance_id, asked.generation
        if asked.in_transaction:
            code = self.check_transaction_commit(*who, make=asked.make)
        else:
            code = self.check_commit(*who, asked.version, make=asked.make)
        return Admission(code, asked.generation)

    def fetch_error(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether a client that says that it is this member may read the group's offsets."""
        group = self.find(group_id)
        if group is None or isinstance(group, Group):
            return NONE
        return group.fetch_error(member_id, epoch)

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        version: int,
        *,
        make: bool = True,
    ) -> ErrorCode:
        """Whether these may commit offsets, as OffsetCommit of this version says it.

        A group is made for offsets of no member (no generation), unless `make` is false, because
        none of them will be kept. A generation of a group that is not there: GROUP_ID_NOT_FOUND,
        before version 9 ILLEGAL_GENERATION.
        """
        # The group without a name is no group to join, and has offsets all the same.
        code = self.state_of(group_id)
        if code:
            return code
        group = self.find(group_id)
        if group is None:
            if generation >= 0:
                late = version >= _COMMIT_KNOWS_NO_GROUP
                return ErrorCode.GROUP_ID_NOT_FOUND if late else ErrorCode.ILLEGAL_GENERATION
            if not make:
                return NONE
            code, group = self._make_owned(group_id)
        if not isinstance(group, Group):
            return code or ErrorCode.COORDINATOR_NOT_AVAILABLE  # of another kind since a moment ago
        return group.check_commit(member_id, instance_id, generation)

    def check_transaction_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        make: bool = True,
    ) -> ErrorCode:
        """Whether these may commit offsets in a transaction. As `check_commit`, but for the states
        of a group (`Group.check_transaction_commit`); a generation of a group that is not there is
        ILLEGAL_GENERATION in all versions."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        code = self.state_of(group_id)
        if code:
            return code
        group = self.find(group_id)
        if group is None:
            if generation >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            if not make:
                return NONE
            code, group = self._make_owned(group_id)
            if code is ErrorCode.GROUP_MAX_SIZE_REACHED:
                # Java's transactional producer fails for good on that code, and retries on this.
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not isinstance(group, Group):
            return code or ErrorCode.COORDINATOR_NOT_AVAILABLE
        return group.check_transaction_commit(member_id, instance_id, generation)

    def readers(self, group_id: str) -> tuple[ErrorCode, frozenset[str] | None]:
        """Which topics a group reads now, None for any; GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        code, group = self._owned(group_id)
        if group is None:
            return code or ErrorCode.GROUP_ID_NOT_FOUND, None
        return group.readers()

    # --- tools ---

    def describe(self, group_id: str) -> GroupDescription | ErrorCode | None:
        """GROUP_ID_NOT_FOUND if there is no such group; None if it is no classic one."""
        code = self.state_of(group_id)
        group = self.find(group_id)
        if code:
            return code
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.described()

    def awaited(self, group_id: str) -> tuple[str, ...]:
        """The members for which the rebalance of a classic group waits."""
        group = self.find(group_id)
        return group.awaited() if isinstance(group, Group) else ()

    def listings(self) -> Sequence[GroupListing]:
        """All groups of this broker."""
        return [group.listed() for group in self._all()]

    def delete(
        self,
        group_id: str,
        done: Callable[[ErrorCode], object],
        *,
        unless: Callable[[], bool] = _never,
    ) -> None:
        """An empty group goes, with its offsets; `done` is called once, when that lasts.

        Until it is in the log requests for the group get an error to try again, so that the
        tombstones come before any record of a new group of this id. `unless` is asked when commits
        are refused already; if it says yes the group stays, and the answer is NON_EMPTY_GROUP.
        Where nothing could be written the group is what it was; where it is not known that the
        followers have the tombstones it is gone here, and the answer an error. GROUP_ID_NOT_FOUND
        is answered when they have the tombstones of an earlier deletion.
        """
        # Like commits, deletion knows the group without a name.
        code = self.state_of(group_id)
        group = None if code else self.find(group_id)
        if code:
            done(code)
        elif group is None:
            answer_not_found(self._store, group_id, done)
        else:
            group.delete(done, unless=unless, gone=partial(self.forget, group))

    def age_of(self, group_id: str) -> GroupAge | None:
        """What decides whether the group's offsets may go; None if there is no such group."""
        group = self.find(group_id)
        return None if group is None else group.aged()

    def empty_groups(self) -> Sequence[str]:
        """Ids of the groups that have no member."""
        return [each.group_id for each in self._all() if each.is_empty]

    # --- the log and leadership ---

    def load(self, images: Sequence[GroupImage]) -> None:
        """Groups as the log has them, before their partition is said to be loaded."""
        for image in images:
            group = self._new(image.group_id)
            self.put(group)
            group.load(image)

    def make_classic(self, before: AnyGroup, image: GroupImage) -> None:
        """A classic group, which is in the log, takes the place of one of another kind, or of a
        dead one."""
        group = self._new(image.group_id)
        group.load(image)
        self.exchange(before, group)

    def ensure_group(self, group_id: str) -> None:
        """A group that is there for its offsets, if no record of the group itself was found."""
        if can_be_told(group_id):
            self._make(group_id, self._new)

    def unload(self, lost: Callable[[str], bool]) -> int:
        """Forget the groups whose id `lost` says yes to; how many that were."""
        groups = [group for group in self._all() if lost(group.group_id)]
        for group in groups:
            group.unload()
            self.forget(group)
        return len(groups)

    def close(self) -> None:
        """The broker stops: waiting requests are answered, and none can wait from here on."""
        self._closed = True
        self.unload(lambda group_id: True)

    # --- figures ---

    def counts(self) -> dict[Labelled, int]:
        """Groups of all kinds by state."""
        counts: dict[Labelled, int] = dict.fromkeys(GroupState, 0)
        for group in self._all():
            state: Labelled = group.state
            counts[state] = counts.get(state, 0) + 1
        return counts

    def member_counts(self) -> dict[str, int]:
        """Members by group."""
        return {group.group_id: group.member_count for group in self._all()}

    # --- the dictionary ---

    def _new(self, group_id: str) -> Group:
        return Group(group_id, self._around, self.next_incarnation())

    def next_incarnation(self) -> int:
        """Of a group that is made now, of any kind."""
        return next(self._incarnations)

    def state_of(self, group_id: str) -> ErrorCode:
        """NONE when this broker has the groups of this id's partition."""
        return ErrorCode.NOT_COORDINATOR if self._closed else self._store.state_of(group_id)

    def find(self, group_id: str) -> AnyGroup | None:
        return self._groups.get(group_id)

    def count_of(self, kind: type) -> int:
        """How many groups are of this class."""
        return self._by_kind[kind]

    def _make(self, group_id: str, make: Callable[[str], AnyGroup]) -> AnyGroup | None:
        """The group, made if it is not there; None where there are too many."""
        with self._lock:
            group = self._groups.get(group_id)
            if group is None and len(self._groups) < limits.GROUPS_MAX:
                group = self._groups[group_id] = make(group_id)
                self._by_kind[type(group)] += 1
            return group

    def _make_owned(self, group_id: str) -> tuple[ErrorCode, AnyGroup | None]:
        return self.take(group_id, self._new)

    def take(
        self, group_id: str, make: Callable[[str], AnyGroup], instead: AnyGroup | None = None
    ) -> tuple[ErrorCode, AnyGroup | None]:
        """The group of this id, made where there is none, or none but `instead`, which is given up.

        Unless the group was lost meanwhile: an unload changes the store's state before it looks for
        groups, so either it finds this one or we see the change."""
        if not can_be_told(group_id):
            return UNTELLABLE, None
        if instead is not None:
            self.forget(instead)
        group = self._make(group_id, make)
        if group is None:
            return self.refused.add(group_id, ALL, limits.GROUPS_MAX), None
        code = self.state_of(group_id)
        if code:
            group.unload()
            self.forget(group)
            return code, None
        return NONE, group

    def exchange(self, before: AnyGroup, after: AnyGroup) -> None:
        """`after` takes the place of `before` at once: no request finds neither of them. As in
        `take`, a group that was lost meanwhile is not there."""
        group_id = before.group_id
        with self._lock:
            is_there = self._groups.get(group_id) is before
            if is_there:
                self._groups[group_id] = after
                self._by_kind[type(before)] -= 1
                self._by_kind[type(after)] += 1
        if not is_there or self.state_of(group_id):
            after.unload()
            self.forget(after)

    def put(self, group: AnyGroup) -> None:
        """A group as the log has it, before its partition is said to be loaded."""
        with self._lock:
            before, self._groups[group.group_id] = self._groups.get(group.group_id), group
            self._by_kind[type(group)] += 1
            if before is not None:
                self._by_kind[type(before)] -= 1
        if before is not None:
            before.unload()

    def forget(self, group: AnyGroup) -> None:
        with self._lock:
            if self._groups.get(group.group_id) is group:
                del self._groups[group.group_id]
                self._by_kind[type(group)] -= 1

    def _all(self) -> list[AnyGroup]:
        with self._lock:
            return list(self._groups.values())


def _can_be_told(asked: JoinAsked) -> bool:
    """Whether every name in it fits into the answers, the log's records and a member's id."""
    names = [asked.member_id, asked.protocol_type, *(name for name, _ in asked.protocols)]
    made_of = asked.client_id if asked.instance_id is None else asked.instance_id
    return (
        can_be_told(made_of, 0 if asked.member_id else _ID_BYTES)
        and all(map(can_be_told, names))
        and can_be_told(asked.client_id)
    )
