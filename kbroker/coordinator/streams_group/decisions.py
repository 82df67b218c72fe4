"""What a request or an event does to a streams group: changes of its state, and no more (KIP-1071).

Each function is given a draft of the state and all that it needs besides, and puts changes into the
draft in the order in which their records are written. `Refused` is raised before or after changes;
the caller takes those back. Pure but for the draft: no lock, no clock, no log.

    a member joins, leaves, is another process,
    a topic has changed, the topology's topics are
    complete, or are so no more, or a setting      -> the group's epoch + 1
    the next heartbeat of any member               -> another target
    the next heartbeat of each member              -> it is moved towards its target

The first target of a group that was empty waits for `streams.initial.rebalance.delay.ms`; members
have no tasks as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.coordinator.consumer_group.decisions import EPOCH_MAX
from kbroker.coordinator.consumer_group.images import JOINS_EPOCH, TargetEpoch
from kbroker.coordinator.consumer_group.messages import NO_TIMEOUT, Refused
from kbroker.coordinator.consumer_group.states import MemberState
from kbroker.coordinator.streams_group.images import (
    FIRST_EPOCH,
    NO_TASK,
    NOT_VALIDATED,
    CurrentImage,
    GroupImage,
    HeldTasks,
    Kind,
    MemberImage,
    Pairs,
    TaskSet,
    TopologyImage,
    tasks_of,
)
from kbroker.coordinator.streams_group.reconciliation import (
    Free,
    Target,
    goes_back,
    is_part_of,
    reconciled,
)
from kbroker.coordinator.streams_group.topology import Configured, Status, StatusCode, mistake_of
from kbroker.errors import ErrorCode
from kbroker.limits import STREAMS_SUBTOPOLOGIES_MAX

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.topics import TopicsSeen
    from kbroker.coordinator.streams_group.messages import HeartbeatAsked
    from kbroker.coordinator.streams_group.state import Draft, StreamsGroupState

_COMMIT_KNOWS_EPOCHS: Final = 9

# Puts a target of the group's epoch into the draft, if it is computed now.
Assign = Callable[["Draft", Configured], None]


class Outcome(NamedTuple):
    """What a heartbeat is answered with; `tasks` None: as before. `is_unconfirmed`: the member's
    next step waits until it says that it has its tasks."""

    epoch: int
    tasks: TaskSet | None
    configured: Configured
    statuses: tuple[Status, ...]
    is_unconfirmed: bool = False


class Now(NamedTuple):
    """What a heartbeat is decided by, beside the state and the request. `waits`: the group's first
    target waits for more members; `look`: topics may be others than at the last heartbeat; `said`:
    what the member owns, as it has said last; None: it is not known, or is not waited for."""

    topics: TopicsSeen
    configured: Callable[[TopologyImage], Configured]
    assign: Assign
    size_max: int
    configs: Pairs
    waits: bool
    look: bool
    said: TaskSet | None = None


def heartbeat(draft: Draft, asked: HeartbeatAsked, now: Now) -> Outcome:
    """A heartbeat of a member that joins or stays."""
    state = draft.state
    _check(state, asked, now.size_max)
    before = state.members.get(asked.member_id)
    current = state.current_of(asked.member_id)
    after = _described(before, asked)
    if after != before:
        draft.put(Kind.MEMBER, asked.member_id, after)
    topology = _topology(draft, asked)
    statuses: list[Status] = []
    if after.topology_epoch < topology.epoch:
        words = (
            f"The member's topology epoch {after.topology_epoch} is lower than the group's topology"
            f" epoch {topology.epoch}."
        )
        statuses.append(Status(StatusCode.STALE_TOPOLOGY, words))
    configured = now.configured(topology)
    if configured.is_ready and asked.owned is not None:
        _check_tasks(asked.owned, configured)
    _raise_epoch(draft, now, topology, configured, changed=after != before)
    target = _target(draft, asked.member_id, now, configured, statuses)
    has = held = state.current_of(asked.member_id)  # in the first epochs, if those began again
    if before is not None and asked.epoch == JOINS_EPOCH and before.process_id != after.process_id:
        held = _apart(state, asked.member_id, has)
    following = moved(state, asked.member_id, held, asked.owned, target)
    is_unconfirmed = goes_back(held, following, now.said)
    if is_unconfirmed:
        following = held
    if following is not has:
        draft.put(Kind.CURRENT, asked.member_id, following)
    if configured.problem is not None:
        statuses.append(configured.problem)
    tasks = following.assigned.plain()
    is_known = (
        asked.epoch != JOINS_EPOCH
        and asked.epoch == current.epoch
        and tasks == current.assigned.plain()
        # Else an answer was lost: it has said what it has.
        and asked.owned in (None, tasks)
    )
    sent = None if is_known else tasks
    return Outcome(following.epoch, sent, configured, tuple(statuses), is_unconfirmed)


# --- who may go on --------------------------------------------------------------------------------


def _check(state: StreamsGroupState, asked: HeartbeatAsked, size_max: int) -> None:
    known = asked.member_id in state.members
    if asked.epoch == JOINS_EPOCH:
        if not known and len(state.members) >= size_max:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {size_max} members.",
            )
        return
    if not known:
        raise unknown(asked.member_id, asked.group_id)
    current = state.current_of(asked.member_id)
    if asked.epoch == current.epoch:
        return
    is_previous = asked.epoch == current.previous_epoch
    if asked.epoch < current.epoch and is_previous and is_part_of(asked.owned, current.assigned):
        return  # the answer with its epoch was lost
    which = "smaller" if asked.epoch < current.epoch else "greater"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {which} member epoch ({asked.epoch}) than the one known"
        f" by the group coordinator ({current.epoch}). The member must abandon all its partitions"
        " and rejoin.",
    )


def unknown(member_id: str, group_id: str) -> Refused:
    return Refused(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
    )


def _described(before: MemberImage | None, asked: HeartbeatAsked) -> MemberImage:
    """What the member is now. None in a request leaves a value as it is."""
    if before is None:
        before = MemberImage(None, None, "", "", NO_TIMEOUT, -1, "")
    timeout_ms = asked.rebalance_timeout_ms
    if timeout_ms == NO_TIMEOUT:
        timeout_ms = before.rebalance_timeout_ms
    return before._replace(
        rack_id=before.rack_id if asked.rack_id is None else asked.rack_id,
        client_id=asked.client_id,
        client_host=asked.client_host,
        rebalance_timeout_ms=before.rebalance_timeout_ms
        if timeout_ms == NO_TIMEOUT
        else timeout_ms,
        topology_epoch=before.topology_epoch if asked.topology is None else asked.topology.epoch,
        process_id=before.process_id if asked.process_id is None else asked.process_id,
        endpoint=before.endpoint if asked.endpoint is None else asked.endpoint,
        tags=before.tags if asked.tags is None else asked.tags,
    )


# --- the topology ---------------------------------------------------------------------------------


def _topology(draft: Draft, asked: HeartbeatAsked) -> TopologyImage:
    known, brought = draft.state.topology, asked.topology
    if known is None:
        if brought is None:
            # Its record was lost: a member that joins brings it again.
            raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, "The topology of the group is not known.")
        wrong = _too_large(brought) or mistake_of(brought)
        if wrong is not None:
            raise Refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, wrong)
        draft.put(Kind.TOPOLOGY, "", brought)
        return brought
    if brought is not None and brought.epoch >= known.epoch and brought != known:
        raise Refused(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return known


def _too_large(topology: TopologyImage) -> str | None:
    count = len(topology.subtopologies)
    if count <= STREAMS_SUBTOPOLOGIES_MAX:
        return None
    return f"The topology has {count} subtopologies. {STREAMS_SUBTOPOLOGIES_MAX} are allowed."


def _check_tasks(owned: TaskSet, configured: Configured) -> None:
    for part in owned:
        for subtopology_id, some in part.items():
            count = configured.task_counts.get(subtopology_id)
            if count is None:
                words = f"Subtopology {subtopology_id} does not exist in the topology."
                raise Refused(ErrorCode.INVALID_REQUEST, words)
            beyond = [index for index in some if index >= count]
            if beyond:
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    f"Task {min(beyond)} for subtopology {subtopology_id} is invalid. Number of"
                    f" tasks for this subtopology: {count}",
                )


# --- the group's epoch ----------------------------------------------------------------------------


def _raise_epoch(
    draft: Draft, now: Now, topology: TopologyImage, configured: Configured, *, changed: bool
) -> None:
    state = draft.state
    found = state.metadata_hash
    if now.look or changed or not state.exists:
        found = now.topics.hash_of(topology.required())
    validated = topology.epoch if configured.is_ready else NOT_VALIDATED
    if (
        changed
        or not state.exists
        or found != state.metadata_hash
        or validated != state.validated_epoch
        or state.group is None
        or state.group.configs != now.configs
    ):
        _next_epoch(draft, GroupImage(FIRST_EPOCH, found, validated, now.configs))


def _next_epoch(draft: Draft, group: GroupImage) -> None:
    """`group`: but for its epoch."""
    if draft.state.epoch >= EPOCH_MAX:
        _begin_epochs_again(draft, group._replace(epoch=FIRST_EPOCH))
    epoch = max(draft.state.epoch, FIRST_EPOCH) + 1
    draft.put(Kind.GROUP, "", group._replace(epoch=epoch))


def _begin_epochs_again(draft: Draft, group: GroupImage) -> None:
    """The last epoch that a message can say is followed by the first ones, as in a consumer group.
    Members have what they had; with the epochs of before they are fenced, and join again."""
    state = draft.state
    draft.put(Kind.GROUP, "", group)
    if state.target_epoch is not None:
        again = TargetEpoch(FIRST_EPOCH, state.target_epoch.timestamp_ms)
        draft.put(Kind.TARGET_EPOCH, "", again)
    for member_id, current in list(state.current.items()):
        following = current._replace(
            epoch=min(current.epoch, FIRST_EPOCH),
            previous_epoch=-1,
            assigned=_from_the_first_epoch(current.assigned),
            revoking=_from_the_first_epoch(current.revoking),
        )
        draft.put(Kind.CURRENT, member_id, following)


def _from_the_first_epoch(held: HeldTasks) -> HeldTasks:
    return held._replace(active={id_: dict.fromkeys(some, 0) for id_, some in held.active.items()})


def _target(
    draft: Draft, member_id: str, now: Now, configured: Configured, statuses: list[Status]
) -> Target:
    state = draft.state
    if state.epoch > state.assignment_epoch:
        if now.waits:
            words = "Assignment delayed due to the configured initial rebalance delay."
            statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, words))
            return Target(state.assignment_epoch, NO_TASK)
        now.assign(draft, configured)
        if state.epoch > state.assignment_epoch:
            words = "Assignment delayed due to the configured assignment interval."
            statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, words))
    return Target(state.assignment_epoch, state.target_of(member_id))


# --- what the member has --------------------------------------------------------------------------


def moved(
    state: StreamsGroupState,
    member_id: str,
    current: CurrentImage,
    owned: TaskSet | None,
    target: Target,
) -> CurrentImage:
    """What the member has from now on; the very value of before where nothing changes."""
    if current.state is MemberState.STABLE and current.epoch == target.epoch:
        return current
    free = Free(
        lambda id_, index: state.is_active_free(member_id, id_, index),
        lambda id_, index: state.is_copy_free(member_id, id_, index),
    )
    return reconciled(current, target, owned, free)


def _apart(state: StreamsGroupState, member_id: str, current: CurrentImage) -> CurrentImage:
    """What a member keeps that joins again in another process, without the tasks that the process
    has at other members. It owns nothing when it joins."""
    parts = []
    for has in (current.assigned, current.revoking):
        active = {
            id_: {at: since for at, since in some.items() if state.is_copy_free(member_id, id_, at)}
            for id_, some in has.active.items()
        }
        copies = [
            tasks_of(
                (id_, [at for at in some if state.is_copy_free(member_id, id_, at)])
                for id_, some in tasks.items()
            )
            for tasks in (has.standby, has.warmup)
        ]
        parts.append(HeldTasks({id_: some for id_, some in active.items() if some}, *copies))
    return current._replace(assigned=parts[0], revoking=parts[1])


def removed(draft: Draft, member_ids: Iterable[str]) -> None:
    """Members have left, or have sent nothing in time: their tasks are free."""
    state = draft.state
    for member_id in member_ids:
        if member_id in state.current:
            draft.put(Kind.CURRENT, member_id, None)
        if member_id in state.targets:
            draft.put(Kind.TARGET, member_id, None)
        draft.put(Kind.MEMBER, member_id, None)
    if state.group is not None:
        _next_epoch(draft, state.group)


def assigned(draft: Draft, epoch: int, targets: Mapping[str, TaskSet], now_ms: int) -> bool:
    """The target of a group's epoch; False: a later one is there."""
    state = draft.state
    if not state.assignment_epoch < epoch <= state.epoch or not state.members:
        return False
    for member_id in state.members:
        target = targets.get(member_id, NO_TASK)
        if state.targets.get(member_id) != target:
            draft.put(Kind.TARGET, member_id, target)
    draft.put(Kind.TARGET_EPOCH, "", TargetEpoch(epoch, now_ms))
    return True


