"""A consumer that shares topics with the other members of its group.

One thread, no event loop: `poll` does what is due (join, heartbeat, commit) and then fetches for at
most half a heartbeat interval. So a member that is not polled for a whole session is expelled; it
notices at the next poll and joins anew. Eager: what was read is committed and every partition is
given up before each rebalance. When we lead, partitions are shared out by range.

    JOINING --join, sync--> READING --REBALANCE_IN_PROGRESS--> JOINING (commits first)
       |                       |------UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION--> JOINING (as new)
       '-- any error that is not retriable is raised

Positions begin at the committed offsets, else where the caller says. `close` commits and leaves.
Owner: the client's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kbroker.clock import NS_PER_MS
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer import member_messages
from kbroker.peer.client import Client
from kbroker.peer.consumer_protocol import (
    PROTOCOL_TYPE,
    RANGE,
    assign_range,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kbroker.peer.group_messages import NO_OFFSET, Committed, MemberIdentity
from kbroker.peer.groups import Groups
from kbroker.peer.isolation import READ_UNCOMMITTED
from kbroker.peer.member_messages import Joined, Joining
from kbroker.peer.messages import Consumed
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey, TopicPartition

SESSION_TIMEOUT_MS: Final = 45_000
REBALANCE_TIMEOUT_MS: Final = 60_000
HEARTBEAT_INTERVAL_MS: Final = 3_000
COMMIT_INTERVAL_MS: Final = 5_000
FETCH_WAIT_MS_MAX: Final = 500

_REJOIN: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED})
_AS_NEW: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})

_NOTHING: Final = Committed(NO_OFFSET, -1, "", ErrorCode.NONE)

Starts = Callable[[list[TopicPartition]], Mapping[TopicPartition, int]]


class GroupConsumer:
    """One member. `positions` are the next offsets to read; the caller moves them on.

    What is in `paused` keeps its position and is not fetched, until the next rebalance. A fetch
    waits at most `wait_ms` for records. `isolation` is of the fetches (`isolation.py`).
    """

    isolation = READ_UNCOMMITTED

    def __init__(
        self,
        client: Client,
        group: str,
        topic: str,
        starts: Starts,
        *,
        instance_id: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.wait_ms = FETCH_WAIT_MS_MAX
        self._client: Final = client
        self._clock: Final = client.cluster.clock
        self._groups: Final = Groups(client)
        self._group: Final = group
        self._topic: Final = topic
        self._starts: Final = starts
        self._session_timeout_ms: Final = session_timeout_ms
        self._member = MemberIdentity(instance_id=instance_id)
        self._joined = False
        self._committed: dict[TopicPartition, int] = {}
        self._heartbeat_due_ns = 0
        self._commit_due_ns = 0

    @property
    def member(self) -> MemberIdentity:
        return self._member

    def poll(self) -> Consumed:
        """Does what is due, then fetches once."""
        assigned = None
        if not self._joined:
            self._join()
            assigned = list(self.positions)
        else:
            self._maybe_commit()
            self._maybe_heartbeat()
            if not self._joined:
                return Consumed({}, None)
        wanted = {tp: offset for tp, offset in self.positions.items() if tp not in self.paused}
        if not wanted:
            self._client.cluster.sleep_ms(self.wait_ms)
            return Consumed({}, assigned)
        fetched = self._client.fetch(wanted, max_wait_ms=self.wait_ms, isolation=self.isolation)
        return Consumed(fetched, assigned)

    def restart(self, where: TopicPartition) -> int | None:
        """Where a partition goes on whose position is outside of its log."""
        return self._starts([where]).get(where)

    def commit(self) -> None:
        """What was read and is not committed yet; a rebalance or expulsion is dealt with later."""
        news = {
            where: offset
            for where, offset in self.positions.items()
            if self._committed.get(where) != offset
        }
        if not news or not self._joined:
            return
        errors = self._groups.commit(self._group, news, self._member)
        for where, error in errors.items():
            if error is ErrorCode.NONE:
                self._committed[where] = news[where]
            elif not self._handled(error):
                raise KafkaError(error, f"{where} of group '{self._group}'")

    def close(self) -> None:
        """Commits and leaves, so that the others go on at once; a static member's place is kept."""
        if not self._joined:
            return
        self.commit()
        if self._member.instance_id is None and self._joined:
            self._joined = False
            self._groups.at_coordinator(
                self._group,
                ApiKey.LEAVE_GROUP,
                lambda version: member_messages.encode_leave_group(
                    version, self._group, self._member
                ),
                member_messages.decode_leave_group,
            )

    # --- what is due ---

    def _maybe_commit(self) -> None:
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._commit_due_ns:
            self._commit_due_ns = now_ns + COMMIT_INTERVAL_MS * NS_PER_MS
            self.commit()

    def _maybe_heartbeat(self) -> None:
        now_ns = self._clock.monotonic_ns()
        if not self._joined or now_ns < self._heartbeat_due_ns:
            return
        self._heartbeat_due_ns = now_ns + self._heartbeat_interval_ms * NS_PER_MS
        error = self._groups.at_coordinator(
            self._group,
            ApiKey.HEARTBEAT,
            lambda version: member_messages.encode_heartbeat(version, self._group, self._member),
            member_messages.decode_heartbeat,
        )
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.commit()
        if error is not ErrorCode.NONE and not self._handled(error):
            raise KafkaError(error, f"group '{self._group}'")

    @property
    def _heartbeat_interval_ms(self) -> int:
        return min(HEARTBEAT_INTERVAL_MS, self._session_timeout_ms // 3)

    def _handled(self, error: ErrorCode) -> bool:
        """Whether joining once more is the answer."""
        if error in _AS_NEW:
            self._member = MemberIdentity(instance_id=self._member.instance_id)
        elif error not in _REJOIN:
            return False
        self._joined = False
        return True

    # --- joining ---

    def _join(self) -> None:
        self.positions.clear()
        self.paused.clear()
        while True:
            joined = self._ask_to_join()
            if joined.error is ErrorCode.NONE:
                self._member = self._member._replace(
                    generation=joined.generation, member_id=joined.member_id
                )
                error, assignment = self._sync(joined)
                if error is ErrorCode.NONE:
                    break
            else:
                error = joined.error
                if error is ErrorCode.MEMBER_ID_REQUIRED:
                    self._member = self._member._replace(member_id=joined.member_id)
            if not self._handled(error):
                raise KafkaError(error, f"group '{self._group}'")
        self._take(_read_assignment(assignment))

    def _ask_to_join(self) -> Joined:
        joining = Joining(
            group=self._group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member.member_id,
            instance_id=self._member.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols={RANGE: encode_subscription([self._topic])},
        )
        return self._groups.at_coordinator(
            self._group,
            ApiKey.JOIN_GROUP,
            lambda version: member_messages.encode_join_group(version, joining),
            member_messages.decode_join_group,
            # Answered when the others have joined, too, or their time is over.
            timeout_ms=REBALANCE_TIMEOUT_MS + self._client.cluster.timeout_ms,
        )

    def _sync(self, joined: Joined) -> tuple[ErrorCode, bytes]:
        shares: dict[str, bytes] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            shares = self._share_out(joined.members)
        return self._groups.at_coordinator(
            self._group,
            ApiKey.SYNC_GROUP,
            lambda version: member_messages.encode_sync_group(
                version, self._group, self._member, PROTOCOL_TYPE, joined.protocol, shares
            ),
            member_messages.decode_sync_group,
            timeout_ms=REBALANCE_TIMEOUT_MS + self._client.cluster.timeout_ms,
        )

    def _share_out(self, members: Mapping[str, bytes]) -> dict[str, bytes]:
        subscriptions = {member: _read_subscription(data) for member, data in members.items()}
        topics = sorted({topic for wanted in subscriptions.values() for topic in wanted})
        found = self._client.metadata(topics).topics
        counts = {name: len(topic.partitions) for name, topic in found.items()}
        shares = assign_range(subscriptions, counts)
        return {member: encode_assignment(share) for member, share in shares.items()}

    def _take(self, partitions: list[TopicPartition]) -> None:
        """Begins where the group stopped, or where the caller says if it never began."""
        now_ns = self._clock.monotonic_ns()
        self._joined = True
        self._heartbeat_due_ns = now_ns + self._heartbeat_interval_ms * NS_PER_MS
        self._commit_due_ns = now_ns + COMMIT_INTERVAL_MS * NS_PER_MS
        self._committed = {}
        if not partitions:
            return
        offsets = self._groups.offsets(self._group, partitions)
        for where in partitions:
            result = offsets.get(where, _NOTHING)
            if result.error is not ErrorCode.NONE:
                raise KafkaError(result.error, str(where))
            if result.offset >= 0:
                self._committed[where] = result.offset
        new = [where for where in partitions if where not in self._committed]
        starts = self._starts(new) if new else {}
        self.positions.update({**self._committed, **starts})


def _read_subscription(data: bytes) -> list[str]:
    """Another member's; one that cannot be read gets nothing rather than ends the group."""
    try:
        return decode_subscription(data)
    except ProtocolError:
        return []


def _read_assignment(data: bytes) -> list[TopicPartition]:
    try:
        return decode_assignment(data)
    except ProtocolError as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the leader's assignment: {error}"
        ) from error
