"""Consumers of both protocols, played against one group by a seed while it changes its kind.

They join, leave, die, and come back with the other protocol, one after the other as in a rolling
upgrade, and back. Answers are lost or come late, requests come twice, topics grow, writes are
refused, followers are late, and coordinators fail over, also to a log that lacks what no client has
been answered. After each act the rules are checked; at the end all faults stop.

    J1  no partition is assigned to two members, in no prefix of the log
    J2  no two consumers believe that they own a partition, whatever their protocols
    J3  the group comes to rest, and each partition that is subscribed to has one reader
    J7  no commit is accepted from a consumer that does not own the partition
    J8  a load of the log gives the state; no prefix of it has groups of both kinds
    J9  no change costs a member that does all in time its place
"""

from __future__ import annotations

import random
from uuid import UUID

from kbroker.coordinator.consumer_group.group import ConsumerGroup
from kbroker.coordinator.consumer_group.state import GroupState
from kbroker.coordinator.consumer_group.states import ConsumerGroupState
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.messages import CommitAsked
from kbroker.coordinator.group.states import GroupState as ClassicState
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.migrating import GROUP, MigratingWorld
from tests.unit.coordinator.consumer_group.migrating_clients import (
    Consumer,
    NewConsumer,
    OldConsumer,
)
from tests.unit.coordinator.consumer_group.world import Records, topic_of

TOPICS = ("t", "u")
PARTITIONS_MAX = 6
CONSUMERS_MAX = 5
POLICIES = ("bidirectional",) * 6 + ("upgrade", "downgrade", "disabled")
LOSES = 0.1
ROUNDS = 60