# --- offsets --------------------------------------------------------------------------------------


def commit_error(
    state: StreamsGroupState,
    member_id: str,
    epoch: int,
    partitions: Callable[[], Iterable[tuple[str, int]]],
    *,
    version: int,
    in_transaction: bool,
) -> ErrorCode:
    """Whether a member may commit these partitions with this epoch (KIP-1251): it may be older than
    the member's, but not than the epoch in which the member got the task that reads the partition.
    `partitions`: by the topics' names."""
    none = ErrorCode.NONE
    if epoch < 0 and (not state.members or (in_transaction and not member_id)):
        return none
    if member_id not in state.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not in_transaction and version < _COMMIT_KNOWS_EPOCHS:
        return ErrorCode.UNSUPPORTED_VERSION
    current = state.current_of(member_id)
    if epoch == current.epoch:
        return none
    stale = ErrorCode.ILLEGAL_GENERATION if in_transaction else ErrorCode.STALE_MEMBER_EPOCH
    if epoch > current.epoch or epoch < 0 or state.topology is None:
        return stale
    left: dict[str, set[int]] = {}
    for topic, index in partitions():
        left.setdefault(topic, set()).add(index)
    had = _had(current, epoch)
    for part in state.topology.subtopologies:
        indexes = had.get(part.subtopology_id, set())
        for topic in part.inputs() if indexes else ():
            if left.get(topic):
                left[topic] = left[topic] - indexes
    return stale if any(left.values()) else none


def _had(current: CurrentImage, epoch: int) -> dict[str, set[int]]:
    """The active tasks that a member has, and had in this epoch."""
    found: dict[str, set[int]] = {}
    for held in (current.assigned, current.revoking):
        for id_, epochs in held.active.items():
            some = (index for index, since in epochs.items() if since <= epoch)
            found.setdefault(id_, set()).update(some)
    return found


def fetch_error(state: StreamsGroupState, member_id: str | None, epoch: int) -> ErrorCode:
    """Whether a member may read the offsets with this epoch."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    if member_id is None or member_id not in state.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_same = epoch == state.current_of(member_id).epoch
    return ErrorCode.NONE if is_same else ErrorCode.STALE_MEMBER_EPOCH
