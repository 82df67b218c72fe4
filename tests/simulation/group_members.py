"""A group with one member, which joins, syncs, sends heartbeats and commits as a consumer does.

Beside the rules for every group: an assignment that was answered is replicated, and its member is
known to every later coordinator, as long as its session lasts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kbroker.coordinator.runtime._shard_table import ACTIVE
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import NO_LEADER
from kbroker.peer.group_messages import NO_GENERATION, MemberIdentity
from kbroker.peer.member_messages import (
    Joined,
    Joining,
    decode_heartbeat,
    decode_join_group,
    decode_sync_group,
    encode_heartbeat,
    encode_join_group,
    encode_leave_group,
    encode_sync_group,
)
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey
from tests.simulation.clients import GIVE_UP_MS
from tests.simulation.contents import GROUP_STATE
from tests.simulation.group_clients import EXPECTED, Committer, Committing
from tests.simulation.network import Answer, Lost

if TYPE_CHECKING:
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster

# All of them flexible.
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 7, 5, 4, 5
SESSION_MS = 6_000
_TYPE, _PROTOCOL = "consumer", "range"
HEARTBEATS = 0.3  # how often a heartbeat comes before a commit
LEAVES = 0.1
EXPECTED_OF_MEMBERS = EXPECTED | {
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
}


class Member(Committer):
    """See the head of this file."""

    def __init__(self, cluster: Cluster, group: str, dice: random.Random) -> None:
        super().__init__(cluster, group, dice)
        self.expected = EXPECTED_OF_MEMBERS
        # A member that left without a request stays in the group until its session is over.
        self._give_up_ms = SESSION_MS + GIVE_UP_MS
        self._joined_as = ""
        self._stored_as = ""  # with an assignment
        self._renewed_ms = self._sent_ms = 0
        self._generation = 0  # the last one that was synced

    def _send(self, committing: Committing) -> None:
        if self.identity.generation == NO_GENERATION:
            self._join(committing)
        elif self._dice.random() < HEARTBEATS:
            body = encode_heartbeat(HEARTBEAT_VERSION, self._group, self.identity)
            self._ask_group(
                committing,
                ApiKey.HEARTBEAT,
                HEARTBEAT_VERSION,
                body,
                decode_heartbeat,
                self._beaten,
            )
        else:
            self._sent_ms = self._cluster.loop.now_ms
            super()._send(committing)

    def _ask_group(
        self, committing: Committing, api_key: ApiKey, version: int, body: bytes, decode: Any,
        then: Any, look: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """`then` gets the coordinator's response; `look` is called if that has no error."""
        target, self._sure = self._coordinator()
        if target == NO_LEADER:
            self._failed(committing)
            return
        sent_ms = self._cluster.loop.now_ms
        renews_session = False

        def serve(running: Running, answer: Answer) -> None:
            def done(answered: bytes) -> None:
                nonlocal renews_session
                # While a coordinator loads its groups, any heartbeat succeeds, as in Apache Kafka:
                # the session of the member may be over.
                renews_session = running.offsets.shard_state(self._home.partition) == ACTIVE
                try:
                    response = decode(Reader(answered, flexible=True), version)
                except KafkaError as refused:
                    response = refused.code
                error = error_of(response)
                self._is_expected(error, running)
                if error is ErrorCode.NONE:
                    self._leads(running, f"answers a member with {ApiKey(api_key).label}")
                    if look is not None:
                        look()
                answer(response)

            running.serve(api_key, version, body, done)

        def answered(response: Any) -> None:
            if error_of(response) is ErrorCode.NONE and renews_session:
                self._renewed_ms = sent_ms
            if isinstance(response, Lost):
                self._failed(committing)
            else:
                then(committing, response)

        self._ask_broker(target, serve, answered)

    def _assigned(self, member_id: str) -> None:
        """Its assignment is in a record of the group that is replicated."""
        safety = self._cluster.safety
        safety.look()
        partition = safety.partition(self._home)
        state, member = GROUP_STATE + self._group.encode(), member_id.encode()
        if not any(each.startswith(state) and member in each for each in partition.places):
            safety.fail("an answered assignment is replicated", self._group, partition)
        self._stored_as = member_id

    # --- a member's requests ----------------------------------------------------------------------

    def _join(self, committing: Committing) -> None:
        joining = Joining(
            self._group, SESSION_MS, SESSION_MS, self._joined_as, None, _TYPE, {_PROTOCOL: b"t"}
        )
        body = encode_join_group(JOIN_VERSION, joining)
        self._ask_group(
            committing, ApiKey.JOIN_GROUP, JOIN_VERSION, body, decode_join_group, self._joined
        )

    def _joined(self, committing: Committing, response: Joined | ErrorCode) -> None:
        if not isinstance(response, Joined):
            self._failed(committing)
        elif response.error is ErrorCode.MEMBER_ID_REQUIRED:
            self._joined_as = response.member_id
            self._join(committing)
        elif response.error is ErrorCode.NONE:
            self._goes_forward(response.generation)
            self._sync(committing, MemberIdentity(response.generation, response.member_id))
        else:
            self._refused(committing, response.error)

    def _goes_forward(self, generation: int) -> None:
        """A generation that was synced is in a record that is replicated."""
        if generation < self._generation:
            self._cluster.safety.fail(
                "generations go forward",
                f"{self._group}'s was {self._generation}, and is {generation}",
                self._cluster.safety.partition(self._home),
            )

    def _sync(self, committing: Committing, identity: MemberIdentity) -> None:
        assignments = {identity.member_id: b"all"}
        body = encode_sync_group(SYNC_VERSION, self._group, identity, _TYPE, _PROTOCOL, assignments)

        def synced(committing: Committing, response: Any) -> None:
            if error_of(response) is ErrorCode.NONE:
                self.identity = identity
                self._generation = max(self._generation, identity.generation)
                self._send(committing)
            else:
                self._refused(committing, error_of(response))

        self._ask_group(
            committing, ApiKey.SYNC_GROUP, SYNC_VERSION, body, decode_sync_group, synced,
            partial(self._assigned, identity.member_id),
        )  # fmt: skip

    def _beaten(self, committing: Committing, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            Committer._send(self, committing)
        else:
            self._refused(committing, error)

    def _committed(self, committing: Committing, result: ErrorCode | Lost) -> None:
        if isinstance(result, ErrorCode) and result in _AGAIN:
            self._refused(committing, result)
            return
        super()._committed(committing, result)
        if result is ErrorCode.NONE:
            self._renewed_ms = self._sent_ms
            if self._dice.random() < LEAVES:
                self._leave()

    def _refused(self, committing: Committing, error: ErrorCode) -> None:
        if error in _AGAIN:
            self.identity = MemberIdentity()
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._put_out()
            self._joined_as = ""
        self._failed(committing)

    def _put_out(self) -> None:
        """Check that the coordinator may have removed this member."""
        silent_ms = self._cluster.loop.now_ms - self._renewed_ms
        stored = self._joined_as and self._stored_as == self._joined_as
        if self._sure and stored and silent_ms < SESSION_MS:
            self._cluster.safety.fail(
                "a member that was stored stays one",
                f"{self._group}'s {self._joined_as}",
                self._cluster.safety.partition(self._home),
            )

    def _leave(self) -> None:
        """Without a look at the response."""
        body = encode_leave_group(LEAVE_VERSION, self._group, self.identity)
        self.identity, self._joined_as = MemberIdentity(), ""
        target, _ = self._coordinator()
        if target != NO_LEADER:
            self._ask_broker(
                target,
                partial(self._serve_leave, body),
                lambda response: None,
            )

    def _serve_leave(self, body: bytes, running: Running, answer: Answer) -> None:
        running.serve(ApiKey.LEAVE_GROUP, LEAVE_VERSION, body, answer)


_AGAIN = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


def error_of(response: Any) -> ErrorCode:
    """The error of a decoded response."""
    if isinstance(response, Joined):
        return response.error
    found = response[0] if isinstance(response, tuple) else response
    return found if isinstance(found, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