class Walk:
    """One run by one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        policy = self.dice.choice(POLICIES)
        self.world = MigratingWorld(f"group.consumer.migration.policy={policy}")
        self.world.log.on_append = self._appended
        self.cooperative = self.dice.random() < 0.5
        self.up = self.dice.random() < 0.5
        self.consumers: list[Consumer] = []
        self.made = 0
        self.history: list[str] = []
        self.kinds = [""]
        for name in TOPICS:
            self.world.create(topic_of(name, self.dice.randint(1, PARTITIONS_MAX)))

    @property
    def changes(self) -> tuple[int, int]:
        """How often the group with members has changed its kind: up and down."""
        pairs = list(zip(self.kinds, self.kinds[1:], strict=False))
        return pairs.count(("classic", "consumer")), pairs.count(("consumer", "classic"))

    def run(self, acts: int) -> None:
        for _ in range(acts):
            self._act()
            self._check()
        self._come_to_rest()

    def _act(self) -> None:
        acts = {
            self._move: 100,
            self._join: 8,
            self._switch: 6,
            self._leave: 2,
            self._die: 1,
            self._turn: 1,
            self._grow: 2,
            self._pass: 16,
            self._hold: 4,
            self._release: 12,
            self._refuse: 2,
            self._fail_over: 2,
            self._beside: 10,
            self._commit: 6,
        }
        (act,) = self.dice.choices(list(acts), list(acts.values()))
        act()

    def _note(self, words: str) -> None:
        self.history.append(words)

    @property
    def alive(self) -> list[Consumer]:
        return [each for each in self.consumers if not each.is_gone]

    def _one(self) -> Consumer | None:
        return self.dice.choice(self.alive) if self.alive else None

    # --- acts ---

    def _move(self) -> None:
        consumer = self._one()
        if consumer is not None:
            consumer.act(self.world, self.dice, loses=LOSES)
            self._note(consumer.brief)

    def _join(self) -> None:
        if len(self.alive) >= CONSUMERS_MAX:
            return
        instance_id = f"i{self.dice.randint(1, 3)}" if self.dice.random() < 0.3 else None
        if instance_id is not None and any(each.instance_id == instance_id for each in self.alive):
            return
        topics = tuple(sorted(self.dice.sample(TOPICS, self.dice.randint(1, 2))))
        self._made(topics, instance_id, new=self.up == (self.dice.random() < 0.9))

    def _made(self, topics: tuple[str, ...], instance_id: str | None, *, new: bool) -> None:
        self.made += 1
        name, now_ms = f"m{self.made}", self.world.clock.monotonic_ms()
        consumer: Consumer
        if new:
            consumer = NewConsumer(name, topics, instance_id, sent_ms=now_ms)
        else:
            consumer = OldConsumer(
                name, topics, instance_id, sent_ms=now_ms, cooperative=self.cooperative
            )
        self.consumers.append(consumer)
        self._note(f"{consumer.name} is there")
        consumer.act(self.world, self.dice, loses=LOSES)

    def _switch(self) -> None:
        """A consumer comes back with the other protocol."""
        others = [each for each in self.alive if isinstance(each, OldConsumer) is self.up]
        if not others:
            self._turn()
            return
        consumer = self.dice.choice(others)
        self._note(f"{consumer.name} changes its protocol")
        if self.dice.random() < 0.85:
            consumer.leave(self.world, for_now=True)
        else:
            consumer.give_up()
            consumer.is_gone = True
        self._made(consumer.topics, consumer.instance_id, new=self.up)

    def _leave(self) -> None:
        consumer = self._one()
        if consumer is not None:
            self._note(f"{consumer.name} leaves")
            consumer.leave(self.world, for_now=self.dice.random() < 0.3)

    def _die(self) -> None:
        consumer = self._one()
        if consumer is not None:
            self._note(f"{consumer.name} dies")
            consumer.give_up()
            consumer.is_gone = True

    def _turn(self) -> None:
        self.up = not self.up

    def _grow(self) -> None:
        topic = self.world.image.topics[self.dice.choice(TOPICS)]
        if len(topic.partitions) < PARTITIONS_MAX:
            number = topic.topic_id.int >> 64
            self.world.create(topic_of(topic.name, len(topic.partitions) + 1, number))
            self._note(f"{topic.name} grows")

    def _pass(self) -> None:
        self.world.pass_ms(self.dice.choice([100, 1_000, 5_000, 20_000]), 500)
        self._be_careful()

    def _be_careful(self) -> None:
        now_ms = self.world.clock.monotonic_ms()
        for consumer in self.alive:
            consumer.be_careful(now_ms, self.world)

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
        for consumer in self.consumers:
            consumer.is_sure = False
        self.world.fail_over(kept)
        log.release(ErrorCode.NOT_COORDINATOR)
        log.holds, log.refuses = False, ErrorCode.NONE
        self.world.jobs.clear()

    def _beside(self) -> None:
        self.world.work_beside()

    def _commit(self) -> None:
        consumer = self._one()
        group = self.world.group
        if consumer is None or not isinstance(group, ConsumerGroup):
            return
        named = sorted(consumer.owns(self.world))
        if isinstance(consumer, NewConsumer):
            member_id, epoch = consumer.name, consumer.epoch
        else:
            assert isinstance(consumer, OldConsumer)
            member_id, epoch = consumer.member_id, consumer.generation
        if not named or epoch < 1:
            return
        asked = CommitAsked(GROUP, member_id, None, epoch, lambda: named, 9)
        if not self.world.coordinator.admit_commit(asked).code:
            for topic, index in named:
                owner = group._state.owner_of(topic, index)
                assert owner in (None, member_id), f"J7: {owner} owns {topic}-{index}"

    # --- the rules ---

    def _appended(self, _: Records) -> None:
        state = self.world.loaded().state
        if state is not None:
            self._check_owners(state, "in the log")

    def _check(self) -> None:
        group = self.world.group
        if isinstance(group, ConsumerGroup) and group.exists:
            self._check_owners(group._state, "in memory")
            if not group._unwritten:
                state = self.world.loaded().state
                assert state is not None, "J8"
                assert group._state.values() == state.values(), "J8"
        kind = _kind(group)
        if kind and kind != self.kinds[-1]:
            self.kinds.append(kind)
            self._note(f"it is a {kind} group")
        self._check_beliefs()
        assert self.world.consumers._around.failures.count == 0
        assert self.world.coordinator.failures.count == 0

    def _check_owners(self, state: GroupState, where: str) -> None:
        owners: dict[tuple[UUID, int], str] = {}
        for member_id, current in state.current.items():
            assert current.epoch <= state.assignment_epoch <= state.epoch, f"J4 {where}"
            for part in (current.assigned, current.revoking):
                for topic, some in part.items():
                    for index in some:
                        before = owners.setdefault((topic, index), member_id)
                        assert before == member_id, f"J1 {where}: {before} and {member_id}"

    def _check_beliefs(self) -> None:
        owners: dict[tuple[UUID, int], str] = {}
        for consumer in self.alive:
            for key in consumer.owns(self.world):
                before = owners.setdefault(key, consumer.name)
                assert before == consumer.name, f"J2: {before} and {consumer.name} at {key[1]}"

    # --- the end ---

    def _come_to_rest(self) -> None:
        self._release()
        for _ in range(ROUNDS):
            for consumer in self.alive:
                for _ in range(3):
                    consumer.act(self.world, self.dice, loses=0)
                    self.world.work_beside()
                    self._check()
            self.world.pass_ms(5_000, 500)
            self._be_careful()
            if self._is_at_rest():
                return
        left = [each.brief for each in self.alive]
        raise AssertionError(f"J3: {_kind(self.world.group)}: {left}")

    def _is_at_rest(self) -> bool:
        if not all(each.rests(self.world) for each in self.alive):
            return False
        group = self.world.group
        if self.alive:
            if isinstance(group, Group) and group.state is not ClassicState.STABLE:
                return False
            if isinstance(group, ConsumerGroup) and group.state is not ConsumerGroupState.STABLE:
                return False
        read = {key for each in self.alive for key in each.owns(self.world)}
        return read == {
            (topic.topic_id, index)
            for topic in self.world.image.topics.values()
            for index in range(len(topic.partitions))
            if any(topic.name in each.topics for each in self.alive)
        }


def _kind(group: object) -> str:
    if isinstance(group, ConsumerGroup) and group.member_count:
        return "consumer"
    if isinstance(group, Group) and group.member_count:
        return "classic"
    return ""
