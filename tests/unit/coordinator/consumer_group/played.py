"""Clients that follow the protocol, played against a consumer group by a seed.

Answers and requests are lost or come twice, members join, leave, die and change their topics,
topics are created, grow and are deleted, writes are refused, followers are late, and coordinators
fail over, also to a log that lacks what no client has been answered. After each act the rules below
are checked; at the end all faults stop, and the group has to come to rest.

    J1  no partition is assigned to two members, in no prefix of the log
    J2  no two clients believe that they own a partition
    J3  the group comes to rest when its members go on and nothing else changes
    J4  a member's epoch <= the target's <= the group's, and none goes back
    J5  a target of the group's epoch has each subscribed partition once
    J6  of members that subscribe alike, the target is balanced
    J7  no commit is accepted from a client that does not own the partition
    J8  replay of the log gives the state
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from kbroker.coordinator.consumer_group.images import partitions_of
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer
from kbroker.coordinator.consumer_group.state import GroupState
from kbroker.coordinator.consumer_group.states import ConsumerGroupState
from kbroker.coordinator.group.messages import CommitAsked
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.world import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Answer,
    World,
    topic_of,
)

TOPICS = ("t", "u", "v")
COMMIT_VERSION = 9
# A client that has had no answer for so long has given its partitions up. Time passes in steps of
# 20 s at most, so that is before its session is over.
CAREFUL_MS = SESSION_MS - 21_000


@dataclass
class Client:
    """A consumer that follows the protocol."""

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    pattern: str | None = None
    epoch: int = 0
    owned: dict[UUID, frozenset[int]] = field(default_factory=dict)
    is_changed: bool = False  # its subscription, since the coordinator has it
    is_full: bool = True  # its next request has all
    sent_ms: int = 0  # when it sent the request that was answered last
    asking: tuple[Answer, int] | None = None
    is_gone: bool = False

    def lose_all(self, member_id: str | None = None) -> None:
        self.epoch, self.owned, self.is_full = 0, {}, True
        self.asking = None
        if member_id is not None:
            self.member_id = member_id


class Played:
    """One run by one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World()
        self.world.log.on_append = self._appended
        self.world.c_answers = lambda: self.dice.random() < 0.5
        self.clients: list[Client] = []
        self.made = 0
        self.history: list[str] = []
        self.shadow = GroupState()
        self.epochs: dict[str, int] = {}
        self.group_epoch = 0
        for name in TOPICS[: self.dice.randint(1, 3)]:
            self.world.create(topic_of(name, self.dice.randint(1, 6)))

    # --- the acts ---

    def run(self, acts: int) -> None:
        for _ in range(acts):
            self._act()
            self._check()
        self._come_to_rest()

    def _act(self) -> None:
        acts = {
            self._beat: 60,
            self._receive: 40,
            self._join: 10,
            self._leave: 4,
            self._die: 2,
            self._subscribe: 6,
            self._topics: 6,
            self._pass: 20,
            self._hold: 6,
            self._release: 14,
            self._refuse: 3,
            self._fail_over: 4,
            self._beside: 20,
            self._commit: 10,
            self._racks: 1,
        }
        (act,) = self.dice.choices(list(acts), list(acts.values()))
        act()

    def _note(self, words: str) -> None:
        self.history.append(words)

    def _alive(self) -> Client | None:
        alive = [each for each in self.clients if not each.is_gone]
        return self.dice.choice(alive) if alive else None

    def _join(self) -> None:
        if sum(not each.is_gone for each in self.clients) >= 5:
            return
        self.made += 1
        static = self.dice.random() < 0.3
        client = Client(
            f"m{self.made}",
            tuple(sorted(self.dice.sample(TOPICS, self.dice.randint(1, 3)))),
            f"i{self.dice.randint(1, 3)}" if static else None,
            self.dice.choice([None, None, "[tu]", "v|x"]),
        )
        if static and any(
            each.instance_id == client.instance_id and not each.is_gone for each in self.clients
        ):
            return
        self.clients.append(client)
        self._note(f"{client.member_id} ({client.instance_id}) is there")
        self._send(client)

    def _beat(self) -> None:
        client = self._alive()
        if client is not None and client.asking is None:
            self._send(client)
            if self.dice.random() < 0.7:
                self._answered(client)

    def _send(self, client: Client) -> None:
        now_ms = self.world.clock.monotonic_ms()
        full = client.is_full or client.epoch == 0
        how: dict[str, object] = {"instance_id": client.instance_id}
        if full or client.is_changed:
            how |= {"topics": client.topics, "pattern": client.pattern or ""}
        if full:
            how |= {"rebalance_timeout_ms": REBALANCE_MS}
        how["owned"] = dict(client.owned) if full or self.dice.random() < 0.8 else None
        answer = self.world.ask(client.member_id, client.epoch, **how)
        if self.dice.random() < 0.05:
            self._note(f"{client.member_id} sends twice")
            self.world.ask(client.member_id, client.epoch, **how)  # it reads the first answer
        client.asking = (answer, now_ms)
        client.is_changed = False
        self._note(f"{client.member_id} at {client.epoch} owns {_plain(client.owned)}")

    def _receive(self) -> None:
        client = self._alive()
        if client is not None:
            self._answered(client)

    def _answered(self, client: Client) -> None:
        if client.asking is None or client.asking[0].waits:
            return
        (answer, sent_ms), client.asking = client.asking, None
        if self.world.clock.monotonic_ms() - sent_ms > CAREFUL_MS:
            client.lose_all()  # it has given this request up
            return
        if self.dice.random() < 0.1:
            self._note(f"{client.member_id} does not get its answer")
            client.is_full = client.is_changed = True
            return
        self._take(client, answer.got, sent_ms)

    def _take(self, client: Client, answer: HeartbeatAnswer, sent_ms: int) -> None:
        code = answer.code
        self._note(f"{client.member_id} is answered {code.name} {answer.epoch}")
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID,
                    ErrorCode.GROUP_ID_NOT_FOUND):  # fmt: skip
            client.lose_all()
        elif code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.lose_all()
            client.is_gone = True
        elif code:
            client.is_full = client.is_changed = True
        else:
            client.epoch, client.is_full, client.sent_ms = answer.epoch, False, sent_ms
            if answer.assignment is not None:
                client.owned = {topic: some for topic, some in answer.assignment.items() if some}

    def _leave(self) -> None:
        client = self._alive()
        if client is None or client.asking is not None or client.epoch <= 0:
            return
        for_now = client.instance_id is not None and self.dice.random() < 0.7
        epoch = -2 if for_now else -1
        member_id, instance_id = client.member_id, client.instance_id
        self._note(f"{member_id} leaves with {epoch}")
        self.world.ask(member_id, epoch, instance_id=instance_id)
        client.lose_all()
        client.is_gone = True
        if for_now and self.dice.random() < 0.8:
            self.made += 1
            back = Client(f"m{self.made}", client.topics, instance_id, client.pattern)
            self.clients.append(back)
            self._send(back)

    def _die(self) -> None:
        client = self._alive()
        if client is not None:
            self._note(f"{client.member_id} dies")
            client.lose_all()
            client.is_gone = True

    def _subscribe(self) -> None:
        client = self._alive()
        if client is not None:
            client.topics = tuple(sorted(self.dice.sample(TOPICS, self.dice.randint(0, 3))))
            client.pattern = self.dice.choice([None, client.pattern, "[uv]"])
            client.is_changed = True

    def _topics(self) -> None:
        name = self.dice.choice(TOPICS)
        topic = self.world.image.topic(name)
        if topic is None:
            self.world.create(topic_of(name, self.dice.randint(1, 6), self.dice.randint(1, 99)))
        elif self.dice.random() < 0.4:
            self.world.remove(name)
        else:
            number = topic.topic_id.int >> 64
            self.world.create(topic_of(name, len(topic.partitions) + 1, number))
        self._note(f"topic {name} changes")

    def _racks(self) -> None:
        self.world.racks({1: self.dice.choice([None, "r1", "r2"])})

    def _pass(self) -> None:
        self.world.pass_ms(self.dice.choice([100, 1_000, 5_000, 20_000]))
        self._be_careful()

    def _be_careful(self) -> None:
        """A client that is not answered gives its partitions up before its session is over."""
        now_ms = self.world.clock.monotonic_ms()
        for client in self.clients:
            if client.owned and now_ms - client.sent_ms > CAREFUL_MS:
                self._note(f"{client.member_id} has no answer, and gives up")
                client.lose_all()

    def _hold(self) -> None:
        self.world.log.holds = True

    def _release(self) -> None:
        log = self.world.log
        log.holds, log.refuses = False, ErrorCode.NONE
        log.release()

    def _refuse(self) -> None:
        self.world.log.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _fail_over(self) -> None:
        log = self.world.log
        safe = min([count - 1 for count, _ in log.held], default=len(log.batches))
        kept = self.dice.randint(max(0, safe), len(log.batches))
        self._note(f"another coordinator, with {kept} of {len(log.batches)} batches")
        self.world.fail_over(kept)
        log.release(ErrorCode.NOT_COORDINATOR)
        log.holds, log.refuses = False, ErrorCode.NONE
        self.shadow = self.world.replayed()
        self.epochs.clear()
        self.group_epoch = self.shadow.epoch
        self.world.jobs.clear()

    def _beside(self) -> None:
        self.world.work_beside()

    def _commit(self) -> None:
        client = self._alive()
        if client is None or client.epoch <= 0 or client.asking is not None:
            return
        named = [(topic, index) for topic, some in client.owned.items() for index in some]
        if not named:
            return
        asked = CommitAsked(GROUP, client.member_id, None, client.epoch, lambda: named,
                            COMMIT_VERSION)  # fmt: skip
        admission = self.world.group.admit_commit(asked)
        if not admission.code:
            for topic, index in named:
                owner = self.world.group._state.owner_of(topic, index)
                assert owner in (None, client.member_id), f"J7: {owner} owns {topic}-{index}"

    # --- the rules ---

    def _appended(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """A batch has been appended: the state of this prefix."""
        self.shadow = self.world.replayed()
        self._check_owners(self.shadow, "in the log")

    def _check(self) -> None:
        group = self.world.group
        state = group._state
        self._check_owners(state, "in memory")
        self._check_epochs(state)
        self._check_beliefs()
        self._check_target(state)
        if not group._unwritten:
            assert state.values() == self.world.replayed().values(), "J8"
        assert self.world.failures.count == 0

    def _check_owners(self, state: GroupState, where: str) -> None:
        owners: dict[tuple[UUID, int], str] = {}
        for member_id, current in state.current.items():
            for part in (current.assigned, current.revoking):
                for topic, some in part.items():
                    for index in some:
                        before = owners.setdefault((topic, index), member_id)
                        assert before == member_id, f"J1 {where}: {before} and {member_id}"
                        assert state.owner_of(topic, index) == member_id

    def _check_epochs(self, state: GroupState) -> None:
        assert state.assignment_epoch <= state.epoch, "J4"
        for member_id, current in state.current.items():
            assert current.epoch <= state.assignment_epoch, f"J4: {member_id}"
            assert member_id in state.members

    def _check_beliefs(self) -> None:
        owners: dict[tuple[UUID, int], str] = {}
        for client in self.clients:
            for topic, some in client.owned.items():
                for index in some:
                    before = owners.setdefault((topic, index), client.member_id)
                    assert before == client.member_id, f"J2: {before} and {client.member_id}"

    def _check_target(self, state: GroupState) -> None:
        if state.state in (ConsumerGroupState.EMPTY, ConsumerGroupState.ASSIGNING):
            return
        if not self.world.topics.seen().is_same(self.world.group._seen):
            return  # the next heartbeat looks
        found: dict[tuple[UUID, int], str] = {}
        for member_id, target in state.targets.items():
            for topic, some in target.items():
                for index in some:
                    before = found.setdefault((topic, index), member_id)
                    assert before == member_id, f"J5: {before} and {member_id}"
        seen = self.world.topics.seen()
        counts = seen.partition_counts(state.topics())
        if seen.hash_of(state.topics()) == state.metadata_hash:
            wanted = {(topic, index) for topic, count in counts.items() for index in range(count)}
            assert found.keys() == wanted, "J5"
        subscriptions = {state.topics_of(member) for member in state.members.values()}
        if len(subscriptions) == 1:
            sizes = [sum(map(len, state.target_of(each).values())) for each in state.members]
            assert max(sizes) - min(sizes) <= 1, f"J6: {sizes}"

    # --- the end ---

    def _come_to_rest(self) -> None:
        self._release()
        world = self.world
        alive = [each for each in self.clients if not each.is_gone]
        for _ in range(2 * len(alive) + 14):
            for client in [each for each in self.clients if not each.is_gone]:
                if client.asking is not None and not client.asking[0].waits:
                    (answer, sent_ms), client.asking = client.asking, None
                    self._take(client, answer.got, sent_ms)
                if not client.is_gone:
                    self._send(client)
                    world.work_beside()
                    asking = client.asking
                    assert asking is not None
                    client.asking = None
                    self._take(client, asking[0].got, asking[1])
                self._check()
            world.pass_ms(5_000)
            self._be_careful()
        left = [each for each in self.clients if not each.is_gone]
        if not left:
            return
        state = world.group._state
        assert state.state is ConsumerGroupState.STABLE, f"J3: {state.state}"
        for client in left:
            assert client.owned == _without_none(state.target_of(client.member_id)), "J3"
            current = state.current_of(client.member_id)
            assert partitions_of(current.assigned) == client.owned, "J3"


def _without_none(target: Mapping[UUID, frozenset[int]]) -> dict[UUID, frozenset[int]]:
    return {topic: some for topic, some in target.items() if some}


def _plain(owned: Mapping[UUID, frozenset[int]]) -> dict[str, list[int]]:
    return {str(topic)[-4:]: sorted(some) for topic, some in owned.items()}
