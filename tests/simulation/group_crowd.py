"""A group of several members, which come, leave, fall silent and commit while coordinators change.

Generations go forward: once the assignments of a generation were answered, no later one has its
number or a smaller one. The leader of a generation distributes four partitions, and each member is
answered with its part of that one plan, so no two have the same partition. A commit of a generation
is refused once a later generation has been answered. A coordinator that does not know the later
generation yet may give an older answer if it writes nothing: reads are not fenced, in Apache Kafka
neither.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import NO_LEADER, OFFSETS_TOPIC
from kbroker.peer.group_messages import (
    MemberIdentity,
    encode_delete_groups,
    encode_offset_commit,
)
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
from kbroker.types import ApiKey, TopicPartition
from tests.simulation.clients import Client
from tests.simulation.group_clients import (
    COMMIT_VERSION,
    DELETE_GROUPS_VERSION,
    error_of_commit,
    error_of_deletion,
)
from tests.simulation.group_members import (
    EXPECTED_OF_MEMBERS,
    HEARTBEAT_VERSION,
    JOIN_VERSION,
    LEAVE_VERSION,
    SYNC_VERSION,
    error_of,
)
from tests.simulation.network import CLIENTS, Answer, Lost

if TYPE_CHECKING:
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster

GROUP = "g3"
MEMBERS = 3
SHARED = 4  # partitions that no client reads
SESSION_MS, REBALANCE_MS = 700, 600
# The others join within the rebalance timeout, the assignment comes within it again, and followers
# have it within offsets.commit.timeout.ms. Of a paused broker one late LOOK proves nothing.
ANSWERED_WITHIN_MS, LOOKS = 4_500, 3
_TYPE, _PROTOCOL = "consumer", "range"
_COMMITS = 0.5  # how often a member commits; else it sends a heartbeat
_OF_BEFORE = 0.5  # how often it commits as in the generation before, in the next one
_NEXT_MS = (30, 150)

Plan = Mapping[str, bytes]  # by member


class Crowd:
    """The group, and its known generations."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self.cluster = cluster
        self.home = TopicPartition(OFFSETS_TOPIC, partition_for(GROUP, len(cluster.homes)))
        self._dice = random.Random(dice.getstate()[1][0])
        self.members = [
            CrowdMember(cluster, self, random.Random(dice.random())) for _ in range(MEMBERS)
        ]
        self.answered = 0  # the last generation whose assignments were
        self.epoch = -1  # in which its coordinator led
        self._sent: dict[int, list[Plan]] = {}
        self._plans: dict[int, Plan] = {}  # as they were answered
        self._plan_count = self._offset = self._joins = 0
        self._is_gone = False  # it was deleted, and no member has joined since

    def plan(self, generation: int, members: Mapping[str, bytes]) -> Plan:
        """Made by the leader of this generation."""
        self._plan_count += 1
        names = sorted(members)
        shares: dict[str, list[str]] = {name: [] for name in names}
        for index in range(SHARED):
            shares[names[index % len(names)]].append(str(index))
        plan = {
            name: f"{generation} {self._plan_count} {' '.join(share)}".encode()
            for name, share in shares.items()
        }
        self._sent.setdefault(generation, []).append(plan)
        return plan

    def next_offset(self) -> int:
        self._offset += 1
        self.cluster.safety.sent.add(b"%s/%d" % (GROUP.encode(), self._offset))
        return self._offset

    def knows(self, running: Running) -> bool:
        """Whether the last generation was answered before this broker became the coordinator."""
        return running.leads(self.home) and running.states[self.home].leader_epoch >= self.epoch

    def is_assigned(self, running: Running, identity: MemberIdentity, assignment: bytes) -> None:
        generation, member_id = identity.generation, identity.member_id
        response = f"{member_id} is answered {assignment!r} in generation {generation}"
        plans = [each for each in self._sent.get(generation, ()) if each.get(member_id)]
        plan = next((each for each in plans if each[member_id] == assignment), None)
        if plan is None:
            self.fail("an assignment comes from its generation's leader", response)
        elif self._plans.get(generation, plan) is not plan:
            self.fail("a generation has one plan", response)
        if plan is None or not self._is_committed(running):
            return
        self._plans[generation] = plan
        if generation > self.answered:
            self.answered = generation
        self.epoch = max(self.epoch, running.states[self.home].leader_epoch)

    def _is_committed(self, running: Running) -> bool:
        """Whether the records that the coordinator loaded are committed.

        A coordinator loads its log to the end. Before the high watermark reaches that end, it
        answers from records that may still be lost; Apache Kafka does the same.
        """
        replica = self.cluster.safety.partition(self.home).views[running.node_id].replica
        return replica is not None and replica.high_watermark >= replica.epochs.entries[-1][1]

    def fail(self, rule: str, response: str) -> None:
        self.cluster.safety.fail(rule, response, self.cluster.safety.partition(self.home))

    def end(self) -> None:
        """All members leave, some without a request."""
        for member in self.members:
            member.go(silently=self._dice.random() < 0.5)

    def stays_at(self, running: Running) -> bool:
        """Whether its coordinator has a member still, or the group that was deleted."""
        group = running.groups.find(GROUP) if running.leads(self.home) else None
        is_gone = self._is_gone and not self.cluster.safety.partition(self.home).lost
        return group is not None and (is_gone or group.member_count > 0)

    def disband(self) -> None:
        for member in self.members:
            member.go()

    def delete(self) -> None:
        """Delete the group if it has no member. It is absent until it begins again."""
        target = self.members[0].coordinator()
        body = encode_delete_groups(DELETE_GROUPS_VERSION, [GROUP])

        def serve(running: Running, answer: Answer) -> None:
            self._begins_anew()
            joins = self._joins

            def done(answered: bytes) -> None:
                self._begins_anew()
                error = error_of_deletion(answered, group=True)
                self._is_gone = error is ErrorCode.NONE and joins == self._joins
                answer(error)

            running.serve(ApiKey.DELETE_GROUPS, DELETE_GROUPS_VERSION, body, done)

        if target != NO_LEADER:
            ways = CLIENTS, target
            self.cluster.network.request(self.cluster.clients, ways, serve, lambda response: None)

    def _begins_anew(self) -> None:
        self.answered = 0
        self._plans.clear()

    def is_joined(self) -> None:
        self._joins += 1
        self._is_gone = False

    def expects(self, running: Running, asked: str) -> list[str]:
        """The broker must answer while it lives; an answer empties the list that is returned."""
        waits = [asked]

        def look(left: int) -> None:
            if waits and left:
                running.process.later(ANSWERED_WITHIN_MS // LOOKS, lambda: look(left - 1))
            elif waits:
                self.fail("a coordinator answers", f"broker {running.node_id} to {asked}")

        look(LOOKS)
        return waits


class CrowdMember(Client):
    """One member, which sends one request after the other."""

    def __init__(self, cluster: Cluster, crowd: Crowd, dice: random.Random) -> None:
        super().__init__(cluster)
        self._crowd = crowd
        self._dice = dice
        self._identity = MemberIdentity()
        self._before: MemberIdentity | None = None  # in the last generation but one
        self._member_id = ""
        self._turn = 0  # of the next request; 0: it is not in the group
        self._turns = 0
        self._silent_until_ms = 0

    def come(self) -> None:
        if not self._turn:
            self._turns += 1
            self._turn = self._turns
            self._do_next()

    def go(self, *, silently: bool = False) -> None:
        if self._turn and silently:
            self._turn, self._identity, self._member_id = 0, MemberIdentity(), ""
        elif self._turn:
            self._turn = 0
            body = encode_leave_group(LEAVE_VERSION, GROUP, self._identity)
            self._identity, self._member_id = MemberIdentity(), ""
            self._ask(ApiKey.LEAVE_GROUP, LEAVE_VERSION, body, None, lambda *response: None)

    def fall_silent(self, for_ms: int) -> None:
        self._silent_until_ms = self._cluster.loop.now_ms + for_ms

    def coordinator(self) -> int:
        return self._leader_of(self._crowd.home)[0]

    # --- one request after the other --------------------------------------------------------------

    def _later(self) -> None:
        turn = self._turn
        if turn:
            silent_ms = max(0, self._silent_until_ms - self._cluster.loop.now_ms)
            pause_ms = silent_ms + self._dice.uniform(*_NEXT_MS)
            self._cluster.clients.later(pause_ms, lambda: self._do_next(turn))

    def _do_next(self, turn: int | None = None) -> None:
        if turn not in (None, self._turn):
            return
        if self._identity.generation < 0:
            self._join()
        elif self._dice.random() < _COMMITS:
            self._commit(self._identity, self._done)
        else:
            body = encode_heartbeat(HEARTBEAT_VERSION, GROUP, self._identity)
            self._ask(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, body, decode_heartbeat, self._done)

    def _commit(self, identity: MemberIdentity, then: Callable[[Any], None]) -> None:
        offsets = {self._cluster.names[0]: self._crowd.next_offset()}
        body = encode_offset_commit(COMMIT_VERSION, GROUP, offsets, identity)
        looks = partial(self._commits, identity.generation, self._crowd.answered)
        self._ask(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, body, None, then, looks)

    def _done(self, response: Any) -> None:
        error = error_of(response)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if error in _AGAIN and self._identity.generation >= 0:
            self._before, self._identity = self._identity, MemberIdentity()
        self._later()

    def _join(self) -> None:
        joining = Joining(
            GROUP, SESSION_MS, REBALANCE_MS, self._member_id, None, _TYPE, {_PROTOCOL: b"t"}
        )
        body = encode_join_group(JOIN_VERSION, joining)
        looks = partial(self._joins, self._crowd.answered)
        self._ask(ApiKey.JOIN_GROUP, JOIN_VERSION, body, decode_join_group, self._joined, looks)

    def _joined(self, response: Any) -> None:
        if not isinstance(response, Joined) or response.error not in (
            ErrorCode.NONE,
            ErrorCode.MEMBER_ID_REQUIRED,
        ):
            self._done(response)
            return
        self._member_id = response.member_id
        if response.error is ErrorCode.MEMBER_ID_REQUIRED:
            self._join()
            return
        identity = MemberIdentity(response.generation, response.member_id)
        leads = response.leader == response.member_id
        plan = self._crowd.plan(response.generation, response.members) if leads else {}
        body = encode_sync_group(SYNC_VERSION, GROUP, identity, _TYPE, _PROTOCOL, plan)
        looks = partial(self._syncs, identity)
        synced = partial(self._synced, identity)
        ask = partial(
            self._ask, ApiKey.SYNC_GROUP, SYNC_VERSION, body, decode_sync_group, synced, looks
        )
        turn, silent_ms = self._turn, self._silent_until_ms - self._cluster.loop.now_ms
        if silent_ms > 0:
            # Others wait for the assignment meanwhile.
            self._cluster.clients.later(silent_ms, lambda: turn == self._turn and ask())
        else:
            ask()

    def _synced(self, identity: MemberIdentity, response: Any) -> None:
        if self._turn and error_of(response) is ErrorCode.NONE:
            self._identity = identity
            if self._before is not None and self._dice.random() < _OF_BEFORE:
                # A thread of its own has slept meanwhile.
                self._commit(self._before, lambda response: self._later())
                return
        self._done(response)

    # --- responses without an error ---------------------------------------------------------------

    def _joins(self, answered: int, running: Running, response: Joined) -> None:
        if response.generation < answered and self._crowd.knows(running):
            detail = f"{response.generation}, after {answered}"
            self._crowd.fail("generations of several go forward", detail)

    def _syncs(
        self, identity: MemberIdentity, running: Running, response: tuple[ErrorCode, bytes]
    ) -> None:
        self._crowd.is_assigned(running, identity, response[1])

    def _commits(self, generation: int, answered: int, running: Running, response: Any) -> None:
        if generation < answered:
            detail = f"{generation}, after {answered}"
            self._crowd.fail("a generation that is over commits nothing", detail)

    # --- requests ---------------------------------------------------------------------------------

    def _ask(
        self, api_key: ApiKey, version: int, body: bytes, decode: Any,
        then: Callable[[Any], None], looks: Callable[[Running, Any], None] | None = None,
    ) -> None:  # fmt: skip
        target, _ = self._leader_of(self._crowd.home)
        turn = self._turn
        if target == NO_LEADER:
            self._later()
            return

        def serve(running: Running, answer: Answer) -> None:
            if api_key is ApiKey.JOIN_GROUP:
                self._crowd.is_joined()
            parked: list[bool] = []  # the handler has come back without an answer
            waits = self._crowd.expects(running, f"{api_key.label} of {self._member_id}")

            def done(answered: bytes) -> None:
                response: Any
                waits.clear()
                try:
                    if decode is None:
                        response = (
                            error_of_commit(answered) if looks is not None else ErrorCode.NONE
                        )
                    else:
                        response = decode(Reader(answered, flexible=True), version)
                except KafkaError as refused:
                    response = refused.code
                error = error_of(response)
                if error not in EXPECTED_OF_MEMBERS:
                    detail = f"broker {running.node_id} answers {error.name}"
                    self._crowd.fail("a coordinator answers with a known error", detail)
                if error is ErrorCode.NONE and looks is not None:
                    looks(running, response)
                waited = parked and turn == self._turn
                if waited and api_key is ApiKey.SYNC_GROUP and error is _NO_MEMBER:
                    self._crowd.fail("a client that waits to sync is a member", self._member_id)
                answer(response)

            running.serve(api_key, version, body, done, after=lambda: parked.append(True))

        def answered(response: Any) -> None:
            if turn == self._turn and turn:
                if isinstance(response, Lost):
                    self._later()
                else:
                    then(response)

        self._cluster.network.request(self._cluster.clients, (CLIENTS, target), serve, answered)


_NO_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID
_AGAIN = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
